"""TransformerEngine: its ``checkpoint()``, which Megatron calls as ``te_checkpoint``, goes through ac2.

    import ac2.integrations.transformer_engine

    ac2.integrations.transformer_engine.install("save_compute_intensive")
    y = transformer_engine.pytorch.checkpoint(layer, x, tp_group=group, get_rng_state_tracker=tracker)

The function runs in a region, once. So neither the recipe of fp8 nor the states of generators have to be there again, and
``use_reentrant``, ``tp_group`` and ``get_rng_state_tracker`` have no effect. ``distribute_saved_activations`` has none either, which a
warning says.

What TransformerEngine's own modules compute by kernels that are no operators, a region holds as it finds it
(docs/wrong_results.md, ac2.replayable): functions of PyTorch's operators are computed again, TransformerEngine's are not.
"""

import warnings
from typing import Any, Callable, Iterator

from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._switch import Replacement, Switch, cannot_import, run_in_region, with_given

try:
    from transformer_engine.pytorch import distributed
except ImportError as error:
    raise cannot_import("transformer_engine", error, "transformer-engine[pytorch]") from error

__all__ = ["install", "uninstall"]

_OPTIONS = ("use_reentrant", "distribute_saved_activations", "tp_group", "get_rng_state_tracker")
_TORCH_OPTIONS = ("context_fn", "determinism_check", "debug")


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes TransformerEngine's ``checkpoint`` use ac2, in models that exist too.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a region is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all regions.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if TransformerEngine has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """TransformerEngine's own checkpointing again, from the next forward on. Does nothing if it is off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    original = switch.member(distributed, "checkpoint")
    yield from switch.everywhere({original: switch.instead_of(original, _checkpoint)})


def _checkpoint(settings: Settings, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    own = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
    # As older releases took them: distribute_saved_activations, get_rng_state_tracker, tp_group.
    if len(args) > 3 and isinstance(args[0], bool) and callable(args[1]):
        own["distribute_saved_activations"], args = args[0], args[3:]
    if own.get("distribute_saved_activations"):
        warnings.warn(
            "TransformerEngine's distribute_saved_activations has no effect under ac2.integrations.transformer_engine: each "
            "rank holds the inputs of its regions whole. Set it to False, or pass offload=ac2.OffloadOptions(inputs=True).",
            stacklevel=3,
        )
    given = {name: kwargs.pop(name) for name in _TORCH_OPTIONS if name in kwargs}
    return run_in_region(with_given("checkpoint", settings, given), function, args, kwargs)


_switch = Switch("transformer_engine", _replacements, "megatron")
