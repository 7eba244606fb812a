"""torchtitan: a policy of activation checkpointing that is ac2's, and torchtitan's own ones through ac2.

    from ac2.integrations.torchtitan import PolicyAC

    activation_checkpoint=PolicyAC.Config(policy="save_compute_intensive", memory_budget="2GiB")   # in a Trainer.Config

or, for configurations that exist:

    ac2.integrations.torchtitan.install()

after which FullAC and SelectiveAC (in older releases the modes "full" and "selective" of ``apply_ac``) open a region
for each block, and keep their names. SelectiveAC decides what is saved, as ever. RegionAC (at first RematAC), which newer releases have,
calls torch_remat, whose functions are replaced too. MemoryBudgetAC is the compiler's, and stays as it is.

RematAC here is that configuration for any torchtitan and any model, without marks in the model's code:

    from ac2.integrations.torchtitan import RematAC

    activation_checkpoint=RematAC.Config(save_regions=["attention.wqkv*", "attention.wo"])

Its names are those of modules in a block.
"""

import dataclasses
import difflib
import fnmatch
import importlib.util
from typing import Any, Iterator, List

import torch

from ac2 import policies
from ac2._checkpointed_class import Settings, wrap
from ac2._modules import settings_from
from ac2._policy import PolicyLike
from ac2.integrations._distributed import wrapper
from ac2.integrations._switch import Replacement, Switch, cannot_import

try:
    from torchtitan.distributed import activation_checkpoint
except ImportError as error:
    raise cannot_import("torchtitan", error) from error

__all__ = ["PolicyAC", "RematAC", "install", "uninstall"]


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes torchtitan's FullAC, SelectiveAC and RegionAC use ac2 for models to which they are applied from now on.

    Args:
        policy: as for ac2.PolicyScope, for FullAC, and for RegionAC outside of the regions that it saves. Without one nothing of a
            block is saved but its inputs.
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
    if importlib.util.find_spec("torch_remat") is not None:
        from ac2.integrations import torch_remat

        yield from torch_remat.replacements(switch)


_switch = Switch("torchtitan", _replacements, "torch_remat")


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

    class RematAC(activation_checkpoint.ActivationCheckpointing):  # type: ignore[misc, name-defined]
        """Each transformer block runs in a region of ac2 that saves what the modules of these names compute, and computes the rest again.
        It needs no install()."""

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(activation_checkpoint.ActivationCheckpointing.Config):  # type: ignore[misc, name-defined]
            save_regions: List[str] = dataclasses.field(default_factory=list)
            """Names of modules in a block, with '*', '?' and '[...]' as in shells. '*' stands for dots too. Each must match a module
            of some block."""

            memory_budget: Any = None
            """Bytes that each block may hold for backward, as a number or a text ("64MiB"), or an ac2.MemoryBudget for
            all."""

            def __post_init__(self) -> None:
                if isinstance(self.save_regions, str) or not all(isinstance(name, str) for name in self.save_regions):
                    raise TypeError(
                        f"RematAC.Config.save_regions is {self.save_regions!r}; expected a list of names of modules in a block, such "
                        'as ["attention.wo"].'
                    )
                settings_from("RematAC.Config", None, {"memory_budget": self.memory_budget})

        def apply(self, model: torch.nn.Module) -> None:
            _check_regions(self.config.save_regions, model.get_submodule("layers"))
            super().apply(model)

        def _wrap_block(self, module: torch.nn.Module, *, base_fqn: Any = None) -> torch.nn.Module:
            names = [name for name, _ in module.named_modules() if name and _is_one_of(self.config.save_regions, name)]
            policy = policies.by_module([(name, True) for name in names], model=module) if names else None
            options = {"memory_budget": self.config.memory_budget, "off_in_eval": True, "off_under_no_grad": True}
            wrap(module, settings_from("RematAC", policy, options))
            return module

    def _is_one_of(patterns: List[str], name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

    def _check_regions(patterns: List[str], layers: torch.nn.Module) -> None:
        names = dict.fromkeys(name for block in layers.children() for name, _ in block.named_modules() if name)
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                near = difflib.get_close_matches(pattern, names, 3, 0.4)
                raise ValueError(
                    f'RematAC: no module of a block is called "{pattern}" (save_regions). '
                    + (f"Did you mean {', '.join(near)}? " if near else "")
                    + f"There are: {', '.join(list(names)[:30])}."
                )

else:

    def __getattr__(name: str) -> Any:
        if name not in ("PolicyAC", "RematAC"):
            raise AttributeError(name)
        raise AttributeError(
            f"ac2.integrations.torchtitan.{name} is for torchtitan 0.3, and the torchtitan that is installed has no "
            "ActivationCheckpointing to derive it from. Use ac2.integrations.torchtitan.install(policy=...)."
        )
