#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Drives change hands between the in-box driver and csd, and csdctl says of them
# what nvme-cli says.  Boots with the in-box driver on all drives.

suite=drive
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

setup() {
	local i pci disk
	for i in 0 1 2; do
		pci=$(pci_of csd$i)
		disk=$(wait_disk "$pci") || return
		nvme id-ctrl "$disk" -o json >"$tmp/ctrl$i" || return
		nvme id-ns "$disk" -o json >"$tmp/ns$i" || return
		blockdev --getsize64 "$disk" >"$tmp/bytes$i" || return
		noise $MiB $i >"$tmp/data$i"
		dd if="$tmp/data$i" of="$disk" bs=64K conv=fsync status=none || return
	done
	modprobe csd
}

all_with() {
	local i
	for i in 0 1 2; do
		[ "$(driver_of "$(pci_of csd$i)")" = "$1" ] || return 1
	done
}

to_csd() {
	all_with csd || done_ok csdctl drive bind --all --use-pmr
}

to_nvme() {
	local i
	[ -n "$(csdctl -o json drive list | jq -r '.drives[].name')" ] &&
		done_ok csdctl drive unbind --all --force
	for i in 0 1 2; do
		[ -n "$(driver_of "$(pci_of csd$i)")" ] || pci_of csd$i >/sys/bus/pci/drivers_probe
		wait_disk "$(pci_of csd$i)" >/dev/null || fail "csd$i is not back with nvme"
	done
}

it "loading the module takes no drive" t_takes_none
t_takes_none() {
	all_with nvme || fail "a drive changed hands"
	eq "$(j '.drives | length' drive list)" 0 "drives"
}

it "binding all names them csd0, csd1, csd2 in PCI order" t_names
t_names() {
	local i
	done_ok csdctl drive bind --all --use-pmr
	all_with csd || fail "not all are bound to csd"
	for i in 0 1 2; do
		eq "$(j ".drives[$i] | .name + \" \" + .pci" drive list)" "csd$i $(pci_of csd$i)" "drive $i"
	done
}

it "model, serial, firmware, NQN, controller id and version are those that nvme-cli reads" t_identity
t_identity() {
	local i ours theirs
	to_csd
	for i in 0 1 2; do
		ours=$(j '.drives[0] | [.model, .serial, .firmware, .nqn, .cntlid] | map(tostring) | join("|")' drive show csd$i)
		# nvme-cli keeps the blanks that the field is padded with
		theirs=$(jq -r '[.mn, .sn, .fr, .subnqn, .cntlid] | map(tostring | sub(" +$"; "")) | join("|")' "$tmp/ctrl$i")
		eq "$ours" "$theirs" "csd$i"
		theirs=$(jq -r '.ver | "\(. / 65536 | floor).\(. / 256 % 256 | floor)\(if . % 256 == 0 then "" else ".\(. % 256)" end)"' "$tmp/ctrl$i")
		eq "$(j '.drives[0].nvme_version' drive show csd$i)" "$theirs" "version of csd$i"
	done
}

it "namespaces have the size and block size that nvme-cli and the block layer read" t_namespaces
t_namespaces() {
	local i block
	to_csd
	for i in 0 1 2; do
		eq "$(j '.drives[0].namespaces | length' drive show csd$i)" 1 "namespaces of csd$i"
		eq "$(j '.drives[0].namespaces[0].nsid' drive show csd$i)" 1 "nsid"
		eq "$(j '.drives[0].namespaces[0].blocks' drive show csd$i)" "$(jq .nsze "$tmp/ns$i")" "blocks"
		eq "$(j '.drives[0].namespaces[0].bytes' drive show csd$i)" "$(cat "$tmp/bytes$i")" "bytes"
		block=$(jq '1 as $one | .lbafs[.flbas % 16].ds | reduce range(.) as $i ($one; . * 2)' "$tmp/ns$i")
		eq "$(j '.drives[0].namespaces[0].block_bytes' drive show csd$i)" "$block" "block size"
	done
}

