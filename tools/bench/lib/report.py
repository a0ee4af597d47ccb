# SPDX-License-Identifier: GPL-2.0
"""report.py NAME RUNS.json REPORT.json: runs of a benchmark to a table and a report.

RUNS.json has one object a line: first {"about": …, "metrics": [{"name", "unit",
"what"}…]}, then one a run: {"ours": {metric: value}, "peer": {metric: value}}.
Every run has both, measured one after the other on the same machine, so that
their ratio is taken within the run. Owns the statistics and the layout; measures
nothing.
"""

import json
import statistics
import sys


def spread(values):
    """The middle and the ends of some values."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def shown(value, unit):
    """A value for people."""
    if unit == "ns":
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if abs(value) >= size:
                return f"{value / size:,.3g} {name}" if value / size < 100 else f"{value / size:,.0f} {name}"
        return f"{value:,.0f} ns"
    if unit == "s":
        return f"{value:,.2f} s"
    if unit == "B":
        return f"{value:,.0f} B"
    return f"{value:,.4g}{' ' + unit if unit else ''}"


def main():
    """Reads, sums up, writes, prints."""
    name, source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        about, *runs = [json.loads(line) for line in file if line.strip()]
    if not runs:
        sys.exit(f"{name}: no run was measured")
    report = {"schema": "csd-bench/1", "name": name, "about": about["about"], "runs": len(runs), "metrics": []}
    rows = [("", "ours", "peer", "ours/peer", "min", "max")]
    for metric in about["metrics"]:
        key = metric["name"]
        ours = [run["ours"][key] for run in runs if key in run["ours"]]
        peer = [run["peer"][key] for run in runs if key in run["peer"]]
        entry = {**metric, "ours": spread(ours), "peer": spread(peer) if peer else None, "ratio": None,
                 "values": {"ours": ours, "peer": peer}}
        row = [key, shown(entry["ours"]["median"], metric["unit"]), "-", "-", "-", "-"]
        if peer:
            row[2] = shown(entry["peer"]["median"], metric["unit"])
            if all(peer):
                entry["ratio"] = spread([a / b for a, b in zip(ours, peer)])
                row[3:] = [f"{entry['ratio'][k]:.2f}" for k in ("median", "min", "max")]
        report["metrics"].append(entry)
        rows.append(row)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print(f"{name}: {about['about']}")
    print(f"medians of {len(runs)} runs, each with both, in the same guest; ratios within a run")
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip())
    for metric in about["metrics"]:
        print(f"  {metric['name']}: {metric['what']}")


if __name__ == "__main__":
    main()
