"""diffusers: ``enable_gradient_checkpointing()`` of any model goes through ac2.

    import ac2.integrations.diffusers

    ac2.integrations.diffusers.install("save_compute_intensive")
    unet.enable_gradient_checkpointing()

Each block that the model checkpoints runs its forward in a region, once. ``gradient_checkpointing_func=`` of a model's
own is called instead of it.
"""

import functools
from typing import Any, Callable, Iterator, Optional

import torch.utils.checkpoint as torch_checkpoint

from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._switch import Replacement, Switch, cannot_import, run_in_region

try:
    from diffusers.models.modeling_utils import ModelMixin
except ImportError as error:
    raise cannot_import("diffusers", error) from error

__all__ = ["install", "uninstall"]


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes every model's ``enable_gradient_checkpointing()`` use ac2 from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a block is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all blocks.

    To install again exchanges them for models that enable checkpointing from then on. Raises ValueError and TypeError
    as PolicyScope does for wrong arguments, and RuntimeError if diffusers has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """diffusers' own checkpointing again, of models that have it enabled too. Does nothing if it is off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    original = switch.member(ModelMixin, "enable_gradient_checkpointing")

    def enable(
        settings: Settings, self: Any, gradient_checkpointing_func: Optional[Callable[..., Any]] = None, **kwargs: Any
    ) -> None:
        function = gradient_checkpointing_func or functools.partial(_in_region, settings)
        original(self, gradient_checkpointing_func=function, **kwargs)

    yield Replacement(ModelMixin, "enable_gradient_checkpointing", switch.instead_of(original, enable))


def _in_region(settings: Settings, module: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _switch.settings is None:  # uninstalled since the model was given this function
        return torch_checkpoint.checkpoint(module, *args, use_reentrant=False, **kwargs)
    return run_in_region(settings, module, args, kwargs)


_switch = Switch("diffusers", _replacements)
