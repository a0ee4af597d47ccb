#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# csdctl against the real module: the shape of every JSON answer, exit statuses,
# which stream says what.  Boots with three drives bound.

suite=cli
. "${0%/*}/../lib/ktap.sh"
. "$here/../lib/csd.sh"

setup() {
	noise 32 1 >"$tmp/key"
	csdctl mesh create
}

# jq definitions that the shapes below are written with
defs='
def n: type == "number" and . >= 0 and . == floor;
def s: type == "string" and length > 0;
def b: type == "boolean";
def opt(f): . == null or f;
def l(f): type == "array" and all(.[]; f);
def csd: .schema == "csd/1";
def drive:
	(.name | test("^csd[0-9]+$")) and (.number | n) and (.pci | test("^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$"))
	and (.nqn | test("^nqn\\.")) and (.model | s) and (.serial | s) and (.firmware | s)
	and (.kind | IN("proxied", "firmware")) and (.state | IN("starting", "ready", "resetting", "failed", "gone"))
	and (.mesh | opt(s)) and (.cntlid | n) and (.nvme_version | test("^[0-9]+\\.[0-9]+(\\.[0-9]+)?$")) and (.numa_node | opt(n))
	and (.critical_warning | n) and (.functions | l(s))
	and (.memory | [.cmb_bytes, .pmr_bytes, .used_bytes, .host_bytes] | all(.[]; n))
	and (.memory | [.cmb_enabled, .pmr_enabled, .pmr_signed] | all(.[]; b))
	and (.namespaces | l((.nsid | n) and (.block_bytes | n) and (.blocks | n) and (.bytes | n)))
	and (.counters | [.commands, .bytes_read, .bytes_written, .errors, .timeouts, .aborts, .resets, .aens,
		.messages_sent, .messages_received, .host_cpu_bytes] | all(.[]; n));
def ring: ([.from, .to, .where] | all(.[]; s)) and (.memory | IN("CMB", "PMR", "host"))
	and (.state | IN("attached", "fenced", "detached"))
	and ([.epoch, .tail, .head, .bytes, .messages, .message_bytes, .credit_writes, .stalls, .stale, .faults] | all(.[]; n));
def mesh: (.name | test("^mesh[0-9]+$")) and ([.number, .entries, .entry_bytes, .peer_rings, .host_rings, .pipelines,
		.host_bytes, .create_ns] | all(.[]; n))
	and (.placement | s) and (.publish | s)
	and (.members | l((.name | s) and (.member | n) and (.state | IN("attached", "lost")) and (.memory | s) and (.ring_bytes | n)))
	and (.rings | l(ring));
def pipeline: (.mesh | s) and (.state | IN("running", "done", "failed", "cancelled")) and (.errno | opt(s))
	and (.error_drive | opt(s)) and (.error_stage | opt(n)) and (.error_offset | opt(n))
	and ([.pipeline, .nvme_status, .bytes_total, .bytes_in, .bytes_out, .messages, .host_cpu_bytes, .elapsed_ns, .chunk_bytes] | all(.[]; n))
	and (.stages | l((.function | s) and (.drive | s) and (.bytes_in | n) and (.bytes_out | n)
		and (.records_in | opt(n)) and (.records_out | opt(n)) and (.crc32c | opt(n))));
def error: csd and (.error | (.message | s) and (.remedy | opt(s)) and (.drive | opt(s)) and (.stage | opt(s)) and (.errno | opt(s)) and (.exit | n));
'

# shape FILTER ARGUMENT…: the answer is one JSON document for which FILTER holds; stderr is empty
shape() {
	local filter=$1
	shift
	ends 0 csdctl -o json "$@"
	eq "$(cat "$tmp/stderr")" "" "standard error of csdctl $*"
	eq "$(jq -s length "$tmp/stdout")" 1 "documents of csdctl $*"
	eq "$(jq "$defs csd and ($filter)" "$tmp/stdout")" true "shape of csdctl $*: $(head -c 2000 "$tmp/stdout")"
}

# bad STATUS ARGUMENT…: fails so, with an error as JSON on stderr and nothing on stdout
bad() {
	local status=$1
	shift
	ends "$status" csdctl -o json "$@"
	eq "$(cat "$tmp/stdout")" "" "standard output of csdctl $*"
	eq "$(jq "$defs error and .error.exit == $status" "$tmp/stderr")" true "error of csdctl $*: $(cat "$tmp/stderr")"
	# For people: the same status, a line that begins with the program's name
	ends "$status" csdctl "$@"
	eq "$(cat "$tmp/stdout")" "" "standard output of csdctl $*, for people"
}

