"""Writes index.html for a folder of wheels, from which pip installs and of which it checks the hashes:

    tools/wheel_index.py dist
    pip install --find-links dist/index.html "torch-ac2==0.1.0+torch2.15"
"""

import hashlib
import html
import pathlib
import sys
import urllib.parse


def link(wheel: pathlib.Path) -> str:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f'<a href="{urllib.parse.quote(wheel.name)}#sha256={digest}">{html.escape(wheel.name)}</a><br>'


def main() -> None:
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit("usage: wheel_index.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        sys.exit(f"wheel_index: no wheel in {folder}")
    lines = ["<!DOCTYPE html>", "<title>Wheels of torch-ac2</title>", *map(link, wheels)]
    (folder / "index.html").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
