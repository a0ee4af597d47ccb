#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Errors: the ABI's (abi_*.c), and what csdctl says when something makes no
# sense.  Boots with five drives bound.  Faults of drives are in the suite faults.

suite=errors
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

setup() {
	noise 32 1 >"$tmp/key"
	# A record of 64 KiB and one byte, its newline not counted, that begins at byte 10,000
	{
		head -c 9999 /dev/zero | tr '\0' a
		echo
		head -c 65537 /dev/zero | tr '\0' b
		echo
		echo end
	} >"$tmp/long"
	on_disk csd0 eval "dd if=$tmp/long of=\$disk bs=64K conv=fsync status=none"
}

# fault FILTER WANT ARGUMENT…: csdctl fails; its JSON error through jq is WANT
fault() {
	local filter=$1 want=$2
	shift 2
	csdctl -o json "$@" >"$tmp/out.json" 2>"$tmp/err.json" && fail "csdctl $* succeeded"
	eq "$(jq -r "$filter" "$tmp/err.json" 2>&1)" "$want" "csdctl $*: $(head -c 600 "$tmp/err.json")"
}

native abi_calls 120
native abi_values 120
native abi_pipeline 120

it "a record over 64 KiB fails with its offset, in words and in JSON" t_record
t_record() {
	new_mesh
	refused 1 '*filter@csd1*10,000*64 KiB*' pipeline run 'filter(where=col(1) = "end")@csd1' --from csd0 --length $((9999 + 1 + 65537 + 1 + 4)) --to "$tmp/out"
	[ ! -e "$tmp/out" ] || fail "there is a result"
	fault '[.error.errno, .error.stage, .error.drive, (.error.exit | tostring)] | join(" ")' "EMSGSIZE filter@csd1 csd1 1" \
		pipeline run 'filter(where=col(1) = "end")@csd1' --from csd0 --length 80000 --to "$tmp/out"
	eq "$(j '[.pipelines[]] | max_by(.pipeline) | [.state, .errno, .error_drive, (.error_stage | tostring), (.error_offset | tostring)] | join(" ")' pipeline list)" \
		"failed EMSGSIZE csd1 0 10000" "the pipeline in the list"
	# One byte less is fine
	done_ok csdctl pipeline run 'filter(where=col(1) = "end")@csd1' --from csd0 --offset 10001 --length $((65536 + 1 + 4)) --to "$tmp/out"
	eq "$(cat "$tmp/out")" end "result with a record of exactly 64 KiB"
}

it "a key of the wrong length is refused before anything starts" t_key
t_key() {
	local bytes
	new_mesh
	for bytes in 0 16 31 33 64; do
		noise $bytes 2 >"$tmp/bad"
		refused 1 "*$tmp/bad*$bytes*32*" pipeline run encrypt --from csd0 --length 16 --key-file "$tmp/bad" --to "$tmp/out"
	done
	refused 1 "*$tmp/none*" pipeline run encrypt --from csd0 --length 16 --key-file "$tmp/none" --to "$tmp/out"
	ends 2 csdctl pipeline run encrypt --from csd0 --length 16 --to "$tmp/out"
	eq "$(j '.pipelines | map(select(.state == "running")) | length' pipeline list)" 0 "pipelines that run"
}

