"""DeepSpeed: ``deepspeed.checkpointing.checkpoint()`` and ``PipelineModule(activation_checkpoint_interval=...)`` go
through ac2.

    import ac2.integrations.deepspeed

    ac2.integrations.deepspeed.install("save_compute_intensive")
    x = deepspeed.checkpointing.checkpoint(layer, x)

The function runs in a region, once. As DeepSpeed's non_reentrant_checkpoint it takes inputs that require no gradient.
"cpu_checkpointing" of DeepSpeed's configuration offloads the inputs of regions. "partition_activations" (and with it
"contiguous_memory_optimization") has no effect, which a warning says.
"""

import warnings
from typing import Any, Callable, Iterator

import torch

from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._switch import Replacement, Switch, cannot_import, offloading_inputs, run_in_region

try:
    from deepspeed.runtime.activation_checkpointing import checkpointing
    from deepspeed.runtime.pipe.module import PipelineModule
except ImportError as error:
    raise cannot_import("deepspeed", error) from error

__all__ = ["install", "uninstall"]

_FUNCTIONS = ("checkpoint", "non_reentrant_checkpoint")


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes DeepSpeed's checkpoint functions, and pipelines that are made from now on, use ac2.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a function is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all regions.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if DeepSpeed has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """DeepSpeed's own checkpointing again, in pipelines too. It may be off."""
    _switch.uninstall()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    originals = [switch.member(checkpointing, name) for name in _FUNCTIONS]
    stand_ins = {original: switch.instead_of(original, _checkpoint) for original in originals}
    yield from switch.everywhere(stand_ins)
    init = switch.member(PipelineModule, "__init__")

    def initialise(settings: Settings, self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        # Its default is DeepSpeed's function, whatever stands in the module. The engine asks whether it is the
        # non-reentrant one, which has fewer conditions.
        if self.activation_checkpoint_func in (*originals, *stand_ins.values()):
            self.activation_checkpoint_func = stand_ins[originals[1]]

    yield Replacement(PipelineModule, "__init__", switch.instead_of(init, initialise))


def _checkpoint(settings: Settings, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if checkpointing.PARTITION_ACTIVATIONS:
        warnings.warn(
            'DeepSpeed\'s "partition_activations" has no effect under ac2.integrations.deepspeed: each rank holds the '
            'inputs of its regions whole. Set it to false; "cpu_checkpointing", or '
            "offload=ac2.OffloadOptions(inputs=True), moves them to the CPU.",
            stacklevel=3,
        )
    if checkpointing.CPU_CHECKPOINT:
        settings = offloading_inputs(settings)
    outputs = run_in_region(settings, function, args, kwargs)
    if isinstance(outputs, torch.Tensor):
        return outputs
    outputs = tuple(outputs)
    return outputs[0] if len(outputs) == 1 else outputs


_switch = Switch("deepspeed", _replacements)
