"""Regions as people read them."""

import html
import os
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple, Union

import torch

from ac2 import _C, _holdings, _html, _regions
from ac2._checkpointed_class import regions_of, settings_of
from ac2._scope import PolicyScope


def _trace(trace: Any, function: str) -> "_C.Trace":
    if not isinstance(trace, _C.Trace):
        raise TypeError(
            f"{function} was given {trace!r}; expected an ac2.Trace, such as scope.trace of a PolicyScope or ac2.last_trace(module)."
        )
    return trace


def explain(trace: "_C.Trace") -> str:
    """At most about 60 lines: what the region holds, where in the model, why, for whom, and what was recomputed. Under a
    memory budget also how much of it counts, and what was dropped, when and at what cost. An op is named whose result, with
    what surrounds it, is more than all else that the region held, if it could run a few rows at a time (in_chunks).

    With ``PolicyScope(timeline=True)`` costs are times of forward; without, they are numbers of ops.
    """
    return _C.explain(_trace(trace, "explain"))


def explain_held() -> str:
    """The bytes that all regions of the process hold at this moment, by device, and the ten places that most come from.

        print(ac2.explain_held())

    Places are the names of modules (those whose parameters an op takes; "after" one for the ops that follow it), or of
    ``ac2.name_tensor``. Errors that say that memory ran out end with this text about that memory, and say with which
    memory_budget there would have been room.
    """
    return _C.explain_held()


def to_dot(trace: "_C.Trace") -> str:
    """A Graphviz digraph of the ops that something still needs; with a timeline, of all ops of the region."""
    return _C.to_dot(_trace(trace, "to_dot"))


def to_chrome_trace(trace: "_C.Trace") -> str:
    """JSON that Perfetto and chrome://tracing open: forward, backward, replays, and the bytes held, in microseconds."""
    return _C.to_chrome_trace(_trace(trace, "to_chrome_trace"))


def write_report(trace: Union["_C.Trace", Sequence["_C.Trace"]], path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes one HTML page that refers to nothing outside itself: memory over time, a table of ops, the graph.

    Args:
        trace: a trace, or the traces of one step.
        path: the file to write.

    Raises:
        RuntimeError: the file cannot be written; the message names it.
    """
    several = trace if isinstance(trace, Iterable) else [trace]
    traces = [_trace(one, "write_report") for one in several]
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"write_report was given {path!r}; expected a path: a text or an os.PathLike.")
    _C.write_report(traces, os.fspath(path))


def live_node_count() -> int:
    """The recorded calls that are alive in all traces of the process: 0 when nothing is left behind."""
    return _C.live_node_count()


class Report(str):
    """A text that a prompt and a notebook show as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


class _RegionReport(Report):
    """The same, in a notebook with the page of write_report() below it."""

    traces: List["_C.Trace"]

    def _repr_html_(self) -> str:
        return super()._repr_html_() + _html.page(self.traces)


def report(
    scope: Union[None, PolicyScope, "_C.Trace", torch.nn.Module, Sequence[Union[PolicyScope, "_C.Trace"]]] = None,
    path: Union[None, str, "os.PathLike[str]"] = None,
) -> Report:
    """Without an argument: which wrapped modules of the process have had regions, and which never did; what ac2.checkpoint()
    has run. Of a scope or trace: what its region holds and has held at most, how much of it a memory budget counted, what was
    replayed, and what to change.

        print(ac2.report())
        print(ac2.report(scope))                         # after backward
        ac2.report(scope, "memory.html")                 # and the picture of the memory over time
        ac2.report([plain, recomputed], "memory.html")   # of several steps on one time line
        ac2.report(model, "memory.html")                 # of the last region of each module that is wrapped in it

    Modules are those of checkpoint_wrapper(), apply_checkpointing() and the integrations. Calls that come by
    patch_torch_checkpoint() are listed by the function that was run. The picture is drawn of regions that were opened with
    timeline=True, which apply_checkpointing() takes too. A notebook shows it without a path.

    Args:
        scope: a PolicyScope, a trace, several of either, or a model.
        path: where to write the page of write_report().

    Raises:
        TypeError: ``scope`` is something else.
        ValueError: there is a path and no region, or a model in which no wrapped module has had one.
        RuntimeError: the page cannot be written; the message names it.
    """
    if scope is None:
        if path is not None:
            raise ValueError("report() writes a page about regions: give it a PolicyScope, a trace, several of them, or a model.")
        return _of_process()
    traces = _traces_of(scope)
    several = len(traces) > 1
    text = _RegionReport("\n\n".join([_C.summary(list(traces.items())), *([] if several else map(_C.explain, traces.values()))]))
    text.traces = list(traces.values())
    if path is not None:
        write_report(text.traces, path)
    return text


def _traces_of(scope: Any) -> Dict[str, "_C.Trace"]:
    """With what to call them where there are several."""
    if isinstance(scope, torch.nn.Module):
        wrapped = [(name, regions_of(module).trace) for name, module in scope.named_modules() if settings_of(module) is not None]
        # Within a region of the caller's all of them have that one's trace.
        named: Dict["_C.Trace", str] = {}
        for name, trace in wrapped:
            if trace is not None:
                named.setdefault(trace, name or type(scope).__name__)
        if not named:
            raise ValueError(
                f"report() was given a {type(scope).__name__} of which {len(wrapped)} modules are wrapped, and none has had a region. "
                "apply_checkpointing() wraps modules; ask after a step of training."
            )
        return {name: trace for trace, name in named.items()}
    scopes = list(scope) if isinstance(scope, (list, tuple)) else [scope]
    traces = [one.trace if isinstance(one, PolicyScope) else one for one in scopes]
    if not traces or not all(isinstance(trace, _C.Trace) for trace in traces):
        raise TypeError(f"report() takes a PolicyScope, a trace (scope.trace), several of them, a model, or nothing, not {scope!r}.")
    return {str(number): trace for number, trace in enumerate(traces, 1)}


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _of_process() -> Report:
    modules = list(_wrapped_modules())
    had = sum(1 for _, module in modules if regions_of(module).count)
    lines = [f"ac2: {had} of {len(modules)} wrapped modules have had a region."]
    lines += [f"  {name} ({type(module).__name__}): {_of_module(module)}" for name, module in modules]
    if had < len(modules):
        lines.append(
            "A module has none if its forward has not been called since it was wrapped, if it runs compiled (PyTorch's "
            "checkpointing is in the graph), or where off_in_eval or off_under_no_grad hold."
        )
    functions = sorted(_regions.of_functions().items())
    if functions:
        lines.append("Run by ac2.checkpoint, or by a library in its place:")
        lines += [f"  {name}: {_counted(count, 'region')}" for name, count in functions]
    return Report("\n".join(lines))


def _of_module(module: torch.nn.Module) -> str:
    regions = regions_of(module)
    if regions.trace is None:
        return "no region"
    stats = regions.trace.stats()
    return (
        f"{_counted(regions.count, 'region')}; the last one recorded {stats.recorded_ops} ops, has replayed "
        f"{stats.recomputed_ops}, held at most {stats.peak_bytes} bytes, and holds {stats.saved_bytes}"
    )


def _wrapped_modules() -> Iterator[Tuple[str, torch.nn.Module]]:
    """With their names in the model that they are of."""
    seen: List[torch.nn.Module] = []
    roots = _holdings.root_modules()
    for root in roots:
        for name, module in root.named_modules():
            if settings_of(module) is not None and not any(module is other for other in seen):
                seen.append(module)
                prefix = type(root).__name__ if len(roots) > 1 or not name else ""
                yield ".".join(part for part in (prefix, name) if part), module
