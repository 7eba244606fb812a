"""Wrapper subclasses: tensors that are made of other tensors and say so by ``__tensor_flatten__``.

A region records the ops on their parts. So autograd saves the parts of such a tensor, each saved or
recomputed as the policy says, and put together again in backward by ``__tensor_unflatten__``.

The ragged dimension of a jagged tensor is known by the very tensor object that has its offsets: with another one of the same
contents it would be another dimension, and shapes would differ. So all but the values of such a tensor is kept as it is. A part
that is no tensor is kept as it is too: from torch 2.15 on the mesh of a DTensor is a part.
"""

import sys
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


def _is_jagged(tensor: torch.Tensor) -> bool:
    # Imported by torch when the first such tensor is made.
    module = sys.modules.get("torch.nested._internal.nested_tensor")
    return module is not None and isinstance(tensor, module.NestedTensor)