it "drive list and drive show: lists of drives, of one shape" t_drive
t_drive() {
	shape '.drives | length == 3 and l(drive)' drive list
	shape '.drives | length == 1 and l(drive)' drive show csd1
	shape '.drives | length == 2 and l(drive)' drive show csd2 csd0
	eq "$(j '[.drives[].functions | sort | join(" ")] | unique | join("|")' drive list)" "checksum decrypt encrypt filter" "functions"
}

it "mesh create, show and destroy" t_mesh
t_mesh() {
	no_mesh
	shape '.meshes == []' mesh show
	shape '.meshes | length == 1 and l(mesh)' mesh create
	shape '.meshes | length == 1 and l(mesh)' mesh show
	shape '.meshes | length == 1 and l(mesh)' mesh show mesh0
	shape '.mesh == "mesh0"' mesh destroy
	done_ok csdctl mesh create
}

it "msg ping, send and recv" t_msg
t_msg() {
	shape '(.mesh | s) and (.payload_bytes | n) and (.pairs | length == 3 and l((.from | s) and (.to | s) and (.sent | n) and (.answered | n)
		and (.rtt_min_ns | n) and (.rtt_median_ns | n) and (.rtt_max_ns | n) and (.rtts_ns | length == 4 and l(n)) and .error == null))' msg ping
	shape '(.mesh | s) and .from == "host" and .to == "csd1" and .bytes == 5 and (.rtt_ns | n)' msg send --to csd1 hello
	shape '(.mesh | s) and .at == "csd1" and .from == "host" and .bytes == 5 and .hex == "68656c6c6f" and .text == "hello" and .dropped == 0' msg recv --at csd1 --timeout 5s
}

it "pipeline run, plan, list and cancel" t_pipeline
t_pipeline() {
	local number
	shape '(.source.drive == "csd0") and (.sink.kind == "file") and (.sink.bytes == 10000) and (.proxied | l(s))
		and (.ivs | length == 1 and l((.stage | n) and (.iv | test("^[0-9a-f]{32}$")) and .drawn == true and (.file | s)))
		and (.pipeline | pipeline) and .pipeline.state == "done"' \
		pipeline run checksum,encrypt --from csd0 --length 10000 --key-file "$tmp/key" --to "$tmp/result"
	shape '.pipelines | length > 0 and l(pipeline)' pipeline list
	ends 0 csdctl -o json pipeline plan checksum,encrypt --from csd0 --length 10000 --key-file "$tmp/key"
	eq "$(jq "$defs csd" "$tmp/stdout")" true "pipeline plan: $(cat "$tmp/stdout")"
	eq "$(jq '[.. | objects | select(has("function"))] | length' "$tmp/stdout")" 2 "stages in the plan: $(cat "$tmp/stdout")"
	number=$(j '[.pipelines[].pipeline] | max' pipeline list)
	bad 1 pipeline cancel "$number"
}

it "with the result on standard output the report goes to standard error" t_stdout
t_stdout() {
	ends 0 csdctl -o json pipeline run checksum --from csd0 --length 5000 --to -
	eq "$(stat -c %s "$tmp/stdout")" 5000 "bytes on standard output"
	eq "$(jq "$defs csd and (.pipeline | pipeline) and .sink.kind == \"stdout\"" "$tmp/stderr")" true "report on standard error"
}

it "drive bind and unbind" t_bind
t_bind() {
	local pci
	no_mesh
	pci=$(pci_of csd2)
	shape '.drives | length == 1 and l((.name == "csd2") and (.pci | s) and (.driver | opt(s)))' drive unbind csd2
	wait_disk "$pci" >/dev/null
	shape '(.drives | length == 1 and l(drive)) and (.skipped == [])' drive bind --use-pmr "$pci"
	# Bound already: said again, no harm
	shape '.drives | length == 3 and l(drive)' drive bind --all --use-pmr
	done_ok csdctl mesh create
}

it "monitor prints one document a line" t_monitor
t_monitor() {
	work() {
		csdctl mesh destroy && csdctl mesh create
	}
	events_while done_ok work
	eq "$(wc -l <"$tmp/events")" 2 "lines"
	eq "$(jq -s "$defs l(csd and (.event | s) and (.number | n) and (.time_ns | n) and (.drive | opt(s)) and (.mesh | opt(s))
		and (.peer | opt(s)) and (.pipeline | opt(n)) and (.lost | opt(n)) and (.errno | opt(s)) and (.detail | n))" "$tmp/events")" true "shape of events"
}

