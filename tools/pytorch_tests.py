"""Runs PyTorch's own Python tests plain and in a region that lasts, and lists the tests that end otherwise.

    python tools/pytorch_tests.py PYTORCH/test test_view_ops.py test_indexing.py
    python tools/pytorch_tests.py PYTORCH/test test_autograd.py --memory-budget soft:1KiB -k "not gradcheck"

PYTORCH/test is the folder of a checkout of PyTorch, of the release nearest to the torch that is installed. Each file runs by pytest,
once as it is and once under ``python -m ac2``. Where a test ends the process, the rest of the file runs in another one. Tests that do not
end the same way twice in plain runs are no difference: a test that differs runs once more both ways, alone.

pytorch_tests_known.txt, beside this file, names differences that are known, with the reason. Exits with 1 if there is another one, or if
a known one that ran is none any more. Needs pytest, expecttest and hypothesis, and ac2 and torch on PYTHONPATH. Without a budget nothing
is dropped where there is memory: ``--memory-budget soft:1KiB`` drops all the time.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

KNOWN = pathlib.Path(__file__).with_name("pytorch_tests_known.txt")
CRASHED = "ended the process"


# --- as a plugin of pytest, in the process of the tests ---------------------------------------------------------------


def log_line(*words):
    with open(os.environ["PYTORCH_TESTS_LOG"], "a") as log:
        log.write("\t".join(words) + "\n")


def pytest_collection_modifyitems(config, items):
    """Leaves out what has run in a process that a test ended."""
    wanted = os.environ.get("PYTORCH_TESTS_ONLY")
    seen = read_log(os.environ["PYTORCH_TESTS_LOG"])
    kept = [item for item in items if name_of(item.nodeid) not in seen and (wanted is None or name_of(item.nodeid) in wanted.split())]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_runtest_logstart(nodeid):
    log_line(name_of(nodeid), CRASHED, "")


def pytest_runtest_logreport(report):
    if report.failed:
        text = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
        log_line(name_of(report.nodeid), "failed", " ".join(text.split())[:300])
    elif report.skipped:
        log_line(name_of(report.nodeid), "skipped", "")
    elif report.when == "call":
        log_line(name_of(report.nodeid), "passed", "")


def name_of(nodeid):
    return nodeid.rsplit("/", 1)[-1]


# --- in the process that compares -------------------------------------------------------------------------------------


def read_log(path):
    """Maps each test to how it ended, and the text of its error. A failure is not made good by what follows it."""
    endings = {}
    if os.path.exists(path):
        for line in open(path):
            name, ending, text = line.rstrip("\n").split("\t")
            if endings.get(name, (CRASHED,))[0] != "failed":
                endings[name] = (ending, text)
    return endings


def run(folder, file, launcher, pytest_options, only=None):
    with tempfile.TemporaryDirectory() as work:
        log = os.path.join(work, "log")
        environment = os.environ | {
            "PYTORCH_TESTS_LOG": log,
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu",
            "PYTHONPATH": os.pathsep.join([str(KNOWN.parent), os.environ.get("PYTHONPATH", "")]),
        }
        if only is not None:
            environment["PYTORCH_TESTS_ONLY"] = " ".join(only)
        command = [sys.executable, "-B", *launcher, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "-p", "no:cacheprovider"]
        command += ["-p", "pytorch_tests", "--rootdir", folder, os.path.join(folder, file), *pytest_options]
        while True:
            before = len(read_log(log))
            ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            endings = read_log(log)
            if ended.returncode in (0, 1, 5):  # 5: no test was left to run
                return endings
            if len(endings) == before:
                sys.exit(f"pytorch_tests: {file} cannot be run:\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}")


def differing(plain, launched):
    return [name for name in plain.keys() | launched.keys() if plain.get(name, ("missing",))[0] != launched.get(name, ("missing",))[0]]


def known_differences():
    known = {}
    for line in KNOWN.read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(" ", 1)
            known[name] = reason.strip()
    return known


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--memory-budget", default="auto")
    parser.add_argument("-k", metavar="EXPRESSION", help="pytest's")
    arguments = parser.parse_args()
    launcher = ["-m", "ac2", "--quiet", "--memory-budget", arguments.memory_budget]
    pytest_options = ["-k", arguments.k] if arguments.k else []
    known, bad = known_differences(), 0
    for file in arguments.files:
        plain = run(arguments.folder, file, [], pytest_options)
        launched = run(arguments.folder, file, launcher, pytest_options)
        names = differing(plain, launched)
        if names:  # once more, alone: some depend on the tests before them, or on chance
            again = [run(arguments.folder, file, start, pytest_options, names) for start in ([], launcher)]
            plain.update(again[0])
            launched.update(again[1])
        names = sorted(differing(plain, launched))
        count = collections.Counter(ending for ending, _ in launched.values())
        ends = ", ".join(f"{number} {ending}" for ending, number in sorted(count.items()))
        print(f"{file}: {len(plain)} tests, in a region {ends}; {len(names)} end otherwise than plain", flush=True)
        for name in names:
            (was, _), (now, text) = plain.get(name, ("missing", "")), launched.get(name, ("missing", ""))
            print(f"  {name}: plain {was}, in a region {now}: {known.get(name) or 'NOT KNOWN: ' + text}", flush=True)
        unknown = [name for name in names if name not in known]
        gone = [name for name in known if name in plain and name not in names]
        if gone and arguments.memory_budget == "auto":
            print(f"  named in {KNOWN.name}, and no difference: {', '.join(gone)}")
            bad += len(gone)
        bad += len(unknown)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