it "CMB and PMR have the sizes that the machine was made with, and are on" t_memory
t_memory() {
	local i
	to_csd
	for i in 0 1 2; do
		eq "$(j '.drives[0].memory | [.cmb_bytes, .cmb_enabled, .pmr_bytes, .pmr_enabled] | map(tostring) | join(" ")' drive show csd$i)" \
			"$((64 * MiB)) true $((64 * MiB)) true" "memory of csd$i"
	done
}

it "a drive holds at most 1 MiB of host memory besides its queues" t_host_memory
t_host_memory() {
	local i
	to_csd
	for i in 0 1 2; do
		holds "$(j '.drives[0].memory.host_bytes' drive show csd$i) <= $MiB" "host memory of csd$i"
	done
}

it "name, NQN and PCI address all name a drive, with and without domain" t_by_name
t_by_name() {
	local nqn pci
	to_csd
	nqn=$(jq -r .subnqn "$tmp/ctrl1")
	pci=$(pci_of csd1)
	for name in csd1 "$nqn" "$pci" "${pci#0000:}"; do
		eq "$(j '.drives[0].name' drive show "$name")" csd1 "drive $name"
	done
	refused 1 '*csd7*' drive show csd7
	refused 1 '*nqn.none*' drive show nqn.none
}

it "unbinding gives a drive back to nvme with its data as it was, and takes only that one" t_unbind
t_unbind() {
	local pci disk
	to_csd
	pci=$(pci_of csd1)
	done_ok csdctl drive unbind csd1
	wait_disk "$pci" >/dev/null || fail "no block device"
	eq "$(driver_of "$pci")" nvme "driver"
	eq "$(cat "/sys/bus/pci/devices/$pci/driver_override")" "(null)" "driver_override"
	eq "$(driver_of "$(pci_of csd0)")$(driver_of "$(pci_of csd2)")" csdcsd "drivers of the others"
	disk=$(disk_of "$pci")
	head -c $MiB "$disk" >"$tmp/back"
	same "$tmp/back" "$tmp/data1" "data of csd1"
	eq "$(nvme id-ctrl "$disk" -o json | jq -r .sn)" "$(jq -r .sn "$tmp/ctrl1")" "serial"
	eq "$(j '[.drives[].name] | join(" ")' drive list)" "csd0 csd2" "drives that are left"
	done_ok csdctl drive bind "$pci"
	eq "$(j '[.drives[].name] | join(" ")' drive list)" "csd0 csd1 csd2" "drives afterwards"
}

it "a mounted drive is not bound, and the message names device and mount point" t_mounted
t_mounted() {
	local pci disk
	to_nvme
	pci=$(pci_of csd1)
	disk=$(disk_of "$pci")
	done_ok mkfs.ext4 -q -F "$disk"
	mkdir -p "$tmp/a place"
	done_ok mount -t ext4 "$disk" "$tmp/a place"
	echo precious >"$tmp/a place/file"
	refused 5 "*$pci*$disk*$tmp/a place*" drive bind "$pci"
	eq "$(driver_of "$pci")" nvme "driver"
	done_ok csdctl drive bind --all
	eq "$(driver_of "$pci")" nvme "driver after --all"
	eq "$(j '[.drives[].pci] | join(" ")' drive list)" "$(pci_of csd0) $(pci_of csd2)" "drives that --all bound"
	eq "$(cat "$tmp/a place/file")" precious "the file"
	umount "$tmp/a place"
	done_ok csdctl drive bind "$pci"
	to_nvme
	done_ok mount -t ext4 "$(disk_of "$pci")" "$tmp/a place"
	eq "$(cat "$tmp/a place/file")" precious "the file, after a time with csd"
	umount "$tmp/a place"
}

