#!/usr/bin/env python3
"""Checks that each file includes headers of the project only from its own library and from what that library depends on.

usage: includes_check.py RESULT.xml

A room compiles as one file (tools/room.bzl), with the `deps` of all its libraries together. So the compiler accepts a header that the
file's own library does not depend on, and a file could include upwards. `--config=files` finds such a file by compiling every file,
which takes minutes. This check asks Bazel for the libraries and reads the files' #include lines, which takes seconds.

RESULT.xml gets one JUnit test case, which tools/test_summary.py counts. Exits with 1 if a file fails the check.
"""
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

FOLDERS = "//ac2/... + //policies/... + //python/... + //tests/... + //examples/... + //benchmarks/..."
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read_rules():
    """The C++ rules and aliases: label -> {attribute: labels}. A select() gives the labels of all its branches."""
    query = ["./bazelw", "query", f'kind("cc_.* rule|alias rule", {FOLDERS})', "--output=xml"]
    root = ET.fromstring(subprocess.run(query, check=True, stdout=subprocess.PIPE).stdout)
    rules = {}
    for rule in root.iter("rule"):
        attributes = {each.get("name"): [label.get("value") for label in each] for each in rule.findall("list")}
        attributes["actual"] = [label.get("value") for label in rule.findall("label[@name='actual']")]
        rules[rule.get("name")] = attributes
    return rules


def path_of(label):
    return label.removeprefix("//").replace(":", "/").lstrip("/")


def headers_below(label, rules):
    """The headers of everything that `label` depends on. The room that a library links is no C++ rule, and so not followed."""
    headers, seen, waiting = set(), {label}, [label]
    while waiting:
        rule = rules.get(waiting.pop(), {})
        for attribute in ("hdrs", "textual_hdrs"):
            headers.update(map(path_of, rule.get(attribute, [])))
        below = set(rule.get("deps", []) + rule.get("actual", [])) - seen
        seen |= below
        waiting.extend(below)
    return headers


def find_violations(rules):
    """One line for each header that a file includes without depending on it, and the number of files that were read."""
    lines, files = [], 0
    for label, rule in sorted(rules.items()):
        if "part_of_room" in rule.get("tags", []):
            continue  # The same files, for the room.
        own = set(map(path_of, rule.get("srcs", []) + rule.get("hdrs", [])))
        allowed = own | headers_below(label, rules)
        for file in filter(pathlib.Path.is_file, map(pathlib.Path, sorted(own))):
            files += 1
            for header in INCLUDE.findall(file.read_text(encoding="utf-8")):
                if header not in allowed and pathlib.Path(header).is_file():
                    lines.append(f"{file} includes {header}: add the header's library to the deps of {label}")
    return lines, files


def main():
    lines, files = find_violations(read_rules())
    if files == 0:
        lines = ["no file was read: bazel query found no library"]
    suite = ET.Element("testsuite", name="includes_check", tests="1", failures=str(int(bool(lines))))
    case = ET.SubElement(suite, "testcase", name="EachFileIncludesOnlyHeadersThatItsLibraryDependsOn", status="run")
    if lines:
        ET.SubElement(case, "failure", message="\n".join(lines))
    ET.ElementTree(suite).write(sys.argv[1], encoding="utf-8", xml_declaration=True)
    print("\n".join(lines) or f"includes_check: {files} files include headers of what their libraries depend on")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
