"""The functions of torch.utils.checkpoint under their names."""

import contextlib
import enum
import functools
from typing import Any, Callable, ContextManager, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2 import _C, _compiled, _regions
from ac2._budgets import BudgetLike
from ac2._form import Form
from ac2._policy import PolicyLike, as_policy
from ac2._scope import PolicyScope, region_of


# That are neither functions nor lists.
_OTHER_POLICIES = (str, set, frozenset, enum.Enum, _C.Policy, _C.SaveWithHooks, Form)


class _PolicyContext(contextlib.AbstractContextManager):
    """The first of the contexts of create_selective_checkpoint_contexts(): a region of its own each time."""

    def __init__(self, policy: PolicyLike) -> None:
        self.policy = policy
        self._scopes: List[PolicyScope] = []

    def __enter__(self) -> PolicyScope:
        scope = region_of(self.policy)
        scope.__enter__()
        self._scopes.append(scope)
        return scope

    def __exit__(self, *exception: Any) -> None:
        self._scopes.pop().__exit__(*exception)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Union[Callable[..., Any], Sequence[Any], PolicyLike], allow_cache_entry_mutation: bool = False
) -> Tuple[ContextManager[Any], ContextManager[Any]]:
    """Two contexts for ``context_fn=``, as torch.utils.checkpoint.create_selective_checkpoint_contexts returns.

        context_fn = functools.partial(ac2.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
        out = ac2.checkpoint(fn, x, context_fn=context_fn)

    Args:
        policy_fn_or_list: a policy function, a list of ops to save, or any other policy of ac2.
        allow_cache_entry_mutation: has no effect: a saved value that is about to be overwritten is copied.

    The first is for forward; the second does nothing, because nothing runs a second time.
    """
    if isinstance(policy_fn_or_list, (list, tuple)):
        for op in policy_fn_or_list:
            if not isinstance(op, (str, torch._ops.OpOverload)):
                meant = f" Please update the OpOverloadPacket to a specific OpOverload, such as {op}.default."
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}."
                    + (meant if isinstance(op, torch._ops.OpOverloadPacket) else "")
                )
    elif not (callable(policy_fn_or_list) or isinstance(policy_fn_or_list, _OTHER_POLICIES)):
        raise TypeError(
            f"policy_fn_or_list is {policy_fn_or_list!r}; it must be a policy's name, a policy of ac2.policies, or "
            "either a function or a list of ops."
        )
    as_policy(policy_fn_or_list)  # wrong arguments are errors here
    return _PolicyContext(policy_fn_or_list), contextlib.nullcontext()


def policy_of_context(forward: Any) -> Tuple[PolicyLike, Optional[ContextManager[Any]]]:
    """The policy of a context of ``context_fn``, and the context that is still to be entered."""
    if isinstance(forward, _PolicyContext):
        return forward.policy, None
    # PyTorch's own selective checkpointing.
    if isinstance(forward, torch_checkpoint._CachingTorchDispatchMode):
        return forward.policy_fn, None
    return None, forward


def contexts_of(context_fn: Any) -> Tuple[Any, Any]:
    """What ``context_fn()`` returns: a pair, as that of create_selective_checkpoint_contexts."""
    if not callable(context_fn):
        raise TypeError(f"context_fn is {context_fn!r}; expected a function that returns two contexts.")
    contexts = context_fn()
    if not isinstance(contexts, (tuple, list)) or len(contexts) != 2 or not all(hasattr(one, "__enter__") for one in contexts):
        raise TypeError(
            f"context_fn returned {contexts!r}; expected two contexts, as create_selective_checkpoint_contexts() returns them."
        )
    return contexts[0], contexts[1]


def _contexts_in_a_graph(context_fn: Callable[[], Tuple[Any, Any]]) -> Tuple[Any, Any]:
    """``context_fn()`` for PyTorch: a context of ours holds a policy and cannot be entered in a graph."""
    forward, recompute = context_fn()
    policy, _ = policy_of_context(forward)
    return (forward, recompute) if policy is None else _compiled.contexts(policy)


