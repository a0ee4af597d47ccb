#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Drives that have a CMB and no PMR: all that a mesh and a pipeline need goes there.

suite=cmb
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

setup() {
	noise $((256 * KiB)) 3 >"$tmp/data"
	noise 32 4 >"$tmp/key"
	on_disk csd0 eval "dd if=$tmp/data of=\$disk bs=64K conv=fsync status=none"
}

it "the drives show a CMB of 16 MiB and no PMR" t_memory
t_memory() {
	eq "$(j '[.drives[].memory | [.cmb_bytes, .cmb_enabled, .pmr_bytes, .pmr_enabled] | map(tostring) | join(" ")] | unique | join("|")' drive list)" \
		"$((16 * MiB)) true 0 false" "memory"
}

it "a mesh goes to the CMBs by itself and all pairs answer" t_mesh
t_mesh() {
	new_mesh
	eq "$(j '[.meshes[0].members[] | select(.name != "host").memory] | unique | join(" ")' mesh show)" CMB "memory of the members"
	eq "$(j '[.pairs[] | select(.answered == 4)] | length' msg ping --from all)" 6 "pairs that answered"
	eq "$(j '[.pairs[] | select(.answered == 4)] | length' msg ping --from host)" 3 "drives that answered the host"
}

it "a mesh in PMRs is refused and the drives named" t_no_pmr
t_no_pmr() {
	no_mesh
	refused 1 '*csd0*' mesh create --memory pmr
}

it "a pipeline over two drives gives what openssl gives" t_pipeline
t_pipeline() {
	local iv=000102030405060708090a0b0c0d0eff
	new_mesh
	done_ok csdctl pipeline run checksum@csd0,encrypt@csd1 --from csd0 --length 256KiB \
		--key-file "$tmp/key" --iv $iv --to "$tmp/out"
	openssl enc -aes-256-ctr -K "$(od -An -v -tx1 "$tmp/key" | tr -d ' \n')" -iv $iv -in "$tmp/data" -out "$tmp/want"
	same "$tmp/out" "$tmp/want" "result"
}

it "rings larger than the CMB are refused and leave nothing" t_too_large
t_too_large() {
	local before
	no_mesh
	before=$(used csd0)
	refused 1 '*too small*' mesh create --entries 4096 --entry-size 4KiB
	eq "$(used csd0)" "$before" "memory in use"
	new_mesh
	done_ok csdctl msg ping
}

run_tests