it "what is wrong in a predicate is pointed at with a caret, exactly" t_caret
t_caret() {
	local predicate at line
	new_mesh
	while IFS='|' read -r at predicate; do
		ends 2 csdctl pipeline run filter --from csd0 --length 16 --where "$predicate" --to "$tmp/out"
		line=$(grep -F -A 1 -- "$predicate" "$tmp/stderr" | sed -n 2p)
		matches "$line" '*^*' "a line with a caret for '$predicate' in: $(cat "$tmp/stderr")"
		# The caret stands below the place: as far from the predicate's start as $at says
		line=${line%%^*}
		predicate=$(grep -F -- "$predicate" "$tmp/stderr" | head -n 1 | awk -v p="$predicate" '{ print index($0, p) - 1 }')
		eq $((${#line} - predicate)) "$at" "column of the caret"
	done <<'TABLE'
0|column(1) = "x"
4|col(x) = "x"
9|col(1) = x
7|col(1) ~ "x"
9|col(1) = "x
20|col(1) = "x" and not
13|col(1) = "x" nor col(2) = "y"
TABLE
}

it "stages that make no sense are refused by name, with exit status 2" t_stages
t_stages() {
	new_mesh
	refused 2 '*compress*' pipeline run compress --from csd0 --length 16 --to "$tmp/out"
	refused 2 '*level*' pipeline run 'checksum(level=3)' --from csd0 --length 16 --to "$tmp/out"
	ends 2 csdctl pipeline run '' --from csd0 --length 16 --to "$tmp/out"
	ends 2 csdctl pipeline run 'checksum,' --from csd0 --length 16 --to "$tmp/out"
	ends 2 csdctl pipeline run 'checksum(' --from csd0 --length 16 --to "$tmp/out"
	ends 2 csdctl pipeline run filter --from csd0 --length 16 --to "$tmp/out"
	refused 2 '*--where*' pipeline run checksum --where 'col(1) = "x"' --from csd0 --length 16 --to "$tmp/out"
	refused 1 '*csd9*' pipeline run checksum@csd9 --from csd0 --length 16 --to "$tmp/out"
}

it "sources beyond the namespace are refused with its size" t_source
t_source() {
	new_mesh
	refused 1 '*csd0*' pipeline run checksum --from csd0 --length 65MiB --to "$tmp/out"
	refused 1 '*csd0*' pipeline run checksum --from csd0 --offset 65MiB --to "$tmp/out"
	refused 1 '*csd0*' pipeline run checksum --from csd0 --namespace 2 --length 16 --to "$tmp/out"
}

it "a drive outside of the mesh is refused by name" t_outside
t_outside() {
	new_mesh csd0 csd1
	refused 1 '*csd2*mesh0*' pipeline run checksum@csd2 --from csd0 --length 16 --to "$tmp/out"
	refused 1 '*csd2*mesh0*' pipeline run checksum --from csd2 --length 16 --to "$tmp/out"
}

it "an error leaves a file under the result's name as it was" t_old_result
t_old_result() {
	new_mesh
	echo before >"$tmp/result"
	ends 1 csdctl pipeline run 'filter(where=col(1) = "end")' --from csd0 --length 80000 --to "$tmp/result"
	eq "$(cat "$tmp/result")" before "the file"
	eq "$(find "$tmp" -name '*csdctl-*')" "" "temporary files"
}

it "more buffers than the drives have memory for: refused, nothing is kept" t_memory
t_memory() {
	local before
	new_mesh --entries 4096 --entry-size 2KiB
	before=$(used csd0)
	fault '.error.errno' ENOSPC pipeline run checksum@csd0,checksum@csd1,checksum@csd0,checksum@csd1,checksum@csd0,checksum@csd1,checksum@csd0,checksum@csd1 \
		--from csd0 --length 1MiB --chunk 1MiB --window 16MiB --to "$tmp/out"
	eq "$(used csd0)" "$before" "memory in use"
	done_ok csdctl pipeline run checksum@csd1 --from csd0 --length 1MiB --chunk 64KiB --to "$tmp/out"
}

it "many pipelines at once: each runs or is refused with EBUSY or ENOSPC, and all memory comes back" t_many 120
t_many() {
	local i before runners=()
	new_mesh
	before=$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)
	for ((i = 0; i < 24; i++)); do
		csdctl -o json pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 70000 --to "$tmp/out.$i" 2>"$tmp/err.$i" >/dev/null &
		runners+=($!)
	done
	for ((i = 0; i < 24; i++)); do
		if wait "${runners[i]}"; then
			head -c 70000 "$tmp/long" >"$tmp/want"
			same "$tmp/out.$i" "$tmp/want" "result $i"
		else
			matches "$(jq -r .error.errno "$tmp/err.$i")" '@(EBUSY|ENOSPC)' "error of pipeline $i: $(cat "$tmp/err.$i")"
		fi
	done
	eq "$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)" "$before" "memory in use"
}

run_tests
