#!/usr/bin/env python3
"""Plots what recursive_benchmark prints: ops run again per op of the chain, and live values, by the chain's length.

    bazel-bin/benchmarks/recursive_benchmark > recursive.csv
    python3 -m venv venv && venv/bin/pip install matplotlib==3.9.2
    venv/bin/python benchmarks/plot_recursive.py recursive.csv docs/recursive.svg
"""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "ac2"  # the same figure, the same file
import matplotlib.pyplot as plt

NAMES = {"sqrt": "2·√N + 4 live values", "log": "3·log₂N live values"}


def main() -> int:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        sys.exit(f"{sys.argv[1]} has no rows; it must be the output of recursive_benchmark.")
    figure, (again, live) = plt.subplots(1, 2, figsize=(9, 3.4))
    for kind, name in NAMES.items():
        of_kind = [row for row in rows if row["live"] == kind]
        ops = [int(row["ops"]) for row in of_kind]
        again.plot(ops, [float(row["replayed_per_op"]) for row in of_kind], marker="o", label=name)
        live.plot(ops, [int(row["peak_values"]) for row in of_kind], marker="o", label=name)
    live.plot(ops, ops, color="gray", linestyle="--", label="no budget")
    for axes, title in ((again, "ops run again per op"), (live, "most values held, counted")):
        axes.set_xscale("log")
        axes.set_xlabel("ops in the chain")
        axes.set_title(title)
        axes.grid(alpha=0.3)
        axes.legend()
    again.set_ylim(bottom=0)
    live.set_yscale("log")
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
