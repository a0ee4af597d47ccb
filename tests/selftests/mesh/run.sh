#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Meshes: which rings there are, where, how much they take, who is in which.
# Boots with three drives bound.

suite=mesh
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

# rings_of: "peer host" counts by looking at the rings themselves
rings_of() {
	j '.meshes[0].rings | [([.[] | select(.from != "host" and .to != "host")] | length),
		([.[] | select(.from == "host" or .to == "host")] | length)] | join(" ")' mesh show
}

it "a mesh of 1, 2 and 3 drives has d(d-1) peer rings and 2d host rings" t_counts
t_counts() {
	local d drives
	for d in 1 2 3; do
		drives=(csd0 csd1 csd2)
		drives=("${drives[@]:0:d}")
		new_mesh "${drives[@]}"
		eq "$(j '.meshes[0] | [.peer_rings, .host_rings] | join(" ")' mesh show)" "$((d * (d - 1))) $((2 * d))" "counts for $d"
		eq "$(rings_of)" "$((d * (d - 1))) $((2 * d))" "rings for $d"
		eq "$(j '.meshes[0].members | length' mesh show)" $((d + 1)) "members for $d"
	done
}

it "without drives named it takes all that are in no mesh" t_all
t_all() {
	new_mesh
	eq "$(j '[.meshes[0].members[] | select(.name != "host").name] | join(" ")' mesh show)" "csd0 csd1 csd2" "members"
	eq "$(j '.meshes[0].members[] | select(.name == "host").member' mesh show)" 0 "the host's member id"
	eq "$(j '[.meshes[0].members[] | select(.name != "host").member] | join(" ")' mesh show)" "1 2 3" "the drives' member ids"
}

it "each ring lives in its receiver's PMR by default, and those to the host in host memory" t_where
t_where() {
	new_mesh
	eq "$(j '[.meshes[0].rings[] | select(.where != .to)] | length' mesh show)" 0 "rings elsewhere"
	eq "$(j '[.meshes[0].rings[] | select(.to != "host" and .memory != "PMR")] | length' mesh show)" 0 "peer rings that are not in a PMR"
	eq "$(j '[.meshes[0].rings[] | select(.to == "host" and .memory != "host")] | length' mesh show)" 0 "host rings elsewhere"
}

it "rings go to the CMB where that is asked for, and carry messages there" t_cmb
t_cmb() {
	new_mesh --memory cmb
	eq "$(j '[.meshes[0].rings[] | select(.to != "host" and .memory != "CMB")] | length' mesh show)" 0 "peer rings that are not in a CMB"
	eq "$(j '[.meshes[0].members[] | select(.name != "host").memory] | unique | join(" ")' mesh show)" CMB "memory of the members"
	done_ok csdctl msg ping --from all --count 2
	done_ok csdctl msg ping --from host --count 2
}

it "a new mesh is attached, clean and empty" t_clean
t_clean() {
	new_mesh
	eq "$(j '[.meshes[0].rings[] | .tail + .head + .messages + .message_bytes + .credit_writes + .stalls + .stale + .faults] | add' mesh show)" 0 "sum of all counters"
	eq "$(j '[.meshes[0].rings[].state] | unique | join(" ")' mesh show)" attached "states of the rings"
	eq "$(j '[.meshes[0].members[].state] | unique | join(" ")' mesh show)" attached "states of the members"
	eq "$(j '[.meshes[0].rings[] | select(.epoch == 0)] | length' mesh show)" 0 "rings without an epoch"
}

it "a ring costs at most its entries and 4 KiB, at every size of ring" t_cost 120
t_cost() {
	local shape n size
	for shape in '4 64' '64 64' '64 128' '256 256' '4096 64' '16 4096' '1024 1024'; do
		read -r n size <<<"$shape"
		new_mesh --entries "$n" --entry-size "$size"
		eq "$(j '.meshes[0] | [.entries, .entry_bytes] | join(" ")' mesh show)" "$n $size" "shape"
		eq "$(j "[.meshes[0].rings[] | select(.bytes > $n * $size + 4096 or .bytes < $n * $size)] | length" mesh show)" 0 "rings of $n x $size that take too much, or too little"
		# What members say they spend is what the rings in them take, whole pages at most more
		eq "$(j '.meshes[0] as $m | [$m.members[] | select(.name != "host") | .name as $who |
			select(.ring_bytes < ([$m.rings[] | select(.where == $who).bytes] | add) * 0.9 or
				.ring_bytes > ([$m.rings[] | select(.where == $who) | .bytes] | length) * ('$n' * '$size' + 4096))] | length' mesh show)" 0 \
			"members whose ring_bytes do not fit their rings"
		done_ok csdctl msg ping --from all --count 1
	done
}