def checkpoint(
    function: Optional[Callable[..., Any]] = None,
    *args: Any,
    use_reentrant: Optional[bool] = False,
    context_fn: Optional[Callable[[], Tuple[ContextManager[Any], ContextManager[Any]]]] = None,
    determinism_check: str = "default",
    preserve_rng_state: bool = True,
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: Optional[bool] = None,
    policy: PolicyLike = None,
    memory_budget: BudgetLike = None,
    **kwargs: Any,
) -> Any:
    """Returns ``function(*args, **kwargs)``; what it computes is recomputed in backward as far as it is needed.

    The same call as torch.utils.checkpoint.checkpoint. ``function`` runs once: prints, counters and random draws happen
    once, and backward replays single ops.

        out = ac2.checkpoint(block, x)
        out = ac2.checkpoint(block, x, policy="save_compute_intensive")
        out = ac2.checkpoint(block, x, memory_budget=64 << 20)

    Without ``function`` it returns a decorator:

        @ac2.checkpoint(policy="speed")
        def block(x): ...

    Args:
        function: anything that can be called.
        use_reentrant: False. None is taken for it; True is an error.
        context_fn: as for torch.utils.checkpoint.checkpoint, or None. Contexts of create_selective_checkpoint_contexts
            (ac2's or PyTorch's) say what is saved. Of others the first is entered around ``function``, and the second
            never: nothing runs again.
        policy: as for PolicyScope. Without one, nothing is saved but the inputs.
        memory_budget: as for PolicyScope.
        determinism_check, preserve_rng_state, debug, early_stop: accepted and without effect. They are about running
            ``function`` a second time.
        respect_saved_tensors_hooks: accepted and without effect. Hooks that are entered inside ``function`` get what is
            saved there; those outside of it do not.

    Raises:
        ValueError: use_reentrant is True, or an argument is wrong.
    """
    _check_variant("ac2.checkpoint", use_reentrant)
    if function is not None and not callable(function):
        raise TypeError(
            f"ac2.checkpoint was given {function!r} to run; expected a function or a module, and its arguments behind it."
        )
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'] but got {determinism_check}. It has no effect in ac2."
        )
    if context_fn is torch_checkpoint.noop_context_fn:  # PyTorch's way to say that there is none
        context_fn = None
    if function is None:
        if args:
            raise TypeError(
                "ac2.checkpoint was given None to run; expected a function or a module, and its arguments behind it. As a "
                "decorator it takes keywords alone."
            )
        region_of(policy, memory_budget=memory_budget)  # wrong arguments are errors here, not in the first call
        options = {"use_reentrant": use_reentrant, "context_fn": context_fn, "policy": policy, "memory_budget": memory_budget}
        return _decorator({**options, **kwargs})
    if _compiled.is_tracing():
        if _compiled.can_be_in_a_graph(policy, {"memory_budget": memory_budget}):
            if context_fn is None:
                return _compiled.checkpoint_in_a_graph(function, policy, args, kwargs)
            if policy is None and not _compiled.holds_a_policy(context_fn):
                contexts = functools.partial(_contexts_in_a_graph, context_fn)
                return _compiled.checkpoint_with_contexts(function, contexts, args, kwargs)
        options = {"context_fn": context_fn, "policy": policy, "memory_budget": memory_budget}
        return _compiled.outside_of_graphs(checkpoint, (function, *args), {**options, **kwargs})
    entered: Optional[ContextManager[Any]] = None
    if context_fn is not None:
        from_context, entered = policy_of_context(contexts_of(context_fn)[0])
        if from_context is not None and policy is not None:
            raise ValueError("ac2.checkpoint was given a policy twice: by policy= and by context_fn=. Pass one of them.")
        policy = policy if policy is not None else from_context
    with region_of(policy, memory_budget=memory_budget), entered or contextlib.nullcontext():
        _regions.opened_for(function)
        return _regions.checked(function(*args, **kwargs), function)


def _decorator(options: Dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError(f"ac2.checkpoint was given {function!r} to decorate; expected a function.")

        @functools.wraps(function)
        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(function, *args, **options, **kwargs)

        return checkpointed

    return decorate


def _check_variant(function: str, use_reentrant: Optional[bool]) -> None:
    if isinstance(use_reentrant, torch.Tensor):
        raise TypeError(f"{function} was given a second input, which would be use_reentrant; expected one input.")
    if use_reentrant:
        raise ValueError(
            f"{function} was given use_reentrant={use_reentrant!r}. The reentrant variant runs a nested backward, which needs "
            "forward to run a second time; here it runs once. Pass use_reentrant=False, which computes the same gradients."
        )


def checkpoint_sequential(
    functions: Union[torch.nn.Sequential, Sequence[Callable[[Any], Any]]],
    segments: int,
    input: Any,
    use_reentrant: Optional[bool] = False,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Runs ``functions`` one after the other, in ``segments`` parts of which all but the last are checkpointed.

    The same call as torch.utils.checkpoint.checkpoint_sequential.

    Args:
        functions: a torch.nn.Sequential or a list of modules or functions.
        segments: a number of parts, between 1 and the number of functions.
        input: what the first function takes.
        preserve_rng_state: accepted and without effect.

    Raises:
        ValueError: ``functions`` is empty, ``segments`` is out of range, or use_reentrant is True.
        TypeError: an unknown keyword.
    """
    if kwargs:
        raise TypeError("Unexpected keyword arguments: " + ", ".join(kwargs))
    _check_variant("checkpoint_sequential", use_reentrant)
    if not isinstance(functions, Iterable):
        raise TypeError(f"checkpoint_sequential was given {functions!r}; expected a torch.nn.Sequential or a list of functions.")
    steps = list(functions.children()) if isinstance(functions, torch.nn.Sequential) else list(functions)
    if not steps:
        raise ValueError(f"checkpoint_sequential was given an empty {type(functions).__name__}. Put the functions that are to run into it.")
    if isinstance(segments, bool) or not hasattr(segments, "__index__"):
        raise TypeError(f"checkpoint_sequential was given {segments!r} segments; expected a number, 1 to {len(steps)}.")
    if not 1 <= segments <= len(steps):
        raise ValueError(
            f"checkpoint_sequential was given {segments} segments for {len(steps)} functions; expected 1 to {len(steps)}."
        )

    def run(start: int, end: int) -> Callable[[Any], Any]:
        def forward(value: Any) -> Any:
            for step in steps[start:end]:
                value = step(value)
            return value

        return forward

    size = len(steps) // segments
    start = 0
    for _ in range(segments - 1):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant)
        start += size
    return run(start, len(steps))(input)
