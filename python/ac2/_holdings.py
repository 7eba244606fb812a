"""What the program holds by itself, which no budget may drop: for errors that say that memory ran out."""

import collections
import gc
import sys
import types
from typing import Any, Dict, Iterator, List, Set, Tuple

import torch

# A step may have a list of some results. So many have their graphs alive by mistake.
_MANY = 8
_CONTAINERS = (list, tuple, set, dict, collections.deque)


def _of_type(kind: type) -> List[Any]:
    # By type(): isinstance() would ask objects of all kinds for their __class__, which runs code of theirs.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def root_modules() -> List[torch.nn.Module]:
    """Those of the process that are no module's submodule."""
    modules = [module for module in _of_type(torch.nn.Module) if "_modules" in vars(module)]
    inner = {id(child) for module in modules for child in vars(module)["_modules"].values() if child is not None}
    return [module for module in modules if id(module) not in inner]


def _is_tensor(thing: Any) -> bool:
    return issubclass(type(thing), torch.Tensor)


def _tensors_in(thing: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Those of an optimizer's state, which may lie in containers."""
    if _is_tensor(thing):
        yield thing
    elif depth > 0 and issubclass(type(thing), _CONTAINERS):
        for inner in thing.values() if issubclass(type(thing), dict) else thing:
            yield from _tensors_in(inner, depth - 1)


def _kinds() -> Iterator[Tuple[str, torch.Tensor]]:
    roots = root_modules()
    for root in roots:
        for parameter in root.parameters():
            yield "parameters", parameter
    for root in roots:
        for parameter in root.parameters():
            if parameter.grad is not None:
                yield "gradients", parameter.grad
    for optimizer in _of_type(torch.optim.Optimizer):
        for state in list(getattr(optimizer, "state", {}).values()):
            for tensor in _tensors_in(state):
                yield f"{type(optimizer).__name__}'s state", tensor
    for root in roots:
        for buffer in root.buffers():
            yield "buffers", buffer


def _bytes_by_device() -> Dict[str, Dict[str, int]]:
    seen: Set[Tuple[str, int]] = set()
    sums: Dict[str, Dict[str, int]] = {}
    for kind, tensor in _kinds():
        try:
            storage = tensor.untyped_storage()
            place, size = (str(storage.device), storage.data_ptr()), storage.nbytes()
        except (RuntimeError, NotImplementedError):
            continue  # of a subclass, or on a device, that has none
        if size > 0 and place not in seen:
            seen.add(place)
            of_device = sums.setdefault(place[0], {})
            of_device[kind] = of_device.get(kind, 0) + size
    return sums


def _frames() -> Iterator[types.FrameType]:
    """Of all threads that run; of one that has failed, those that its error's traceback keeps are found as referrers."""
    for frame in list(sys._current_frames().values()):
        while frame is not None:
            yield frame
            frame = frame.f_back  # type: ignore[assignment]


def _name_of(container: Any) -> str:
    """Of the variable or the attribute that it is; empty if none is found."""
    referrers = gc.get_referrers(container)
    frames = [one for one in referrers if type(one) is types.FrameType]
    frames.extend(_frames())
    scopes = [one for one in referrers if type(one) is dict]
    scopes.extend(frame.f_locals for frame in frames if frame.f_code.co_filename != __file__)
    for names in scopes:
        for name, value in names.items():
            if value is container and isinstance(name, str):
                return name
    return ""


def _keepers() -> List[Tuple[int, str]]:
    """Containers of many tensors that have a graph, those with most first."""
    found = []
    for container in gc.get_objects():
        kind = type(container)
        if kind in _CONTAINERS and len(container) >= _MANY:
            inner = list(container.values() if kind is dict else container)
            count = sum(1 for thing in inner if _is_tensor(thing) and thing.grad_fn is not None)
            if count >= _MANY:
                found.append((count, kind.__name__, container))
    found.sort(key=lambda one: -one[0])
    return [(count, f"A {kind}" + (f", {name}," if (name := _name_of(container)) else "")) for count, kind, container in found[:3]]


def _bytes(count: float) -> str:
    """As the runtime's texts about held bytes: "12 B", "1.50 KiB"."""
    if count < 1024:
        return f"{count} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024 or unit == "GiB":
            break
    return f"{count:.2f} {unit}"


def sentences() -> List[str]:
    with torch._C.DisableTorchFunctionSubclass():
        told = [
            f"On {device} the program holds {', '.join(f'{_bytes(size)} of {kind}' for kind, size in kinds.items())}: "
            "no budget may drop these."
            for device, kinds in _bytes_by_device().items()
        ]
        return told + [f"{what} has {count} tensors whose graphs it keeps." for count, what in _keepers()]
