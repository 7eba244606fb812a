"""trl: ``gradient_checkpointing=True`` of its trainers, which is on by default, goes through ac2.

    import ac2.integrations.trl

    ac2.integrations.trl.install("save_compute_intensive")
    SFTTrainer(model, args=SFTConfig(...), ...).train()

trl's trainers are transformers' Trainer, so that this is ac2.integrations.transformers, and more: with
``activation_offloading=True`` regions offload their inputs. ``gradient_checkpointing_kwargs={"selective": True}`` wins
over the policy that is installed.
"""

from typing import Any, Iterator

from ac2._budgets import BudgetLike
from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._offloading import InRegionsToo
from ac2.integrations._switch import Replacement, Switch, cannot_import

try:
    from trl.models import activation_offloading
except ImportError as error:
    raise cannot_import("trl", error) from error

from ac2.integrations import transformers

__all__ = ["install", "uninstall"]


def install(policy: PolicyLike = None, *, chunked_loss: BudgetLike = None, **options: Any) -> None:
    """Makes ``gradient_checkpointing`` and ``activation_offloading`` of trl's trainers use ac2 from now on.

    Args:
        policy, chunked_loss, **options: as for ac2.integrations.transformers.install(), which is called. SFTTrainer of
            trl 1.16 computes its loss in chunks by itself; the token accuracy of earlier ones reads all logits.

    Raises what that raises, and RuntimeError if trl has not what is replaced.
    """
    transformers.install(policy, chunked_loss=chunked_loss, **options)
    try:
        _switch.install(policy, options)
    except RuntimeError:
        transformers.uninstall()
        raise


def uninstall() -> None:
    """trl's and transformers' own checkpointing again, also for models that have it enabled. Does nothing if it is
    off."""
    if _switch.settings is not None:
        transformers.uninstall()
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    original = switch.member(activation_offloading, "get_act_offloading_ctx_manager")

    def offloads(settings: Settings, model: Any, *args: Any, **kwargs: Any) -> Any:
        return InRegionsToo(original(model, *args, **kwargs), model)

    yield from switch.everywhere({original: switch.instead_of(original, offloads)})


_switch = Switch("trl", _replacements)
