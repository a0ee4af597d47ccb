#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What takes long: streams far larger than all memory there is, and random
# operations for minutes.

suite=soak
limit=300
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

iv=00112233445566778899aabbccddeeff

setup() {
	local disk
	disk=$(wait_disk "$(pci_of csd0)") || return
	noise $((512 * MiB)) 21 | dd of="$disk" bs=1M iflag=fullblock conv=fsync status=none || return
	noise 32 22 >"$tmp/key"
	key=$(od -An -v -tx1 "$tmp/key" | tr -d ' \n')
	modprobe csd && csdctl drive bind --all --use-pmr && csdctl mesh create
}

it "512 MiB through windows of 16 MiB over three drives" t_stream
t_stream() {
	csdctl pipeline run checksum@csd0,encrypt@csd1,checksum@csd2 --from csd0 --length 512MiB --window 16MiB \
		--key-file "$tmp/key" --iv $iv --to - 2>"$tmp/err" | openssl dgst -sha256 -r >"$tmp/sum"
	noise $((512 * MiB)) 21 | openssl enc -aes-256-ctr -K "$key" -iv $iv | openssl dgst -sha256 -r >"$tmp/want"
	eq "$(cat "$tmp/sum")" "$(cat "$tmp/want")" "SHA-256 of the result: $(cat "$tmp/err")"
}

it "512 MiB from drive to drive" t_copy
t_copy() {
	done_ok csdctl pipeline run encrypt@csd1 --from csd0 --length 512MiB --key-file "$tmp/key" --iv $iv --to csd2:0 --force
	csdctl pipeline run decrypt --from csd2 --length 512MiB --key-file "$tmp/key" --iv $iv --to - 2>"$tmp/err" | openssl dgst -sha256 -r >"$tmp/sum"
	noise $((512 * MiB)) 21 | openssl dgst -sha256 -r >"$tmp/want"
	eq "$(cat "$tmp/sum")" "$(cat "$tmp/want")" "SHA-256 of what came back: $(cat "$tmp/err")"
}

it "a hundred meshes of random shape, each with pings on every ring" t_meshes
t_meshes() {
	local i
	RANDOM=1
	for ((i = 0; i < 100; i++)); do
		new_mesh --entries $((4 << RANDOM % 8)) --entry-size $((64 << RANDOM % 4)) --memory "$([ $((RANDOM % 2)) = 0 ] && echo cmb || echo pmr)"
		eq "$(j '[.pairs[] | select(.answered == 2)] | length' msg ping --from all --count 2)" 6 "pairs that answered in round $i"
	done
}

it "a hundred pipelines of random range, chunk, window and placement" t_pipelines
t_pipelines() {
	local i offset length
	RANDOM=2
	noise $((8 * MiB)) 21 >"$tmp/data"
	new_mesh
	for ((i = 0; i < 100; i++)); do
		offset=$((RANDOM * RANDOM % (4 * MiB)))
		length=$((RANDOM * RANDOM % (3 * MiB >> RANDOM % 12) + RANDOM % 3))
		done_ok csdctl pipeline run "checksum@csd$((RANDOM % 3)),encrypt@csd$((RANDOM % 3)),checksum@csd$((RANDOM % 3))" --from csd0 \
			--offset $offset --length $length --chunk $(((RANDOM % 64 + 1) * 4))KiB --window $(((RANDOM % 64 + 16) * 4))KiB \
			--key-file "$tmp/key" --iv $iv --to "$tmp/out"
		tail -c +$((offset + 1)) "$tmp/data" | head -c $length | openssl enc -aes-256-ctr -K "$key" -iv $iv >"$tmp/want"
		same "$tmp/out" "$tmp/want" "round $i: $length bytes from $offset"
	done
}

it "fifty times cancelled at a random moment, with all memory given back" t_cancel
t_cancel() {
	local i before
	RANDOM=3
	new_mesh
	before=$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)
	for ((i = 0; i < 50; i++)); do
		csdctl pipeline run checksum@csd0,checksum@csd1,checksum@csd2 --from csd0 --length 512MiB --to - 2>/dev/null | head -c $((RANDOM * 8)) >/dev/null
	done
	eventually 20 running 0
	eq "$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)" "$before" "memory in use"
}

it "a minute of drives that come and go under pipelines and messages" t_churn
t_churn() {
	local i pci worker workers=() end=$((SECONDS + 60))
	RANDOM=4
	touch "$tmp/go"
	for i in 0 1; do
		(
			while [ -e "$tmp/go" ]; do
				csdctl mesh create
				csdctl msg ping --from all --timeout 2s
				csdctl pipeline run checksum,checksum,checksum --from csd$i --length 4MiB --to /dev/null
				[ $i = 0 ] && csdctl mesh destroy --force
			done
		) >/dev/null 2>&1 &
		workers+=($!)
	done
	while ((SECONDS < end)); do
		pci=$(pci_of csd$((RANDOM % 3)))
		[ "$(driver_of "$pci")" != csd ] || csdctl drive unbind --force "$pci" >/dev/null 2>&1
		wait_disk "$pci" >/dev/null 2>&1
		csdctl drive bind --use-pmr "$pci" >/dev/null 2>&1
	done
	rm "$tmp/go"
	for worker in "${workers[@]}"; do
		wait "$worker"
	done
	for i in 0 1 2; do
		pci=$(pci_of csd$i)
		[ "$(driver_of "$pci")" = csd ] || {
			wait_disk "$pci" >/dev/null
			done_ok csdctl drive bind --use-pmr "$pci"
		}
	done
	new_mesh
	eq "$(j '[.pairs[].answered] | add' msg ping --from all)" 24 "answers of all pairs"
}

run_tests
