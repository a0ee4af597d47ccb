# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# KTAP for suites written in bash: registers tests, runs each in a subshell of its
# own with a time limit, prints KTAP, and looks at the kernel log in the end.
# It knows nothing of csd.
#
#	suite=mesh
#	. "${0%/*}/../lib/ktap.sh"
#	it "a mesh of three drives has 6 peer rings" t_rings
#	t_rings() { eq "$(…)" 6 "peer rings"; }
#	run_tests
#
# A test fails with the first assertion that fails; what it printed so far comes
# out as diagnostics.  State that outlives a test goes to files in $tmp.

set -u
shopt -s extglob
export LC_ALL=C

: "${suite:?}"
tmp=$(mktemp -d "/tmp/$suite.XXXXXX") || exit 1
here=$(cd "${0%/*}" && pwd)
# Seconds that a test may take
: "${limit:=60}"

ktap_names=()
ktap_functions=()
ktap_limits=()
ktap_skipped=4

# it SENTENCE FUNCTION [SECONDS]: registers a test
it() {
	ktap_names+=("$1")
	ktap_functions+=("$2")
	ktap_limits+=("${3:-$limit}")
}

# fail WHY: ends the test
fail() {
	echo "$*"
	exit 1
}

# skip WHY: ends the test; only for what the machine lacks, never for what csd lacks
skip() {
	echo "$*" >"$tmp/skip"
	exit "$ktap_skipped"
}

# eq GOT EXPECTED WHAT
eq() {
	[ "$1" = "$2" ] || fail "$3: got '$1', expected '$2'"
}

# ne GOT UNWANTED WHAT
ne() {
	[ "$1" != "$2" ] || fail "$3: got '$1', which it must not be"
}

# number TEST... as in (( )), WHAT last: holds "a <= b" "what"
holds() {
	local what=$2
	(($1)) || fail "$what: $1 does not hold"
}

# matches TEXT GLOB WHAT: bash pattern
matches() {
	# shellcheck disable=SC2053
	[[ $1 == $2 ]] || fail "$3: got '$1', expected something like '$2'"
}

# done_ok COMMAND…: must succeed; its output is shown if it does not
done_ok() {
	local out
	out=$("$@" 2>&1) || fail "$* ended with $?: $out"
}

# ends STATUS COMMAND…: must end with this status; standard output to $tmp/stdout, error to $tmp/stderr
ends() {
	local want=$1 got
	shift
	"$@" >"$tmp/stdout" 2>"$tmp/stderr"
	got=$?
	[ "$got" = "$want" ] ||
		fail "$* ended with $got, expected $want: $(head -c 600 "$tmp/stdout" | tr -d '\0') $(head -c 600 "$tmp/stderr")"
}

# same FILE FILE WHAT: byte for byte
same() {
	cmp "$1" "$2" || fail "$3: $1 and $2 differ"
}

# eventually SECONDS COMMAND…: polls until it succeeds
eventually() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || fail "still not: $*"
		sleep 0.1
	done
}

# log_lines: kernel log since the suite began
ktap_log() {
	dmesg | sed -n "/ktap: $suite $$ begins/,\$p"
}

# log_since MARK / log_mark: the kernel log from a place on
log_mark() {
	local mark="ktap: mark $RANDOM$RANDOM"
	echo "$mark" >/dev/kmsg
	echo "$mark"
}
log_since() {
	dmesg | sed -n "/$1/,\$p" | sed 1d
}

# What a kernel says when something is broken in it
ktap_splat='WARNING:|BUG:|BUG |Oops|UBSAN|KASAN|Call Trace|general protection|unable to handle|rust_kernel: panicked|rust_panic|kernel panic|INFO: task .* blocked|possible circular locking|inconsistent lock state|suspicious RCU|refcount_t|stack segment|scheduling while atomic|sleeping function called|soft lockup|hard LOCKUP|rcu:.*stall|Unbalanced|DMA-API:|kmemleak:'

ktap_clean_log() {
	ktap_log >"$tmp/log"
	if grep -nE "$ktap_splat" "$tmp/log"; then
		grep -E -A 30 "$ktap_splat" "$tmp/log" | head -n 80
		return 1
	fi
}

# One test: in a process group of its own, so that what it left behind can be ended
ktap_one() {
	local name=$1 function=$2 seconds=$3 pid status watchdog
	rm -f "$tmp/skip"
	set -m
	# A function, or a command with its arguments
	# shellcheck disable=SC2086
	($function) >"$tmp/said" 2>&1 </dev/null &
	pid=$!
	(sleep "$seconds" && touch "$tmp/late" && kill -KILL -- "-$pid") >/dev/null 2>&1 </dev/null &
	watchdog=$!
	set +m
	wait "$pid" 2>/dev/null
	status=$?
	kill -KILL -- "-$watchdog" 2>/dev/null
	wait "$watchdog" 2>/dev/null
	kill -KILL -- "-$pid" 2>/dev/null
	if [ -e "$tmp/late" ]; then
		rm -f "$tmp/late"
		echo "took longer than $seconds s" >>"$tmp/said"
		status=1
	fi
	ktap_number=$((ktap_number + 1))
	case $status in
	0) echo "ok $ktap_number $suite: $name" ;;
	"$ktap_skipped") echo "ok $ktap_number $suite: $name # SKIP $(cat "$tmp/skip" 2>/dev/null)" ;;
	*)
		ktap_failed=$((ktap_failed + 1))
		echo "not ok $ktap_number $suite: $name"
		head -c 3000 "$tmp/said" | tr -d '\0' | sed 's/^/# /'
		dmesg | tail -n 5 | sed 's/^/# kernel: /'
		;;
	esac
}

# before_all FUNCTION-less hook: a suite may define setup and teardown
run_tests() {
	local i only=${TEST:-}
	ktap_number=0
	ktap_failed=0
	echo "ktap: $suite $$ begins" >/dev/kmsg
	it "the kernel log has no warning, bug or oops" ktap_clean_log
	echo "KTAP version 1"
	if [ -n "$only" ]; then
		for i in "${!ktap_names[@]}"; do
			[[ ${ktap_names[i]} =~ $only ]] ||
				unset "ktap_names[i]"
		done
	fi
	echo "1..${#ktap_names[@]}"
	if declare -F setup >/dev/null; then
		if ! setup >"$tmp/setup" 2>&1; then
			sed 's/^/# /' "$tmp/setup"
			echo "Bail out! the suite's setup failed"
			exit 1
		fi
	fi
	for i in "${!ktap_names[@]}"; do
		ktap_one "${ktap_names[i]}" "${ktap_functions[i]}" "${ktap_limits[i]}"
	done
	if declare -F teardown >/dev/null; then
		teardown >/dev/null 2>&1
	fi
	rm -rf "$tmp"
	[ "$ktap_failed" = 0 ]
	exit
}
