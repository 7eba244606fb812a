"""Regions that last as long as their thread, of a program that runs as a whole in them.

``ac2._start`` decides which threads have one. All of them have one memory budget. What the program is told comes from the
environment (``AC2_MEMORY_BUDGET`` and others), where the command line has put it too.
"""

import multiprocessing
import os
import threading
import warnings
from typing import Any, Dict, List, Optional, Tuple

import torch

from ac2 import _C, _out_of_memory, _start
from ac2._budgets import note_memory_fraction
from ac2._policy import as_policy
from ac2._report import write_report
from ac2._scope import PolicyScope, _warn_of_ops, watch_python

# Of a trace, those that only grow.
_COUNTS = ("recorded_ops", "recomputed_ops", "evicted_values", "narrowed_values")

_was_forked = False
_lock = threading.Lock()
_local = threading.local()  # .region: of this thread
_regions: List["_Region"] = []
_of_parent: List["_Region"] = []  # of threads that a fork has left behind: their scopes are never closed
_counts: Dict[str, int] = dict.fromkeys(_COUNTS, 0)  # of regions that have nothing left to count
_peak_bytes = 0  # of those
_budget: Optional[_C.MemoryBudget] = None
_shortages_before = 0  # of a parent
_times_over_before, _most_over_before = 0, 0
_ran_out = False
_ended_in: Optional[int] = None  # the id of the process that has said its last
_held: List[Tuple[str, int]] = []
_repeated = ""


class _Region:
    def __init__(self, scope: "_C.Scope") -> None:
        self.scope = scope
        self.trace = scope.trace
        self.is_open = True
        self.before = dict.fromkeys(_COUNTS, 0)  # counted by a parent

    def counts(self) -> Dict[str, int]:
        stats = self.trace.stats()
        return {name: getattr(stats, name) - self.before[name] for name in _COUNTS}


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def budget_text() -> str:
    """Empty where a policy alone decides."""
    return _variable(_start.BUDGET) or ("" if _variable(_start.POLICY) else "auto")


def _shared_budget() -> Optional[_C.MemoryBudget]:
    global _budget
    with _lock:
        if _budget is None and budget_text():
            kind, count = _C.parse_budget(budget_text(), _start.BUDGET)
            # Processes of a job, so that those with the same shapes drop the same values.
            modelled = _variable("WORLD_SIZE").isdigit() and int(_variable("WORLD_SIZE")) > 1
            if kind == "auto":
                _budget = _C.whatever_fits(modelled)
            else:
                make = {"strict": _C.MemoryBudget, "peak": _C.MemoryBudget.peak, "soft": _C.MemoryBudget.soft}[kind]
                _budget = make(count, modelled)
        return _budget


def _policy() -> Optional[_C.Policy]:
    """Only now, because the names of policies are the runtime's to know, which needs torch."""
    global _ended_in
    try:
        return as_policy(_variable(_start.POLICY) or None)
    except ValueError as error:
        _ended_in = os.getpid()
        _start.say(f"ac2: error: {_start.POLICY}, or --policy: {error}\n")
        raise SystemExit(2) from None


def open_here() -> None:
    """Opens the region of this thread, if it has none."""
    if getattr(_local, "region", None) is not None:
        return
    watch_python()
    note_memory_fraction()
    _out_of_memory.before_backward = _note_what_is_held
    scope = PolicyScope(
        _policy(),
        memory_budget=_shared_budget(),
        verify=_variable(_start.VERIFY) == "1",
        timeline=bool(_variable(_start.REPORT)),
    )
    # Not by `with`: a thread that begins has no threading.Thread yet, and the end of the program is no mistake.
    region = _Region(_C.Scope(*scope._arguments))
    _C.let_region_rest()
    _local.region = region
    with _lock:
        _fold()
        _regions.append(region)


def close_here() -> None:
    """Closes the region of this thread, if it has one."""
    region = getattr(_local, "region", None)
    if region is None:
        return
    _local.region = None
    try:
        region.scope.close()
    except RuntimeError as error:  # a scope of the program's own is still open
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    region.is_open = False
    _warn_of_ops(may_raise=False)


def _fold() -> None:
    """Forgets the regions whose counts are final: a thread pool may start threads for ever."""
    global _peak_bytes
    if _variable(_start.REPORT):
        return  # the page is of all of them
    for region in [region for region in _regions if not region.is_open and region.trace.stats().live_nodes == 0]:
        for name, count in region.counts().items():
            _counts[name] += count
        _peak_bytes = max(_peak_bytes, region.trace.stats().peak_bytes)
        _regions.remove(region)


