"""DeepSpeed: ``deepspeed.checkpointing.checkpoint()`` and ``PipelineModule(activation_checkpoint_interval=...)`` go
through ac2.

    import ac2.integrations.deepspeed

    ac2.integrations.deepspeed.install("save_compute_intensive")
    x = deepspeed.checkpointing.checkpoint(layer, x)

The function runs in a region, once. As DeepSpeed's non_reentrant_checkpoint it takes inputs that require no gradient.
"cpu_checkpointing" of DeepSpeed's configuration offloads the inputs of regions. "partition_activations" (and with it
"contiguous_memory_optimization") has no effect, which a warning says.

Of engines of ZeRO-3 that are made after install(), regions do not hold the parameters, and a replay has those gathered that
it needs, as DeepSpeed does before the backward of their module. manage_parameters(engine) does this for an engine that was
made before, or without install().
"""

import functools
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from ac2 import _C, managed_elsewhere
from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike
from ac2.integrations._switch import Replacement, Switch, cannot_import, offloading_inputs, run_in_region

try:
    from deepspeed.runtime.activation_checkpointing import checkpointing
    from deepspeed.runtime.pipe.module import PipelineModule
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
except ImportError as error:
    raise cannot_import("deepspeed", error) from error

__all__ = ["install", "manage_parameters", "uninstall"]

_FUNCTIONS = ("checkpoint", "non_reentrant_checkpoint")


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes DeepSpeed's checkpoint functions, and pipelines that are made from now on, use ac2. Calls manage_parameters()
    for the engines of ZeRO-3 that are made from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a function is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True. A MemoryBudget is shared by all regions.

    To install again exchanges them. Raises ValueError and TypeError as PolicyScope does for wrong arguments, and
    RuntimeError if DeepSpeed has not what is replaced.
    """
    _switch.install(policy, options)


def uninstall() -> None:
    """DeepSpeed's own checkpointing again, in pipelines too. It may be off. Engines that were made before stay managed."""
    _switch.uninstall()


def manage_parameters(engine: Any) -> None:
    """Tells regions that DeepSpeed gives the parameters of this engine their data and takes it away (ZeRO-3). Does nothing for
    an engine of another stage.

    Regions do not hold the data. A replay that needs parameters which are not there has DeepSpeed gather them, those of one
    module together; they stay until the backward of their module is over, and at most until the whole backward is. A
    module's parameters are gathered as often as in plain training, but for modules that have no backward there, or have had it:
    those are gathered once more. All processes must replay the same.
    """
    zero = getattr(engine.optimizer, "parameter_offload", engine.optimizer)
    if isinstance(zero, DeepSpeedZeRoOffload):
        _manage(zero)


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
    init_zero = switch.member(DeepSpeedZeRoOffload, "__init__")

    def initialise_zero(settings: Settings, self: Any, *args: Any, **kwargs: Any) -> None:
        init_zero(self, *args, **kwargs)
        _manage(self)

    yield Replacement(DeepSpeedZeRoOffload, "__init__", switch.instead_of(init_zero, initialise_zero))


def _manage(zero: Any) -> None:
    coordinator, in_flight = zero.get_param_coordinator(), zero.module.ds_inflight_param_registry
    # DeepSpeed calls these with the parameters of a module before its backward, and after. They have no public names.
    gather_all = getattr(coordinator, f"_{type(coordinator).__name__}__all_gather_params", None)
    release = getattr(coordinator, f"_{type(coordinator).__name__}__release_param", None)
    if gather_all is None or release is None:
        _switch.not_found("PartitionedParameterCoordinator.__all_gather_params and __release_param")
    for name in ("fetch_sub_module", "release_sub_module"):
        if name not in vars(coordinator):
            setattr(coordinator, name, _unrecorded(getattr(coordinator, name)))
    modules: Dict[torch.Tensor, torch.nn.Module] = {}
    for module in zero.module.modules():
        for parameter in module.parameters(recurse=False):
            modules.setdefault(parameter, getattr(parameter, "ds_z3_leaf_module", module))
            _hide_while_in_flight(parameter)

    def parameters_of_one_fetch(parameter: Any) -> List[Any]:
        module = modules[parameter]
        return list(module.parameters(recurse=hasattr(parameter, "ds_z3_leaf_module")))

    @torch.no_grad()
    def gather(parameters: List[torch.Tensor]) -> Optional[Callable[[], None]]:
        fetched = list(dict.fromkeys(other for parameter in parameters for other in parameters_of_one_fetch(parameter)))
        missing = [parameter for parameter in fetched if parameter.ds_status.name == "NOT_AVAILABLE"]
        if missing:
            gather_all(missing, False)
        for parameter in (*missing, *parameters):
            if parameter in in_flight:
                in_flight.pop(parameter).wait()

        @torch.no_grad()
        def let_go() -> None:
            for parameter in missing:
                if not parameter.ds_persist:
                    release(parameter)  # unless it has been, by the backward of its module

        return let_go if missing else None

    managed_elsewhere(modules, gather=gather)
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        _C.set_gatherer_communicates()


def _unrecorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """What DeepSpeed computes to give parameters their data is no part of a region."""

    @functools.wraps(function)
    def unrecorded(*args: Any, **kwargs: Any) -> Any:
        if not _C.is_checkpoint_enabled():
            return function(*args, **kwargs)
        with _C.DisableCheckpointing():
            return function(*args, **kwargs)

    return unrecorded


class _Arriving:
    """The handle of a gathering, which gives parameters their data when it has arrived."""

    def __init__(self, handle: Any, hidden: List[Tuple[Any, torch.Tensor]]) -> None:
        self._handle, self._hidden = handle, hidden

    def wait(self, **kwargs: Any) -> None:
        self._handle.wait(**kwargs)
        for parameter, data in self._hidden:
            parameter.data = data
        self._hidden = []


def _hide_while_in_flight(parameter: Any) -> None:
    """DeepSpeed gives a parameter that it gathers alone the memory before the bytes are there. A replay would take it for the
    parameter, if it came between the prefetch and the wait."""
    gather = parameter.all_gather_coalesced
    if getattr(gather, "_ac2_hides", False):
        return

    def hiding(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = list(parameters)
        handle = gather(parameters, *args, **kwargs)
        hidden = [(p, p.data) for p in parameters if p.ds_status.name == "INFLIGHT" and p.numel() == p.ds_numel]
        for gathered, data in hidden:
            gathered.data = torch.empty(0, dtype=data.dtype, device=data.device)
        return _Arriving(handle, hidden)

    hiding._ac2_hides = True  # type: ignore[attr-defined]
    parameter.all_gather_coalesced = hiding


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
