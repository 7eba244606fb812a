"""The functions of torch.distributed's checkpoint_wrapper, which libraries call, as ac2's."""

import contextlib
import threading
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as torch_wrappers

from ac2._checkpointed_class import Settings, settings_of, wrap
from ac2.integrations._switch import offloading_inputs, with_given


class _Here(threading.local):
    """The settings with which modules are wrapped on this thread in place of torch's functions, and the modules wrapped."""

    settings: Optional[Settings] = None
    option = ""
    wrapped: List[torch.nn.Module] = []


_here = _Here()


def wrapper(settings: Settings) -> Callable[..., torch.nn.Module]:
    """A checkpoint_wrapper_fn: takes what torch's checkpoint_wrapper takes, and returns the module itself."""

    def checkpoint_wrapper(module: torch.nn.Module, *implementation: Any, **given: Any) -> torch.nn.Module:
        if implementation:
            given["checkpoint_impl"] = implementation[0]
        # torch's own, which torchtune passes, says nothing.
        if getattr(given.get("checkpoint_fn"), "__module__", "") == torch_checkpoint.__name__:
            del given["checkpoint_fn"]
        wrap(module, with_given("checkpoint_wrapper", settings, given))
        return module

    return checkpoint_wrapper


def _checkpoint_wrapper(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    if _here.settings is None:
        return _ORIGINALS["checkpoint_wrapper"](module, *args, **kwargs)
    _here.wrapped.append(module)
    return wrapper(_here.settings)(module, *args, **kwargs)


def _offload_wrapper(module: torch.nn.Module) -> torch.nn.Module:
    """Tensors that a region saves do not reach hooks around it, so the region offloads its inputs itself."""
    own = settings_of(module)
    if _here.settings is None or own is None:
        return _ORIGINALS["offload_wrapper"](module)
    wrap(module, offloading_inputs(own))
    return module


def _apply_activation_checkpointing(model: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
    if _here.settings is None:
        return _ORIGINALS["apply_activation_checkpointing"](model, *args, **kwargs)
    if not args:
        kwargs.setdefault("checkpoint_wrapper_fn", _checkpoint_wrapper)
    before = len(_here.wrapped)
    _ORIGINALS["apply_activation_checkpointing"](model, *args, **kwargs)
    # Libraries give a partial of it. Another wrapper of the user's own is not counted.
    given = args[0] if args else kwargs["checkpoint_wrapper_fn"]
    if getattr(given, "func", given) is _checkpoint_wrapper and len(_here.wrapped) == before:
        warn_of_nothing(_here.option)


_OURS: Dict[str, Callable[..., Any]] = {
    "checkpoint_wrapper": _checkpoint_wrapper,
    "offload_wrapper": _offload_wrapper,
    "apply_activation_checkpointing": _apply_activation_checkpointing,
}
_ORIGINALS: Dict[str, Callable[..., Any]] = {name: getattr(torch_wrappers, name) for name in _OURS}

_lock = threading.Lock()
_depth = 0  # of wraps_with, on all threads


@contextlib.contextmanager
def wraps_with(settings: Settings, option: str) -> Iterator[List[torch.nn.Module]]:
    """On this thread, code that looks torch's functions up inside of it gets ac2's. Yields the modules that they wrap.

    ``option`` is the library's, for a warning if apply_activation_checkpointing() wraps nothing.
    """
    global _depth
    outer = _here.settings, _here.option, _here.wrapped
    _here.settings, _here.option, _here.wrapped = settings, option, []
    with _lock:
        _depth += 1
        vars(torch_wrappers).update(_OURS)
    try:
        yield _here.wrapped
    finally:
        _here.settings, _here.option, _here.wrapped = outer
        with _lock:
            _depth -= 1
            if _depth == 0:
                vars(torch_wrappers).update(_ORIGINALS)


def apply_activation_checkpointing(settings: Settings, option: str, *args: Any, **kwargs: Any) -> None:
    """For libraries that have imported torch's function by name."""
    with wraps_with(settings, option):
        _apply_activation_checkpointing(*args, **kwargs)


def warn_of_nothing(option: str) -> None:
    warnings.warn(
        f"{option} has picked no module, so that nothing is checkpointed. Change what it picks, or wrap the layers "
        "with ac2.apply_checkpointing(model, modules=...), which is an error if it picks nothing.",
        stacklevel=2,
    )
