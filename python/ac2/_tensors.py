"""Decisions and names for single tensors."""

from typing import Any, Iterable

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
        decision: an ac2.CheckpointPolicy, a bool (True saves), a form (``ac2.forms``), or an ac2.SaveWithHooks.

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
    if not isinstance(name, str):
        raise TypeError(f"name_tensor was given the name {name!r}; expected a text.")
    return _C.name_tensor(tensor, name)


def expose(tensor: torch.Tensor) -> None:
    """From now on code that no dispatcher sees may write to the memory of ``tensor``.

    Regions then hold the tensor by reference where backward needs it, and no longer compute it again; what ops may still
    have to read there is copied, by regions that are over too. Call it before a kernel of your own writes through a
    pointer that it got earlier, or through ``data_ptr()`` between a region and its backward: where a tensor hands out its
    pointer, the package exposes the tensor by itself, and copies for ``numpy()`` and DLPack capsules alone. Does nothing
    for a tensor that no region knows.
    """
    _check("expose", tensor)
    _C.before_unseen_write(tensor)


def managed_elsewhere(parameters: Iterable[torch.Tensor]) -> None:
    """Tells regions that something else gives these parameters their data and takes it away, by ``parameter.data = ...``.

        ac2.managed_elsewhere(model.parameters())     # a model that a library in the manner of DeepSpeed's ZeRO-3 partitions

    Without a word, a region holds the data that forward has read, all of it, until backward. What it is told of it does not
    hold, and reads where the parameter has its data in backward: this must be the same, of the same size and layout. FSDP2's
    parameters need no word. A replay may reach across units, so open a region for each. Of a parameter that shares its memory
    with another one the data is held as ever.
    """
    if isinstance(parameters, (torch.Tensor, torch.nn.Module)) or not isinstance(parameters, Iterable):
        raise TypeError(
            f"managed_elsewhere was given one {type(parameters).__name__}; expected several tensors, such as model.parameters()."
        )
    for parameter in list(parameters):
        _check("managed_elsewhere", parameter)
        _C.manage_data(parameter, _name_of(parameter))


def _name_of(parameter: torch.Tensor) -> str:
    return f"of shape {tuple(parameter.shape)}"
