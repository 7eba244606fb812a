"""Decisions and names for single tensors."""

import functools
import reprlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch
from torch.autograd import Variable

from ac2 import _C
from ac2._units import watch_unit


def _check(function: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function} was given {reprlib.repr(tensor)} of type {type(tensor).__name__}; expected a tensor.")


def tag_with_policy(tensor: torch.Tensor, decision: Any) -> None:
    """Decides how the value of one tensor is held for backward, whatever the policies say.

    The value is the whole storage that ``tensor`` lies in, as it is now. Does nothing outside a region.

    Args:
        tensor: a result of the region.
        decision: an ac2.CheckpointPolicy, a bool (True saves), a form (``ac2.forms``), or an ac2.SaveWithHooks.

    Raises:
        RuntimeError: "Saving inference tensors is not supported".
    """
    _check("tag_with_policy", tensor)
    _C.tag_with_policy(tensor, decision)


def name_tensor(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Gives the value of a tensor a name, for policies such as ac2.policies.save_only_these_names().

    Returns ``tensor`` itself. Does nothing outside a region.

    Raises:
        ValueError: the name is empty.
    """
    _check("name_tensor", tensor)
    if not isinstance(name, str):
        raise TypeError(f"name_tensor was given the name {name!r}; expected a text.")
    return _C.name_tensor(tensor, name)


def expose(tensor: torch.Tensor) -> None:
    """From now on code that no dispatcher sees may write to the memory of ``tensor``.

    Regions then hold the tensor by reference where backward needs it, and no longer compute it again; what ops may still
    have to read there is copied, by regions that are over too. Call it before a kernel of your own writes through a
    pointer that it got earlier, or through ``data_ptr()`` between a region and its backward: where a tensor hands out its
    pointer, the package exposes the tensor by itself, and copies for ``numpy()`` and DLPack capsules alone. Does nothing
    for a tensor that no region knows.
    """
    _check("expose", tensor)
    _C.before_unseen_write(tensor)


def managed_elsewhere(
    parameters: Iterable[torch.Tensor],
    gather: Optional[Callable[[List[torch.Tensor]], Optional[Callable[[], Any]]]] = None,
    *,
    units: Iterable[torch.nn.Module] = (),
) -> None:
    """Tells regions that something else gives these parameters their data and takes it away, by ``parameter.data = ...``.

        ac2.managed_elsewhere(model.parameters())     # a model that a library partitions, unit by unit

        def gather(parameters):                       # weights that lie in the host's memory, one unit at a time on the device
            for parameter in parameters:
                parameter.data = in_host_memory[parameter].to("cuda")
            return lambda: let_go_of(parameters)

        ac2.managed_elsewhere(model.parameters(), gather=gather)

    Without a word, a region holds the data that forward has read, all of it, until backward. What it is told of it does not
    hold, and reads where the parameter has its data in backward: this must be the same, of the same size and layout. FSDP2's
    parameters need no word, and for DeepSpeed's ZeRO-3 there is ac2.integrations.deepspeed. Of a parameter that shares its
    memory with another one the data is held as ever.

    A replay may need a parameter whose unit does not run its backward just now. Without ``gather`` this is an error that names
    the parameter; so open a region for each unit, or name the units. With it the replay calls ``gather`` first.

        ac2.managed_elsewhere(model.parameters(), units=model.blocks)    # one region may be around all blocks

    Args:
        parameters: several tensors, each of which has its own memory whenever it has data.
        gather: called in backward with those of the parameters whose data a replay needs and that have none, as many as one op
            reads; it gives them their data, and may communicate. What it returns, if it is a function, is called when that
            backward is over. Parameters of several calls may have different functions; the last call for a parameter counts.
        units: modules whose parameters come and go together. Regions save what enters and leaves them, whatever the policy, so
            that no replay of one needs the parameters of another.
    """
    if isinstance(parameters, (torch.Tensor, torch.nn.Module)) or not isinstance(parameters, Iterable):
        raise TypeError(
            f"managed_elsewhere was given one {type(parameters).__name__}; expected several tensors, such as model.parameters()."
        )
    if not (gather is None or callable(gather)):
        raise TypeError(f"managed_elsewhere: gather is {gather!r}; expected a function that is given a list of parameters.")
    if not isinstance(units, Iterable):
        raise TypeError(f"managed_elsewhere: units is one {type(units).__name__}; expected several modules, such as model.blocks.")
    unit_modules = list(units)
    for unit in unit_modules:
        if not isinstance(unit, torch.nn.Module):
            raise TypeError(f"managed_elsewhere: units has {unit!r}; expected modules.")
    given = list(parameters)
    for parameter in given:
        _check("managed_elsewhere", parameter)
    if gather is not None:
        _set_gatherer_once()
    in_units = {
        id(parameter): f"{path} of unit {number}, a {type(unit).__name__},"
        for number, unit in enumerate(unit_modules)
        for path, parameter in unit.named_parameters()
    }
    for parameter in given:
        parameter._ac2_gather = gather  # type: ignore[attr-defined]  # so it lives as long as the parameter
        name = f"{in_units.get(id(parameter), '')} {_shape_of(parameter)}".strip()
        _C.manage_data(parameter, name or "whose data managed_elsewhere() was told of", gather is not None)
    for unit in unit_modules:
        watch_unit(unit)


@functools.cache
def _set_gatherer_once() -> None:
    _C.set_gatherer(_gather)


def _gather(parameters: List[torch.Tensor]) -> None:
    """Each parameter by its own function, those of one function together and in the order of the op's arguments."""
    by_function: Dict[int, Tuple[Any, List[torch.Tensor]]] = {}
    for parameter in parameters:
        function = parameter._ac2_gather  # type: ignore[attr-defined]
        by_function.setdefault(id(function), (function, []))[1].append(parameter)
    for function, its_own in by_function.values():
        let_go = function(its_own)
        if let_go is None:
            continue
        if not callable(let_go):
            raise TypeError(
                f"The gather function of managed_elsewhere returned {let_go!r}; expected None, or a function to call when the "
                "backward is over."
            )
        Variable._execution_engine.queue_callback(let_go)


def _shape_of(parameter: torch.Tensor) -> str:
    """As errors say it: nothing for a parameter whose data is elsewhere already."""
    if hasattr(parameter, "ds_shape"):  # DeepSpeed's, whose own shape tells nothing while it is partitioned
        return f"of shape {tuple(parameter.ds_shape)} (ac2.integrations.deepspeed has DeepSpeed gather it for replays)"
    return f"of shape {tuple(parameter.shape)}" if parameter.numel() > 0 else ""
