"""torch.utils.checkpoint's functions are ac2's for a while, wherever modules have them."""

import contextlib
import functools
import inspect
import sys
import threading
import warnings
from typing import Any, Callable, Dict, Iterator

import torch.utils.checkpoint as torch_checkpoint

from ac2 import _compiled, _regions
from ac2._checkpoint import (
    checkpoint,
    checkpoint_sequential,
    contexts_of,
    create_selective_checkpoint_contexts,
    policy_of_context,
)
from ac2._scope import region_of, watch_python

_Function = Callable[..., Any]

# ac2.checkpoint()'s own keywords. PyTorch's checkpoint() passes on what it does not know to the function.
_OF_OURS_ALONE = ("policy", "memory_budget")


def _checkpoint(function: _Function, *args: Any, **kwargs: Any) -> Any:
    of_function = {name: kwargs.pop(name) for name in _OF_OURS_ALONE if name in kwargs}
    return checkpoint(functools.partial(function, **of_function) if of_function else function, *args, **kwargs)


_OURS: Dict[str, _Function] = {
    "checkpoint": _checkpoint,
    "checkpoint_sequential": checkpoint_sequential,
    "create_selective_checkpoint_contexts": create_selective_checkpoint_contexts,
}

# torch.distributed._composable.checkpoint starts this generator in a hook before forward and ends it in a hook behind it. Its name
# depends on PyTorch's version.
_GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")

_lock = threading.Lock()
_depth = 0  # how many patches are in force
_calls = 0  # that have come to ac2 by a patch
_stand_ins: Dict[_Function, _Function] = {}  # by PyTorch's function


def _stand_in(original: _Function, ours: _Function) -> _Function:
    # A module that has imported the stand-in keeps it when the patch is over, so the stand-in asks at each call.
    @functools.wraps(original, updated=())
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if _depth == 0:
            return original(*args, **kwargs)
        # Dynamo puts PyTorch's operator of higher order in the place of a call of `checkpoint`, and does not come here unless
        # that cannot be. The operator asks for contexts when it is traced, and knows PyTorch's alone.
        if _compiled.is_tracing():
            return original(*args, **kwargs)
        _count_call()
        return (original if _compiled.is_called_by_a_tracer() else ours)(*args, **kwargs)

    return stand_in


def _generator_stand_in(original: _Function) -> _Function:
    signature = inspect.signature(original)

    @functools.wraps(original, updated=())
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        # PyTorch's own checkpoint() is made of it too.
        is_its_own = sys._getframe(1).f_globals is vars(torch_checkpoint)
        if _depth == 0 or is_its_own or _compiled.is_tracing():
            return original(*args, **kwargs)
        _count_call()
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return _region_of_generator(given.arguments["fn"], given.arguments["context_fn"])

    return stand_in


def _region_of_generator(module: Any, context_fn: Callable[[], Any]) -> Iterator[None]:
    policy, entered = policy_of_context(contexts_of(context_fn)[0])
    with region_of(policy), entered or contextlib.nullcontext():
        _regions.opened_for(module)
        yield


def _count_call() -> None:
    global _calls
    _calls += 1


def _exchange(replacements: Dict[_Function, _Function]) -> None:
    """In every module but ours, whatever the functions are called there."""
    by_id = {id(old): new for old, new in replacements.items()}
    for name, module in list(sys.modules.items()):
        members = getattr(module, "__dict__", None)
        if name.partition(".")[0] == "ac2" or type(members) is not dict:
            continue
        for member, value in list(members.items()):
            if id(value) in by_id:
                members[member] = by_id[id(value)]


@contextlib.contextmanager
def patch_torch_checkpoint() -> Iterator[None]:
    """While it lasts, ``torch.utils.checkpoint.checkpoint`` and its neighbours are ac2's.

        with ac2.patch_torch_checkpoint():
            model.gradient_checkpointing_enable({"use_reentrant": False})
            trainer.train()

    Replaced are the functions ``checkpoint``, ``checkpoint_sequential`` and ``create_selective_checkpoint_contexts`` of
    torch.utils.checkpoint, for all threads, in every module that has them, by whatever name it has imported them:
    torch.distributed's checkpoint_wrapper, transformers, torchtune and others among them. Code that imports them while
    the patch lasts has PyTorch's again when it is over.

    A call that torch.compile compiles is PyTorch's own selective checkpointing there, as ac2.checkpoint is.

    So is what torch.distributed._composable.checkpoint opens around a module: modules to which that was applied have a region
    while the patch lasts, be it before or inside.

    Not reached is what was given a function before, such as a module that was wrapped or a model whose checkpointing was
    enabled: do that inside. A patch through which nothing was called says so at its end.
    """
    global _depth
    watch_python()
    with _lock:
        if _depth == 0:
            for name, ours in _OURS.items():
                original = getattr(torch_checkpoint, name)
                if original not in _stand_ins:
                    _stand_ins[original] = _stand_in(original, ours)
            for name in _GENERATORS:
                original = getattr(torch_checkpoint, name, None)
                if original is not None and original not in _stand_ins:
                    _stand_ins[original] = _generator_stand_in(original)
            _exchange(_stand_ins)
        _depth += 1
    before, traced_before = _calls, _compiled.times_traced()
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _exchange({stand_in: original for original, stand_in in _stand_ins.items()})
    # Code that a compiler has traced may have such a call in it, which never came here.
    if _calls == before and _compiled.times_traced() == traced_before:
        warnings.warn(
            "ac2.patch_torch_checkpoint(): nothing called a function of torch.utils.checkpoint while the patch lasted, so ac2 "
            "has checkpointed nothing. What was given such a function before keeps PyTorch's: enable checkpointing or wrap "
            "modules inside of the with statement, and train there.",
            stacklevel=3,
        )
