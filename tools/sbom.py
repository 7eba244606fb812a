"""Writes what a release is made of, as CycloneDX JSON: `tools/sbom.py VERSION FOLDER LIBTORCH...`.

The files of FOLDER are listed with their hashes; torch is required in one of the versions LIBTORCH. What is linked into the
libraries, or is headers that they were compiled with, has the versions of this machine's packages. Needs cyclonedx-python-lib
with its validator.
"""

import hashlib
import pathlib
import subprocess
import sys

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

# Name, Debian's package, license, and how the libraries have it.
_BUNDLED = [
    ("abseil", "libabsl-dev", "Apache-2.0", "linked statically, built from the source package"),
    ("zlib", "zlib1g-dev", "Zlib", "linked statically"),
    ("nlohmann-json", "nlohmann-json3-dev", "MIT", "headers"),
    (
        "libstdc++",
        "libstdc++-%s-dev"
        % subprocess.run(["g++", "-dumpversion"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip().split(".")[0],
        "GPL-3.0-or-later WITH GCC-exception-3.1",
        "what GCC 8's lacks: linked statically",
    ),
]


def installed(package: str) -> str:
    """The version of the package of this machine, as Debian writes it."""
    return subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def upstream(version: str) -> str:
    """ "1.2.13" of "1:1.2.13.dfsg-1"."""
    return version.split(":")[-1].rsplit("-", 1)[0].replace(".dfsg", "")


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit("usage: sbom.py VERSION FOLDER LIBTORCH...")
    version, folder, torches = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    licenses = LicenseFactory()
    bom = Bom()
    ac2 = Component(
        name="ac2",
        version=version,
        type=ComponentType.LIBRARY,
        licenses=[licenses.make_from_string("Apache-2.0")],
        bom_ref=f"ac2@{version}",
    )
    bom.metadata.component = ac2
    needed = []
    for name, package, license_, how in _BUNDLED:
        of_debian = installed(package)
        needed.append(
            Component(
                name=name,
                version=upstream(of_debian),
                type=ComponentType.LIBRARY,
                scope=ComponentScope.REQUIRED,
                licenses=[licenses.make_from_string(license_)],
                purl=PackageURL("deb", "debian", package, of_debian),
                bom_ref=f"{name}@{of_debian}",
                properties=[Property(name="ac2:use", value=how)],
            )
        )
    for torch in torches:
        needed.append(
            Component(
                name="torch",
                version=torch,
                type=ComponentType.LIBRARY,
                scope=ComponentScope.REQUIRED,
                licenses=[licenses.make_from_string("BSD-3-Clause")],
                purl=PackageURL("pypi", None, "torch", torch),
                bom_ref=f"torch@{torch}",
                properties=[
                    Property(name="ac2:use", value=f"not in the release: the user installs {'.'.join(torch.split('.')[:2])}.*")
                ],
            )
        )
    for component in needed:
        bom.components.add(component)
    bom.register_dependency(ac2, needed)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".whl", ".gz", ".deb"):
            hashed = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(path.read_bytes()).hexdigest())
            bom.components.add(
                Component(name=path.name, version=version, type=ComponentType.FILE, hashes=[hashed], bom_ref=path.name)
            )
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault:
        sys.exit(f"sbom: {fault}")
    (folder / f"ac2-{version}.cdx.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
