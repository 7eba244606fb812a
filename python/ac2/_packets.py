"""A policy's function that compares an overload with its packet.

A policy is given overloads (``torch.ops.aten.mm.default``). ``torch.ops.aten.mm`` is a packet of overloads, equal to none
of them, so that a function with ``op == torch.ops.aten.mm`` or ``op in {torch.ops.aten.mm}`` saves nothing. Neither
class can be taught that the two are equal: a set looks at hashes first, and programs tell them apart by ``is``. So the
function is looked at instead, and told of if it has named a packet, has been asked about one of its overloads, and has
saved nothing by the end of the first backward.
"""

import dis
import functools
import itertools
import types
from typing import Any, Callable, Dict, Iterator, Optional, Set, Tuple

import torch

from ac2 import _C

_Packet = torch._ops.OpOverloadPacket
# Names in a function by which one sees that it knows of packets.
_COMPARES_NAMES = frozenset(("overloadpacket", "_overloadpacket", "name", "_qualified_op_name", "__name__", "_opname"))
_LOADS_NAME = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"))
_LOADS_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))


def _function_of(policy: Any) -> Optional[types.FunctionType]:
    """The function of Python's that runs when ``policy`` is called."""
    for _ in range(8):  # a policy that wraps itself is none that anybody has
        if isinstance(policy, functools.partial):
            policy = policy.func
        elif isinstance(policy, types.MethodType):
            policy = policy.__func__
        elif isinstance(policy, types.FunctionType):
            return policy
        else:
            policy = getattr(type(policy), "__call__", None)
    return None


def _values(fn: types.FunctionType) -> Dict[str, Any]:
    """What the names in the function's code mean, its own variables apart."""
    names = dict(fn.__globals__)
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            names.pop(name, None)
    return names


def _objects(fn: types.FunctionType) -> Iterator[Any]:
    """What the code names: variables of modules and of functions around it, their attributes where they are modules or
    namespaces of operators, and defaults."""
    names = _values(fn)
    nothing = object()
    found = nothing
    for instruction in dis.get_instructions(fn):
        if instruction.opname in _LOADS_NAME:
            if found is not nothing:
                yield found
            found = names.get(instruction.argval, nothing)
        elif instruction.opname in _LOADS_ATTRIBUTE and isinstance(found, types.ModuleType):  # torch.ops is one, too
            found = getattr(found, instruction.argval, nothing)
        elif instruction.opname in _LOADS_ATTRIBUTE and isinstance(found, _Packet):
            found = nothing  # torch.ops.aten.mm.default
        elif found is not nothing and instruction.opname not in ("PRECALL", "CACHE"):
            yield found
            found = nothing
    if found is not nothing:
        yield found
    yield from fn.__defaults__ or ()
    yield from (fn.__kwdefaults__ or {}).values()


def _bound(policy: Any, fn: types.FunctionType) -> Iterator[Any]:
    """What comes with the function: arguments of a partial, and the attributes that it names of its object."""
    while isinstance(policy, functools.partial):
        yield from policy.args
        yield from policy.keywords.values()
        policy = policy.func
    if not isinstance(policy, types.FunctionType):
        attributes = getattr(getattr(policy, "__self__", policy), "__dict__", {})
        yield from (attributes[name] for name in fn.__code__.co_names if name in attributes)


def packets_of(policy: Any) -> Set[Any]:
    """The packets that a policy's function compares operators with; none if it seems to know what they are."""
    fn = _function_of(policy)
    if fn is None or not _COMPARES_NAMES.isdisjoint(fn.__code__.co_names):
        return set()
    packets: Set[Any] = set()
    for found in itertools.chain(_objects(fn), _bound(policy, fn)):
        members = found if isinstance(found, (list, tuple, set, frozenset, dict)) else (found,)
        packets.update(member for member in members if isinstance(member, _Packet))
    return packets


class _Asked:
    """What a function was asked about, and whether it saved anything."""

    def __init__(self, name: str, packets: Set[Any]) -> None:
        self.name = name
        self.packets = packets
        self.met: Dict[str, str] = {}  # packets by their overloads
        self.saved = False
        self.waits = False

    def note(self, op: Any, decision: Any) -> None:
        self.saved = self.saved or not _recomputes(decision)
        packet = getattr(op, "overloadpacket", None)
        if packet in self.packets:
            self.met[str(op)] = str(packet)
            if not self.waits:
                self.waits = True
                _C.after_backward(self.text)

    def text(self) -> Optional[str]:
        if self.saved:
            return None
        overload, packet = next(iter(sorted(self.met.items())))
        return (
            f"The policy {self.name} saved nothing until the end of the first backward. It compares operators with "
            f"torch.ops.{packet}, which is a packet of overloads and equal to none of them, and was asked about "
            f"{', '.join(sorted(self.met))}. Compare with torch.ops.{overload}, compare op.overloadpacket, or pass a list of ops "
            "as the policy, which takes packets."
        )


def _recomputes(decision: Any) -> bool:
    return decision is False or decision is None or getattr(decision, "name", "").endswith("RECOMPUTE")


def watch_packets(policy: Callable[..., Any]) -> Callable[..., Any]:
    """``policy``; if it compares with packets, a function that does the same and is told of if that comes to nothing."""
    packets = packets_of(policy)
    if not packets:
        return policy
    fn = _function_of(policy)
    asked = _Asked(getattr(fn, "__qualname__", repr(policy)), packets)

    def watched(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        decision = policy(ctx, op, *args, **kwargs)
        if not asked.saved:
            asked.note(op, decision)
        return decision

    return watched


__all__: Tuple[str, ...] = ("packets_of", "watch_packets")