it "the mesh takes drive memory when it is created and gives all of it back" t_accounting
t_accounting() {
	local before0 before1 i
	no_mesh
	before0=$(used csd0)
	before1=$(used csd1)
	for i in 1 2 3; do
		new_mesh --entries 256 --entry-size 256
		holds "$(used csd0) >= $before0 + 3 * 65536" "csd0's memory while there is a mesh"
		holds "$(used csd0) <= $before0 + 3 * (65536 + 4096) + 4096" "csd0's memory while there is a mesh"
		holds "$(j '.drives[0].memory.host_bytes' drive show csd0) <= $MiB" "host memory for csd0"
		done_ok csdctl mesh destroy
		eq "$(used csd0) $(used csd1)" "$before0 $before1" "memory afterwards"
	done
}

it "sizes that are no power of two or out of range are refused" t_sizes
t_sizes() {
	local bad
	no_mesh
	for bad in 0 1 2 3 5 8192 -1 x; do
		ends 2 csdctl mesh create --entries="$bad"
	done
	for bad in 0 32 63 65 8192 8KiB -64 x; do
		ends 2 csdctl mesh create --entry-size="$bad"
	done
	done_ok csdctl mesh create --entry-size 1KiB
	eq "$(j '.meshes[0].entry_bytes' mesh show)" 1024 "entry size 1KiB"
}

it "a drive is in one mesh at a time, and the refusal names it and its mesh" t_busy
t_busy() {
	no_mesh
	done_ok csdctl mesh create csd0 csd1
	refused 5 '*csd1*mesh0*' mesh create csd1 csd2
	csdctl -o json mesh create csd1 csd2 2>"$tmp/err"
	eq "$(jq -r '.error | [.drive, (.exit | tostring)] | join(" ")' "$tmp/err")" "csd1 5" "error as JSON"
	eq "$(j '.drives[0].mesh' drive show csd2)" null "mesh of csd2"
	refused 1 '*csd9*' mesh create csd9
}

it "two meshes at once have their own rings and do not see each other" t_two
t_two() {
	no_mesh
	done_ok csdctl mesh create csd0 csd1
	done_ok csdctl mesh create csd2
	eq "$(j '[.meshes[].name] | join(" ")' mesh show)" "mesh0 mesh1" "meshes"
	eq "$(j '[.drives[].mesh] | join(" ")' drive list)" "mesh0 mesh0 mesh1" "meshes of the drives"
	done_ok csdctl msg ping --mesh mesh0 --from csd0 --to csd1
	done_ok csdctl msg ping --mesh mesh1 --to csd2
	refused 1 '*csd2*mesh0*' msg ping --mesh mesh0 --to csd2
	# Which of two is meant must be said
	ends 2 csdctl msg ping
	ends 2 csdctl mesh destroy
	done_ok csdctl mesh destroy mesh0
	eq "$(j '[.meshes[].name] | join(" ")' mesh show)" mesh1 "meshes"
	done_ok csdctl msg ping --to csd2
	refused 1 '*mesh0*' mesh show mesh0
}

it "destroying a mesh takes its rings away and leaves the drives to others" t_destroy
t_destroy() {
	new_mesh
	done_ok csdctl mesh destroy
	eq "$(j '.meshes | length' mesh show)" 0 "meshes"
	eq "$(j '[.drives[].mesh] | unique | map(tostring) | join(" ")' drive list)" null "meshes of the drives"
	refused 1 '*no mesh*' msg ping
	done_ok csdctl mesh create csd2 csd0
	done_ok csdctl msg ping --from csd2 --to csd0
}

it "twenty meshes one after the other, each with a new epoch" t_epochs
t_epochs() {
	local i last=0 epoch
	for ((i = 0; i < 20; i++)); do
		new_mesh
		epoch=$(j '[.meshes[0].rings[].epoch] | min' mesh show)
		holds "$epoch > $last" "epoch in round $i"
		last=$(j '[.meshes[0].rings[].epoch] | max' mesh show)
	done
}

it "epochs go on from what the PMR remembers, also after the drives were unbound and the module was gone" t_epoch_kept
t_epoch_kept() {
	local before
	new_mesh
	before=$(j '[.meshes[0].rings[].epoch] | max' mesh show)
	no_mesh
	done_ok csdctl drive unbind --all
	done_ok rmmod csd
	done_ok modprobe csd
	done_ok csdctl drive bind --all
	new_mesh
	holds "$(j '[.meshes[0].rings[].epoch] | min' mesh show) > $before" "epoch after the module was loaded again"
}

it "the human output counts rings and says where they are" t_human
t_human() {
	no_mesh
	matches "$(csdctl mesh create)" 'mesh0: 3 drives, 6 peer rings of 64 x 64 B*PMR*, 6 host rings*' "what mesh create says"
	eq "$(csdctl mesh destroy)" "" "what mesh destroy says"
}

run_tests
