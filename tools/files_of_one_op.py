#!/usr/bin/env python3
"""Lists the files of ac2's that one has to read to follow one `aten::cos` from its call through its recording and its
saved-tensor hook to its replay: without a budget, and under a budget that drops its result.

    tools/files_of_one_op.py                       # builds //benchmarks:one_cos with debug information, and runs it
    tools/files_of_one_op.py /a/one_cos            # of that program

A file counts if one of its lines runs, as callgrind and the debug information say, in an inlined function too. A .h and
the .cc of the same name are one pair. A pair is listed with the number of its lines that ran, without a budget and under
one. Not counted are headers that have types alone, functions of which the compiler has left nothing, and the files of
LibTorch and of abseil.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

WAYS = ("recompute_all", "budget")
OF_AC2 = re.compile(r"(?:^|/)((?:ac2|policies)/.+)\.(?:h|cc)$")


def named(text, names):
    """What a line of callgrind's names: `(number) name` the first time, `(number)` from then on."""
    number, _, name = text.partition(" ")
    if name:
        names[number] = name
    return names[number]


def lines_by_pair(path):
    """Of a file in callgrind's format: the lines that have run, by the pair of files that they are in."""
    pairs = collections.defaultdict(set)
    files = {}
    file, number, is_call = "", 0, False
    for text in path.read_text().splitlines():
        key, is_assignment, name = text.partition("=")
        if is_assignment and key in ("fl", "fi", "fe"):
            file = named(name, files)
        elif is_assignment and key in ("cfi", "cfl"):
            named(name, files)
        elif is_assignment and key == "calls":
            is_call = True  # the next line is what the call took
        elif position := re.match(r"([+-]?)(\d+)|\*", text):
            if position[1]:
                number += int(position[0])
            elif position[2]:
                number = int(position[2])
            pair = OF_AC2.search(file)
            if pair and not is_call:
                pairs[pair[1]].add((file, number))
            is_call = False
    return pairs


def run(program, way, folder):
    path = folder / way
    callgrind = ["valgrind", "--tool=callgrind", "--toggle-collect=counted_section", f"--callgrind-out-file={path}"]
    done = subprocess.run([*callgrind, program, way], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"files_of_one_op: {program} {way} failed:\n{done.stdout}{done.stderr}")
    if int(done.stdout) == 0:
        sys.exit(f"files_of_one_op: {program} {way} has replayed no op, so there is nothing to follow")
    return lines_by_pair(path)


def main():
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    program = sys.argv[1] if len(sys.argv) == 2 else "bazel-bin/benchmarks/one_cos"
    if len(sys.argv) < 2:
        subprocess.run(["./bazelw", "build", "-c", "dbg", "//benchmarks:one_cos"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        ran = [run(program, way, pathlib.Path(folder)) for way in WAYS]
    print("pair of files, and how many of its lines run: without a budget, under one\n")
    for pair in sorted(set().union(*ran)):
        print(f"{pair:<60} {len(ran[0].get(pair, ())):>4} {len(ran[1].get(pair, ())):>4}")
    print(f"\npairs of files: {len(ran[0])} without a budget, {len(ran[1])} under a budget that drops a value")


if __name__ == "__main__":
    main()
