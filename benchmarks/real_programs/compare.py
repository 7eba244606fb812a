"""Runs each program of this folder plain and by ``python -m ac2`` with a memory budget, compares them, and prints a table.

    python benchmarks/real_programs/compare.py                     all programs
    python benchmarks/real_programs/compare.py keras_fit --memory-budget 10MiB

A program takes the path of a file, where it saves what it has trained. Compared are that file, tensor by tensor to the last bit, the
output but for times and for ac2's lines at the end of stderr, and the exit code.
Exits with 1 if anything differs. benchmarks/compare_programs installs the packages that are needed.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import torch

FOLDER = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Ending:
    code: int
    out: str
    err: str
    words: str  # ac2's own, at the end of stderr
    seconds: float
    state: object


# Warnings of ac2's own come where a region closes, before its lines at the end.
OWN_WARNING = re.compile(r"^\S*/ac2/\w+\.py:\d+: UserWarning: The soft memory budget .*\n.*\n", flags=re.MULTILINE)


def programs():
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "compare")


def without_times(text):
    """Not of the program's doing: times, and the time and process with which log lines begin."""
    text = re.sub(r"'(\w+_runtime|\w+_per_second)': '?[\d.e+-]+'?", r"'\1': ...", text)
    text = re.sub(r"\[\d\d:\d\d<[^]]*\]", "[...]", text)
    return re.sub(r"^([WEI])\d{4} [\d:.]+ \d+ ", r"\1 ", text, flags=re.MULTILINE)


def run(name, *options):
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "trained"
        command = [sys.executable, "-B", *options, str(FOLDER / f"{name}.py"), str(saved)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("AC2_")}
        begun = time.monotonic()
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        seconds = time.monotonic() - begun
        err, words = ended.stderr.replace(folder, "FOLDER"), ""
        found = re.search(r"^ac2: ", err, flags=re.MULTILINE)
        if found:
            err, words = OWN_WARNING.sub("", err[: found.start()]), err[found.start() :]
        state = torch.load(saved, weights_only=False) if saved.exists() else None
        return Ending(ended.returncode, without_times(ended.stdout.replace(folder, "FOLDER")), without_times(err), words, seconds, state)


def bits(value):
    """What is compared of a saved object."""
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous()
        return value.dtype, tuple(value.shape), value.view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    if isinstance(value, dict):
        return [(key, bits(part)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [bits(part) for part in value]
    return value


def differences(plain, other):
    found = [what for what in ("code", "out", "err") if getattr(plain, what) != getattr(other, what)]
    if bits(plain.state) != bits(other.state):
        found.append("state")
    return found


def counted(words, what):
    found = re.search(rf"(\d+) {what}s? (?:was|were)\b", words)
    return int(found[1]) if found else 0


def report(name, plain, ended):
    """Prints where they differ, and returns what the table says of it."""
    differ = differences(plain, ended)
    for part in differ:
        if part != "state":
            print(f"{name}: {part}: {getattr(ended, part)!r:.3000}\n  plain: {getattr(plain, part)!r:.3000}", file=sys.stderr, flush=True)
    return ", ".join(differ) or "nothing"


def compare(names, budget):
    print("| program | values dropped | ops computed again | plain | with ac2 | differs in |")
    print("|---|---:|---:|---:|---:|---|", flush=True)
    bad = False
    for name in names:
        plain, ended = run(name), run(name, "-m", "ac2", "--memory-budget", budget)
        dropped, again = counted(ended.words, "value"), counted(ended.words, "op")
        differ = report(name, plain, ended)
        if plain.code != 0 or plain.state is None:
            print(f"{name}: plain ends with {plain.code}:\n{plain.err[-3000:]}", file=sys.stderr, flush=True)
            differ = f"plain ends with {plain.code}, and has saved {'nothing' if plain.state is None else 'something'}"
        bad |= differ != "nothing"
        print(f"| {name} | {dropped} | {again} | {plain.seconds:.0f} s | {ended.seconds:.0f} s | {differ} |", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(programs()))
    parser.add_argument("--memory-budget", default="soft:64KiB", metavar="BUDGET")
    arguments = parser.parse_args()
    unknown = set(arguments.programs) - set(programs())
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(programs())}")
    names = arguments.programs or programs()
    sys.exit(compare(names, arguments.memory_budget))


if __name__ == "__main__":
    main()
