"""Operators of torch.library.custom_op that write to their arguments.

PyTorch counts the write of such an operator at the tensor's version counter before the operator runs; it counts those of all
others afterwards. A region would take the count for a write that it has not seen. So the function that counts is wrapped when
the first region opens, and tells the runtime of each tensor first.
"""

import sys
from typing import Any

import torch

from ac2 import _C


def watch() -> None:
    """Wraps the function. To be called once."""
    module = sys.modules.get("torch._library.custom_ops")
    original = getattr(module, "increment_version", None)
    if original is None:
        return

    def increment_version(val: Any) -> None:
        for tensor in val if isinstance(val, (tuple, list)) else (val,):
            if isinstance(tensor, torch.Tensor):
                _C.note_early_count(tensor)
                original(tensor)

    module.increment_version = increment_version
