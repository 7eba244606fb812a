"""The metadata of the package that follow from the installed torch, for scikit-build-core.

The wheel's version is that of python/ac2/_version.py and torch's minor version, "0.1.0+torch2.15"; it requires
"torch==2.15.*", because LibTorch promises no binary compatibility between minor versions. With AC2_SDIST=1 in the environment,
which is for `python -m build --sdist`, the archive's version is that of ac2 alone: it can be built against each torch.
"""

import importlib.metadata
import os
import pathlib
import re
from typing import Any, List, Mapping, Union


def _torch_minor() -> str:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise RuntimeError(
            "torch-ac2 is built against the torch that is installed, and there is none here. Install torch, "
            "scikit-build-core and ninja, and use `pip install --no-build-isolation .`"
        ) from None
    return ".".join(version.split("+")[0].split(".")[:2])


def _known_torches() -> List[str]:
    text = (pathlib.Path(__file__).parents[1] / "third_party" / "libtorch" / "versions.txt").read_text()
    return re.findall(r"^(\d+\.\d+)\.", text, re.MULTILINE)


def dynamic_metadata(field: str, settings: Mapping[str, Any], *_: Any) -> Union[str, List[str]]:
    is_sdist = os.environ.get("AC2_SDIST") == "1"
    if field == "version":
        text = (pathlib.Path(__file__).parent / "ac2" / "_version.py").read_text()
        version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
        assert version, "python/ac2/_version.py has no __version__"
        return version.group(1) if is_sdist else f"{version.group(1)}+torch{_torch_minor()}"
    if is_sdist:
        known = _known_torches()
        major, newest = known[-1].split(".")
        return [f"torch>={known[0]},<{major}.{int(newest) + 1}"]
    return [f"torch=={_torch_minor()}.*"]
