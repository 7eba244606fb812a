"""Prints what CHANGELOG.md says of a version: `tools/release_notes.py 0.1.0`. Until it has a heading, what is unreleased."""

import pathlib
import re
import sys


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: release_notes.py VERSION")
    text = (pathlib.Path(__file__).parents[1] / "CHANGELOG.md").read_text()
    sections = dict(re.findall(r"^## \[(.+?)\].*?\n(.*?)(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL))
    notes = sections.get(sys.argv[1], sections.get("Unreleased", "")).strip()
    if not notes:
        sys.exit(f"release_notes: CHANGELOG.md says nothing of {sys.argv[1]}")
    print(f"# ac2 {sys.argv[1]}\n\n{notes}")


if __name__ == "__main__":
    main()
