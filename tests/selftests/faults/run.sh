#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Drives that vanish, are taken out in order, or do not answer any more.  What was
# under way ends with an error that names the drive, what is left goes on, and
# drives that come back are drives again.

suite=faults
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

setup() {
	local i disk
	for i in 0 1 2; do
		disk=$(wait_disk "$(pci_of csd$i)") || return
		noise $MiB $i >"$tmp/data$i"
		dd if="$tmp/data$i" of="$disk" bs=64K conv=fsync status=none || return
	done
	modprobe csd command_timeout_ms=2000 && csdctl drive bind --all --use-pmr
}

# All three drives bound, in one new mesh
whole() {
	local i pci
	no_mesh || fail "the meshes cannot be destroyed"
	for i in 0 1 2; do
		vmctl resume csd$i 2>/dev/null
		pci=$(vmctl address csd$i)
		if [ ! -e "/sys/bus/pci/devices/$pci" ]; then
			vmctl plug csd$i || fail "csd$i cannot be plugged in"
			eventually 20 test -e "/sys/bus/pci/devices/$pci"
		fi
		[ "$(driver_of "$pci")" = csd ] || {
			[ "$(driver_of "$pci")" != nvme ] || wait_disk "$pci" >/dev/null
			eventually 20 csdctl drive bind --use-pmr "$pci"
		}
	done
	eventually 20 eval '[ "$(csdctl -o json drive list | jq -r "[.drives[] | .name + .state] | join(\" \")")" = "csd0ready csd1ready csd2ready" ]'
	new_mesh
}

# The result of a short pipeline over two drives must be right
works() {
	done_ok csdctl pipeline run "checksum@$1,checksum@$2" --from "$1" --length 200000 --to "$tmp/out"
	head -c 200000 "$tmp/data${1#csd}" >"$tmp/want"
	same "$tmp/out" "$tmp/want" "a pipeline from $1 over $2"
}

# error FILTER: of csdctl that `held` started
error() {
	tail -n 1 "$tmp/held.err" | jq -r "$1"
}

it "a drive pulled out under a pipeline ends it with ENODEV, and the others go on" t_remove
t_remove() {
	whole
	held checksum@csd0,checksum@csd1,checksum@csd2 --from csd0 --length 128MiB
	events_while done_ok vmctl remove csd1
	release
	eq $? 1 "exit status of csdctl"
	eq "$(error .error.errno)" ENODEV "its reason"
	eq "$(error .error.drive)" csd1 "the drive it names"
	saw '.event == "peer-lost" and .drive == "csd1" and .mesh == "mesh0"'
	saw '.event == "drive-gone" and .drive == "csd1"'
	saw '.event == "pipeline-failed" and .errno == "ENODEV"'
	eq "$(j '[.drives[].name] | join(" ")' drive list)" "csd0 csd2" "drives that are left"
	# In the same mesh: messages and pipelines between those that are left
	eq "$(j '[.pairs[].answered] | join(" ")' msg ping --from csd0 --to csd2)" 4 "answers from csd2"
	ends 1 csdctl msg ping --from csd0 --to csd1 --timeout 2s
	works csd2 csd0
	done_ok csdctl mesh destroy
	new_mesh
	eq "$(j '.meshes[0].peer_rings' mesh show)" 2 "peer rings of the mesh of those that are left"
	works csd0 csd2
}

it "the same for the drive that reads, and for the last one" t_remove_ends 120
t_remove_ends() {
	local drive
	for drive in csd0 csd2; do
		whole
		held checksum@csd1,checksum@csd2 --from csd0 --length 128MiB
		done_ok vmctl remove $drive
		release
		eq $? 1 "exit status of csdctl"
		eq "$(error '[.error.errno, .error.drive] | join(" ")')" "ENODEV $drive" "its reason"
		eq "$(j '.drives | length' drive list)" 2 "drives that are left"
	done
}

it "a drive pulled out while every pair exchanges messages loses only its own" t_remove_messages 120
t_remove_messages() {
	local i pingers=()
	whole
	for i in 0 1 2; do
		csdctl -o json msg ping --from csd$i --to csd$(((i + 1) % 3)) --count 100000 --timeout 5s >"$tmp/ping$i" 2>&1 &
		pingers+=($!)
	done
	sleep 1
	done_ok vmctl remove csd2
	# csd1 > csd2 and csd2 > csd0 end; csd0 > csd1 goes on
	wait "${pingers[1]}" && fail "pings to the drive that is gone succeed"
	wait "${pingers[2]}" && fail "pings from the drive that is gone succeed"
	kill -0 "${pingers[0]}" || fail "pings between the others ended: $(cat "$tmp/ping0")"
	kill -TERM "${pingers[0]}"
	wait "${pingers[0]}"
	done_ok csdctl msg ping --from csd1 --to csd0 --count 20
}

it "an orderly ejection does the same" t_eject 120
t_eject() {
	whole
	held checksum@csd1,checksum@csd2 --from csd0 --length 128MiB
	done_ok vmctl eject csd1
	release
	eq $? 1 "exit status of csdctl"
	eq "$(error '[.error.errno, .error.drive] | join(" ")')" "ENODEV csd1" "its reason"
	works csd2 csd0
}

it "a drive in no mesh goes and comes back under its name" t_idle
t_idle() {
	local pci
	whole
	no_mesh
	pci=$(pci_of csd1)
	done_ok vmctl remove csd1
	eventually 10 eval '[ "$(csdctl -o json drive list | jq ".drives | length")" = 2 ]'
	whole
	eq "$(j '.drives[1].pci' drive list)" "$pci" "address of csd1"
	works csd1 csd0
}

