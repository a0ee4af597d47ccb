#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Drives unbound and the module unloaded at the worst moments.

suite=unload
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

setup() {
	# Which is to get the drives that are unbound
	modprobe nvme
}

whole() {
	lsmod | grep -q '^csd ' || done_ok modprobe csd
	[ "$(j '.drives | length' drive list)" = 3 ] || {
		local i pci
		for i in 0 1 2; do
			pci=$(pci_of csd$i)
			[ "$(driver_of "$pci")" = nvme ] && wait_disk "$pci" >/dev/null
		done
		done_ok csdctl drive bind --all --use-pmr
	}
	new_mesh
}

it "rmmod is EBUSY while somebody has the device open, and nothing is broken by it" t_busy
t_busy() {
	whole
	exec 5</dev/csd
	ends 1 rmmod csd
	matches "$(cat "$tmp/stderr")" '*in use*' "what rmmod says"
	done_ok csdctl msg ping --from all
	exec 5<&-
	no_mesh
	done_ok rmmod csd
	done_ok modprobe csd
}

it "rmmod is EBUSY while a pipeline's descriptor is open, even when the device is not" t_busy_pipeline
t_busy_pipeline() {
	whole
	held checksum@csd0,checksum@csd1 --from csd0 --length 256MiB
	ends 1 rmmod csd
	running 1 || fail "the pipeline does not run any more"
	kill -INT $runner
	release
	eq $? 130 "status of csdctl"
}

it "unbinding each drive of a running pipeline ends it with ENODEV and leaves the rest usable" t_unbind 120
t_unbind() {
	local drive
	for drive in csd0 csd1 csd2; do
		whole
		held checksum@csd1,checksum@csd2 --from csd0 --length 256MiB
		done_ok csdctl drive unbind --force $drive
		release
		eq $? 1 "status of csdctl"
		eq "$(tail -n 1 "$tmp/held.err" | jq -r '[.error.errno, .error.drive] | join(" ")')" "ENODEV $drive" "its reason"
		done_ok csdctl msg ping --from host --to "$(j '[.drives[].name] | .[0]' drive list)"
	done
}

it "unbinding all drives under three pipelines and messages" t_unbind_all 120
t_unbind_all() {
	local i workers=()
	whole
	for i in 0 1 2; do
		csdctl pipeline run "checksum@csd$i,checksum@csd$(((i + 1) % 3))" --from csd$i --length 256MiB --chunk 16KiB --to "$tmp/out$i" >"$tmp/said$i" 2>&1 &
		workers+=($!)
		csdctl msg ping --from csd$i --to csd$(((i + 1) % 3)) --count 1000000 >"$tmp/ping$i" 2>&1 &
		workers+=($!)
	done
	eventually 20 running 3
	sleep 0.5
	done_ok csdctl drive unbind --all --force
	for i in "${workers[@]}"; do
		wait "$i" && fail "a worker ended well: $(cat "$tmp"/said? "$tmp"/ping?)"
	done
	eq "$(j '.drives | length' drive list)" 0 "drives"
	eq "$(j '[.pipelines[] | select(.state == "running")] | length' pipeline list)" 0 "pipelines that run"
	no_mesh
	for i in 0 1 2; do
		wait_disk "$(pci_of csd$i)" >/dev/null || fail "csd$i is not back with nvme"
	done
}

it "sysfs unbind, as an administrator may do it, under a pipeline" t_sysfs
t_sysfs() {
	local pci
	whole
	pci=$(pci_of csd1)
	held checksum@csd0,checksum@csd1 --from csd0 --length 256MiB
	done_ok timeout 20 sh -c "echo $pci >/sys/bus/pci/drivers/csd/unbind"
	release
	eq $? 1 "status of csdctl"
	eq "$(driver_of "$pci")" "" "driver"
	done_ok csdctl drive bind --use-pmr "$pci"
	eq "$(j '.drives | length' drive list)" 3 "drives"
}

it "destroying a mesh under a pipeline: EBUSY without --force, cancelled with it" t_destroy
t_destroy() {
	whole
	held checksum@csd0,checksum@csd1 --from csd0 --length 256MiB
	refused 5 '*mesh0*' mesh destroy
	running 1 || fail "the pipeline does not run any more"
	done_ok csdctl mesh destroy --force
	release
	eq $? 1 "status of csdctl"
	eq "$(tail -n 1 "$tmp/held.err" | jq -r .error.errno)" ECANCELED "its reason"
}

it "csdctl killed by SIGKILL leaves no pipeline and no memory in use" t_kill
t_kill() {
	local before
	whole
	before=$(j '[.drives[].memory.used_bytes] | join(" ")' drive list)
	held checksum@csd0,checksum@csd1 --from csd0 --length 256MiB
	kill -KILL $runner
	release
	eventually 10 running 0
	eventually 10 eval "[ '$before' = \"\$(csdctl -o json drive list | jq -r '[.drives[].memory.used_bytes] | join(\" \")')\" ]"
}

it "the module goes with drives bound and a mesh made, if nobody has it open" t_rmmod_bound
t_rmmod_bound() {
	local i
	whole
	done_ok csdctl pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 1MiB --to "$tmp/out"
	done_ok rmmod csd
	for i in 0 1 2; do
		eq "$(driver_of "$(pci_of csd$i)")" "" "driver of csd$i"
	done
	[ ! -e /dev/csd ] || fail "/dev/csd is still there"
	whole
	done_ok csdctl msg ping --from all
}

it "ten times loaded, used and unloaded: nothing is left behind" t_ten 180
t_ten() {
	local i early late
	for ((i = 1; i <= 10; i++)); do
		whole
		done_ok csdctl msg ping --from all --count 1
		done_ok csdctl pipeline run checksum@csd0,checksum@csd1 --from csd2 --length 100000 --to "$tmp/out"
		done_ok rmmod csd
		eq "$(grep -c csd /proc/iomem)" 0 "I/O memory that csd holds"
		eq "$(grep -c 'csd[0-9]' /proc/interrupts)" 0 "interrupts that csd has"
		eq "$(grep -c '\[csd\]' /proc/vmallocinfo)" 0 "vmalloc areas of csd"
		late=$(awk '/^(SUnreclaim|VmallocUsed):/ { sum += $2 } END { print sum }' /proc/meminfo)
		[ $i -ne 3 ] || early=$late
	done
	# In KiB; what the rest of the kernel does meanwhile is less than that
	holds "$late - $early < 1024" "unreclaimable kernel memory that 7 rounds left"
	whole
}

it "unloading while csdctl comes and goes: it succeeds or is EBUSY, and ends" t_race 120
t_race() {
	local i gone=0
	whole
	touch "$tmp/go"
	(
		while [ -e "$tmp/go" ]; do
			csdctl drive list >/dev/null 2>&1
			csdctl msg ping >/dev/null 2>&1
		done
	) &
	for ((i = 0; i < 40; i++)); do
		if rmmod csd 2>/dev/null; then
			gone=$((gone + 1))
			modprobe csd || fail "modprobe"
			csdctl drive bind --all --use-pmr >/dev/null 2>&1
			csdctl mesh create >/dev/null 2>&1
		fi
	done
	rm "$tmp/go"
	wait
	echo "unloaded $gone times of 40"
	whole
	done_ok csdctl msg ping --from all
}

run_tests
