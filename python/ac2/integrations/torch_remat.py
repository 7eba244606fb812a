"""torch_remat: its checkpoints are regions of ac2, and what its regions keep is saved there.

    import ac2.integrations.torch_remat

    ac2.integrations.torch_remat.install()
    y = remat.checkpoint(region_name="layers.0")(block)(x)               # a region of ac2
    attention = remat.region(self.attention, "attention", recompute=False)(x)      # in it: results that are saved

A block runs once. So ``recompute_needs_tensor`` is not needed and does nothing, a region's result may be a dictionary or nested,
random numbers and other state need no ``recompute_state_hooks``, and ``is_recomputing()`` is never true. A pair of
``saved_tensors_hooks`` packs what regions keep; inputs of a checkpoint stay as they are.

Functions that torch.compile compiles go through torch_remat itself.
"""

import functools
import threading
from typing import Any, Callable, Iterator, Optional

from ac2 import _C, _compiled
from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2._scope import region_of
from ac2.integrations._switch import Replacement, Switch, cannot_import, run_in_region

try:
    import torch_remat
except ImportError as error:
    raise cannot_import("torch_remat", error) from error

__all__ = ["install", "uninstall"]

_Function = Callable[..., Any]


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes torch_remat's ``checkpoint`` and ``region`` use ac2, in models that exist too.

    Args:
        policy: as for ac2.PolicyScope, for what is in no region with ``recompute=False``. Without one nothing of it is saved.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all checkpoints.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if torch_remat has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """torch_remat's own functions again, from the next forward on. Does nothing if it is off."""
    _switch.uninstall()


class _Here(threading.local):
    hooks: Optional["_C.SaveWithHooks"] = None  # of the checkpoint that runs


_here = _Here()


def replacements(switch: Switch) -> Iterator[Replacement]:
    """In the modules of the switch's packages, of which torch_remat is one."""
    checkpoint, region = switch.member(torch_remat, "checkpoint"), switch.member(torch_remat, "region")

    def checkpoint_of_ours(settings: Settings, **given: Any) -> Callable[[_Function], _Function]:
        pair = given.get("saved_tensors_hooks")
        hooks = None if pair is None else _C.SaveWithHooks(*pair)
        theirs = checkpoint(**given)  # which checks the arguments

        def decorate(function: _Function) -> _Function:
            @functools.wraps(function)
            def checkpointed(*args: Any, **kwargs: Any) -> Any:
                if _compiled.is_tracing():
                    return theirs(function)(*args, **kwargs)
                outer, _here.hooks = _here.hooks, hooks
                try:
                    return run_in_region(settings, function, args, kwargs)
                finally:
                    _here.hooks = outer

            return checkpointed

        return decorate

    def region_of_ours(settings: Settings, function: _Function, name: str, *, recompute: bool) -> _Function:
        theirs = region(function, name, recompute=recompute)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if _compiled.is_tracing():
                return theirs(*args, **kwargs)
            if recompute or not _C.is_checkpoint_enabled():
                return function(*args, **kwargs)
            with _C.SaveScope() if _here.hooks is None else region_of(_here.hooks):
                return function(*args, **kwargs)

        return wrapper

    yield from switch.everywhere(
        {
            checkpoint: switch.instead_of(checkpoint, checkpoint_of_ours),
            region: switch.instead_of(region, region_of_ours),
        }
    )


_switch = Switch("torch_remat", replacements)
