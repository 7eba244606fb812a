"""Wrapper subclasses: tensors that are made of other tensors and say so by ``__tensor_flatten__``.

A region records the ops on their parts. So autograd saves the parts of such a tensor, each saved or
recomputed as the policy says, and put together again in backward by ``__tensor_unflatten__``.

The ragged dimension of a jagged tensor is known by the very tensor object that has its offsets: with another one of the same
contents it would be another dimension, and shapes would differ. So all but the values of such a tensor is kept as it is. A part
that is no tensor is kept as it is too: from torch 2.15 on the mesh of a DTensor is a part.
"""

import functools
import sys
import warnings
from typing import Any, List, Optional, Tuple

import torch


def take_apart(tensor: torch.Tensor) -> Optional[Tuple[List[torch.Tensor], Any]]:
    """The parts of a tensor and what else it takes to put them together; None if it does not say how."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None or not hasattr(type(tensor), "__tensor_unflatten__"):
        return None
    names, context = flatten()
    parts = {name: getattr(tensor, name) for name in names}
    is_jagged = _is_jagged(tensor)
    kept = {name: part for name, part in parts.items() if not isinstance(part, torch.Tensor) or (is_jagged and name != "_values")}
    names = tuple(name for name in names if name not in kept)
    if not names:
        return None
    return [parts[name] for name in names], (type(tensor), names, kept, context, tensor.size(), tensor.stride())


def put_together(parts: List[torch.Tensor], kept: Any) -> torch.Tensor:
    """The inverse of take_apart()."""
    kind, names, others, context, size, stride = kept
    return kind.__tensor_unflatten__({**dict(zip(names, parts)), **others}, context, size, stride)


def note_whole(tensor: torch.Tensor, policies_save: bool) -> str:
    """The name of the class of a tensor that take_apart() has nothing for. A warning names the class, once, if policies may not save.

    The program has a parameter with or without a region, and a fake tensor has no bytes: neither is warned of.
    """
    name = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    is_parameter = tensor.is_leaf and tensor.requires_grad
    if not policies_save and not is_parameter and not _is_fake(tensor):
        _warn_once(name)
    return name


@functools.cache
def _warn_once(name: str) -> None:
    warnings.warn(
        f"Tensors of the class {name} are saved whole in regions of ac2, whatever policies say, because the class does not say of which "
        "tensors they are made. Their memory is not saved, and explain() lists them without their bytes. Give the class "
        "__tensor_flatten__ and __tensor_unflatten__, and the tensors are saved or recomputed part by part. This is said once for each "
        "class.", stacklevel=3)


def _is_fake(tensor: torch.Tensor) -> bool:
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)


def _is_jagged(tensor: torch.Tensor) -> bool:
    # Imported by torch when the first such tensor is made.
    module = sys.modules.get("torch.nested._internal.nested_tensor")
    return module is not None and isinstance(tensor, module.NestedTensor)
