#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Pipelines: results byte for byte those of gawk, openssl and published vectors.
# Boots with the in-box driver, which reads and writes the drives' storage before
# csd has them:
#
#	csd0	UnicodeData.txt, then zeroes
#	csd1	noise
#	csd2	vectors at known places

suite=pipeline
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

iv=f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff

setup() {
	local disk hex at
	noise 32 99 >"$tmp/key"
	key=$(od -An -v -tx1 "$tmp/key" | tr -d ' \n')

	disk=$(wait_disk "$(pci_of csd0)") || return
	# The table is as long as there are no zeroes
	head -c $((8 * MiB)) "$disk" | tr -d '\0' >"$tmp/table"
	bytes=$(stat -c %s "$tmp/table")
	[ "$bytes" -gt 1000000 ] || { echo "no table on csd0"; return 1; }

	disk=$(wait_disk "$(pci_of csd1)") || return
	noise $((2 * MiB)) 5 >"$tmp/noise"
	dd if="$tmp/noise" of="$disk" bs=64K conv=fsync status=none || return

	# RFC 3720, B.4, and the catalogue's check value, each at a multiple of 4 KiB
	disk=$(wait_disk "$(pci_of csd2)") || return
	at=0
	for hex in \
		$(printf '00%.0s' {1..32}) \
		$(printf 'ff%.0s' {1..32}) \
		000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f \
		1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100 \
		01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000 \
		313233343536373839; do
		xxd -r -p <<<"$hex" >"$tmp/vector"
		dd if="$tmp/vector" of="$disk" bs=4096 seek=$at conv=notrunc,fsync status=none || return
		at=$((at + 1))
	done
	modprobe csd && csdctl drive bind --all --use-pmr && csdctl mesh create
}

# What openssl makes of a file
ctr() {
	openssl enc -aes-256-ctr -K "$key" -iv "${2:-$iv}" -in "$1"
}

# run STAGES ARGUMENT…: the result in $tmp/out
run() {
	local stages=$1
	shift
	rm -f "$tmp/out"
	done_ok csdctl pipeline run "$stages" --to "$tmp/out" "$@"
}

where='col(3) = "Lu"'
upper() {
	gawk -F';' '$3 == "Lu"' "$tmp/table"
}

it "the main job: filter,encrypt over the real table is awk and openssl, byte for byte" t_main
t_main() {
	run filter,encrypt --from csd0 --offset 0 --length "$bytes" --delimiter ';' --where "$where" \
		--key-file "$tmp/key" --iv $iv
	upper >"$tmp/rows"
	holds "$(wc -l <"$tmp/rows") > 1000" "rows that there should be"
	ctr "$tmp/rows" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result"
}

it "options in place of common ones, stages placed by hand, in each order of drives" t_placed 120
t_placed() {
	local a b
	upper >"$tmp/rows"
	ctr "$tmp/rows" >"$tmp/want"
	for a in csd0 csd1 csd2; do
		for b in csd0 csd1 csd2; do
			run "filter(where=$where,delimiter=\";\")@$a,encrypt(key-file=$tmp/key,iv=$iv)@$b" \
				--from csd0 --length "$bytes"
			same "$tmp/out" "$tmp/want" "filter@$a,encrypt@$b"
		done
	done
}

it "the report's counts are those of wc and awk" t_report
t_report() {
	local report
	upper >"$tmp/rows"
	report=$(j '.pipeline | [.state, .bytes_in, .bytes_out, .stages[0].records_in, .stages[0].records_out,
		.stages[0].function, .stages[1].function, .stages[1].bytes_out] | map(tostring) | join(" ")' \
		pipeline run filter,encrypt --from csd0 --length "$bytes" --delimiter ';' --where "$where" \
		--key-file "$tmp/key" --iv $iv --to "$tmp/out")
	eq "$report" "done $bytes $(stat -c %s "$tmp/rows") $(wc -l <"$tmp/table") $(wc -l <"$tmp/rows") filter encrypt $(stat -c %s "$tmp/rows")" "report"
}

