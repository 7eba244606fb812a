"""Errors that say that memory ran out end with what regions hold.

Ops that a region records, and replays, get the text from the runtime. Memory can also run out in a backward's
own kernels and in ops outside of regions. Accelerators raise ``torch.OutOfMemoryError`` for these, whose text is completed
as the exception is made. A CPU's allocator raises a plain RuntimeError, which is completed where a backward ends; that
of an op outside of regions is left alone.
"""

import functools
from typing import Any, Callable, Iterator, Optional, Tuple

import torch

from ac2 import _C, _holdings

_OURS = "What ac2 holds:"

#: Called before each backward, on its thread.
before_backward: Optional[Callable[[], None]] = None


def watch() -> None:
    """Makes errors of the process end with that text. To be called once."""
    _C.set_namer(_names_of_parameters)
    _C.set_holdings(_holdings.sentences)
    _complete_new_errors(torch.OutOfMemoryError)
    backward = _completing(torch.autograd.graph._engine_run_backward)
    # torch.autograd has imported it under its name.
    torch.autograd.graph._engine_run_backward = torch.autograd._engine_run_backward = backward


def _completed(text: Any) -> Any:
    if not isinstance(text, str) or _OURS in text:
        return text
    held = _C.shortage_note(text or "out of memory")
    indented = "".join(f"\n  {line}" for line in held.splitlines())
    return f"{text}\n  {_OURS}{indented}" if held else text


def _complete_new_errors(error: type) -> None:
    original = error.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any) -> None:
        original(self, *(_completed(argument) if place == 0 else argument for place, argument in enumerate(args)))

    error.__init__ = __init__  # type: ignore[misc]


def _completing(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def complete(*args: Any, **kwargs: Any) -> Any:
        if before_backward is not None:
            before_backward()
        try:
            return backward(*args, **kwargs)
        except RuntimeError as error:
            if error.args and _C.is_about_hosts_memory(str(error.args[0])):
                error.args = (_completed(error.args[0]), *error.args[1:])
            raise

    return complete


def _names_of_parameters() -> Iterator[Tuple[str, torch.Tensor]]:
    """Each parameter and buffer of the process, by its path from the outermost module that has it."""
    roots = _holdings.root_modules()
    for root in roots:
        # Without a dot it would be taken for a module.
        prefix = f"{type(root).__name__}." if len(roots) > 1 else ""
        for name, tensor in _tensors_of(root):
            yield prefix + (name if "." in name or prefix else f"{type(root).__name__}.{name}"), tensor


def _tensors_of(module: torch.nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
