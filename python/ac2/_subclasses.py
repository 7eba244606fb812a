"""Wrapper subclasses: tensors that are made of other tensors and say so by ``__tensor_flatten__``.

What a region records are the ops on their parts. So what autograd saves of such a tensor is its parts, each saved or
recomputed as the policy says, and put together again in backward by ``__tensor_unflatten__``.
"""

from typing import Any, List, Optional, Tuple

import torch


def take_apart(tensor: torch.Tensor) -> Optional[Tuple[List[torch.Tensor], Any]]:
    """The parts of a tensor and what else it takes to put them together; None if it does not say how."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None or not hasattr(type(tensor), "__tensor_unflatten__"):
        return None
    names, context = flatten()
    parts = [getattr(tensor, name) for name in names]
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        return None
    return parts, (type(tensor), tuple(names), context, tensor.size(), tensor.stride())


def put_together(parts: List[torch.Tensor], kept: Any) -> torch.Tensor:
    """The inverse of take_apart()."""
    kind, names, context, size, stride = kept
    return kind.__tensor_unflatten__(dict(zip(names, parts)), context, size, stride)
