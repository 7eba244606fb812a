"""Regions."""

import atexit
import contextvars
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Optional, Sequence, TypeVar

import torch

from ac2 import _C, _compiled, _compiled_code, _early_counts, _fsdp, _higher_order, _kernels, _module_calls, _out_of_memory, _pointers
from ac2._budgets import BudgetLike, as_budget, models_costs, note_memory_fraction
from ac2._form import Form, as_forms
from ac2._policy import PolicyLike, as_flag, as_policy

_R = TypeVar("_R")

# Scopes that are open, to tell of those that never were closed.
_open_scopes: "weakref.WeakSet[PolicyScope]" = weakref.WeakSet()

# The scopes that were open where the asyncio task was made, and those that the task has open: tasks copy the context.
_scopes_around: "contextvars.ContextVar[tuple[weakref.ref[PolicyScope], ...]]" = contextvars.ContextVar(
    "ac2_scopes_around", default=()
)

_watch_lock = threading.Lock()
_watching = False


def watch_python() -> None:
    """Watches Python, once in a process, when its first region or patch opens: for writes to tensors that no dispatcher sees,
    for code that looks at dispatch keys, and for errors about memory."""
    global _watching
    _fsdp.watch_once()  # which may be imported later
    if _watching:
        return
    with _watch_lock:
        if not _watching:
            _pointers.watch()
            _kernels.watch()
            _compiled.watch()
            _compiled_code.watch()
            _early_counts.watch()
            _higher_order.watch()
            _out_of_memory.watch()
            _watching = True


def _current_task() -> Any:
    """The asyncio task that runs on this thread, or None."""
    asyncio = sys.modules.get("asyncio")
    # current_task() alone throws where no loop runs, which is dear.
    loop = None if asyncio is None else asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


def _task_name(task: Any) -> str:
    return "code outside of all tasks" if task is None else f"the asyncio task {task.get_name()!r}"


_OF_ALL_TASKS = "A region takes in all that its thread runs while it is open, of whatever asyncio task."
_LEAVE_BEFORE = "Leave the with statement before the await, or run such tasks one after the other."


def _warn_of_hooks_around() -> None:
    is_around = getattr(torch.autograd.graph, "_allow_mutation_on_saved_tensors_enabled", False)
    if is_around and not _C.is_checkpoint_enabled():
        warnings.warn(
            "A region was opened inside torch.autograd.graph.allow_mutation_on_saved_tensors(), which sees nothing of what "
            "the region saves: it does not allow a write after the region to a tensor that backward needs. Enter it inside "
            "the region. Writes inside the region are allowed without it.",
            RuntimeWarning,
            stacklevel=3,
        )


