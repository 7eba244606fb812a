"""Megatron-LM: ``tensor_parallel.checkpoint()``, which ``recompute_granularity`` calls, goes through ac2.

    import ac2.integrations.megatron

    ac2.integrations.megatron.install("save_compute_intensive")
    TransformerConfig(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1, ...)

Each group of layers, or each part that ``recompute_modules`` names, runs in a region, once. The generator states for
tensor parallelism need no care: a replayed op draws from the state that it drew from.

Parts that discard their output (CheckpointWithoutOutput) do it as ever outside of regions, and are recorded with the
rest in one. TransformerEngine's own function, which Megatron calls for fp8, stays as it is.
``distribute_saved_activations`` has no effect, which a warning says.
"""

import warnings
from typing import Any, Callable, Iterator

from ac2 import _C
from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._switch import Replacement, Switch, cannot_import, run_in_region

try:
    from megatron.core.tensor_parallel import random
except ImportError as error:
    raise cannot_import("megatron", error, "megatron-core") from error

__all__ = ["install", "uninstall"]


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes Megatron's ``recompute_granularity`` use ac2, in models that exist too.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a region is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all regions.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if Megatron has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """Megatron's own checkpointing again, from the next forward on. It may be off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    original = switch.member(random, "checkpoint")
    yield from switch.everywhere({original: switch.instead_of(original, _checkpoint)})
    cls = vars(random).get("CheckpointWithoutOutput")  # older releases have none
    if cls is not None:
        without_output = switch.member(cls, "checkpoint")

        def checkpoint(settings: Settings, self: Any, run_function: Callable[..., Any], *args: Any) -> Any:
            if not _C.is_checkpoint_enabled():
                return without_output(self, run_function, *args)
            self.outputs = ()  # there is nothing to discard
            return run_function(*args)

        yield Replacement(cls, "checkpoint", switch.instead_of(without_output, checkpoint))


def _checkpoint(
    settings: Settings, function: Callable[..., Any], distribute_saved_activations: bool, *args: Any
) -> Any:
    if distribute_saved_activations:
        warnings.warn(
            "Megatron's distribute_saved_activations has no effect under ac2.integrations.megatron: each rank holds "
            "the inputs of its regions whole. Set it to False, or pass offload=ac2.OffloadOptions(inputs=True).",
            stacklevel=3,
        )
    return run_in_region(settings, function, args, {})


_switch = Switch("megatron", _replacements)
