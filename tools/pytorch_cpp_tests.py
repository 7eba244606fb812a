"""Runs PyTorch's own tests of its C++ API plain and by ac2-run, and lists the tests that end otherwise.

    python tools/pytorch_cpp_tests.py PYTORCH/test build optim modules --launcher bazel-bin/ac2/run/ac2-run --libtorch LIBTORCH

PYTORCH/test is the folder of a checkout of PyTorch, of the release nearest to the LibTorch. FILE is the name of a file of cpp/api
without ".cpp". Its program is built once, in the folder `build`, which takes a minute or two; programs that are there are used as they
are, so that a file which does not compile with a newer LibTorch can be built by hand. Needs g++ and GoogleTest.

Each test runs in a process of its own, so that its first op is the one in which the region begins: plain, and by ac2-run in each of the
ways below. A test that does not pass in plain is no difference. Exits with 1 if there is a difference that is not known.
"""

import argparse
import pathlib
import re
import subprocess
import sys
from typing import Dict, List, Tuple

WAYS: Dict[str, List[str]] = {
    "what fits": [],
    "soft:1": ["--memory-budget", "soft:1"],
    "recompute_all": ["--policy", "recompute_all"],
    "verified": ["--policy", "recompute_all", "--verify"],
}
# With the reason.
KNOWN = {
    "AutogradAPITests.AnomalyMode": "expects an error about a tensor that was modified in place, which a region computes again from what "
    "forward read",
}
NOT_FOR_THE_CPU = "*_CUDA:*_MultiCUDA"


def build(tests: pathlib.Path, folder: pathlib.Path, libtorch: pathlib.Path, name: str) -> pathlib.Path:
    program = folder / name
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    include = libtorch / "include"
    options = ["-std=c++20", "-O0", "-w", f"-I{tests.parent}", f"-I{tests / 'cpp' / 'api'}"]
    options += ["-isystem", str(include), "-isystem", str(include / "torch" / "csrc" / "api" / "include")]
    sources = [tests / "cpp" / "api" / f"{name}.cpp", tests / "cpp" / "api" / "support.cpp", tests / "cpp" / "common" / "main.cpp"]
    link = [f"-L{libtorch / 'lib'}", f"-Wl,-rpath,{libtorch / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    subprocess.run(["g++", *options, *map(str, sources), "-o", str(program), *link, "-lgtest", "-lgmock", "-lpthread"], check=True)
    return program


def tests_of(program: pathlib.Path) -> List[str]:
    command = [str(program), "--gtest_list_tests", f"--gtest_filter=-{NOT_FOR_THE_CPU}"]
    names, suite = [], ""
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("  "):
            names.append(suite + line.split()[0])
        elif re.fullmatch(r"\S+\.", line.split("#")[0].strip()):
            suite = line.split("#")[0].strip()
    return names


def run(command: List[str], seconds: int) -> Tuple[str, str]:
    """How the test ended, and what was said on stderr."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        return "took too long", ""
    return "passed" if done.returncode == 0 else f"ended with {done.returncode}", done.stderr


def computed_again(said: str) -> int:
    found = re.search(r"(\d+) ops? w\w+ computed again", said)
    return int(found[1]) if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=pathlib.Path, metavar="PYTORCH/test")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--launcher", default="ac2-run")
    parser.add_argument("--libtorch", type=pathlib.Path, required=True, help="the folder with include and lib")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for a test")
    args = parser.parse_args()

    others = 0
    for name in args.files:
        program = build(args.tests, args.build, args.libtorch, name)
        ran, again = 0, dict.fromkeys(WAYS, 0)
        for test in tests_of(program):
            command = [str(program.resolve()), f"--gtest_filter={test}"]
            if run(command, args.timeout)[0] != "passed":
                print(f"{name}: {test} does not pass in plain")
                continue
            ran += 1
            for way, options in WAYS.items():
                end, said = run([args.launcher, *options, *command], args.timeout)
                again[way] += computed_again(said)
                if end != "passed":
                    others += test not in KNOWN
                    print(f"{name}: {test} {end} with {way}" + (f", as is known: it {KNOWN[test]}" if test in KNOWN else ""))
        print(f"{name}: {ran} tests; ops computed again: " + ", ".join(f"{count} with {way}" for way, count in again.items()), flush=True)
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