class PolicyScope:
    """A region in which ops are recorded, so that backward recomputes what the policy does not save.

        with ac2.PolicyScope("save_compute_intensive") as scope:
            loss = model(x).sum()
        loss.backward()
        print(scope.trace.stats())

    The outermost scope of a thread opens a region and its trace; an inner one adds its policy to the region's stack.
    A ``MUST_*`` decision replaces any ``PREFER_*``, a later ``PREFER_*`` an earlier one; two different MUSTs are an
    error, "Conflicting policies". Ops of other threads are not recorded; backward may run on any thread.

    Args:
        policy: a name ("recompute_all", "speed", ...), a policy of ``ac2.policies``, a callable
            ``policy_fn(ctx, op, *args, **kwargs)``, or a list of ops to save. Without one what fits is kept: within the
            ``memory_budget``, or, without one, within what the machine has (``ac2.whatever_fits()``).
        memory_budget: bytes that the region may hold for backward, as a number or as a text ("64MiB"), or an
            ``ac2.MemoryBudget`` that regions share.
        modelled_costs: with a number of bytes, or with neither policy nor budget: costs of ops come from their shapes, not
            from their times, so that the same program drops the same values in every run. By default where a process group
            of torch.distributed is initialised, so that processes of the same shapes drop the same values.
        verify: compares each replayed value with what forward computed. For trying ops of your own; slow.
        timeline: keeps a log for ``explain``, ``to_chrome_trace`` and ``write_report``; about 800 bytes an op.
        offload: an ``ac2.OffloadOptions``.
        gather_units: a replay in backward that needs parameters of a ``fully_shard()`` unit which are not there gathers the
            unit, instead of being an error. All ranks must set it alike (docs/python.md, "Several processes").
        keep_for_next_backward: for a backward in two halves, as those of zero-bubble pipelines: what the first half
            replays and the second reads again is held until then, instead of being replayed twice. An error under a
            ``memory_budget``, and so without a policy.
        forms: with a memory budget, the ways, besides computing again, in which the budget may do without the bytes of a
            value that it has no room for: a list of ``ac2.forms`` and of the program's own (``ac2.Form``). Of dropping the
            value and of each form that takes it the budget uses what costs least. If all of them are exact, gradients have
            the bits of plain PyTorch. Otherwise numbers that are unpacked differ by as much as the form says, and those that
            are computed again from them by what their ops make of that; indices and masks that are computed from numbers
            are saved (docs/quantisation.md, "Under a memory budget").

    Raises:
        ValueError, TypeError: a wrong argument.
        RuntimeError: the scope is used a second time, or closed out of order or on another thread.
    """

    def __init__(
        self,
        policy: PolicyLike = None,
        *,
        memory_budget: BudgetLike = None,
        modelled_costs: Optional[bool] = None,
        verify: bool = False,
        timeline: bool = False,
        offload: Optional["_C.OffloadOptions"] = None,
        gather_units: bool = False,
        keep_for_next_backward: bool = False,
        forms: Sequence[Form] = (),
    ) -> None:
        if offload is not None and not isinstance(offload, _C.OffloadOptions):
            raise TypeError(f"offload is {offload!r}; expected an ac2.OffloadOptions.")
        budget = as_budget(memory_budget)
        if policy is None and budget is None:
            budget = _C.whatever_fits(modelled_costs=modelled_costs)
        # Without a number of bytes the default means nothing: a MemoryBudget has said where its costs come from.
        modelled = models_costs(False if modelled_costs is None and not isinstance(budget, int) else modelled_costs)
        flags = (modelled, as_flag(verify, "verify"), as_flag(timeline, "timeline"))
        more_flags = (as_flag(gather_units, "gather_units"), as_flag(keep_for_next_backward, "keep_for_next_backward"))
        self._arguments = (as_policy(policy), budget, *flags, offload, *more_flags, as_forms(forms))
        self._scope: Optional[_C.Scope] = None
        self._closed = False

    def __enter__(self) -> "PolicyScope":
        if self._scope is not None:
            raise RuntimeError(
                "This PolicyScope has been entered before. A scope is for one region: make a new one for each, as in "
                "`with ac2.PolicyScope(policy):`; the policy may be used again."
            )
        watch_python()
        _module_calls.forget_interrupted()
        if isinstance(self._arguments[1], _C.MemoryBudget):
            note_memory_fraction()
        _warn_of_hooks_around()
        self._task = _current_task()
        self._thread = threading.current_thread()
        if self._task is not None:
            self._warn_of_tasks()
        self._scope = _C.Scope(*self._arguments)
        del self._arguments  # a scope that is kept keeps no policy alive
        _open_scopes.add(self)
        if self._task is not None:
            self._around = _scopes_around.get()
            _scopes_around.set((*self._around, weakref.ref(self)))
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        if self._scope is None or self._closed:
            raise RuntimeError("This PolicyScope is not open. Use it in a with statement.")
        # First of all: Ctrl-C may end this function at any call.
        try:
            self._scope.close()
        except RuntimeError as error:
            over_an_await = self._complaint_of_tasks()
            if exc_type is None and over_an_await is not None:
                raise RuntimeError(over_an_await) from error
            if exc_type is None:
                raise
            # The exception that the program has raised must not be hidden.
            warnings.warn(over_an_await or str(error), RuntimeWarning, stacklevel=2)
        finally:
            self._closed = True
            _open_scopes.discard(self)
            if self._task is not None and _scopes_around.get() == (*self._around, weakref.ref(self)):
                _scopes_around.set(self._around)
        _warn_of_ops(may_raise=exc_type is None)

    def _scopes_of_other_tasks(self) -> "list[PolicyScope]":
        """Those that are open on this thread, but for those inside of which this task was made."""
        around = [scope() for scope in _scopes_around.get()]
        others = [s for s in _open_scopes if s is not self and s._thread is self._thread and s._task is not self._task]
        return [other for other in others if not any(other is scope for scope in around)]

    def _warn_of_tasks(self) -> None:
        """Of a scope that opens in a region of another task. The region has both policies then, and all values are right."""
        others = [scope for scope in self._scopes_of_other_tasks() if scope._task is not None]
        if others:
            warnings.warn(
                f"A scope is open over an await: {_task_name(self._task)} opens an ac2.PolicyScope while "
                f"{_task_name(others[0]._task)} has one open on this thread. {_OF_ALL_TASKS} What the inner one says counts in "
                f"the region of the outer one. {_LEAVE_BEFORE}",
                RuntimeWarning,
                stacklevel=3,
            )

    def _complaint_of_tasks(self) -> Optional[str]:
        """Of scopes of several asyncio tasks, which were closed out of order."""
        others = self._scopes_of_other_tasks()
        if not others:
            return None
        return (
            f"A scope is open over an await: {_task_name(others[0]._task)} has an ac2.PolicyScope open on this thread while "
            f"{_task_name(self._task)} closes the one around it. {_OF_ALL_TASKS} Both are closed correctly, but ops of each "
            f"task ran under the policy of the other. {_LEAVE_BEFORE}"
        )

    @property
    def trace(self) -> "_C.Trace":
        """The trace of the region. It may outlive the scope and backward."""
        if self._scope is None:
            raise RuntimeError("This PolicyScope has not been entered, so it has no trace. Use it in a with statement.")
        return self._scope.trace

    def __copy__(self) -> "PolicyScope":
        return self

    def __deepcopy__(self, memo: Any) -> "PolicyScope":
        """A scope is one region: a copy of a model that keeps its scopes has the same ones."""
        return self

    def _repr_html_(self) -> str:
        from ac2 import _html

        return _html.of_scope(self)

    def __repr__(self) -> str:
        state = "not entered" if self._scope is None else "closed" if self._closed else "open"
        return f"<ac2.PolicyScope, {state}>"