it "a drive pulled out while it is the sink, and while it resets, ends in an error and no hang" t_remove_sink 120
t_remove_sink() {
	whole
	csdctl -o json pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 60MiB --chunk 16KiB --to csd1:64MiB --force >"$tmp/out" 2>"$tmp/held.err" &
	runner=$!
	eventually 10 running 1
	sleep 0.3
	done_ok vmctl remove csd1
	wait $runner && fail "the pipeline succeeded"
	eq "$(error '[.error.errno, .error.drive] | join(" ")')" "ENODEV csd1" "its reason"
	whole
	vmctl stall csd1
	csdctl -o json pipeline run checksum --from csd1 --length 1MiB --to "$tmp/out" >/dev/null 2>&1 &
	runner=$!
	# Timed out at 2 s, then aborted and reset
	sleep 3
	done_ok vmctl remove csd1
	wait $runner && fail "the pipeline succeeded"
	works csd0 csd2
}

it "a drive whose storage stalls: the deadline ends the pipeline and names the drive" t_deadline
t_deadline() {
	local begun=$SECONDS
	whole
	vmctl stall csd0
	csdctl -o json pipeline run checksum@csd1 --from csd0 --length 1MiB --deadline 1s --to "$tmp/out" >/dev/null 2>"$tmp/held.err"
	eq $? 4 "exit status"
	eq "$(error '[.error.errno, .error.drive] | join(" ")')" "ETIMEDOUT csd0" "the reason"
	holds "$SECONDS - $begun <= 20" "seconds that it took"
	vmctl resume csd0
	eventually 20 eval '[ "$(csdctl -o json drive show csd0 | jq -r ".drives[0].state")" = ready ]'
	works csd0 csd1
}

it "a sink that stalls: the deadline names it" t_deadline_sink
t_deadline_sink() {
	whole
	vmctl stall csd2
	csdctl -o json pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 8MiB --deadline 1s --to csd2:64MiB --force >/dev/null 2>"$tmp/held.err"
	ne $? 0 "exit status"
	vmctl resume csd2
	matches "$(error .error.errno)" '@(ETIMEDOUT|EIO)' "the reason: $(cat "$tmp/held.err")"
	eq "$(error .error.drive)" csd2 "the drive it names"
	eventually 20 eval '[ "$(csdctl -o json drive show csd2 | jq -r ".drives[0].state")" = ready ]'
	works csd2 csd1
}

it "a command that times out is aborted, the drive reset, and it comes back by itself with its rings" t_timeout 90
t_timeout() {
	local before
	whole
	before=$(j '.drives[0].counters | [.timeouts, .aborts, .resets] | map(tostring) | join(" ")' drive show csd1)
	vmctl stall csd1
	work() {
		csdctl -o json pipeline run checksum@csd0 --from csd1 --length 1MiB --to "$tmp/out" >/dev/null 2>"$tmp/held.err"
		eq $? 1 "exit status"
		vmctl resume csd1
		eventually 30 eval '[ "$(csdctl -o json drive show csd1 | jq -r ".drives[0].state")" = ready ]'
	}
	events_while work
	matches "$(error .error.errno)" '@(EIO|ETIMEDOUT)' "the reason: $(cat "$tmp/held.err")"
	eq "$(error .error.drive)" csd1 "the drive it names"
	read -r t a r <<<"$before"
	holds "$(j '.drives[0].counters.timeouts' drive show csd1) > $t" "timeouts counted"
	holds "$(j '.drives[0].counters.aborts' drive show csd1) > $a" "aborts counted"
	if [ "$(j '.drives[0].counters.resets' drive show csd1)" -gt "$r" ]; then
		saw '.event == "drive-reset" and .drive == "csd1" and .detail == 0'
	fi
	# The mesh outlives it
	eq "$(j '[.pairs[].answered] | add' msg ping --from all)" 24 "answers of all pairs"
	works csd1 csd0
	works csd0 csd1
}

it "a stalled drive can be unbound, and the others go on" t_unbind_stalled 90
t_unbind_stalled() {
	local pci
	whole
	pci=$(pci_of csd1)
	vmctl stall csd1
	csdctl -o json pipeline run checksum@csd0 --from csd1 --length 1MiB --to "$tmp/out" >/dev/null 2>"$tmp/held.err" &
	runner=$!
	eventually 10 running 1
	done_ok csdctl drive unbind --force csd1
	wait $runner && fail "the pipeline succeeded"
	eq "$(error '[.error.errno, .error.drive] | join(" ")')" "ENODEV csd1" "its reason"
	vmctl resume csd1
	works csd0 csd2
	wait_disk "$pci" >/dev/null || fail "nvme does not get it"
}

it "five times out and in again under load" t_five 180
t_five() {
	local i
	for i in 1 2 3 4 5; do
		whole
		held checksum@csd0,checksum@csd1,checksum@csd2 --from csd1 --length 128MiB --chunk 16KiB
		done_ok vmctl remove csd$((i % 3))
		release
		eq $? 1 "exit status of csdctl in round $i"
		eq "$(error '[.error.errno, .error.drive] | join(" ")')" "ENODEV csd$((i % 3))" "reason in round $i"
	done
	whole
	works csd0 csd1
	works csd1 csd2
}

run_tests
