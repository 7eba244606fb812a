"""The metadata of the package that follow from the installed torch, for scikit-build-core.

The wheel's version is that of python/ac2/_version.py and torch's minor version, "0.1.0+torch2.15"; it requires
"torch==2.15.*", because LibTorch promises no binary compatibility between minor versions.
"""

import importlib.metadata
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


def dynamic_metadata(field: str, settings: Mapping[str, Any], *_: Any) -> Union[str, List[str]]:
    if field == "version":
        text = (pathlib.Path(__file__).parent / "ac2" / "_version.py").read_text()
        version = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
        assert version, "python/ac2/_version.py has no __version__"
        return f"{version.group(1)}+torch{_torch_minor()}"
    return [f"torch=={_torch_minor()}.*"]
