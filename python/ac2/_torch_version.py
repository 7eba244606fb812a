"""The check that the installed torch is of the minor version that the runtime was compiled with.

LibTorch promises no binary compatibility between minor versions, and an extension of another one fails with missing
symbols or worse.
"""

import os


def package_directory() -> str:
    """The directory of the package: the prefix under which ``lib``, ``include`` and the CMake files lie."""
    return os.path.dirname(os.path.abspath(__file__))


def minor(version: str) -> str:
    """``"2.15"`` of ``"2.15.0+cu132"``."""
    return ".".join(version.split("+")[0].split(".")[:2])


def check() -> None:
    """Raises ImportError unless torch is there and of the right minor version."""
    from ac2 import _built_with

    wanted = minor(_built_with.TORCH_VERSION)
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"ac2 needs torch {wanted}, and no torch is installed. pip install 'torch=={wanted}.*'") from None
    found = minor(torch.__version__)
    if found != wanted:
        raise ImportError(
            f"This ac2 was built for torch {wanted}, and torch {torch.__version__} is installed. Take the wheel for torch "
            f"{found} (its version ends in +torch{found}), build ac2 against the installed torch with "
            f"`pip install --no-build-isolation .` in its source tree, or pip install 'torch=={wanted}.*'."
        )
