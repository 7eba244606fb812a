"""torchtitan: a policy of activation checkpointing that is ac2's, and torchtitan's own ones through ac2.

    from ac2.integrations.torchtitan import PolicyAC

    activation_checkpoint=PolicyAC.Config(policy="save_compute_intensive", memory_budget="2GiB")   # in a Trainer.Config

or, for configurations that exist:

    ac2.integrations.torchtitan.install()

after which FullAC and SelectiveAC (in older releases the modes "full" and "selective" of ``apply_ac``) open a region
for each block, and keep their names. SelectiveAC decides what is saved, as ever. MemoryBudgetAC is the compiler's, and
stays as it is.
"""

import dataclasses
from typing import Any, Iterator

import torch

from ac2._checkpointed_class import Settings, wrap
from ac2._modules import settings_from
from ac2._policy import PolicyLike
from ac2.integrations._distributed import wrapper
from ac2.integrations._switch import Replacement, Switch, cannot_import

try:
    from torchtitan.distributed import activation_checkpoint
except ImportError as error:
    raise cannot_import("torchtitan", error) from error

__all__ = ["PolicyAC", "install", "uninstall"]


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes torchtitan's FullAC and SelectiveAC use ac2 for models to which they are applied from now on.

    Args:
        policy: as for ac2.PolicyScope, for FullAC. Without one nothing of a block is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all blocks.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if torchtitan has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """torchtitan's own checkpointing again. Models to which it was applied stay as they are. Does nothing if it is
    off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    def wraps(settings: Settings, *args: Any, **kwargs: Any) -> torch.nn.Module:
        return wrapper(settings)(*args, **kwargs)

    name = "ptd_checkpoint_wrapper"
    original = switch.member(activation_checkpoint, name)
    yield Replacement(activation_checkpoint, name, switch.instead_of(original, wraps))


_switch = Switch("torchtitan", _replacements)


if hasattr(activation_checkpoint, "ActivationCheckpointing"):

    class PolicyAC(activation_checkpoint.ActivationCheckpointing):  # type: ignore[misc, name-defined]
        """Each transformer block runs in a region of ac2. It needs no install()."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(activation_checkpoint.ActivationCheckpointing.Config):  # type: ignore[misc, name-defined]
            policy: Any = None
            """As for ac2.PolicyScope. Without one nothing of a block is saved but its inputs."""

            memory_budget: Any = None
            """Bytes that each block may hold for backward, as a number or a text ("64MiB"), or an ac2.MemoryBudget for
            all."""

            def __post_init__(self) -> None:
                settings_from("PolicyAC.Config", self.policy, {"memory_budget": self.memory_budget})

        def _wrap_block(self, module: torch.nn.Module, *, base_fqn: Any = None) -> torch.nn.Module:
            options = {"memory_budget": self.config.memory_budget, "off_in_eval": True, "off_under_no_grad": True}
            wrap(module, settings_from("PolicyAC", self.config.policy, options))
            return module

else:

    def __getattr__(name: str) -> Any:
        if name != "PolicyAC":
            raise AttributeError(name)
        raise AttributeError(
            "ac2.integrations.torchtitan.PolicyAC is for torchtitan 0.3, and the torchtitan that is installed has no "
            "ActivationCheckpointing to derive it from. Use ac2.integrations.torchtitan.install(policy=...)."
        )
