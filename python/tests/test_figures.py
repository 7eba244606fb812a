"""benchmarks/compare_python and compare_reserved: that they work, on tiny models."""

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
        [sys.executable, "-B", BENCHMARKS / "peers" / "python_figures.py", "--quick", "--models=gpt,resnet18,forces,penalty",
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


def reserved(*arguments):
    """The rows of a table that compare_reserved prints: a dictionary by form."""
    done = subprocess.run(
        [sys.executable, "-B", BENCHMARKS / "peers" / "reserved.py", "--quick", "--steps=2", "--models=mobilenet_v2",
         "--forms=plain,torch.utils.checkpoint,recompute_all,1MiB@step",
         f"--recorder={BENCHMARKS / 'librecording_allocator.so'}", *arguments],
        stdout=subprocess.PIPE, text=True, check=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if line.startswith("| ")]
    return {row[1]: [float(cell) for cell in row[2:]] for row in rows if row[0] == "mobilenet_v2"}


def test_what_would_be_reserved_is_simulated_for_every_form():
    rows = reserved()
    assert list(rows) == ["plain", "torch.utils.checkpoint", "recompute_all", "1MiB@step"]
    assert all(0 < requested <= used <= min(fixed, expandable) for requested, used, fixed, expandable in rows.values())
    assert rows["recompute_all"][0] <= rows["torch.utils.checkpoint"][0] <= rows["plain"][0]


def test_resident_bytes_are_measured_with_settings_of_malloc():
    rows = reserved("--resident", "--malloc=as it is,MALLOC_MMAP_THRESHOLD_=65536")
    assert len(rows) == 4
    assert all(len(row) == 2 and min(row) > 0 for row in rows.values())
