"""Writes what the linker needs of an older libstdc++: `libstdcxx_stub.py LIBSTDC++.so.6 FOLDER` makes FOLDER/libstdc++.so.6.

It has the symbols of the given library up to the versions below, which are those of GCC 8, and no code. A version of
libstdc++ is never changed once it is released, so that a newer library has the older one's symbols. Needs pyelftools and gcc.
"""

import collections
import pathlib
import re
import subprocess
import sys

from elftools.elf.elffile import ELFFile

# What manylinux_2_28 allows.
_NEWEST = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
_TYPES = {
    "STT_FUNC": "function",
    "STT_GNU_IFUNC": "function",
    "STT_LOOS": "function",
    "STT_OBJECT": "object",
    "STT_TLS": "tls_object",
}


def is_old(version: str) -> bool:
    kind, _, numbers = version.partition("_")
    if not re.fullmatch(r"[\d.]+", numbers):  # CXXABI_TM_1, GLIBCXX_LDBL_...
        return False
    return kind in _NEWEST and tuple(map(int, numbers.split("."))) <= _NEWEST[kind]


def main() -> None:
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    chosen = {}
    with open(library, "rb") as stream:
        elf = ELFFile(stream)
        definitions = {}
        for definition, names in elf.get_section_by_name(".gnu.version_d").iter_versions():
            definitions[definition["vd_ndx"]] = next(iter(names)).name
        versions = elf.get_section_by_name(".gnu.version")
        for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            kind = _TYPES.get(symbol["st_info"]["type"])
            entry = versions.get_symbol(index)["ndx"]
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or kind is None or not isinstance(entry, int):
                continue
            version = definitions[entry & 0x7FFF]
            if not is_old(version):
                continue
            # Of several the newest: the one that a compiler of that time took.
            order = tuple(map(int, version.partition("_")[2].split(".")))
            if symbol.name not in chosen or order > chosen[symbol.name][0]:
                chosen[symbol.name] = (order, version, kind, symbol["st_size"])
    by_version = collections.defaultdict(list)
    lines = []
    for name, (_, version, kind, size) in sorted(chosen.items()):
        by_version[version].append(name)
        section = {"function": ".text", "object": ".bss", "tls_object": '.section .tbss,"awT",@nobits'}[kind]
        lines += [
            section,
            f'.globl "{name}"',
            f'.type "{name}",@{kind}',
            f'"{name}": .zero {max(size, 1) if kind != "function" else 1}',
            f'.size "{name}",{size}',
        ]
    script = [f"{version} {{ {' '.join(f'{name};' for name in names)} }};" for version, names in sorted(by_version.items())]
    (folder / "stub.s").write_text("\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n')
    (folder / "stub.map").write_text("\n".join(script) + "\n")
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-nostdlib",
            "-Wl,-soname,libstdc++.so.6",
            f"-Wl,--version-script={folder / 'stub.map'}",
            folder / "stub.s",
            "-o",
            folder / "libstdc++.so.6",
        ],
        check=True,
    )
    (folder / "stub.s").unlink()
    (folder / "stub.map").unlink()


if __name__ == "__main__":
    main()