def region_of(policy: PolicyLike, **options: Any) -> PolicyScope:
    """The scope of what programs put around blocks: with neither policy nor budget all is recomputed, as PyTorch does."""
    recomputes = policy is None and options.get("memory_budget") is None
    return PolicyScope("recompute_all" if recomputes else policy, **options)


_compiled.keep_out_of_graphs(PolicyScope, "__init__", "__enter__", "__exit__")


def apply_ac_policy_fn(fn: Callable[..., _R], *args: Any, policy: PolicyLike = None, **kwargs: Any) -> _R:
    """Returns ``fn(*args, **kwargs)``, run inside a PolicyScope of ``policy``.

    In a function that torch.compile compiles, it is what ac2.checkpoint is there.
    """
    if _compiled.is_tracing():
        if _compiled.can_be_in_a_graph(policy, {}):
            return _compiled.checkpoint_in_a_graph(fn, policy, args, kwargs)
        return _compiled.outside_of_graphs(apply_ac_policy_fn, (fn, *args), {"policy": policy, **kwargs})
    with region_of(policy):
        return fn(*args, **kwargs)


def _warn_of_ops(may_raise: bool) -> None:
    """Warns of what ops of the region have warned of. Where warnings are errors the first one is raised, after all others."""
    error: Optional[Warning] = None
    for text in _C.take_warnings():
        try:
            warnings.warn(text, stacklevel=3)
        except UserWarning as raised:
            error = error or raised
    if error is not None and may_raise:
        raise error


def _complain_of_open_scopes() -> None:
    # A daemon thread that still runs may be in the middle of a with statement, or open the next region just now.
    running = set(threading.enumerate()) - {threading.main_thread()}
    try:
        left_open = [scope for scope in _open_scopes if scope._thread not in running]
    except RuntimeError:
        return
    count = len(left_open)
    if count:
        threads = ", ".join(sorted({scope._thread.name for scope in left_open}))
        raise RuntimeError(
            f"{count} ac2.PolicyScope{' was' if count == 1 else 's were'} still open at exit (thread {threads}): __enter__ "
            "was called without __exit__. Open regions with a with statement, which closes them whatever happens."
        )


atexit.register(_complain_of_open_scopes)
