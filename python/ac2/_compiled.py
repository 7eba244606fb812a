"""torch.compile: what is traced is no part of the program, and regions in functions that are being compiled.

The functions in which code is traced are wrapped when the first region opens, or when their module is imported after that, be it
for torch.compile, torch.export, make_fx or an operator of higher order: ops on tensors without data are no part of the program.
_compiled_code.py sees to the compiled code itself.

Dynamo cannot see the runtime's regions. Where a function is compiled that calls ``ac2.checkpoint`` or a wrapped module, the
same policy goes through PyTorch's own selective checkpointing, which its compiler knows: what is decided of an operator is what
ac2 decides. Where that cannot be, and for PolicyScope, there is a graph break, and the region is one as ever.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from typing import Any, Callable, Dict, Optional, Tuple

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2 import _C
from ac2._form import Form
from ac2._policy import CheckpointPolicy, PolicyLike, as_policy, is_by_operator

_OFFLOADS = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)
_SAVE = torch_checkpoint.CheckpointPolicy.MUST_SAVE

# Under patch_torch_checkpoint() the module has another. Of `checkpoint`, too: Dynamo takes for PyTorch's what the module has.
_torch_contexts = torch_checkpoint.create_selective_checkpoint_contexts


# In which code is traced: of each module those functions that the version of torch has.
_TRACERS = {
    "torch._dynamo.convert_frame": ("_compile",),
    "torch._functorch.aot_autograd": ("create_aot_state", "create_aot_dispatcher_function"),
    "torch.fx.experimental.proxy_tensor": ("_MakefxTracer._trace_inner",),
}


class _Tracers(threading.local):
    """Those that this thread is in, and has been in."""

    running = 0
    begun = 0


_tracers = _Tracers()


def watch() -> None:
    """Wraps what traces code, now or when its module is imported. To be called once."""
    for name in _TRACERS:
        when_imported(name, _wrap_tracers)


def _wrap_tracers(module: Any) -> None:
    for path in _TRACERS[module.__name__]:
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, module)
        if hasattr(owner, name):
            setattr(owner, name, _unrecorded(getattr(owner, name)))


def _unrecorded(trace: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(trace)
    def tracer(*args: Any, **kwargs: Any) -> Any:
        _tracers.running += 1
        _tracers.begun += 1
        try:
            with _C.CompilerTracing():
                return trace(*args, **kwargs)
        finally:
            _tracers.running -= 1

    return tracer


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Calls ``then(module)`` now, or after the import of the module. To import it takes seconds, so we do not."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the import of one module, and leaves finding it to those behind."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self._then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def is_tracing() -> bool:
    """Whether Dynamo is tracing the caller."""
    return torch.compiler.is_dynamo_compiling()


def is_called_by_a_tracer() -> bool:
    """Whether a compiler that is tracing code has called the caller."""
    return _tracers.running > 0


def keep_out_of_graphs(cls: type, *methods: str) -> None:
    """Dynamo traces none of the methods, whose calls of C++ it would warn of: the graph of a caller ends there."""

    def make_opaque(dynamo: Any) -> None:
        for name in methods:
            setattr(cls, name, dynamo.disable(getattr(cls, name)))

    when_imported("torch._dynamo", make_opaque)


def times_traced() -> int:
    """How often a compiler has begun to trace code on this thread."""
    return _tracers.begun


def keep_frames_out_of_graphs(function: Callable[..., Any]) -> None:
    """Dynamo compiles no call of the function that it meets behind a graph break."""
    when_imported("torch._dynamo", lambda dynamo: dynamo.eval_frame.skip_code(function.__code__))


def _needs_arguments(policy: str) -> bool:
    return _C.operator_decisions(_C.policy_by_name(policy))(torch.ops.aten.mm.default) is None


# Named policies that decide by more than the operator, such as "memory".
_NEED_ARGUMENTS = frozenset(name for name in _C.policy_names() if _needs_arguments(name))


def outside_of_graphs(call: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """``call(*args, **kwargs)`` where no graph is traced: the graph of the caller ends here."""
    return call(*args, **kwargs)


def _make_opaque(dynamo: Any) -> None:
    global outside_of_graphs
    outside_of_graphs = dynamo.disable(outside_of_graphs)


when_imported("torch._dynamo", _make_opaque)


def can_be_in_a_graph(policy: PolicyLike, options: Dict[str, Any]) -> bool:
    """Whether PyTorch's selective checkpointing can do the same. Dynamo traces this, so that it is kept simple."""
    for value in options.values():
        if value is not None and value is not False:
            return False
    if isinstance(policy, str):
        return policy not in _NEED_ARGUMENTS
    return policy is None or isinstance(policy, (list, tuple)) or (callable(policy) and not isinstance(policy, _C.Policy))


def holds_a_policy(context_fn: Callable[[], Any]) -> bool:
    """Whether it is a partial with an object of ours, which Dynamo cannot take over into a graph. Dynamo traces this, too."""
    if isinstance(context_fn, functools.partial):
        for value in (*context_fn.args, *context_fn.keywords.values()):
            if isinstance(value, _C.Policy):
                return True
    return False


def checkpoint_in_a_graph(function: Callable[..., Any], policy: PolicyLike, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """``function(*args, **kwargs)``, traced by Dynamo as a checkpoint with this policy."""
    if policy is None or (isinstance(policy, str) and policy == "recompute_all"):
        return torch_checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)
    return checkpoint_with_contexts(function, functools.partial(contexts, policy), args, kwargs)


def checkpoint_with_contexts(
    function: Callable[..., Any], context_fn: Callable[[], Tuple[Any, Any]], args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Any:
    """The same with the contexts that ``context_fn`` returns; it is called when Dynamo has finished."""
    return torch_checkpoint.checkpoint(function, *args, use_reentrant=False, context_fn=context_fn, **kwargs)


def contexts(policy: PolicyLike) -> Tuple[Any, Any]:
    """PyTorch's contexts for a policy of ours."""
    if callable(policy) and not is_by_operator(policy):
        return _torch_contexts(_deciding_as_torch(policy))
    decide = _C.operator_decisions(as_policy(policy))

    def policy_fn(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(op, torch._ops.OpOverload):
            return _SAVE  # an operator of higher order, whose parts are not seen
        decision = decide(op)
        # Without a decision the policy wants the op's arguments: it was made in a context_fn, which is called too late to
        # break the graph. A text is a form or "SaveWithHooks".
        return _SAVE if decision is None or isinstance(decision, str) else _as_torch(decision)

    return _torch_contexts(policy_fn)


def _deciding_as_torch(policy_fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(policy_fn, updated=())
    def decide(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return _as_torch(policy_fn(ctx, op, *args, **kwargs))

    return decide


def _as_torch(decision: Any) -> Any:
    """A decision of a policy as PyTorch knows it. A compiled graph offloads nothing, and packs nothing: it saves."""
    if isinstance(decision, (_C.SaveWithHooks, Form)) or decision in _OFFLOADS:
        return _SAVE
    return getattr(torch_checkpoint.CheckpointPolicy, decision.name) if isinstance(decision, CheckpointPolicy) else decision
