#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Events: what the monitor shows of meshes, pipelines and drives, real AENs of
# QEMU's drives included; the queue itself (queue.c); uevents.
# Boots with three drives bound.

suite=events
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

it "creating and destroying a mesh are events, numbered one after the other" t_mesh
t_mesh() {
	no_mesh
	work() {
		csdctl mesh create && csdctl mesh destroy
	}
	events_while done_ok work
	eq "$(jq -s -r '[.[].event] | join(" ")' "$tmp/events")" "mesh-created mesh-destroyed" "events"
	eq "$(jq -s '.[1].number - .[0].number' "$tmp/events")" 1 "difference of their numbers"
	eq "$(jq -s -r '[.[].mesh] | join(" ")' "$tmp/events")" "mesh0 mesh0" "their mesh"
	eq "$(jq -s -r '[.[].schema] | unique | join(" ")' "$tmp/events")" csd/1 "schema"
}

it "a pipeline that is done is an event with its number" t_done
t_done() {
	new_mesh
	events_while done_ok csdctl -o json pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 64KiB --to "$tmp/out"
	eq "$(jq -s -r '[.[].event] | join(" ")' "$tmp/events")" pipeline-done "events"
	eq "$(jq -r .pipeline "$tmp/events")" "$(j '[.pipelines[].pipeline] | max' pipeline list)" "its number"
	eq "$(jq -r .errno "$tmp/events")" null "its error"
}

it "a pipeline that fails is an event with number, drive and reason" t_failed
t_failed() {
	new_mesh
	# Zeroes, so one record without an end
	events_while ends 1 csdctl pipeline run 'filter(where=col(1) = "x")@csd1' --from csd0 --length 128KiB --to "$tmp/out"
	eq "$(jq -s -r '[.[].event] | join(" ")' "$tmp/events")" pipeline-failed "events"
	eq "$(jq -r '[.errno, .drive] | join(" ")' "$tmp/events")" "EMSGSIZE csd1" "reason and drive"
}

it "a pipeline that is cancelled is an event" t_cancelled
t_cancelled() {
	new_mesh
	work() {
		csdctl pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 64MiB --window 64KiB --chunk 4KiB --to - 2>/dev/null | head -c 100 >/dev/null
		sleep 0.5
	}
	events_while work
	eq "$(jq -s -r '[.[].event] | join(" ")' "$tmp/events")" pipeline-cancelled "events"
}

it "a SMART warning of a drive comes as a real AEN, each time anew, and the drive shows it" t_aen
t_aen() {
	# NVMe Base specification: critical warning bit 2 is reliability, type 1 (SMART), log page 2
	events_while eval "vmctl smart csd1 4; sleep 1"
	saw '.event == "aen" and .drive == "csd1" and .aen.type == 1 and .aen.log_page == 2'
	eq "$(j '.drives[0].critical_warning' drive show csd1)" 4 "critical warning of csd1"
	eq "$(j '.drives[0].critical_warning' drive show csd0)" 0 "critical warning of csd0"
	matches "$(csdctl drive list | grep csd1)" '*SMART*' "what drive list says"
	vmctl smart csd1 0
	# The log page was read, so the type is not masked any more
	events_while eval "vmctl smart csd1 1; sleep 1"
	saw '.event == "aen" and .drive == "csd1" and .aen.type == 1'
	holds "$(j '.drives[0].counters.aens' drive show csd1) >= 2" "AENs that csd1 counts"
	eq "$(j '.drives[0].counters.aens' drive show csd0)" 0 "AENs that csd0 counts"
	vmctl smart csd1 0
}

it "unbinding and binding a drive are events" t_bound
t_bound() {
	no_mesh
	work() {
		local pci
		pci=$(pci_of csd2)
		csdctl drive unbind csd2 && csdctl drive bind --use-pmr "$pci"
	}
	events_while done_ok work
	eq "$(jq -s -r '[.[] | .event + ":" + .drive] | join(" ")' "$tmp/events")" "drive-gone:csd2 drive-bound:csd2" "events"
}

it "a member that is unbound is a lost peer to its mesh" t_lost
t_lost() {
	local pci
	new_mesh
	pci=$(pci_of csd2)
	events_while done_ok csdctl drive unbind --force csd2
	saw '.event == "peer-lost" and .mesh == "mesh0" and .drive == "csd2"'
	saw '.event == "drive-gone" and .drive == "csd2"'
	eq "$(j '.meshes[0].members[] | select(.member == 3).state' mesh show)" lost "state of the member"
	done_ok csdctl mesh destroy
	wait_disk "$pci" >/dev/null
	done_ok csdctl drive bind --use-pmr "$pci"
}

it "monitor ends after a count, after a time, and with 130 on Ctrl-C" t_monitor
t_monitor() {
	local monitor
	new_mesh
	csdctl monitor --count 1 >"$tmp/said" &
	monitor=$!
	eventually 10 eval "ls -l /proc/$monitor/fd | grep -q /dev/csd"
	no_mesh
	wait $monitor || fail "monitor --count 1 ended with $?"
	eq "$(wc -l <"$tmp/said")" 1 "lines"
	matches "$(cat "$tmp/said")" '*mesh0*destroyed*' "the event in words"
	ends 0 csdctl monitor --timeout 300ms
	interruptible csdctl monitor >/dev/null
	monitor=$runner
	eventually 10 eval "ls -l /proc/$monitor/fd | grep -q /dev/csd"
	kill -INT $monitor
	wait $monitor
	eq $? 130 "status after Ctrl-C"
}

it "each event is a uevent of the csd device, with type and number" t_uevent
t_uevent() {
	local listener
	# busybox uevent: prints what the kernel broadcasts
	busybox uevent env >"$tmp/uevents" 2>/dev/null &
	listener=$!
	sleep 0.5
	new_mesh
	no_mesh
	sleep 0.5
	kill $listener
	grep -qi 'csd' "$tmp/uevents" || fail "no uevent: $(head -c 500 "$tmp/uevents" | tr '\0' ' ')"
	grep -qE 'CSD_EVENT=|CSD_TYPE=|EVENT=' "$tmp/uevents" || fail "no event type in: $(head -c 1000 "$tmp/uevents" | tr '\0' ' ')"
}

native queue 120

run_tests
