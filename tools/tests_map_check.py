#!/usr/bin/env python3
"""Checks that the map of the tests in CONTRIBUTING.md is that of the tree.

usage: tests_map_check.py RESULT.xml

Under the heading "Which tests test what" stand two tables. The first has a row for each folder of ac2/internal: the folders of tests/
that test it, and targets of theirs that --config=core runs. The second has a row for each folder of tests/ that is in no row of the
first. The check asks Bazel which targets have the tag `core`.

RESULT.xml gets one JUnit test case, which tools/test_summary.py counts. Exits with 1 if the map is wrong.
"""
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

PAGE = pathlib.Path("CONTRIBUTING.md")
HEADING = "### Which tests test what"


def read_tables(text):
    """The tables under the heading, without their heads: for each row the `code` of each cell."""
    section = re.split(r"^#", text.partition(HEADING + "\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    tables, before = [], ""
    for line in section.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                tables.append([])
            tables[-1].append([re.findall(r"`([^`]+)`", cell) for cell in line.strip().strip("|").split("|")])
        before = line
    return [table[2:] for table in tables]


def folders_of(path):
    return {build.parent.name for build in pathlib.Path(path).glob("*/BUILD")}


def core_targets():
    """The targets of //tests that --config=core runs, as "folder:name"."""
    query = ["./bazelw", "query", r'attr(tags, "\bcore\b", tests(//tests/...))']
    labels = subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return {label.removeprefix("//tests/") for label in labels if label.startswith("//tests/")}


def differences(what, listed, there):
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        yield f"{what}{name} has two rows"
    for name in sorted(there - set(listed)):
        yield f"{what}{name} has no row"
    for name in sorted(set(listed) - there):
        yield f"{what}{name} has a row, and there is no such folder"


def find_errors(tables, rooms, folders, core):
    """One line for each thing that the tables say wrongly of the folders and of the targets in `core`."""
    if len(tables) != 2:
        return [f'there are {len(tables)} tables under "{HEADING}", not 2']
    lines = list(differences("ac2/internal/", [name for row in tables[0] for name in row[0]], rooms))
    tested = set()
    for row in tables[0]:
        test_folders, targets = row[1], row[2]
        tested.update(test_folders)
        room = ", ".join(row[0])
        if not targets:
            lines.append(f"ac2/internal/{room}: the row names no target of --config=core")
        for target in targets:
            if target not in core:
                lines.append(f"ac2/internal/{room}: there is no target //tests/{target} with the tag core")
            elif target.split(":")[0] not in test_folders:
                lines.append(f"ac2/internal/{room}: {target} is in none of the folders that the row names")
    others = [name for row in tables[1] for name in row[0]]
    lines += differences("tests/", sorted(tested) + others, folders)
    return lines


def main():
    tables = read_tables(PAGE.read_text(encoding="utf-8"))
    lines = find_errors(tables, folders_of("ac2/internal"), folders_of("tests"), core_targets())
    lines = [f"{PAGE}, the map of the tests: {line}" for line in lines]
    suite = ET.Element("testsuite", name="tests_map_check", tests="1", failures=str(int(bool(lines))))
    case = ET.SubElement(suite, "testcase", name="TheMapOfTheTestsHasEachFolder", status="run")
    if lines:
        ET.SubElement(case, "failure", message="\n".join(lines))
    ET.ElementTree(suite).write(sys.argv[1], encoding="utf-8", xml_declaration=True)
    print("\n".join(lines) or "tests_map_check: the map of the tests in CONTRIBUTING.md has each folder")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