def forked() -> None:
    """In the child of a fork: what was before is its parent's to tell."""
    global _lock, _ran_out, _shortages_before, _times_over_before, _most_over_before, _peak_bytes, _was_forked
    _was_forked = True
    _lock = threading.Lock()
    own = getattr(_local, "region", None)
    _of_parent.extend(region for region in _regions if region is not own)
    _regions[:] = [own] if own is not None else []
    _counts.update(dict.fromkeys(_COUNTS, 0))
    _peak_bytes = 0
    _held.clear()
    _ran_out = False
    if own is not None:
        own.before = dict.fromkeys(_COUNTS, 0)
        own.before = own.counts()
    if _budget is not None:
        _shortages_before = _C.shortages(_budget)
        _times_over_before, _most_over_before = _budget.times_over(), _budget.most_bytes_over()
    _C.take_warnings()


def note_error(error: BaseException) -> None:
    """An error ends the program. What is held is looked up while its frames hold it."""
    global _ran_out
    text = str(error.args[0]) if error.args else ""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text:
        _ran_out = True
        _held[:] = _C.held_places()


def _note_what_is_held() -> None:
    """Before a backward: what the step holds for it, once something had to be dropped."""
    global _repeated
    region = getattr(_local, "region", None)
    if region is None or _held:
        return
    if (_budget is not None and _C.shortages(_budget) > _shortages_before) or region.trace.stats().evicted_values:
        _out_of_memory.before_backward = None  # first: a signal handler may train while names are looked up
        _held[:] = _C.held_places()
        _repeated = _repeated_modules()


def _repeated_modules() -> str:
    """The modules of one class that lie in a list together and have most parameters: "model.layers.*"."""
    most, found = 0, ""
    for root in _out_of_memory.root_modules():
        for name, module in root.named_modules():
            children = list(module.children())
            if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(children) > 1:
                count = sum(parameter.numel() for parameter in module.parameters())
                if len({type(child) for child in children}) == 1 and next(children[0].children(), None) is not None and count > most:
                    most, found = count, f"{name}.*" if name else "*"
    return found


def figures() -> "_C.ClosingFigures":
    with _lock:
        regions = list(_regions)
    told = _C.ClosingFigures()
    told.who = _who()
    told.budget, told.policy = budget_text(), _variable(_start.POLICY)
    counts = [_counts] + [region.counts() for region in regions]
    for figure, name in zip(("recorded_ops", "recomputed_ops", "dropped_values", "narrowed_values"), _COUNTS):
        setattr(told, figure, sum(one[name] for one in counts))
    told.peak_bytes = max([_peak_bytes] + [region.trace.stats().peak_bytes for region in regions])
    if _budget is not None:
        told.shortages = _C.shortages(_budget) - _shortages_before
        told.times_over = _budget.times_over() - _times_over_before
        if told.times_over > 0 and _budget.most_bytes_over() > _most_over_before:  # a child's own, where it is known
            told.most_bytes_over = _budget.most_bytes_over()
    told.ran_out, told.held, told.repeated = _ran_out, _held, _repeated
    return told


def _rank() -> int:
    rank = _variable("RANK")
    return int(rank) if rank.isdigit() else 0


def _who() -> str:
    if _rank() > 0:
        return f"rank {_rank()}"
    return f"process {os.getpid()}" if _is_child() else ""


def _is_child() -> bool:
    return _was_forked or multiprocessing.parent_process() is not None


def begin_again() -> None:
    """What is done from now on is to be said too, with what was said before."""
    global _ended_in
    _ended_in = None


def end() -> None:
    """The program is over: closes the region of this thread, and says once what was done."""
    global _ended_in
    if _ended_in == os.getpid():
        return
    _ended_in = os.getpid()
    close_here()
    told = figures()
    is_first = not _is_child() and _rank() == 0
    if not is_first and not _C.was_needed(told):
        return
    _write_page(told)
    if _variable(_start.QUIET) != "1":
        _start.say(_C.closing_words(told))


def _write_page(told: "_C.ClosingFigures") -> None:
    path = _variable(_start.REPORT)
    with _lock:
        traces = [region.trace for region in _regions]
    if not path or not traces:
        return
    if told.who:
        stem, extension = os.path.splitext(path)
        path = f"{stem}.{told.who.replace(' ', '')}{extension}"
    try:
        write_report(traces, path)
        told.report = path
    except RuntimeError as error:
        _start.say(f"ac2: {error}\n")