it "predicates mean what the same conditions mean in awk" t_predicates 120
t_predicates() {
	local predicate program
	while IFS='@' read -r predicate program; do
		run filter --from csd0 --length "$bytes" --delimiter ';' --where "$predicate"
		gawk -F';' "$program" "$tmp/table" >"$tmp/want"
		[ -s "$tmp/want" ] || fail "a condition that nothing meets proves nothing: $program"
		same "$tmp/out" "$tmp/want" "$predicate"
	done <<'TABLE'
col(3) = "Lu" or col(3) = "Ll"@$3 == "Lu" || $3 == "Ll"
not col(3) = "Lo"@$3 != "Lo"
col(3) != "Lo" and col(4) = 0@$3 != "Lo" && $4 == "0"
col(2) contains "GREEK" and not (col(2) contains "LETTER" or col(3) = "So")@$2 ~ /GREEK/ && !($2 ~ /LETTER/ || $3 == "So")
col(2) prefix "LATIN SMALL"@index($2, "LATIN SMALL") == 1
col(4) > 200@$4 != "" && $4 + 0 > 200
col(9) = "1/2"@$9 == "1/2"
col(7) < 5 and col(3) = "Nd"@$7 != "" && $7 + 0 < 5 && $3 == "Nd"
col(1) < "0041"@$1 "" < "0041"
col(15) = ""@$15 == ""
col(0) contains ";;;;N;;;;;"@index($0, ";;;;N;;;;;")
TABLE
}

it "a filter that keeps nothing gives an empty result, and one that keeps all gives all" t_extremes
t_extremes() {
	run filter --from csd0 --length "$bytes" --delimiter ';' --where 'col(3) = "no such"'
	eq "$(stat -c %s "$tmp/out")" 0 "bytes of a result without records"
	run filter --from csd0 --length "$bytes" --delimiter ';' --where 'not col(99) = "x"'
	same "$tmp/out" "$tmp/table" "result with all records"
}

it "a last record that is cut gets a newline, as awk has it, at any cut" t_cut
t_cut() {
	local length
	for length in 1 4095 4096 4097 65537 100000; do
		run filter --from csd0 --length $length --delimiter ';' --where 'not col(1) = ""'
		head -c $length "$tmp/table" | gawk -F';' '$1 != ""' >"$tmp/want"
		same "$tmp/out" "$tmp/want" "the first $length bytes"
	done
}

it "records of a fixed size are told by their integers as awk tells them from xxd's digits" t_fixed
t_fixed() {
	# The last record has one byte: no room for an integer of two
	run filter --from csd1 --length 100001 --record-size 16 --where 'be(0,2) > 60000 or le(14,2) = 258'
	head -c 100001 "$tmp/noise" | xxd -p -c 16 | gawk '
		length($0) == 32 && (strtonum("0x" substr($0, 1, 4)) > 60000 || substr($0, 29) == "0201") ||
		length($0) < 32 && length($0) >= 4 && strtonum("0x" substr($0, 1, 4)) > 60000' | xxd -r -p >"$tmp/want"
	ne "$(stat -c %s "$tmp/want")" 0 "bytes that awk keeps"
	same "$tmp/out" "$tmp/want" "result"
	run 'filter(where=bytes(3,1) < "\x08",record-size=1KiB)@csd2' --from csd1 --length 64KiB --chunk 4KiB
	head -c 65536 "$tmp/noise" | xxd -p -c 1024 | gawk 'substr($0, 7, 2) < "08"' | xxd -r -p >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result by bytes"
}

it "encrypt is AES-256-CTR as openssl has it, for any offset and length" t_encrypt
t_encrypt() {
	local offset length
	while read -r offset length; do
		run encrypt --from csd1 --offset $offset --length $length --key-file "$tmp/key" --iv $iv
		tail -c +$((offset + 1)) "$tmp/noise" | head -c $length >"$tmp/plain"
		ctr "$tmp/plain" >"$tmp/want"
		same "$tmp/out" "$tmp/want" "$length bytes from $offset"
	done <<'RANGES'
0 1
0 16
1 15
511 2
512 512
4095 8194
65535 65537
777777 543210
0 2097152
RANGES
}

it "the counter carries over all 128 bits" t_carry
t_carry() {
	run encrypt --from csd1 --length 1000 --key-file "$tmp/key" --iv ffffffffffffffffffffffffffffffff
	head -c 1000 "$tmp/noise" >"$tmp/plain"
	ctr "$tmp/plain" ffffffffffffffffffffffffffffffff >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result"
}

