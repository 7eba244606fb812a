"""Regions that last as long as their thread, of a program that runs as a whole in them.

``ac2._start`` decides which threads have one. What the program is told comes from the environment (``AC2_MEMORY_BUDGET`` and
others), where the command line has put it too. It is read when the first region opens. What the regions did is gathered,
and said at the end, by the runtime (ac2/internal/automatic/process_record.h), as for C++ programs.
"""

import multiprocessing
import os
import sys
import threading
import warnings
from typing import Any, List, Optional, Set

import torch

from ac2 import _C, _holdings, _out_of_memory, _start
from ac2._budgets import note_memory_fraction
from ac2._compiled import when_imported
from ac2._form import Form
from ac2._policy import as_policy
from ac2._scope import PolicyScope, _warn_of_ops, watch_python
from ac2.forms import forms_of_list

_local = threading.local()  # .scope: of this thread's region
_lock = threading.Lock()
_open: Set["_C.Scope"] = set()
_of_parent: List["_C.Scope"] = []  # of threads that a fork has left behind: these scopes are never closed
_record: Optional["_C.ProcessRecord"] = None
_made_forms: Optional[List[Form]] = None
_chunks_losses = False  # AC2_CHUNKED_LOSS was seen to
_ended_in: Optional[int] = None  # the id of the process that has said its last


def _the_record() -> "_C.ProcessRecord":
    global _record
    with _lock:
        if _record is None:
            _record = _C.ProcessRecord()
        return _record


def _policy(name: str) -> Optional["_C.Policy"]:
    """Only now, because the names of policies are the runtime's to know, which needs torch."""
    global _ended_in
    try:
        return as_policy(name or None)
    except ValueError as error:
        _ended_in = os.getpid()
        _start.say(f"ac2: error: {_start.POLICY}, or --policy: {error}\n")
        raise SystemExit(2) from None


def _process_forms() -> List[Form]:
    """The same objects for all threads."""
    global _made_forms
    with _lock:
        if _made_forms is None:
            _made_forms = _forms(os.environ.get(_start.FORMS, ""))
        return _made_forms


def _forms(text: str) -> List[Form]:
    global _ended_in
    try:
        return forms_of_list(text, f"{_start.FORMS}, or --forms:")
    except (ValueError, RuntimeError) as error:
        _ended_in = os.getpid()
        _start.say(f"ac2: error: {error}\n")
        raise SystemExit(2) from None


def _chunk_losses() -> None:
    """Of models of transformers, once that is imported."""
    global _chunks_losses
    chunked_loss = os.environ.get(_start.CHUNKED_LOSS, "").strip()
    with _lock:
        if _chunks_losses or not chunked_loss:
            return
        _chunks_losses = True

    def install(_: Any) -> None:
        from ac2.integrations import transformers

        transformers.install(chunked_loss=chunked_loss)

    when_imported("transformers", install)


def _words_about_losses() -> str:
    """Empty where losses were computed in chunks, or were not to be."""
    if not _chunks_losses:
        return ""
    losses = sys.modules.get("ac2.integrations._chunked_loss")
    if losses is None:
        return "ac2: --chunked-loss did nothing: the program did not import transformers.\n"
    if losses.has_chunked_losses():
        return ""
    if losses.has_left_models():
        return "ac2: --chunked-loss did nothing, for reasons that a warning has given.\n"
    return "ac2: --chunked-loss did nothing: no causal language model of transformers was given labels in training.\n"


def open_here() -> None:
    """Opens the region of this thread, if it has none."""
    if getattr(_local, "scope", None) is not None:
        return
    watch_python()
    _chunk_losses()
    note_memory_fraction()
    record = _the_record()
    options = PolicyScope(
        _policy(record.policy),
        memory_budget=record.budget,
        verify=record.verify,
        timeline=record.timeline,
        forms=_process_forms(),
    )
    _out_of_memory.before_backward = _before_backward
    # Not by `with`: a thread that begins has no threading.Thread yet, and the end of the program is no mistake.
    scope = _C.Scope(*options._arguments)
    _C.let_region_rest()
    _local.scope = scope
    record.add(scope.trace)
    with _lock:
        _open.add(scope)


def close_here() -> None:
    """Closes the region of this thread, if it has one."""
    scope = getattr(_local, "scope", None)
    if scope is None:
        return
    _local.scope = None
    try:
        scope.close()
    except RuntimeError as error:  # a scope of the program's own is still open
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    with _lock:
        _open.discard(scope)
    _warn_of_ops(may_raise=False)


def forked() -> None:
    """In the child of a fork: what was before is its parent's to tell."""
    global _lock
    _lock = threading.Lock()
    own = getattr(_local, "scope", None)
    _of_parent.extend(scope for scope in _open if scope is not own)
    _open.clear()
    if own is not None:
        _open.add(own)
    if _record is not None:
        _record.forked(own.trace if own is not None else None)
    _C.take_warnings()


def note_error(error: BaseException) -> None:
    """An error ends the program. What is held is looked up while its frames hold it."""
    if _record is not None:
        text = str(error.args[0]) if error.args else ""
        is_about_memory = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or _C.is_about_hosts_memory(text)
        _record.note_error(text, is_about_memory, _line_of_program(error))


def _line_of_program(error: BaseException) -> str:
    """The innermost line that is neither torch's nor ours: "train.py, line 12, in step"."""
    libraries = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (torch.__file__, __file__))
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        path = code.co_filename
        if not path.startswith(libraries) and not path.startswith("<frozen "):
            found = f"{path}, line {traceback.tb_lineno}" + ("" if code.co_name == "<module>" else f", in {code.co_name}")
        traceback = traceback.tb_next
    return found


def _before_backward() -> None:
    scope = getattr(_local, "scope", None)
    if scope is not None and _record is not None and _record.before_backward(scope.trace):
        _out_of_memory.before_backward = None
        _record.note_repeated(_repeated_modules())


def _repeated_modules() -> str:
    """The modules of one class that lie in a list together and have most parameters: "model.layers.*"."""
    most, found = 0, ""
    for root in _holdings.root_modules():
        for name, module in root.named_modules():
            children = list(module.children())
            if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(children) > 1:
                count = sum(parameter.numel() for parameter in module.parameters())
                if len({type(child) for child in children}) == 1 and next(children[0].children(), None) is not None and count > most:
                    most, found = count, f"{name}.*" if name else "*"
    return found


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
    if _record is not None:
        if multiprocessing.parent_process() is not None:  # not known when a spawned process begins
            _record.note_child()
        words = _record.end()
        if os.environ.get(_start.QUIET) != "1" and multiprocessing.parent_process() is None:
            words += _words_about_losses()
        if words:
            _start.say(words)