it "doctor checks every pair and drive, and its status is that of its worst line" t_doctor
t_doctor() {
	local status
	csdctl -o json doctor >"$tmp/stdout" 2>"$tmp/stderr"
	status=$?
	eq "$(jq "$defs csd" "$tmp/stdout")" true "schema of doctor: $(head -c 1500 "$tmp/stdout") $(cat "$tmp/stderr")"
	eq "$(jq '[.. | objects | select(has("result") or has("status") or has("verdict"))] | length > 3' "$tmp/stdout")" true "checks: $(head -c 1500 "$tmp/stdout")"
	csdctl doctor >"$tmp/stdout" 2>"$tmp/stderr"
	eq $? $status "status for people"
	for drive in csd0 csd1 csd2; do
		grep -q $drive "$tmp/stdout" || fail "doctor does not speak of $drive: $(cat "$tmp/stdout")"
	done
	if grep -q '^fail' "$tmp/stdout"; then
		eq $status 1 "status with a line that says fail"
	else
		eq $status 0 "status without a line that says fail: $(cat "$tmp/stdout")"
	fi
}

it "errors are JSON on standard error, with the exit status in them" t_errors
t_errors() {
	bad 1 drive show csd9
	bad 1 mesh show mesh9
	bad 5 mesh create csd0
	bad 1 msg ping --mesh mesh9
	bad 4 msg recv --at csd0 --timeout 10ms
	bad 1 pipeline cancel 4000000
	bad 1 pipeline run checksum --from csd0 --length 1TiB --to "$tmp/result"
	bad 5 pipeline run checksum --from csd0 --length 4096 --to csd1:0
	bad 5 drive unbind csd0
}

it "usage errors end with 2, as JSON too where that is asked for" t_usage
t_usage() {
	local words
	while read -r words; do
		# shellcheck disable=SC2086
		ends 2 csdctl $words
		eq "$(cat "$tmp/stdout")" "" "standard output of csdctl $words"
		ne "$(cat "$tmp/stderr")" "" "standard error of csdctl $words"
		# shellcheck disable=SC2086
		ends 2 csdctl -o json $words
		eq "$(jq "$defs error and .error.exit == 2" "$tmp/stderr" 2>&1)" true "csdctl -o json $words: $(cat "$tmp/stderr")"
	done <<'WORDS'
nonsense
drive
drive show
drive bind
mesh create --entries 7
msg send x
msg ping --count 0
pipeline run
pipeline run checksum --from csd0 --chunk 5000
pipeline run checksum --from csd0 --deadline 2h
pipeline run checksum --from csd0 --length 3XiB
monitor --timeout x
WORDS
}

it "help and version succeed and go to standard output" t_help
t_help() {
	local words
	for words in --help --version 'drive --help' 'mesh create --help' 'pipeline run --help' 'doctor --help'; do
		# shellcheck disable=SC2086
		ends 0 csdctl $words
		ne "$(cat "$tmp/stdout")" "" "standard output of csdctl $words"
		eq "$(cat "$tmp/stderr")" "" "standard error of csdctl $words"
	done
	csdctl --help | grep -q 130 || fail "--help does not list the exit statuses"
}

it "sizes are taken in bytes and in binary units" t_units
t_units() {
	local size
	for size in 65536 64KiB; do
		eq "$(j '.pipeline.bytes_in' pipeline run checksum --from csd0 --length $size --to "$tmp/result")" 65536 "length $size"
	done
	eq "$(j '.pipeline.bytes_in' pipeline run checksum --from csd0 --length 1MiB --to "$tmp/result")" 1048576 "length 1MiB"
}

it "completions and manual pages come from the same description" t_pages
t_pages() {
	local shell
	for shell in bash zsh fish; do
		ends 0 csdctl completions $shell
		grep -q pipeline "$tmp/stdout" || fail "completions for $shell do not know pipeline"
	done
	csdctl completions bash >"$tmp/completion"
	done_ok bash -n "$tmp/completion"
	ends 0 csdctl man
	grep -q '^\.TH' "$tmp/stdout" || fail "no manual page"
}

it "a user who may not open the device is told so, with 3 and a remedy" t_nobody
t_nobody() {
	ends 3 setpriv --reuid 65534 --regid 65534 --clear-groups csdctl drive list
	matches "$(cat "$tmp/stderr")" '*/dev/csd*group csd*' "what it says"
	ends 0 setpriv --reuid 65534 --regid 65534 --groups 990 csdctl drive list
}

it "nothing is printed on success where nothing was asked" t_quiet
t_quiet() {
	done_ok csdctl mesh destroy
	csdctl mesh create >/dev/null
	eq "$(csdctl msg send --to csd0 x 2>&1)" "" "msg send"
	eq "$(csdctl mesh destroy 2>&1)" "" "mesh destroy"
	csdctl mesh create >/dev/null
}

run_tests
