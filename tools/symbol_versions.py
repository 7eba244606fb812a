"""Prints what the programs and libraries of wheels, archives, Debian packages or folders need of glibc and libstdc++, and fails
where that is more than a platform promises:

    tools/symbol_versions.py manylinux_2_28 dist/release/*.whl dist/release/*.tar.gz dist/release/*.deb

What a platform promises is in auditwheel's table. A symbol that this machine's glibc or libstdc++ has, and that a file needs
without a version, fails too: the linker found it in no library that it was given. Needs auditwheel and pyelftools.
"""

import collections
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from typing import Dict, Iterator, List, Set, Tuple

from auditwheel.architecture import Architecture
from auditwheel.elfutils import elf_find_versioned_symbols
from auditwheel.libc import Libc
from auditwheel.policy import Policy, WheelPolicies
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_SYSTEM = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1")


def unpacked(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    if path.is_dir():
        return path
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder)
    elif path.suffix == ".deb":
        subprocess.run(["dpkg-deb", "--extract", path, folder], check=True)
    else:
        subprocess.run(["tar", "-xf", path, "-C", folder], check=True)
    return folder


def dynamic_files(folder: pathlib.Path) -> Iterator[Tuple[pathlib.Path, ELFFile]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as stream:
            try:
                elf = ELFFile(stream)
            except ELFError:
                continue
            if elf.get_section_by_name(".dynamic"):
                yield path, elf


def symbols_of_this_machine() -> Set[str]:
    names: Set[str] = set()
    for library in _SYSTEM:
        found = subprocess.run(
            ["gcc", f"-print-file-name={library}"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()
        with open(found, "rb") as stream:
            table = ELFFile(stream).get_section_by_name(".dynsym")
            names.update(symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF")
    return names


def unversioned(elf: ELFFile) -> Set[str]:
    """The symbols that it needs and that have no version. A weak one may be missing."""
    versions = elf.get_section_by_name(".gnu.version")
    table = elf.get_section_by_name(".dynsym")
    return {
        symbol.name
        for index, symbol in enumerate(table.iter_symbols())
        if symbol.name
        and symbol["st_shndx"] == "SHN_UNDEF"
        and symbol["st_info"]["bind"] != "STB_WEAK"
        and (versions is None or versions.get_symbol(index)["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL"))
    }


def number(version: str) -> Tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def faults(elf: ELFFile, policy: Policy, known: Set[str]) -> Tuple[Dict[str, str], List[str]]:
    """The newest version of each kind that it needs, and what is wrong."""
    newest: Dict[str, str] = {}
    wrong = collections.defaultdict(set)
    for _, name in elf_find_versioned_symbols(elf):
        kind, _, version = name.partition("_")
        if kind not in policy.symbol_versions:
            continue
        if number(version) > number(newest.get(kind, "0")):
            newest[kind] = version
        if version not in policy.symbol_versions[kind]:
            wrong[name] = set()
    if wrong:
        table, needed = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".gnu.version_r")
        versions = elf.get_section_by_name(".gnu.version")
        for index, symbol in enumerate(table.iter_symbols()):
            entry = versions.get_symbol(index)["ndx"]
            found = needed.get_version(entry) if isinstance(entry, int) else None
            if found and found[1].name in wrong:
                wrong[found[1].name].add(symbol.name)
    said = [f"{name}: {', '.join(sorted(symbols))}" for name, symbols in wrong.items()]
    said += [f"no version: {name}" for name in sorted(unversioned(elf) & known)]
    return newest, said


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit("usage: symbol_versions.py PLATFORM FILE_OR_FOLDER...")
    name = f"{sys.argv[1]}_{platform.machine()}"
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(platform.machine()))
    policy = next((policy for policy in policies if policy.name == name or name in policy.aliases), None)
    if policy is None:
        sys.exit(f"symbol_versions: auditwheel knows no platform {name}")
    known = symbols_of_this_machine()
    failed = False
    for argument in map(pathlib.Path, sys.argv[2:]):
        with tempfile.TemporaryDirectory() as temporary:
            folder = unpacked(argument, pathlib.Path(temporary))
            any_file = False
            for path, elf in dynamic_files(folder):
                any_file = True
                newest, said = faults(elf, policy, known)
                needs = ", ".join(f"{kind} {version}" for kind, version in sorted(newest.items()))
                print(f"{argument.name}: {path.relative_to(folder)} needs {needs}")
                for line in said:
                    failed = True
                    print(
                        f"symbol_versions: {path.relative_to(folder)} needs what {sys.argv[1]} has not: {line}", file=sys.stderr
                    )
            if not any_file:
                failed = True
                print(f"symbol_versions: {argument} has no program and no library in it", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
