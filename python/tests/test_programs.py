"""Whole programs, each written as its usual examples are and without a word of ac2: the same bits, output and exit code by the launcher.

benchmarks/real_programs has programs that need more packages.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

FOLDER = pathlib.Path(__file__).resolve().parent / "programs"


def run(name, saved, *options):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AC2_")}
    ended = subprocess.run(
        [sys.executable, "-B", *options, str(FOLDER / f"{name}.py"), str(saved)],
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    return ended, torch.load(saved) if saved.exists() else None


def bits(value):
    """To the last bit, and to the sign of a zero."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.detach().contiguous().view(-1).view(torch.uint8).tolist()
    if isinstance(value, dict):
        return [(key, bits(part)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    return value


@pytest.mark.parametrize(
    "name, budget", [("adversarial", "80KiB"), ("images", "224KiB"), ("language_model", "256KiB"), ("policy_gradient", "20KiB")]
)
def test_a_program_trains_to_the_same_bits_while_values_are_dropped(name, budget, tmp_path):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        plainly = pool.submit(run, name, tmp_path / "plain")
        by_launcher = pool.submit(run, name, tmp_path / "launched", "-m", "ac2", "--memory-budget", budget)
        (plain, trained), (launched, trained_too) = plainly.result(), by_launcher.result()
    assert trained is not None, plain.stderr
    words = re.search(r"^ac2: .* (\d+) values were dropped and (\d+) ops were computed again", launched.stderr, flags=re.MULTILINE)
    assert words and int(words[1]) > 0 and int(words[2]) > 0, launched.stderr
    assert launched.stderr[: words.start()] == plain.stderr
    assert launched.stdout == plain.stdout
    assert launched.returncode == plain.returncode
    assert bits(trained_too) == bits(trained)
