"""Where tensors hand out their pointers.

Code that has the pointer of a tensor may write to it without any dispatcher seeing it: through a NumPy array, a DLPack
capsule, ctypes, a Triton kernel. A region would compute such a result again and know nothing of the write. So the
runtime is told of each pointer that is handed out, and holds that storage from then on as it holds what came from outside.
A pointer is used at once by most code, and by much of it to read. NumPy's array stays, so that what replays still have to read
is copied before there is one. A DLPack capsule may stay too: what regions that are over still have to read there is copied.
Rejected: to do so for each pointer. A kernel of Triton asks for those of all its arguments, and where several micro-batches wait
for their backward, each of them would copy the weights.
Kernels that take tensors in C++ are seen by _kernels.py.

The methods of torch.Tensor that hand one out are wrapped when the first region opens. Programs that do not call them pay
nothing; a call costs a fraction of a microsecond more.
"""

import functools
import sys
from typing import Any, Callable

import torch
import torch.utils.dlpack

from ac2 import _C, _compiled

# They call a function of Python's for each number, and write what it returns.
_WRITERS = ("apply_", "map_", "map2_")

# Of a storage that goes into memory that other processes may have, where they may write to it: Tensor.share_memory_(), and the
# queues of torch.multiprocessing.
_SHARING = ("_share_fd_cpu_", "_share_filename_cpu_")

# Tensor.__array__ and __cuda_array_interface__ go through these.
_METHODS = ("data_ptr", "numpy", "__dlpack__", "untyped_storage", "_typed_storage", "storage")

# The functions that tell the runtime; for all others it is _C.before_pointer().
_TELLS = {"numpy": _C.before_unseen_write, "__dlpack__": _C.before_capsule}

_EXCHANGE = "__dlpack_c_exchange_api__"

# Modules of PyTorch that look at a storage and hand no pointer out: torch 2.7 compares the storages of what each custom_op takes
# and makes, a jagged tensor notes how large that of its values is, and FSDP resizes those of parameters (see _fsdp.py).
_ONLY_LOOKING = frozenset(
    ("torch._library.utils", "torch.nested._internal.nested_tensor", "torch.distributed.fsdp._fully_shard._fsdp_param")
)


def watch() -> None:
    """Wraps the methods. To be called once."""
    for name in _METHODS:
        original = getattr(torch.Tensor, name, None)
        if original is not None:
            setattr(torch.Tensor, name, _telling(original, _TELLS.get(name, _C.before_pointer)))
    for name in _WRITERS:
        writer = _writing(name, getattr(torch.Tensor, name))
        setattr(torch.Tensor, name, writer)
    _compiled.keep_frames_out_of_graphs(writer)
    for name in _SHARING:
        setattr(torch.UntypedStorage, name, _telling(getattr(torch.UntypedStorage, name), _before_sharing))
    watch_exchange()
    to_dlpack = _telling(torch.utils.dlpack.to_dlpack, _C.before_capsule)
    torch.utils.dlpack.to_dlpack = torch.to_dlpack = to_dlpack
    _compiled.keep_frames_out_of_graphs(to_dlpack)  # and with it the others, whose code is the same


def _before_sharing(storage: torch.UntypedStorage) -> None:
    if not storage.is_shared():
        _C.before_storage_is_shared(storage)


def watch_exchange() -> None:
    """Changes DLPack's table of C functions, whose address libraries ask for once, maybe before they meet ac2; a table that
    cannot be written to is replaced. So this comes at import, and again with the first region: libraries give a torch that has
    no such table one of their own."""
    capsule = _C.telling_exchange_api(getattr(torch.Tensor, _EXCHANGE, None))
    if capsule is not None:
        setattr(torch.Tensor, _EXCHANGE, capsule)


def _writing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _C.before_unseen_write(self)  # regions that are over keep the bytes too
        return _C.run_kernel(f"torch.Tensor.{name}", original, (self, *args), kwargs)

    return method


def _telling(original: Callable[..., Any], tell: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Before: the pointer may be used as soon as it is there.
        if sys._getframe(1).f_globals.get("__name__") not in _ONLY_LOOKING:
            tell(self)
        return original(self, *args, **kwargs)

    return method


watch_exchange()
