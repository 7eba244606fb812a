"""benchmarks/compare_python: that it works, on tiny models."""

import os
import pathlib
import subprocess
import sys

import pytest

# Where Bazel puts it: beside the package.
BENCHMARKS = pathlib.Path(os.environ.get("AC2_PACKAGES", "")).parent / "benchmarks"
RECORD_BENCHMARK = BENCHMARKS / "record_benchmark"

if not RECORD_BENCHMARK.exists():
    pytest.skip("needs what Bazel builds beside it", allow_module_level=True)


def test_every_form_trains_with_the_bits_of_plain_pytorch():
    done = subprocess.run(
        [sys.executable, "-B", BENCHMARKS / "peers" / "python_figures.py", "--quick", "--models=gpt,resnet18",
         f"--counter={BENCHMARKS / 'libcounting_allocator.so'}", f"--record_benchmark={RECORD_BENCHMARK}"],
        stdout=subprocess.PIPE, text=True, check=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("| ")]
    models = [row for row in rows if len(row) == 8 and row[-1] in ("yes", "NO")]
    assert {row[0] for row in models} >= {"plain", "torch.utils.checkpoint", "recompute_all", "save_compute_intensive"}
    assert all(row[-1] == "yes" for row in models)
    peaks = {}
    for row in models:
        peaks.setdefault(row[0], []).append(float(row[5].split()[0]))
    assert all(ours <= theirs for ours, theirs in zip(peaks["recompute_all"], peaks["torch.utils.checkpoint"], strict=True))
