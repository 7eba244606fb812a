"""A scope as a notebook shows it."""

import base64
import html
import os
import tempfile
from typing import Any, List

from ac2 import _C


def of_scope(scope: Any) -> str:
    """The bytes held, the counts, and the page of write_report()."""
    if scope._scope is None:
        return "<p>An <code>ac2.PolicyScope</code> that has not been entered.</p>"
    trace = scope.trace
    stats = trace.stats()
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:right'>{value:,}</td></tr>"
        for name, value in (
            ("saved bytes", stats.saved_bytes),
            ("recorded ops", stats.recorded_ops),
            ("replayed ops", stats.recomputed_ops),
            ("live nodes", stats.live_nodes),
        )
    )
    return f"<table>{rows}</table>" + page([trace])


def page(traces: List["_C.Trace"]) -> str:
    """A frame with the page of write_report()."""
    directory = tempfile.mkdtemp()
    path = os.path.join(directory, "report.html")
    try:
        _C.write_report(traces, path)
        with open(path, "rb") as page:
            content = base64.b64encode(page.read()).decode()
    finally:
        if os.path.exists(path):
            os.remove(path)
        os.rmdir(directory)
    return f"<iframe src='data:text/html;base64,{content}' width='100%' height='480' style='border:0'></iframe>"