it "encrypt then decrypt on another drive is identity" t_identity
t_identity() {
	run "encrypt(key-file=$tmp/key,iv=$iv)@csd1,decrypt(key-file=$tmp/key,iv=$iv)@csd2" --from csd1 --length 2MiB
	same "$tmp/out" "$tmp/noise" "result"
}

it "decrypt gives back what openssl encrypted" t_decrypt
t_decrypt() {
	# AES-CTR is its own inverse: what is on the drive is taken for cipher text
	run decrypt --from csd1 --length 100001 --key-file "$tmp/key" --iv $iv
	head -c 100001 "$tmp/noise" | openssl enc -d -aes-256-ctr -K "$key" -iv $iv >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result"
}

it "checksum is CRC-32C: the vectors of RFC 3720 and the check value" t_checksum
t_checksum() {
	local at=0 length crc
	while read -r length crc; do
		eq "$(j '[.pipeline | .stages[].crc32c] | map(tostring) | join(" ")' pipeline run checksum --from csd2 --offset $((at * 4096)) \
			--length "$length" --to "$tmp/out")" $((16#$crc)) "CRC of vector $at"
		eq "$(stat -c %s "$tmp/out")" "$length" "bytes that checksum passed on"
		at=$((at + 1))
	done <<'VECTORS'
32 8a9136aa
32 62a8ab43
32 46dd794e
32 113fdb5c
48 d9963a56
9 e3069283
VECTORS
}

it "checksum passes data on unchanged, and its CRC does not depend on the chunks" t_checksum_chunks
t_checksum_chunks() {
	local chunk crc first=
	for chunk in 4KiB 12KiB 64KiB 1MiB; do
		crc=$(j '.pipeline | .stages[0].crc32c' pipeline run checksum --from csd1 --offset 3 --length 1000003 --chunk $chunk --to "$tmp/out")
		tail -c +4 "$tmp/noise" | head -c 1000003 >"$tmp/want"
		same "$tmp/out" "$tmp/want" "chunks of $chunk"
		[ -z "$first" ] || eq "$crc" "$first" "CRC with chunks of $chunk"
		first=$crc
	done
}

it "from A to B and back to A, and through all drives twice" t_back
t_back() {
	local e="encrypt(key-file=$tmp/key,iv=$iv)" d="decrypt(key-file=$tmp/key,iv=$iv)"
	run "checksum@csd0,checksum@csd1,checksum@csd0" --from csd0 --length "$bytes"
	same "$tmp/out" "$tmp/table" "result of A, B, A"
	run "$e@csd0,checksum@csd1,$d@csd2,checksum@csd0,checksum@csd1,checksum@csd2" --from csd0 --length "$bytes"
	same "$tmp/out" "$tmp/table" "result of six stages over three drives"
	run "checksum@csd1,$e@csd1,$d@csd1,filter(where=col(3) = \"Lu\",delimiter=\";\")@csd1" --from csd0 --length "$bytes"
	upper >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result of four stages on one other drive"
}

it "eight stages, the most there can be; nine are refused" t_eight
t_eight() {
	run checksum@csd0,checksum@csd1,checksum@csd2,checksum@csd0,checksum@csd1,checksum@csd2,checksum@csd0,checksum@csd1 \
		--from csd1 --length 300001
	head -c 300001 "$tmp/noise" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result"
	ends 2 csdctl pipeline run checksum,checksum,checksum,checksum,checksum,checksum,checksum,checksum,checksum \
		--from csd1 --length 1 --to "$tmp/out"
}

it "stages without a drive are placed by the first drive, and plan says the same as run" t_auto
t_auto() {
	local planned
	planned=$(j '.stages // .pipeline.stages | [.[] | .function + "@" + .drive] | join(",")' pipeline plan checksum,checksum,checksum --from csd1 --length 4KiB)
	matches "$planned" 'checksum@csd?,checksum@csd?,checksum@csd?' "plan"
	eq "$(j '.pipeline | [.stages[] | .function + "@" + .drive] | join(",")' pipeline run checksum,checksum,checksum \
		--from csd1 --length 4KiB --to "$tmp/out")" "$planned" "where the stages ran"
	eq "$(j '[.pipelines[] | select(.state == "running")] | length' pipeline list)" 0 "pipelines that run"
}

it "no bytes at all: an empty result, at the start and at the very end of a namespace" t_empty
t_empty() {
	run encrypt --from csd1 --offset 5 --length 0 --key-file "$tmp/key" --iv $iv
	eq "$(stat -c %s "$tmp/out")" 0 "bytes of the result"
	run checksum@csd0,checksum@csd2 --from csd1 --offset 256MiB --length 0
	eq "$(stat -c %s "$tmp/out")" 0 "bytes of the result"
	eq "$(j '.pipeline | .stages[0].crc32c' pipeline run checksum --from csd1 --length 0 --to "$tmp/out")" 0 "CRC of nothing"
}

it "the last bytes of a namespace can be read, and not one more" t_end
t_end() {
	run checksum --from csd1 --offset $((256 * MiB - 3)) --length 3
	head -c 3 /dev/zero >"$tmp/want"
	same "$tmp/out" "$tmp/want" "the last 3 bytes"
	ends 1 csdctl pipeline run checksum --from csd1 --offset $((256 * MiB - 3)) --length 4 --to "$tmp/out"
	ends 1 csdctl pipeline run checksum --from csd1 --offset 1GiB --length 1 --to "$tmp/out"
}

it "every chunk and window size gives the same" t_sizes 120
t_sizes() {
	local chunk window
	upper >"$tmp/rows"
	ctr "$tmp/rows" >"$tmp/want"
	for chunk in 4KiB 8KiB 60KiB 256KiB 1MiB; do
		for window in 64KiB 1MiB 16MiB; do
			run filter@csd1,encrypt@csd2 --from csd0 --length "$bytes" --delimiter ';' --where "$where" \
				--key-file "$tmp/key" --iv $iv --chunk $chunk --window $window
			same "$tmp/out" "$tmp/want" "chunks of $chunk, window of $window"
		done
	done
}

it "64 MiB go through windows of 64 KiB, and the drive's memory is given back" t_stream 240
t_stream() {
	local before
	before=$(used csd0)
	csdctl pipeline run checksum@csd1,encrypt@csd2 --from csd1 --length 64MiB --window 64KiB \
		--key-file "$tmp/key" --iv $iv --to - 2>"$tmp/err" | openssl dgst -sha256 -r >"$tmp/sum"
	{
		cat "$tmp/noise"
		head -c $((62 * MiB)) /dev/zero
	} | openssl enc -aes-256-ctr -K "$key" -iv $iv | openssl dgst -sha256 -r >"$tmp/sum.want"
	eq "$(cat "$tmp/sum")" "$(cat "$tmp/sum.want")" "SHA-256 of the result"
	eq "$(used csd0)" "$before" "memory in use"
}

it "a reader slower than the deadline is waited for" t_slow 120
t_slow() {
	csdctl pipeline run checksum@csd0,checksum@csd1 --from csd1 --length 2MiB --window 64KiB --chunk 16KiB --deadline 2s --to - 2>"$tmp/err" | {
		dd bs=1000 count=100 iflag=fullblock status=none
		sleep 7
		cat
	} >"$tmp/out"
	same "$tmp/out" "$tmp/noise" "result"
}

it "a pipeline whose reader goes away is cancelled" t_reader_gone
t_reader_gone() {
	csdctl pipeline run checksum@csd0,checksum@csd1 --from csd1 --length 256MiB --window 64KiB --to - 2>/dev/null | head -c 1000 >"$tmp/out"
	eventually 10 eval '[ "$(csdctl -o json pipeline list | jq "[.pipelines[] | select(.state == \"running\")] | length")" = 0 ]'
	head -c 1000 "$tmp/noise" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "what it had read"
}

it "two pipelines at once, one against the other's direction" t_two
t_two() {
	local other
	upper >"$tmp/rows"
	ctr "$tmp/rows" >"$tmp/want"
	csdctl pipeline run checksum@csd2,checksum@csd1,checksum@csd0 --from csd1 --length 2MiB --chunk 16KiB --to "$tmp/other" 2>"$tmp/other.err" &
	other=$!
	run filter@csd1,encrypt@csd2 --from csd0 --length "$bytes" --delimiter ';' --where "$where" \
		--key-file "$tmp/key" --iv $iv --chunk 16KiB
	wait $other || fail "the other pipeline: $(cat "$tmp/other.err")"
	same "$tmp/out" "$tmp/want" "result of one"
	same "$tmp/other" "$tmp/noise" "result of the other"
}

it "a running pipeline is listed and can be cancelled by its number, without a reader" t_cancel
t_cancel() {
	local runner number
	mkfifo "$tmp/pipe"
	csdctl pipeline run checksum@csd0,checksum@csd1 --from csd1 --length 256MiB --window 64KiB --to - >"$tmp/pipe" 2>"$tmp/err" &
	runner=$!
	# Opened, and read by nobody
	exec 5<"$tmp/pipe"
	eventually 10 eval '[ "$(csdctl -o json pipeline list | jq "[.pipelines[] | select(.state == \"running\")] | length")" = 1 ]'
	number=$(j '.pipelines[] | select(.state == "running").pipeline' pipeline list)
	done_ok csdctl pipeline cancel "$number"
	# What was in the pipe must be read for csdctl to see its end
	cat <&5 >/dev/null
	wait $runner
	eq $? 1 "status of the cancelled csdctl"
	matches "$(cat "$tmp/err")" '*cancelled*' "what it says"
	eq "$(j ".pipelines[] | select(.pipeline == $number).state" pipeline list)" cancelled "its state"
	ends 1 csdctl pipeline cancel "$number"
	ends 1 csdctl pipeline cancel 999999
}

it "Ctrl-C cancels, ends with 130 and leaves no file under the result's name" t_interrupt
t_interrupt() {
	rm -f "$tmp/out"
	interruptible csdctl pipeline run checksum@csd0,checksum@csd1 --from csd1 --length 256MiB --chunk 4KiB --to "$tmp/out" 2>"$tmp/err"
	eventually 10 eval '[ "$(csdctl -o json pipeline list | jq "[.pipelines[] | select(.state == \"running\")] | length")" = 1 ]'
	kill -INT $runner
	wait $runner
	eq $? 130 "status"
	[ ! -e "$tmp/out" ] || fail "there is a result"
	eq "$(j '[.pipelines[]] | max_by(.pipeline).state' pipeline list)" cancelled "state of the last pipeline"
}

it "an IV that was drawn is reported and stands beside the file, and decrypts it" t_drawn
t_drawn() {
	local drawn
	run encrypt --from csd1 --length 10000 --key-file "$tmp/key"
	drawn=$(cat "$tmp/out.iv")
	eq "${#drawn}" 32 "hex digits of the IV"
	head -c 10000 "$tmp/noise" >"$tmp/plain"
	ctr "$tmp/plain" "$drawn" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "result"
	run encrypt --from csd1 --length 10000 --key-file "$tmp/key"
	ne "$(cat "$tmp/out.iv")" "$drawn" "IV of a second run"
}

it "the host's processor touched what is reported, and messages were few" t_touched
t_touched() {
	local report touched messages
	report=$(j '.pipeline | [.host_cpu_bytes, .messages, .elapsed_ns] | join(" ")' pipeline run checksum@csd0,checksum@csd1 \
		--from csd1 --length 2MiB --chunk 64KiB --to "$tmp/out")
	read -r touched messages _ <<<"$report"
	# Proxied drives: at least each byte once by each drive's worker
	holds "$touched >= 2 * 2097152" "bytes touched by the host's processor"
	# 32 chunks on each of two hops; a few to open and close
	holds "$messages >= 32 && $messages <= 600" "messages"
}

it "after all that the drives hold no more memory than their mesh takes" t_memory
t_memory() {
	local before
	before=$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)
	run checksum@csd0,checksum@csd1,checksum@csd2 --from csd0 --length 1MiB
	eq "$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)" "$before" "memory in use after one more"
	no_mesh
	new_mesh
	eq "$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)" "$before" "memory in use by a fresh mesh"
}

export NOISE=$tmp/noise
native stream

run_tests
