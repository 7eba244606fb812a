"""Policies in the forms in which people give them, made into the runtime's."""

import difflib
import enum
from typing import Any, Callable, List, Optional, TypeVar, Union

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2 import _C
from ac2._form import Form
from ac2._packets import watch_packets

if hasattr(torch_checkpoint.CheckpointPolicy, "MUST_CPU_OFFLOAD"):
    CheckpointPolicy = torch_checkpoint.CheckpointPolicy
else:

    class CheckpointPolicy(enum.Enum):  # type: ignore[no-redef]
        """torch.utils.checkpoint.CheckpointPolicy with the two members that this torch does not have yet."""

        MUST_SAVE = 0
        PREFER_SAVE = 1
        MUST_RECOMPUTE = 2
        PREFER_RECOMPUTE = 3
        MUST_CPU_OFFLOAD = 4
        PREFER_CPU_OFFLOAD = 5


PolicyLike = Union[None, str, "_C.Policy", CheckpointPolicy, Form, Callable[..., Any], List[Any]]
_Fn = TypeVar("_Fn", bound=Callable[..., Any])

_BY_OPERATOR = "__ac2_by_operator__"


def by_operator(policy_fn: _Fn) -> _Fn:
    """Marks a policy that looks at the operator alone: it is asked once for each operator and region.

        @ac2.by_operator
        def policy_fn(ctx, op):
            return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    It is called as ``policy_fn(ctx, op)``, before the op runs; after that no op calls into Python. A function that
    also takes ``*args, **kwargs`` gets none.
    """
    if not callable(policy_fn):
        raise TypeError(f"by_operator was given {policy_fn!r}; expected a function policy_fn(ctx, op).")
    setattr(policy_fn, _BY_OPERATOR, True)
    return policy_fn


_MAKES_A_POLICY = "__ac2_makes_a_policy__"


def makes_a_policy(fn: _Fn) -> _Fn:
    """Marks a function of ac2.policies, so that one that was not called can be told from a policy."""
    setattr(fn, _MAKES_A_POLICY, True)
    return fn


def is_by_operator(policy: Any) -> bool:
    return bool(getattr(policy, _BY_OPERATOR, False))


def _context(results: Any) -> torch_checkpoint.SelectiveCheckpointContext:
    """The ``ctx`` that a policy is given. ``op_output`` is there where PyTorch's own has it."""
    if results is None or not _HAS_OP_OUTPUT:
        return torch_checkpoint.SelectiveCheckpointContext(is_recompute=False)
    output = results[0] if len(results) == 1 else results
    return torch_checkpoint.SelectiveCheckpointContext(is_recompute=False, op_output=output)


def _takes_op_output() -> bool:
    try:
        torch_checkpoint.SelectiveCheckpointContext(is_recompute=False, op_output=None)
    except TypeError:
        return False
    return True


_HAS_OP_OUTPUT = _takes_op_output()


def as_flag(given: Any, name: str) -> bool:
    """An option that is on or off. A text would be taken for "on", whatever it says."""
    if given is True or given is False:
        return given
    if given is None or (isinstance(given, int) and given in (0, 1)) or type(given).__module__ == "numpy":
        return bool(given)
    raise TypeError(f"{name} is {given!r}; expected True or False.")


class _Functions:
    """The functions that the runtime calls of a policy that is written in Python."""

    __slots__ = ("policy_fn", "__weakref__")
    make_context = staticmethod(_context)

    def __init__(self, policy_fn: Callable[..., Any]) -> None:
        self.policy_fn = policy_fn


_NAMES = frozenset(_C.policy_names())


def _check_name(name: str) -> None:
    if name in _NAMES:
        return
    known = _C.policy_names()
    nearest = difflib.get_close_matches(name, known, n=1)
    meant = f'did you mean "{nearest[0]}"? ' if nearest else ""
    raise ValueError(
        f'"{name}" is no policy: {meant}The names are {", ".join(known)}. Policies with parameters, such as save_ops([...]), '
        "are functions of ac2.policies."
    )


def as_policy(policy: PolicyLike) -> Optional["_C.Policy"]:
    """The runtime's policy; None for None.

    Raises ValueError for a name that no policy or op has, TypeError for what is none of the kinds of a policy.
    """
    if policy is None or isinstance(policy, _C.Policy):
        return policy
    if isinstance(policy, str):
        _check_name(policy)
        return _C.policy_by_name(policy)
    if isinstance(policy, (enum.Enum, _C.SaveWithHooks, Form)):
        return _C.constant_policy(policy)
    if isinstance(policy, (list, tuple, set, frozenset)):
        # torch.utils.checkpoint takes an empty list for one that saves nothing.
        return _C.policies.save_ops(list(policy)) if policy else _C.policy_by_name("recompute_all")
    if getattr(policy, _MAKES_A_POLICY, False):
        raise TypeError(
            f"policy is the function ac2.policies.{policy.__name__}, which makes a policy when it is called: pass "
            f"ac2.policies.{policy.__name__}({'' if policy.__name__ in _C.policy_names() else '...'})."
        )
    if isinstance(policy, (type, torch.Tensor, torch.nn.Module)) or not callable(policy):
        raise TypeError(
            f"policy is {policy!r}; expected a name such as \"recompute_all\", a policy of ac2.policies, a callable "
            "policy_fn(ctx, op, *args, **kwargs), or a list of ops to save."
        )
    make = _C.by_operator_policy if is_by_operator(policy) else _C.callable_policy
    return make(_Functions(watch_packets(policy)))
