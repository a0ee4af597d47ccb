# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# csd, csdctl and the in-box driver as the suites use them.  Sourced after
# ktap.sh.

# What a proxied drive's memory has, in bytes
MiB=$((1 << 20))
KiB=$((1 << 10))

# j FILTER ARGUMENT…: csdctl's JSON answer through jq
j() {
	local filter=$1
	shift
	csdctl -o json "$@" >"$tmp/json" 2>"$tmp/json.err" ||
		fail "csdctl $* ended with $?: $(head -c 800 "$tmp/json.err")"
	jq -r "$filter" "$tmp/json" || fail "csdctl $*: not what was expected: $(head -c 800 "$tmp/json")"
}

# refused STATUS GLOB ARGUMENT…: csdctl must fail so, with a message like this
refused() {
	local status=$1 glob=$2
	shift 2
	ends "$status" csdctl "$@"
	matches "$(cat "$tmp/stderr")" "$glob" "message of csdctl $*"
}

pci_of() {
	vmctl address "$1"
}

# Block device that the in-box driver made of the drive at this PCI address
disk_of() {
	local name
	for name in /sys/bus/pci/devices/"$1"/nvme/nvme*/nvme*n*; do
		[ -e "$name" ] || continue
		name=${name##*/}
		# A path of a multipath device (nvme0c0n1) stands for its head (nvme0n1)
		name=$(sed 's/c[0-9]*n/n/' <<<"$name")
		[ -b "/dev/$name" ] && echo "/dev/$name" && return 0
	done
	return 1
}

# Waits for it
wait_disk() {
	local i
	for ((i = 0; i < 100; i++)); do
		disk_of "$1" && return 0
		sleep 0.1
	done
	echo "no block device at $1" >&2
	return 1
}

driver_of() {
	local link
	link=$(readlink "/sys/bus/pci/devices/$1/driver") && echo "${link##*/}"
}

# on_disk csdN COMMAND…: hands the drive to the in-box driver, runs COMMAND with $disk
# being its block device, takes the drive back
on_disk() {
	local drive=$1 pci disk status
	shift
	pci=$(pci_of "$drive")
	modprobe nvme && csdctl drive unbind "$pci" || return
	disk=$(wait_disk "$pci") || return
	disk=$disk "$@"
	status=$?
	sync
	csdctl drive bind --use-pmr "$pci" >/dev/null || return
	return $status
}

# read_disk csdN OFFSET LENGTH FILE: by the in-box driver, to FILE
read_disk() {
	on_disk "$1" eval "dd if=\$disk of=$4 iflag=skip_bytes,count_bytes,fullblock bs=64K skip=$2 count=$3 status=none" 2>/dev/null ||
		on_disk "$1" eval "tail -c +$(($2 + 1)) \$disk | head -c $3 >$4"
}

# Takes all meshes down, with what runs in them
no_mesh() {
	local mesh
	for mesh in $(csdctl -o json mesh show | jq -r '.meshes[].name'); do
		csdctl mesh destroy --force "$mesh" || return
	done
}

# new_mesh ARGUMENT…: exactly one mesh
new_mesh() {
	no_mesh || fail "the meshes there are cannot be destroyed"
	csdctl mesh create "$@" >"$tmp/mesh" 2>&1 || fail "no mesh: $(cat "$tmp/mesh")"
}

# used csdN: bytes of its memory in use
used() {
	j '.drives[0].memory.used_bytes' drive show "$1"
}

# noise BYTES [SEED]: bytes that look random and are the same each time
noise() {
	openssl enc -aes-128-ctr -K "$(printf %032x "${2:-1}")" -iv "$(printf %032x 0)" -in /dev/zero 2>/dev/null | head -c "$1"
}

# events_while COMMAND…: runs it while monitor listens; the events, one a line of JSON, in $tmp/events
events_while() {
	csdctl -o json monitor --timeout 120s >"$tmp/events" 2>"$tmp/monitor.err" &
	local monitor=$! status
	# It must have the device open before anything happens
	eventually 10 eval "ls -l /proc/$monitor/fd 2>/dev/null | grep -q /dev/csd"
	"$@"
	status=$?
	sleep 0.3
	kill -TERM "$monitor" 2>/dev/null
	wait "$monitor" 2>/dev/null
	return $status
}

# saw FILTER: an event in $tmp/events for which the jq FILTER is true
saw() {
	jq -e -s "any(.[]; $1)" "$tmp/events" >/dev/null || fail "no event with $1 among: $(cat "$tmp/events")"
}

# native PROGRAM: registers the tests of a native program beside run.sh
native() {
	local n=0 name
	[ -x "$here/$1" ] || {
		it "the native program $1 is there" "eval fail $here/$1 is missing: make -C tests/selftests"
		return
	}
	while read -r name; do
		it "$name" "$here/$1 $n" "${2:-$limit}"
		n=$((n + 1))
	done < <("$here/$1" --list)
}

# running N: whether so many pipelines run
running() {
	[ "$(csdctl -o json pipeline list | jq '[.pipelines[] | select(.state == "running")] | length')" = "$1" ]
}

# interruptible COMMAND…: starts it so that Ctrl-C reaches it; what a script starts in
# the background ignores SIGINT otherwise.  Its process id is $runner
interruptible() {
	set -m
	"$@" &
	runner=$!
	set +m
}

# held STAGES ARGUMENT…: a pipeline that is under way and waits for its reader; $runner is
# csdctl, its standard error goes to $tmp/held.err.  `release` reads what is left and gives
# csdctl's exit status.
held() {
	local stages=$1
	shift
	rm -f "$tmp/held.pipe"
	mkfifo "$tmp/held.pipe"
	# Not by interruptible(): the opening of the pipe waits for its reader, so it must be the child's
	set -m
	csdctl -o json pipeline run "$stages" --window 64KiB --to - "$@" >"$tmp/held.pipe" 2>"$tmp/held.err" &
	runner=$!
	set +m
	exec 6<"$tmp/held.pipe"
	eventually 10 running 1
	# The first bytes are out, so all drives of it are at work
	head -c 4096 <&6 >/dev/null
}
release() {
	cat <&6 >/dev/null
	exec 6<&-
	wait "$runner"
}
