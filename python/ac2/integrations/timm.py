"""timm: ``set_grad_checkpointing()`` of any model goes through ac2.

    import ac2.integrations.timm

    ac2.integrations.timm.install("save_compute_intensive")
    model.set_grad_checkpointing(True)

Each block that timm checkpoints, or each ``every`` blocks where a model says so, runs its forward in a region, once.
"""

import itertools
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._switch import Replacement, Switch, cannot_import, run_in_region

try:
    from timm.models import _manipulate
except ImportError as error:
    raise cannot_import("timm", error) from error

__all__ = ["install", "uninstall"]


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes every model whose ``set_grad_checkpointing()`` is on, now or later, use ac2.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a block is saved but its input.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all blocks.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if timm has not the functions that its models call.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """timm's own checkpointing again, from the next forward on. It may be off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    stand_ins = {
        switch.member(_manipulate, "checkpoint_seq"): _checkpoint_seq,
        # Older releases have torch's function in the models.
        vars(_manipulate).get("checkpoint", torch_checkpoint.checkpoint): _checkpoint,
        torch_checkpoint.checkpoint: _checkpoint,
    }
    yield from switch.everywhere({original: switch.instead_of(original, ours) for original, ours in stand_ins.items()})


def _checkpoint(
    settings: Settings, function: Callable[..., Any], *args: Any, use_reentrant: Optional[bool] = None, **kwargs: Any
) -> Any:
    """``use_reentrant`` is timm's choice for all models, and means nothing here."""
    return run_in_region(settings, function, args, kwargs)


def _checkpoint_seq(
    settings: Settings,
    functions: Iterable[Any],
    x: Any,
    every: int = 1,
    flatten: bool = False,
    skip_last: bool = False,
    use_reentrant: Optional[bool] = None,
) -> Any:
    """As timm.models.checkpoint_seq divides them."""
    children = functions.children() if isinstance(functions, torch.nn.Sequential) else functions
    steps = list(itertools.chain.from_iterable(children) if flatten else children)
    checkpointed = len(steps) - 1 if skip_last else len(steps)
    for start in range(0, checkpointed, every):
        part = steps[start : min(start + every, checkpointed)]
        x = run_in_region(settings, part[0] if len(part) == 1 else _in_turn(part), (x,), {})
    return _in_turn(steps[checkpointed:])(x) if skip_last else x


def _in_turn(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def blocks(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    # off_in_eval looks at this mode.
    blocks.training = all(getattr(function, "training", True) for function in functions)  # type: ignore[attr-defined]
    return blocks


_switch = Switch("timm", _replacements)
