#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Pipelines whose result goes to a drive's namespace: what is written, what is
# left alone, what is refused.  Read back by the in-box driver.
#
#	csd0	source: noise
#	csd1	sink: all 0xaa
#	csd2	sink with an ext4 file system

suite=sink
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

iv=000102030405060708090a0b0c0d0e0f

setup() {
	noise $((3 * MiB)) 11 >"$tmp/noise"
	noise 32 12 >"$tmp/key"
	key=$(od -An -v -tx1 "$tmp/key" | tr -d ' \n')
	head -c $((4 * MiB)) /dev/zero | tr '\0' '\252' >"$tmp/aa"
	on_disk csd0 eval "dd if=$tmp/noise of=\$disk bs=64K conv=fsync status=none" &&
		on_disk csd2 eval "mkfs.ext4 -q -F \$disk"
}

# Fills the first 4 MiB of csd1
fresh() {
	no_mesh || fail "meshes"
	on_disk csd1 eval "dd if=$tmp/aa of=\$disk bs=64K conv=fsync status=none" || fail "cannot fill csd1"
	new_mesh
}

# first BYTES of csd1 to $tmp/back
back() {
	no_mesh
	on_disk csd1 eval "head -c $1 \$disk >$tmp/back" || fail "cannot read csd1 back"
}

encrypted() {
	openssl enc -aes-256-ctr -K "$key" -iv $iv -in "$1"
}

it "a result of odd length is written whole, the rest of its last block zeroed, the next block left alone" t_odd
t_odd() {
	fresh
	eq "$(j '[.sink.kind, .sink.drive, (.sink.offset | tostring), (.sink.bytes | tostring)] | join(" ")' \
		pipeline run encrypt@csd1 --from csd0 --offset 7 --length 100001 --key-file "$tmp/key" --iv $iv --to csd1:64KiB --force)" \
		"namespace csd1 65536 100001" "report"
	back $((256 * KiB))
	tail -c +8 "$tmp/noise" | head -c 100001 >"$tmp/plain"
	{
		head -c 65536 "$tmp/aa"
		encrypted "$tmp/plain"
		# 100001 = 195 * 512 + 161
		head -c $((512 - 161)) /dev/zero
		head -c $((256 * KiB)) "$tmp/aa"
	} | head -c $((256 * KiB)) >"$tmp/want"
	same "$tmp/back" "$tmp/want" "the start of csd1"
}

it "results of many lengths, stages on either drive, and large ones" t_lengths 180
t_lengths() {
	local length stages
	for length in 1 511 512 513 4096 65536 1048577 3145728; do
		for stages in checksum@csd0,encrypt@csd1 encrypt@csd0,checksum@csd2; do
			[ $length -lt 100000 ] || [ $stages = checksum@csd0,encrypt@csd1 ] || continue
			fresh
			done_ok csdctl pipeline run $stages --from csd0 --length $length --key-file "$tmp/key" --iv $iv --to csd1:0 --force
			back $(((length + 1023) / 512 * 512))
			head -c $length "$tmp/noise" >"$tmp/plain"
			{
				encrypted "$tmp/plain"
				head -c $(((512 - length % 512) % 512)) /dev/zero
				head -c 1024 "$tmp/aa"
			} | head -c $(((length + 1023) / 512 * 512)) >"$tmp/want"
			same "$tmp/back" "$tmp/want" "$length bytes by $stages"
		done
	done
}

it "an empty result writes nothing" t_empty
t_empty() {
	fresh
	eq "$(j '.sink.bytes' pipeline run 'filter(where=col(1) = "no such record here")' --from csd0 --length 60000 --to csd1:0 --force)" 0 "bytes"
	back 4096
	head -c 4096 "$tmp/aa" >"$tmp/want"
	same "$tmp/back" "$tmp/want" "csd1"
}

it "the source drive can be the sink, beyond what is read" t_same
t_same() {
	new_mesh
	done_ok csdctl pipeline run encrypt@csd1 --from csd0 --length 1MiB --key-file "$tmp/key" --iv $iv --to csd0:8MiB --force
	done_ok csdctl pipeline run checksum --from csd0 --offset 8MiB --length 1MiB --to "$tmp/out"
	head -c $MiB "$tmp/noise" >"$tmp/plain"
	encrypted "$tmp/plain" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "what csd0 has at 8 MiB"
}

it "without --force nothing is written" t_force
t_force() {
	fresh
	refused 5 '*--force*' pipeline run checksum --from csd0 --length 4KiB --to csd1:0
	back 8192
	head -c 8192 "$tmp/aa" >"$tmp/want"
	same "$tmp/back" "$tmp/want" "csd1"
}

it "a namespace with a file system is refused even with --force, wherever the result would go, and stays whole" t_signature
t_signature() {
	local to
	new_mesh
	for to in csd2:0 csd2:1MiB csd2:32MiB; do
		refused 5 '*csd2*ext*' pipeline run checksum --from csd0 --length 4KiB --to $to --force
	done
	no_mesh
	on_disk csd2 eval "mount -t ext4 -o ro \$disk /mnt && umount /mnt" || fail "the file system is damaged"
}

it "an offset within a block, or beyond the end, is refused" t_offset
t_offset() {
	new_mesh
	refused 2 '*block*' pipeline run checksum --from csd0 --length 4KiB --to csd1:100 --force
	refused 1 '*beyond*' pipeline run checksum --from csd0 --length 4KiB --to csd1:64MiB --force
	ends 2 csdctl pipeline run checksum --from csd0 --length 4KiB --to csd1 --force
}

it "a namespace too small for the result: ENOSPC or ERANGE, the drives named, no hang" t_small
t_small() {
	new_mesh
	ends 1 csdctl -o json pipeline run checksum@csd1 --from csd0 --length 1MiB --to csd1:$((64 * MiB - 64 * KiB)) --force
	matches "$(jq -r '.error.errno' "$tmp/stderr")" '@(ENOSPC|ERANGE)' "errno"
	# A filter's result is shorter than its source: only at its end is it known to be too long
	ends 1 csdctl -o json pipeline run 'filter(where=not col(999) = "x")@csd1' --from csd0 --length 1MiB --to csd1:$((64 * MiB - 64 * KiB)) --force
	matches "$(jq -r '.error.errno' "$tmp/stderr")" '@(ENOSPC|ERANGE|EMSGSIZE)' "errno"
	done_ok csdctl pipeline run checksum@csd1 --from csd0 --length 64KiB --to csd1:$((64 * MiB - 64 * KiB)) --force
	done_ok csdctl pipeline run checksum --from csd1 --offset $((64 * MiB - 64 * KiB)) --length 64KiB --to "$tmp/out"
	head -c $((64 * KiB)) "$tmp/noise" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "the last 64 KiB of csd1"
}

it "a sink's counters count what was written" t_counters
t_counters() {
	local before
	new_mesh
	before=$(j '.drives[0].counters.bytes_written' drive show csd1)
	done_ok csdctl pipeline run checksum --from csd0 --length 1MiB --to csd1:0 --force
	eq "$(j '.drives[0].counters.bytes_written' drive show csd1)" $((before + MiB)) "bytes written to csd1"
}

run_tests
