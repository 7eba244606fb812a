"""Lightning: a callback for Trainer and Fabric, and FSDPStrategy's option, go through ac2.

    from ac2.integrations.lightning import Checkpointing

    Trainer(callbacks=[Checkpointing("model.layers.*", policy="save_compute_intensive")])
    Fabric(callbacks=[Checkpointing("layers.*")])

or, where the strategy has an option of its own:

    ac2.integrations.lightning.install("save_compute_intensive")
    Trainer(strategy=FSDPStrategy(activation_checkpointing_policy={Block}))

It goes for the packages ``lightning`` and ``pytorch_lightning`` with ``lightning_fabric``, whichever is imported before
or is there.
"""

import importlib
import sys
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import torch

from ac2._checkpointed_class import Settings
from ac2._modules import apply_checkpointing, settings_from
from ac2._policy import PolicyLike
from ac2.integrations._distributed import wraps_with
from ac2.integrations._switch import Replacement, Switch, cannot_import

__all__ = ["Checkpointing", "install", "uninstall"]

_OPTION = "Lightning's FSDPStrategy(activation_checkpointing_policy=...)"
_PACKAGES = {"lightning.pytorch": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}  # with their Fabric


def _imported() -> str:
    for name in _PACKAGES:
        if sys.modules.get(name) is not None:
            return name
    try:
        return importlib.import_module("lightning.pytorch").__name__
    except ImportError as error:
        try:
            return importlib.import_module("pytorch_lightning").__name__
        except ImportError:
            raise cannot_import("lightning", error) from error


_package = sys.modules[_imported()]


class Checkpointing(_package.Callback):  # type: ignore[misc, name-defined]
    """Wraps modules of the model with ac2 (see ac2.apply_checkpointing) when a Trainer fits it or Fabric has set it up.

        Trainer(callbacks=[Checkpointing("model.layers.*", memory_budget=ac2.MemoryBudget(2 << 30))])

    Args:
        modules: patterns over the names in the LightningModule, or the module that fabric.setup() is given, or classes.
        check_fn: given a module, says whether to wrap it.
        policy, **options: as for ac2.apply_checkpointing. Here off_in_eval and off_under_no_grad are True.

    The modules are picked before the strategy wraps the model, or after configure_model() if only that makes it.
    Modules stay wrapped after the fit: ac2.last_trace(module) and ac2.report() tell of them,
    ac2.remove_checkpointing(model) takes it back.

    Raises:
        ValueError: neither or both of modules and check_fn are given, or the policy is wrong; when training begins,
            nothing is picked.
    """

    def __init__(
        self,
        modules: Union[None, str, type, Sequence[Union[str, type]]] = None,
        *,
        check_fn: Optional[Callable[[torch.nn.Module], bool]] = None,
        policy: PolicyLike = None,
        **options: Any,
    ) -> None:
        if (modules is None) == (check_fn is None):
            raise ValueError(
                'Checkpointing needs either modules= (patterns such as "model.layers.*", or classes) or check_fn=, and '
                "not both."
            )
        options = {"off_in_eval": True, "off_under_no_grad": True, **options}
        settings_from("Checkpointing", policy, options)  # wrong arguments are errors here
        self._arguments = {"modules": modules, "check_fn": check_fn, "policy": policy, **options}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit" and not self._makes_it_later(pl_module):
            apply_checkpointing(pl_module, **self._arguments)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self._makes_it_later(pl_module):
            apply_checkpointing(pl_module, **self._arguments)

    def on_after_setup(self, fabric: Any, module: Any) -> None:
        """Fabric calls it."""
        apply_checkpointing(module.module, **self._arguments)

    def _makes_it_later(self, pl_module: Any) -> bool:
        return type(pl_module).configure_model is not _package.LightningModule.configure_model


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes ``activation_checkpointing_policy`` of FSDPStrategy, Trainer's and Fabric's, use ac2 from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a layer is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all layers.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if Lightning has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """Lightning's own checkpointing again. Models that are set up stay as they are. It may be off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    for package, fabric in _PACKAGES.items():
        if sys.modules.get(package) is None:
            continue
        strategies = importlib.import_module(fabric + ".strategies.fsdp")
        original = switch.member(strategies, "_setup_activation_checkpointing")

        def sets_up(settings: Settings, *args: Any, original: Callable[..., None] = original, **kwargs: Any) -> None:
            with wraps_with(settings, _OPTION):
                original(*args, **kwargs)

        yield from switch.everywhere({original: switch.instead_of(original, sets_up)})


_switch = Switch("lightning", _replacements, "pytorch_lightning", "lightning_fabric")