it "a drive with a mounted partition is not bound" t_partition
t_partition() {
	local pci disk
	to_nvme
	pci=$(pci_of csd2)
	disk=$(disk_of "$pci")
	printf 'o\nn\np\n1\n\n\nw\n' | fdisk "$disk" >/dev/null 2>&1
	blockdev --rereadpt "$disk" 2>/dev/null
	eventually 5 test -b "${disk}p1"
	done_ok mkfs.ext4 -q -F "${disk}p1"
	done_ok mount -t ext4 "${disk}p1" /mnt
	refused 5 "*$pci*${disk}p1*/mnt*" drive bind "$pci"
	umount /mnt
	eq "$(driver_of "$pci")" nvme "driver"
	done_ok csdctl drive bind "$pci"
	to_nvme
}

it "a drive that another program holds is not bound: whole, and by its partition" t_held
t_held() {
	local pci disk what
	to_nvme
	pci=$(pci_of csd2)
	disk=$(disk_of "$pci")
	eventually 5 test -b "${disk}p1"
	for what in "$disk" "${disk}p1"; do
		mkfifo "$tmp/fifo"
		"$here/hold" "$what" <"$tmp/fifo" >"$tmp/held" &
		exec 5>"$tmp/fifo"
		eventually 5 grep -q held "$tmp/held"
		refused 5 "*$pci*$disk*" drive bind "$pci"
		exec 5>&-
		wait $!
		rm "$tmp/fifo"
	done
	eq "$(driver_of "$pci")" nvme "driver"
	done_ok csdctl drive bind "$pci"
	to_nvme
}

it "a drive used as swap is not bound" t_swap
t_swap() {
	local pci disk
	to_nvme
	pci=$(pci_of csd0)
	disk=$(disk_of "$pci")
	done_ok mkswap "$disk"
	done_ok swapon "$disk"
	refused 5 "*$pci*$disk*swap*" drive bind "$pci"
	done_ok swapoff "$disk"
	done_ok csdctl drive bind "$pci"
	to_nvme
}

it "the PMR of an unknown owner is left alone until consent is given" t_consent
t_consent() {
	local pci
	to_nvme
	pci=$(pci_of csd0)
	echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
	done_ok "$here/bar" "$pci" fill 7
	done_ok csdctl drive bind "$pci" "$(pci_of csd1)"
	eq "$(j '.drives[0].memory | [.pmr_bytes, .pmr_enabled, .pmr_signed] | map(tostring) | join(" ")' drive show csd0)" \
		"$((64 * MiB)) false false" "PMR of csd0"
	refused 1 '*csd0*' mesh create --memory pmr csd0 csd1
	done_ok csdctl mesh create csd0 csd1
	eq "$(j '.meshes[0].members[] | select(.name == "csd0").memory' mesh show)" CMB "memory of csd0's rings"
	done_ok csdctl msg ping --from all --count 1
	done_ok csdctl mesh destroy
	done_ok csdctl drive unbind csd0
	wait_disk "$pci" >/dev/null
	echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
	done_ok "$here/bar" "$pci" check 7
}

it "once signed, a PMR is used again without being asked" t_signed
t_signed() {
	local pci
	to_nvme
	pci=$(pci_of csd0)
	done_ok csdctl drive bind --use-pmr "$pci"
	done_ok csdctl mesh create --memory pmr csd0
	done_ok csdctl mesh destroy
	to_nvme
	echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
	ends 1 "$here/bar" "$pci" check 7
	done_ok csdctl drive bind "$pci"
	eq "$(j '.drives[0].memory | [.pmr_enabled, .pmr_signed] | map(tostring) | join(" ")' drive show csd0)" \
		"true true" "PMR of csd0"
	done_ok csdctl mesh create --memory pmr csd0
	done_ok csdctl mesh destroy
}

it "a damaged signature is no consent" t_damaged
t_damaged() {
	local pci
	to_nvme
	pci=$(pci_of csd0)
	echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
	done_ok "$here/bar" "$pci" fill 9
	done_ok csdctl drive bind "$pci"
	eq "$(j '.drives[0].memory | [.pmr_enabled, .pmr_signed] | map(tostring) | join(" ")' drive show csd0)" \
		"false false" "PMR of csd0"
}

