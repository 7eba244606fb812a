"""accelerate: activation checkpointing of its FSDP plugin goes through ac2.

    import ac2.integrations.accelerate

    ac2.integrations.accelerate.install("save_compute_intensive")
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True, ...)
    model, optimizer = Accelerator(fsdp_plugin=plugin).prepare(model, optimizer)

Each module that ``auto_wrap_policy`` picks runs its forward in a region, once, and keeps its name: neither names nor
state_dict have ``_checkpoint_wrapped_module``. ``activation_checkpointing_offload=True`` offloads the inputs of these
modules.

Without FSDP accelerate has no such option: ac2.apply_checkpointing(model, ...), before or after ``prepare()``.
"""

from typing import Any, Iterator

from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._distributed import warn_of_nothing, wraps_with
from ac2.integrations._switch import Replacement, Switch, cannot_import

try:
    from accelerate import Accelerator
    from accelerate.utils import fsdp_utils
except ImportError as error:
    raise cannot_import("accelerate", error) from error

__all__ = ["install", "uninstall"]

_OPTION = "accelerate's FullyShardedDataParallelPlugin(activation_checkpointing=True, auto_wrap_policy=...)"


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes ``activation_checkpointing=True`` of accelerate's FSDP plugin use ac2 in each ``prepare()`` from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a layer is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all layers.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if accelerate has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """accelerate's own checkpointing again. Models that are prepared stay as they are. It may be off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    # With FSDP of the first kind the call is in the middle of it.
    prepare_model = switch.member(Accelerator, "prepare_model")

    def prepares(settings: Settings, *args: Any, **kwargs: Any) -> Any:
        with wraps_with(settings, _OPTION):
            return prepare_model(*args, **kwargs)

    yield Replacement(Accelerator, "prepare_model", switch.instead_of(prepare_model, prepares))
    apply = vars(fsdp_utils).get("fsdp2_apply_ac")  # older releases have no FSDP2
    if apply is not None:

        def applies(settings: Settings, *args: Any, **kwargs: Any) -> Any:
            with wraps_with(settings, _OPTION) as wrapped:
                model = apply(*args, **kwargs)
            if not wrapped:
                warn_of_nothing(_OPTION)
            return model

        yield from switch.everywhere({apply: switch.instead_of(apply, applies)})


_switch = Switch("accelerate", _replacements)
