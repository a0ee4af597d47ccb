#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Messages between members, by csdctl and by the ABI itself (calls.c).
# Boots with three drives bound.

suite=msg
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

it "the host pings each drive and every ordered pair of drives answers" t_pairs
t_pairs() {
	new_mesh
	eq "$(j '[.pairs[] | "\(.from)>\(.to):\(.sent)/\(.answered)"] | join(" ")' msg ping --from host --count 3)" \
		"host>csd0:3/3 host>csd1:3/3 host>csd2:3/3" "the host's pings"
	eq "$(j '[.pairs[] | "\(.from)>\(.to):\(.sent)/\(.answered)"] | join(" ")' msg ping --from all --count 3)" \
		"csd0>csd1:3/3 csd0>csd2:3/3 csd1>csd0:3/3 csd1>csd2:3/3 csd2>csd0:3/3 csd2>csd1:3/3" "the drives' pings"
	eq "$(j '.pairs[0] | (.rtt_min_ns > 0 and .rtt_min_ns <= .rtt_median_ns and .rtt_median_ns <= .rtt_max_ns)' msg ping)" true "round trips"
}

it "what is sent is received, with its sender, and leaves the inbox" t_send
t_send() {
	new_mesh
	done_ok csdctl msg send --to csd1 'from the host'
	done_ok csdctl msg send --from csd0 --to csd1 'from csd0'
	done_ok csdctl msg send --from csd2 --to csd1 --hex 00ff7f80
	eq "$(j '[.from, .text, (.bytes | tostring)] | join("|")' msg recv --at csd1 --timeout 5s)" "host|from the host|13" "first"
	eq "$(j '[.from, .text, .hex] | join("|")' msg recv --at csd1 --timeout 5s)" "csd0|from csd0|66726f6d2063736430" "second"
	eq "$(j '[.from, .text, .hex, (.dropped | tostring)] | join("|")' msg recv --at csd1 --timeout 5s)" "csd2||00ff7f80|0" "third"
	eq "$(j '[.bytes, .rtt_ns] | @csv' msg send --no-response --to csd1 'no need to answer')" "17," "without a response"
	eq "$(j '[.from, .text] | join("|")' msg recv --at csd1 --timeout 5s)" "host|no need to answer" "fourth"
	ends 2 csdctl msg send --no-response --from csd0 --to csd1 x
	ends 4 csdctl msg recv --at csd1 --timeout 0
	ends 4 csdctl msg recv --at csd1 --timeout 100ms
}

it "a drive sends to the host" t_to_host
t_to_host() {
	new_mesh
	done_ok csdctl msg send --from csd2 --to host 'up here'
	eq "$(j '[.at, .from, .text] | join("|")' msg recv --timeout 5s)" "host|csd2|up here" "what the host got"
}

it "a message that is waited for arrives while csdctl waits" t_wait
t_wait() {
	local waiter
	new_mesh
	csdctl -o json msg recv --at csd0 --timeout 20s >"$tmp/got" &
	waiter=$!
	sleep 0.5
	done_ok csdctl msg send --to csd0 late
	wait "$waiter" || fail "the receiver ended with $?"
	eq "$(jq -r .text "$tmp/got")" late "what came"
}

it "a payload is at most the entry size less 28" t_limits
t_limits() {
	new_mesh
	done_ok csdctl msg ping --size 36
	done_ok csdctl msg ping --size 0
	ends 2 csdctl msg ping --size 37
	new_mesh --entry-size 4KiB --entries 16
	done_ok csdctl msg ping --from all --size 4068 --count 2
	ends 2 csdctl msg ping --size 4069
	done_ok csdctl msg send --from csd0 --to csd1 "$(noise 3000 | base64 | tr -d '\n')"
	eq "$(j '.text' msg recv --at csd1 --timeout 5s)" "$(noise 3000 | base64 | tr -d '\n')" "4,000 bytes of text"
}

it "senders and receivers that make no sense are refused by name" t_nonsense
t_nonsense() {
	new_mesh csd0 csd1
	refused 1 '*csd2*mesh0*' msg ping --to csd2
	refused 1 '*csd7*' msg send --to csd7 x
	ends 2 csdctl msg send --from csd0 --to csd0 x
	ends 2 csdctl msg send --to host x
}

it "an idle mesh costs no processor time and wakes nobody up" t_idle
t_idle() {
	local before after look
	new_mesh
	done_ok csdctl msg ping --from all
	# Who looks again and again never is quiet; a straggler of the pings, on a busy host, is once
	for look in 1 2 3; do
		sleep 1
		before=$(work_of_csd)
		sleep 2
		after=$(work_of_csd)
		[ "$after" != "$before" ] || break
		echo "# look $look: somebody was awake"
	done
	ne "$before" "" "csd's threads"
	eq "$after" "$before" "time and context switches of csd's threads"
	done_ok csdctl msg ping --from all
	ne "$(work_of_csd)" "$after" "the same after pings: it would have been seen"
}

# Name, utime + stime, and context switches of each kernel thread of csd
work_of_csd() {
	local stat
	for stat in /proc/[0-9]*/stat; do
		# A kernel thread has no memory of its own: virtual size 0
		awk '{ name = $2 } $23 == 0 && name ~ /^\(csd/ { print name, $14 + $15 }' "$stat" 2>/dev/null || continue
	done | sort
	for stat in /proc/[0-9]*/status; do
		awk '/^Name:.csd/ { csd = 1 } /^VmSize/ { csd = 0 } csd && /ctxt/ { print }' "$stat" 2>/dev/null || continue
	done
}

it "a thousand pings lose nothing" t_thousand 120
t_thousand() {
	new_mesh --entries 16
	eq "$(j '.pairs[0].answered' msg ping --from csd0 --to csd1 --count 1000)" 1000 "answers"
	eq "$(j '.meshes[0].rings[] | select(.from == "csd0" and .to == "csd1") | [.messages, .stale, .faults] | join(" ")' mesh show)" "1000 0 0" "counters"
}

native calls 120

run_tests
