"""Operators of higher order: torch.cond, while_loop, scan, flex_attention and others that take functions.

PyTorch dispatches them in Python. It takes the highest key of the thread and of the tensors, and calls what the operator
has registered for it. In a region that key would be the region's, for which no such operator has anything, and needs
nothing: what it runs are ops, and these are recorded. So the region's key is left out there, for the operators that
there are and for those that are defined later.
"""

import functools
from typing import Any

import torch
import torch._ops

from ac2 import _C


def watch() -> None:
    """Replaces the function that collects the keys. To be called once."""
    original = torch._ops.key_extractor
    key_sets = functools.cache(lambda name: torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name)))

    @functools.wraps(original)
    def key_extractor(*args: Any, **kwargs: Any) -> Any:
        keys, name = original(*args, **kwargs), _C.key_of_regions()
        return keys if name is None else keys - key_sets(name)

    torch._ops.key_extractor = key_extractor
