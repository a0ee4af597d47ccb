# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the benchmarks share: the folder that the guest sees, the programs in it,
# and the way to the report.  Sourced by the scripts above; measures nothing.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../lib/cache.sh"
bench=$CSD_TOP/tools/bench
name=${0##*/}
work=$CSD_TOP/build/bench/$name.d
: "${RUNS:=7}"

host() { "$CSD_TOP/tools/sysroot" run -- "$@"; }

rm -rf "$work"
mkdir -p "$work"
cp "$bench/guest/$name" "$work/guest"

# guest OPTION…: one machine in which guest/NAME measures; its lines of JSON to the report
guest() {
	"$CSD_TOP/tools/vm" run --share "$work" --timeout 540 "$@" -- bash /host/guest "$RUNS" >"$work/runs.json" ||
		die "the guest failed; $work has what there is"
	host python3 -B "$bench/lib/report.py" "$name" "$work/runs.json" "$CSD_TOP/build/bench/$name.json"
}
