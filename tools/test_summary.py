#!/usr/bin/env python3
"""Prints 'N passed, N failed, N skipped' for `bazel test` and `ctest` invocations, added up.

usage: test_summary.py FILE...

A FILE that ends with .test.xml is what one GoogleTest program wrote, any other that ends with .xml what `ctest
--output-junit` did, and all else what `bazel test --build_event_json_file` did.

Counts single test cases from every test.xml that the build event files name, and each CTest test as one. Not from bazel-testlogs: that
keeps the results of targets that were not run, or not even built, this time. Each failed case is named on stderr with the beginning of its
message: the end of a log then tells what failed, where its beginning is lost.

A target that failed without a failed case (a crash, a time-out, a sanitizer's report), one that did not run, and an
invocation that failed otherwise or ran no test at all count as one failure each. Exits with 1 if anything failed.
"""
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ET


MESSAGE_CHARACTERS = 1500  # of a failed case


def tell_failure(where, case, failure):
    """Names the failed `case` of `where`, and how its message begins."""
    text = failure.text or ""
    if failure.get("message", "") not in text:
        text = failure.get("message") + "\n" + text
    name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
    print(f"=== failed: {where} {name}", file=sys.stderr)
    print(text.strip()[:MESSAGE_CHARACTERS], file=sys.stderr)


def path_of(uri):
    return urllib.parse.unquote(urllib.parse.urlparse(uri).path)


def tell_end(log):
    """How the log of a test ended that failed without a failed case."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            print(file.read().strip()[-MESSAGE_CHARACTERS:], file=sys.stderr)
    except OSError as error:
        print(error, file=sys.stderr)


def count_cases(path, where):
    """(passed, failed, skipped) of one test.xml; says on stderr what failed `where`."""
    passed = failed = skipped = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        failures = [note for note in (case.find("failure"), case.find("error")) if note is not None]
        if failures:
            failed += 1
            tell_failure(where, case, failures[0])
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped += 1
        elif case.get("status") == "notrun" or case.get("result") == "suppressed":
            # DISABLED_ tests. Others that were not run belong to another shard or a filter.
            skipped += case.get("name", "").startswith("DISABLED_")
        else:
            passed += 1
    return passed, failed, skipped


def count_invocation(build_events):
    """(passed, failed, skipped) of one `bazel test`; says on stderr what failed."""
    results = {}  # (label, run, shard) -> (attempt, status, paths of test.xml and test.log by name)
    targets = set()  # labels of the tests that should have run
    exit_name = "did not finish"
    with open(build_events, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            ident = event["id"]
            if "targetConfigured" in ident:
                if event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
                    targets.add(ident["targetConfigured"]["label"])
            elif "testResult" in ident:
                i, result = ident["testResult"], event.get("testResult", {})
                key = (i["label"], i.get("run", 1), i.get("shard", 1))
                files = {o["name"]: path_of(o["uri"]) for o in result.get("testActionOutput", []) if "uri" in o}
                if key not in results or i.get("attempt", 1) >= results[key][0]:
                    results[key] = (i.get("attempt", 1), result.get("status", "NO_STATUS"), files)
            elif "buildFinished" in ident:
                exit_name = event.get("finished", {}).get("exitCode", {}).get("name", "UNKNOWN")

    passed = failed = skipped = 0
    for (label, _, _), (_, status, files) in sorted(results.items()):
        p = f = s = 0
        if "test.xml" in files:
            try:
                p, f, s = count_cases(files["test.xml"], label)
            except (OSError, ET.ParseError) as error:
                print(f"{label}: {error}", file=sys.stderr)
        ok = status in ("PASSED", "FLAKY")
        if not ok and f == 0:
            f = 1
            print(f"=== failed: {label} {status}", file=sys.stderr)
            if "test.log" in files:
                tell_end(files["test.log"])
        passed, failed, skipped = passed + p, failed + f, skipped + s
    for label in sorted(targets - {key[0] for key in results}):
        print(f"{label}: not run (did it build?)", file=sys.stderr)
        failed += 1
    if not failed and exit_name != "SUCCESS":
        print(f"bazel: {exit_name}", file=sys.stderr)
        failed += 1
    if passed + failed == 0:
        print(f"{build_events}: no test ran", file=sys.stderr)
        failed += 1
    return passed, failed, skipped


def count_ctest(path):
    """(passed, failed, skipped) of one `ctest`. What it could not start (never built, a fixture failed) has failed."""
    passed = failed = skipped = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        note = case.find("skipped")
        if status == "run":
            passed += 1
        elif status == "disabled" or (note is not None and note.get("message", "").startswith("SKIP_")):
            skipped += 1
        else:
            failed += 1
            print(f"{case.get('name')}: {status if note is None else note.get('message')}", file=sys.stderr)
    if passed + failed == 0:
        print(f"{path}: no test ran", file=sys.stderr)
        failed += 1
    return passed, failed, skipped


def main(paths):
    if not paths:
        sys.exit(__doc__)
    totals = [0, 0, 0]
    for path in paths:
        try:
            if path.endswith(".test.xml"):
                counts = count_cases(path, path)
            else:
                counts = (count_ctest if path.endswith(".xml") else count_invocation)(path)
        except (OSError, ET.ParseError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            counts = (0, 1, 0)
        totals = [total + count for total, count in zip(totals, counts)]
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
