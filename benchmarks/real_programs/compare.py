"""Runs each program of this folder plain and by ``python -m ac2`` with a memory budget, compares them, and prints a table.

    python benchmarks/real_programs/compare.py                     all programs
    python benchmarks/real_programs/compare.py keras_fit --memory-budget 10MiB
    python benchmarks/real_programs/compare.py timm_train --address-space

With --address-space the least address space is looked for in which each program ends as it does without a limit, plain and by
``python -m ac2``, to 16 MiB: half a dozen runs of each. Batches are so many times as large there as LARGER says, so
that a region holds more than what ac2 itself takes; --times gives another number, without --address-space too.

A program takes the path of a file, where it saves what it has trained, and how many times as large its batches are. Compared are that
file, tensor by tensor to the last bit, the output but for times and for ac2's lines at the end of stderr, and the exit code.
Exits with 1 if anything differs. benchmarks/compare_programs installs the packages that are needed.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import torch

FOLDER = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
STEP = 16  # MiB, of a search

# With these, a region holds some 100 MiB (35 and 70 in ppo_gymnasium and thinc_pipeline).
LARGER = {
    "accelerate_loop": 16,
    "bert_trainer": 16,
    "diffusers_unet": 8,
    "geometric_graphs": 8,
    "keras_fit": 32,
    "lightning_trainer": 128,
    "peft_lora": 32,
    "ppo_gymnasium": 512,
    "thinc_pipeline": 256,
    "timm_train": 8,
    "torchvision_classification": 16,
    "torchvision_detection": 4,
    "transformers_trainer": 3,
}


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


def command_for(name, saved, times, *options):
    return [sys.executable, "-B", *options, str(FOLDER / f"{name}.py"), str(saved), str(times)]


def environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AC2_")}
    return kept | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def run(name, times, *options, mib=None):
    """With at most so much address space."""
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "trained"
        begun = time.monotonic()
        ended = subprocess.run(
            command_for(name, saved, times, *options),
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment(),
            preexec_fn=None if mib is None else lambda: resource.setrlimit(resource.RLIMIT_AS, (mib * MIB, mib * MIB)),
        )
        seconds = time.monotonic() - begun
        err, words = ended.stderr.replace(folder, "FOLDER"), ""
        found = re.search(r"^ac2: ", err, flags=re.MULTILINE)
        if found:
            err, words = OWN_WARNING.sub("", err[: found.start()]), err[found.start() :]
        # A program that has run out of memory may leave half a file.
        is_whole = saved.exists() and (mib is None or ended.returncode == 0)
        state = torch.load(saved, weights_only=False) if is_whole else None
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


def compare(names, times, budget):
    print("| program | values dropped | ops computed again | plain | with ac2 | differs in |")
    print("|---|---:|---:|---:|---:|---|", flush=True)
    bad = False
    for name in names:
        plain, ended = run(name, times), run(name, times, "-m", "ac2", "--memory-budget", budget)
        dropped, again = counted(ended.words, "value"), counted(ended.words, "op")
        differ = report(name, plain, ended)
        if plain.code != 0 or plain.state is None:
            print(f"{name}: plain ends with {plain.code}:\n{plain.err[-3000:]}", file=sys.stderr, flush=True)
            differ = f"plain ends with {plain.code}, and has saved {'nothing' if plain.state is None else 'something'}"
        bad |= differ != "nothing"
        print(f"| {name} | {dropped} | {again} | {plain.seconds:.0f} s | {ended.seconds:.0f} s | {differ} |", flush=True)
    return bad


def address_space(name, times):
    """The most that the plain program takes, in MiB, as a search's beginning: it is looked at now and then."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            command_for(name, pathlib.Path(folder) / "trained", times),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment(),
        )
        most = 0
        while process.poll() is None:
            found = re.search(r"VmPeak:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text())
            most = max(most, int(found[1]) if found else 0)
            time.sleep(0.05)
    return most // 1024


def least(passes, most):
    """The least number of MiB, to STEP, with which it passes, if it does with `most`. Nothing if it does not."""
    if not passes(most):
        return None
    fails, width = most, 4 * STEP
    while passes(fails := fails - width):
        most, width = fails, 2 * width
    while most - fails > STEP:
        middle = (most + fails) // 2
        most, fails = (middle, fails) if passes(middle) else (most, middle)
    return most


def compare_in_little_memory(names, times):
    columns = "program | batches | plain in MiB | with ac2 | dropped | again | plain, no limit | ac2, least | differs in"
    print(f"| {columns} |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|", flush=True)
    bad = False
    for name in names:
        larger = times or LARGER[name]
        plain = run(name, larger)

        def passes(mib, *options):
            ended = run(name, larger, *options, mib=mib)
            last = (ended.err.rstrip().splitlines() or [""])[-1]
            print(f"{name} in {mib} MiB {' '.join(options)}: {ended.code} {last if ended.code else ''}", file=sys.stderr, flush=True)
            return ended.code == plain.code and ended.state is not None

        most = address_space(name, larger) + 2 * STEP
        alone = least(lambda mib: passes(mib), most)
        with_ac2 = alone and (least(lambda mib: passes(mib, "-m", "ac2"), alone) or least(lambda mib: passes(mib, "-m", "ac2"), most))
        if alone is None or with_ac2 is None:
            print(f"| {name} | x {larger} | {alone} | {with_ac2} | | | | | does not end as without a limit in {most} MiB |", flush=True)
            bad = True
            continue
        ended = run(name, larger, "-m", "ac2", mib=with_ac2)
        differ = report(name, plain, ended)
        bad |= differ != "nothing"
        dropped, again = counted(ended.words, "value"), counted(ended.words, "op")
        took = f"{plain.seconds:.0f} s | {ended.seconds:.0f} s"
        print(f"| {name} | x {larger} | {alone} | {with_ac2} | {dropped} | {again} | {took} | {differ} |", flush=True)
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(programs()))
    parser.add_argument("--memory-budget", default="soft:64KiB", metavar="BUDGET")
    parser.add_argument("--times", type=int, metavar="N", help="batches are so many times as large")
    parser.add_argument("--address-space", action="store_true", help="looks for the least in which each program ends well")
    arguments = parser.parse_args()
    unknown = set(arguments.programs) - set(programs())
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(programs())}")
    names = arguments.programs or programs()
    if arguments.address_space:
        sys.exit(compare_in_little_memory(names, arguments.times))
    sys.exit(compare(names, arguments.times or 1, arguments.memory_budget))


if __name__ == "__main__":
    main()
