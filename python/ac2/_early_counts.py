"""Code of PyTorch's that counts a write at the tensor's version counter before the write happens.

So do operators of torch.library.custom_op that write to their arguments, and the wrappers of compiled code. All others count when a
write is over, and a region would take the count for a write that it has not seen. So the function that counts is wrapped when the
first region opens, and tells the runtime of each tensor first if such code has called it.
"""

import functools
import sys
from typing import Any, Mapping

import torch

from ac2 import _C


def watch() -> None:
    """Wraps the function. To be called once."""
    original = torch._C._increment_version

    @functools.wraps(original)
    def increment_version(tensors: Any) -> None:
        if not _counts_early(sys._getframe(2).f_globals):  # the caller of torch.autograd.graph.increment_version()
            original(tensors)
            return
        for tensor in tensors:
            _C.note_early_count(tensor)
            original((tensor,))

    torch._C._increment_version = increment_version


def _counts_early(names: Mapping[str, Any]) -> bool:
    """Of the module that a caller is in. Wrappers that AOTAutograd writes as text have the function under a name of their own."""
    module = str(names.get("__name__"))
    return module == "torch._library.custom_ops" or module.startswith("torch._functorch.") or "_increment_version_" in names
