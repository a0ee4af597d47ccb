#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A mesh of sixteen drives, and of the largest number there can be in one word.

suite=mesh16
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

it "sixteen drives are bound, each under its own name, in PCI order" t_bound
t_bound() {
	eq "$(j '[.drives[].name] | join(" ")' drive list)" "$(echo csd{0..15})" "names"
	eq "$(j '[.drives[].pci] | . == sort' drive list)" true "PCI order"
}

it "their mesh has 240 peer rings and 32 host rings" t_rings
t_rings() {
	new_mesh
	eq "$(j '.meshes[0] | [.peer_rings, .host_rings, (.rings | length)] | join(" ")' mesh show)" "240 32 272" "rings"
	eq "$(j '[.meshes[0].rings[] | .from + ">" + .to] | unique | length' mesh show)" 272 "different pairs"
}

it "each ring costs at most its entries and 4 KiB, each drive at most 1 MiB of host memory" t_memory
t_memory() {
	new_mesh
	eq "$(j '[.meshes[0].rings[] | select(.bytes > 64 * 64 + 4096)] | length' mesh show)" 0 "rings that cost more"
	eq "$(j "[.drives[] | select(.memory.host_bytes > $MiB)] | length" drive list)" 0 "drives that cost more"
}

it "every one of the 240 ordered pairs answers, and the host's 16" t_ping 120
t_ping() {
	new_mesh
	eq "$(j '[.pairs[] | select(.answered == 1)] | length' msg ping --from all --count 1)" 240 "pairs that answered"
	eq "$(j '[.pairs[] | select(.answered == 1)] | length' msg ping --from host --count 1)" 16 "drives that answered the host"
	# A ping and its answer on each ring between drives; the relay itself goes by the host's rings
	eq "$(j '[.meshes[0].rings[] | select(.from != "host" and .to != "host") | .messages] | unique | join(" ")' mesh show)" 2 "messages on each peer ring"
	eq "$(j '[.meshes[0].rings[] | .faults + .stale] | add' mesh show)" 0 "faults and stale entries"
}

it "destroying it gives all memory of all sixteen back" t_destroy
t_destroy() {
	local before
	no_mesh
	before=$(j '[.drives[].memory.used_bytes] | add' drive list)
	new_mesh
	done_ok csdctl mesh destroy
	eq "$(j '[.drives[].memory.used_bytes] | add' drive list)" "$before" "memory in use"
}

run_tests
