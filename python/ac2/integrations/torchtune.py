"""torchtune: ``training.set_activation_checkpointing()`` goes through ac2, which its recipes call.

    import ac2.integrations.torchtune

    ac2.integrations.torchtune.install("save_compute_intensive")
    training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})

So does ``training.apply_selective_activation_checkpointing()``. Each module that is picked runs its forward in a
region, once, and keeps its name. With ``enable_activation_offloading`` (``training.get_act_offloading_ctx_manager()``)
regions offload their inputs.
"""

from typing import Any, Iterator

from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._distributed import apply_activation_checkpointing, wrapper
from ac2.integrations._offloading import InRegionsToo
from ac2.integrations._switch import Replacement, Switch, cannot_import

try:
    from torchtune.training import _activation_offloading, activations, memory
except ImportError as error:
    raise cannot_import("torchtune", error, "torchtune 'torchao<0.14'") from error

__all__ = ["install", "uninstall"]

_OPTION = "torchtune's set_activation_checkpointing(model, auto_wrap_policy)"


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes torchtune's activation checkpointing use ac2 for models on which it is set from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a layer is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all layers.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if torchtune has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """torchtune's own checkpointing again. Models on which it is set stay as they are. It may be off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    def apply(settings: Settings, *args: Any, **kwargs: Any) -> None:
        apply_activation_checkpointing(settings, _OPTION, *args, **kwargs)

    def wrap(settings: Settings, *args: Any, **kwargs: Any) -> Any:
        return wrapper(settings)(*args, **kwargs)

    for module, name, ours in (
        (memory, "apply_activation_checkpointing", apply),
        (activations, "ptd_checkpoint_wrapper", wrap),
    ):
        yield Replacement(module, name, switch.instead_of(switch.member(module, name), ours))
    offloading = switch.member(_activation_offloading, "get_act_offloading_ctx_manager")

    def offloads(settings: Settings, model: Any, enable_activation_offloading: bool) -> Any:
        hooks = offloading(model, enable_activation_offloading)
        return InRegionsToo(hooks, model) if enable_activation_offloading else hooks

    yield from switch.everywhere({offloading: switch.instead_of(offloading, offloads)})


_switch = Switch("torchtune", _replacements)
