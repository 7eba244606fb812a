"""Modules that ``torch.distributed.fsdp.fully_shard()`` has sharded, in regions that include their hooks.

FSDP gathers the parameters of a unit before its forward, lets go of them after, and gathers them again before its backward. In
a region that is around a unit, all this would be ops like others: the parameters would be computed again from what was
gathered, which the region would then hold. So

- FSDP's own work is not recorded;
- the parameters that it has gathered are known to the runtime as ones whose bytes come and go
  (``ac2/internal/libtorch/managed_tensors.h``): they are read where they are when they are needed, and never held;
- what enters and leaves a unit is saved, so that what is computed again in a unit's backward needs no other unit's parameters,
  which are not there then;
- a replay that needs another unit's parameters nevertheless gathers that unit, if the region was asked to (``gather_units``). The
  unit is let go of by its own backward, or at the end of the whole backward if its own does not come any more;
- parameters that stayed gathered while an optimizer has stepped are out of date. Where FSDP lets go of them after forward, backward
  gathers others. So what is computed from them is saved, and plain training's bits come out.

The methods of FSDP's classes are wrapped for this, once, when a region opens and FSDP has been imported. They are called by name
on each use, so that modules which were sharded before are reached too.
"""

import functools
import importlib
import sys
import warnings
import weakref
from typing import Any, Callable, Dict, List

import torch
from torch.autograd import Variable
from torch.optim.optimizer import register_optimizer_step_post_hook

from ac2 import _C
from ac2._units import save_at_boundary

_GROUP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_STATE = "torch.distributed.fsdp._fully_shard._fsdp_state"

# Of FSDPParamGroup, with the ops that it runs.
_OWN_WORK = ("unshard", "wait_for_unshard", "reshard", "post_backward", "finalize_backward")
# The same of FSDPState. Where a version of torch has no such method, its ops are recorded like others.
_OWN_WORK_OF_STATE = ("_root_pre_forward", "_cast_forward_inputs")

_watching = False
# How often an optimizer has stepped since FSDP is watched. Version counters do not tell: steps on DTensors do not raise them.
_steps = 0
# Those whose parameters the runtime knows. Looked up by a parameter, and never walked in its own order, which differs between ranks.
_groups: "weakref.WeakSet[Any]" = weakref.WeakSet()


def watch_once() -> None:
    """If FSDP has been imported, and not before."""
    global _watching
    if not _watching and _GROUP in sys.modules:
        _watching = True
        register_optimizer_step_post_hook(_count_step)
        _watch()


def _count_step(*_: Any) -> None:
    global _steps
    _steps += 1


def _watch() -> None:
    group = sys.modules[_GROUP].FSDPParamGroup
    state = importlib.import_module(_STATE).FSDPState
    for name in _OWN_WORK:
        _wrap(group, name, _unrecorded)
    for name in _OWN_WORK_OF_STATE:
        _wrap(state, name, _unrecorded)
    _wrap(group, "unshard", _noting_when_it_gathers)
    _wrap(group, "wait_for_unshard", _telling_of_parameters)
    _wrap(group, "pre_forward", _saving_what_it_returns)
    _wrap(group, "post_forward", _saving_what_it_returns)
    _wrap(group, "pre_backward", _keeping_for_its_backward)


def _wrap(cls: type, name: str, wrapper: Callable[..., Any]) -> None:
    original = vars(cls).get(name)
    if original is not None:
        setattr(cls, name, functools.wraps(original)(wrapper(original)))


def _unrecorded(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _C.is_checkpoint_enabled():
            return original(self, *args, **kwargs)
        with _C.DisableCheckpointing():
            return original(self, *args, **kwargs)

    return method


def _noting_when_it_gathers(original: Callable[..., Any]) -> Callable[..., Any]:
    def unshard(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self._all_gather_result
        result = original(self, *args, **kwargs)
        if self._all_gather_result is not before:
            self._ac2_gathered_at = _steps
        return result

    return unshard


def _is_out_of_date(group: Any) -> bool:
    """Whether backward may gather other bytes than forward reads."""
    return getattr(group, "_ac2_gathered_at", 0) != _steps and bool(getattr(group, "_reshard_after_forward", True))


def _telling_of_parameters(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait_for_unshard(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A region may have read parameters that were gathered before FSDP was watched. FSDP is about to bring their bytes back.
        for parameter in self.fsdp_params:
            if not hasattr(parameter, "_ac2_told_of"):
                _tell_of(parameter, self, False)
        result = original(self, *args, **kwargs)
        is_out_of_date = _is_out_of_date(self)
        _groups.add(self)
        if is_out_of_date:
            _warn_once()
        for parameter in self.fsdp_params:
            _tell_of(parameter, self, is_out_of_date)
        return result

    return wait_for_unshard


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "FSDP's parameters stayed gathered while an optimizer stepped (set_reshard_after_backward(False)). This forward reads the old "
        "ones, and backward gathers the new ones. What a region computes from them is saved. Reshard before the optimizer's step: "
        "set_reshard_after_backward(True) for the last micro-batch. This is said once.", stacklevel=2)


def _gathered_tensors_of(parameter: Any) -> List[torch.Tensor]:
    """Each tensor that FSDP resizes to nothing and back. Where the parameter is a subclass, these are its parts."""
    return [*parameter.all_gather_outputs, *getattr(parameter, "_unsharded_inner_tensors", ())]


def _tell_of(parameter: Any, group: Any, is_out_of_date: bool) -> None:
    tensors = _gathered_tensors_of(parameter)
    told = ([id(tensor) for tensor in tensors], is_out_of_date)
    if parameter.__dict__.get("_ac2_told_of") == told:
        return
    parameter._ac2_told_of = told
    info = parameter._module_info
    name = getattr(parameter, "_param_fqn", None) or f"{type(info.module).__name__}.{info.param_name}"
    unit = getattr(group, "_module_fqn", None) or "the root"
    for tensor in tensors:
        if type(tensor) is torch.Tensor and tensor.numel() > 0:
            _C.manage_storage(tensor, f"{name} (of the FSDP unit {unit})", is_out_of_date)


def gather_units_of(parameters: List[torch.Tensor]) -> None:
    """Gathers the units to which these belong, for a replay of the backward that is running on this thread."""
    group_of: Dict[int, Any] = {}
    for group in _groups:
        for parameter in group.fsdp_params:
            group_of.update((id(tensor), group) for tensor in _gathered_tensors_of(parameter))
    # In the order of the parameters, which is that of an op's arguments: the same on all ranks.
    gathered = list(dict.fromkeys(group_of[id(tensor)] for tensor in parameters if id(tensor) in group_of))
    for group in gathered:
        group.unshard()
        group.wait_for_unshard()
        group._ac2_gathered_for_replays = True
    # FSDP's own callback lets go of units whose backward has not been. This one is for those that were gathered after theirs.
    Variable._execution_engine.queue_callback(functools.partial(_let_go_of, gathered))


def _let_go_of(groups: List[Any]) -> None:
    """Of those whose own backward has not come since."""
    for group in groups:
        if group.__dict__.pop("_ac2_gathered_for_replays", False):
            group.reshard()


def _keeping_for_its_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def pre_backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._ac2_gathered_for_replays = False  # FSDP needs it from here on, and lets go of it
        return original(self, *args, **kwargs)

    return pre_backward


def _saving_what_it_returns(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        save_at_boundary(result)
        return result

    return method
