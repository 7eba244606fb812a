"""What people read of a region."""

import os
from typing import Sequence, Union

from ac2 import _C


def explain(trace: "_C.Trace") -> str:
    """At most about 40 lines: what the region holds, why, for whom, and what was recomputed.

    With ``PolicyScope(timeline=True)`` costs are times of forward; without, they are numbers of ops.
    """
    return _C.explain(trace)


def explain_held(error: str = "") -> str:
    """What all regions of the process hold at this moment, by device: the bytes, and the ten places that most come from.

        print(ac2.explain_held())

    Places are the names of modules (those whose parameters an op takes; "after" one for the ops that follow it), or of
    ``ac2.name_tensor``. Errors that say that memory ran out end with this text by themselves.

    Args:
        error: the text of such an error. Then it is about that memory alone, says with which memory_budget there would
            have been room, and is empty if regions hold nothing there.
    """
    return _C.explain_held(error)


def to_dot(trace: "_C.Trace") -> str:
    """A Graphviz digraph of the ops that something still needs; with a timeline, of all ops of the region."""
    return _C.to_dot(trace)


def to_chrome_trace(trace: "_C.Trace") -> str:
    """JSON that Perfetto and chrome://tracing open: forward, backward, replays, and the bytes held, in microseconds."""
    return _C.to_chrome_trace(trace)


def write_report(trace: Union["_C.Trace", Sequence["_C.Trace"]], path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes one HTML page that refers to nothing outside itself: memory over time, a table of ops, the graph.

    Args:
        trace: a trace, or the traces of one step.
        path: the file to write.

    Raises:
        RuntimeError: the file cannot be written; the message names it.
    """
    traces = [trace] if isinstance(trace, _C.Trace) else list(trace)
    _C.write_report(traces, os.fspath(path))


def live_node_count() -> int:
    """The recorded calls that are alive in all traces of the process: 0 when nothing is left behind."""
    return _C.live_node_count()
