# SPDX-License-Identifier: GPL-2.0
"""ring.py RUNS REPORT.json: criterion's medians of several runs to a table and a report.

RUNS has a folder of criterion's for each run, and what that run printed. Each
run measured everything, one after the other, so ratios are taken within a run.
Owns the statistics and the layout; measures nothing.
"""

import json
import re
import statistics
import sys
from pathlib import Path

# What each group is compared to
BASES = {"stream": "rtrb", "one-way": "line"}


def spread(values):
    """The middle and the ends of some values."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def main():
    """Reads, sums up, writes, prints."""
    source, target = map(Path, sys.argv[1:])
    runs = sorted(path for path in source.iterdir() if path.is_dir())
    if not runs:
        sys.exit("ring: no run was measured")
    groups = {}
    for run in runs:
        for file in run.glob("*/*/new/estimates.json"):
            group, name = file.parts[-4:-2]
            median = json.loads(file.read_text(encoding="utf-8"))["median"]["point_estimate"]
            groups.setdefault(group, {}).setdefault(name, []).append(median)
    report = {"schema": "csd-bench-ring/1", "runs": len(runs), "unit": "ns", "groups": {}}
    print(f"ring: medians of {len(runs)} runs; ratios within a run: median (least to most)")
    for group, found in sorted(groups.items()):
        base = BASES.get(group)
        print(f"{group}, ns" + (f", and ratio to {base}" if base else ""))
        report["groups"][group] = {}
        for name, values in sorted(found.items(), key=lambda item: statistics.median(item[1])):
            entry = {"ns": spread(values), "values": values}
            line = f"  {name:10} {entry['ns']['median']:12,.1f}"
            if base:
                ratio = spread([a / b for a, b in zip(values, found[base])])
                entry["ratio"] = ratio
                line += f"  {ratio['median']:5.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
            report["groups"][group][name] = entry
            print(line)
    target.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    said = (source / f"{runs[-1].name}.txt").read_text(encoding="utf-8")
    print("\n".join(sorted(set(re.findall(r"establish/\d+: .*", said)))))


if __name__ == "__main__":
    main()