it "nothing that was said in a mesh is left in the PMR after it was destroyed" t_scrub
t_scrub() {
	local pci secret=Tr0ub4dor-and-3
	to_nvme
	pci=$(pci_of csd1)
	done_ok csdctl drive bind --all --use-pmr
	done_ok csdctl mesh create --memory pmr
	for i in 1 2 3 4 5; do
		done_ok csdctl msg send --from csd0 --to csd1 "$secret"
		done_ok csdctl msg send --to csd1 "$secret"
	done
	done_ok csdctl mesh destroy
	done_ok csdctl drive unbind csd1
	wait_disk "$pci" >/dev/null
	echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
	# That it is csd's own memory which is looked at, the signature shows
	ne "$("$here/bar" "$pci" find CSDIDC)" 0 "signatures in the PMR"
	eq "$("$here/bar" "$pci" find "$secret")" 0 "places where the PMR has what was said"
	echo "$pci" >/sys/bus/pci/drivers_probe
}

it "nothing of a pipeline's data is left in the PMR after its mesh was destroyed" t_scrub_data
t_scrub_data() {
	local i pci secret='correct horse battery staple'
	to_nvme
	for ((i = 0; i < 2000; i++)); do
		echo "$i;$secret;$i"
	done | dd of="$(disk_of "$(pci_of csd0)")" conv=fsync bs=64K status=none
	done_ok csdctl drive bind --all --use-pmr
	done_ok csdctl mesh create --memory pmr
	done_ok csdctl pipeline run checksum@csd0,checksum@csd1 --from csd0 --length 64KiB --to "$tmp/out"
	eq "$(grep -c "$secret" "$tmp/out")" "$(head -c 65536 "$tmp/out" | grep -c "$secret")" "records in the result"
	done_ok csdctl mesh destroy
	to_nvme
	for i in 0 1; do
		pci=$(pci_of csd$i)
		echo "$pci" >/sys/bus/pci/drivers/nvme/unbind
		eq "$("$here/bar" "$pci" find "$secret")" 0 "places where csd$i's PMR has the data"
		echo "$pci" >/sys/bus/pci/drivers_probe
	done
}

it "a drive in a mesh is only unbound with --force" t_member
t_member() {
	to_nvme
	done_ok csdctl drive bind --all --use-pmr
	done_ok csdctl mesh create
	refused 5 '*csd1*mesh0*' drive unbind csd1
	eq "$(driver_of "$(pci_of csd1)")" csd "driver"
	done_ok csdctl drive unbind --force csd1
	eq "$(driver_of "$(pci_of csd1)")" nvme "driver"
	done_ok csdctl msg ping --from csd0 --to csd2
	done_ok csdctl mesh destroy
}

it "twenty times bound and unbound: the same drive, the same data, nothing left behind" t_twenty 120
t_twenty() {
	local i pci before
	to_nvme
	pci=$(pci_of csd1)
	before=$(grep -c . /proc/interrupts)
	for ((i = 0; i < 20; i++)); do
		done_ok csdctl drive bind --use-pmr "$pci"
		eq "$(j '.drives[0].name' drive list)" csd0 "name in round $i"
		done_ok csdctl drive unbind csd0
	done
	wait_disk "$pci" >/dev/null || fail "no disk after 20 rounds"
	eq "$(grep -c . /proc/interrupts)" "$before" "lines of /proc/interrupts"
	eq "$(lsmod | awk '$1 == "csd" { print $3 }')" 0 "references to the module"
	eq "$(grep -c csd /proc/iomem)" 0 "I/O memory that csd holds"
}

it "the module is unloaded while no drive is bound, and its device node goes" t_unload
t_unload() {
	to_nvme
	done_ok rmmod csd
	[ ! -e /dev/csd ] || fail "/dev/csd is still there"
	refused 3 '*modprobe csd*' drive list
	done_ok modprobe csd
	done_ok csdctl drive list
}

run_tests
