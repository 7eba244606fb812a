"""Decisions and names for single tensors."""

from typing import Any

import torch

from ac2 import _C


def _check(function: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function} was given {tensor!r} of type {type(tensor).__name__}; expected a tensor.")


def tag_with_policy(tensor: torch.Tensor, decision: Any) -> None:
    """Decides how the value of one tensor is held for backward, whatever the policies say.

    The value is the whole storage that ``tensor`` lies in, as it is now. Does nothing outside a region.

    Args:
        tensor: a result of the region.
        decision: an ac2.CheckpointPolicy, a bool (True saves), or an ac2.SaveWithHooks.

    Raises:
        RuntimeError: "Saving inference tensors is not supported".
    """
    _check("tag_with_policy", tensor)
    _C.tag_with_policy(tensor, decision)


def name_tensor(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Gives the value of a tensor a name, for policies such as ac2.policies.save_only_these_names().

    Returns ``tensor`` itself. Does nothing outside a region.

    Raises:
        ValueError: the name is empty.
    """
    _check("name_tensor", tensor)
    return _C.name_tensor(tensor, name)


def expose(tensor: torch.Tensor) -> None:
    """From now on code that no dispatcher sees may write to the memory of ``tensor``.

    Regions then hold the tensor by reference where backward needs it, and no longer compute it again. The package does
    so by itself wherever a tensor hands out its pointer (``numpy()``, ``data_ptr()``, DLPack and others); call it before
    a kernel of your own writes through a pointer that it got in another way. Does nothing for a tensor that no region
    knows.
    """
    _check("expose", tensor)
    _C.expose(tensor)
