"""What watches a process that runs as a whole in a region, before torch is there.

``python -m ac2`` imports this module, and so does ``%load_ext ac2``. A process that ``multiprocessing`` spawns runs this file by
its path, when it takes over what its parent prepared. So it uses the standard library alone, and importing torch stays
the program's own: variables of the environment that a program sets before it imports torch still count.

Here it is decided which threads and processes have a region. ``ac2._automatic`` opens and closes them.
"""

import atexit
import functools
import importlib.abc
import os
import re
import runpy
import sys
import threading
from typing import Any, Callable, Dict, List, Optional

BUDGET, POLICY, FORMS = "AC2_MEMORY_BUDGET", "AC2_POLICY", "AC2_FORMS"
REPORT, VERIFY, QUIET = "AC2_REPORT", "AC2_VERIFY", "AC2_QUIET"
CHUNKED_LOSS = "AC2_CHUNKED_LOSS"

_BUDGET_TEXT = re.compile(r"\s*(?:auto|(?:(?:peak|soft):)?\s*(\d+)(\.\d+)?\s*(?:([KMGT])iB)?)\s*")

# Threads and processes of these modules train nothing, by the module of the function that they run.
_NO_TRAINING = ("torch.utils.data.", "multiprocessing.queues", "multiprocessing.managers", "multiprocessing.resource_sharer")

# Given to this file's globals where a spawned process runs it.
_IN_CHILD = "runs_in_a_child_of_multiprocessing"

_here = threading.local()  # .wants: this thread is to have a region
_active = False
_watches: List[str] = []


def check_budget(text: str, name: str) -> None:
    """Raises ValueError for what ac2._C.check_budget() would not take."""
    match = _BUDGET_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(
            f'{name} is "{text}"; expected "auto", or a number of bytes as in "8GiB", "peak:20GiB" or "soft:1GiB" (KiB, MiB, GiB '
            "and TiB are powers of 1024)."
        )
    _check_bytes(match, text, name)


def check_chunked_loss(text: str, name: str) -> None:
    """Raises ValueError for what ac2.integrations.transformers.install(chunked_loss=...) would not take."""
    match = None if ":" in text else _BUDGET_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(
            f'{name} is "{text}"; expected "auto", or the bytes of a chunk as in "256MiB" (KiB, MiB, GiB and TiB are powers of '
            "1024)."
        )
    _check_bytes(match, text, name)


def _check_bytes(match: "re.Match[str]", text: str, name: str) -> None:
    whole, fraction, unit = match.groups()
    if whole is not None:
        scale = 1024 ** " KMGT".index(unit or " ")
        if not 0 < int(whole) * scale + int(float(fraction or 0) * scale) < 2**63:
            raise ValueError(f'{name} is "{text}"; expected a positive number of bytes, below 2**63.')


def check_environment() -> None:
    """Raises ValueError that names the variable."""
    if os.environ.get(BUDGET):
        check_budget(os.environ[BUDGET], BUDGET)
    if os.environ.get(CHUNKED_LOSS):
        check_chunked_loss(os.environ[CHUNKED_LOSS], CHUNKED_LOSS)
    for name in (VERIFY, QUIET):
        if os.environ.get(name, "") not in ("", "0", "1"):
            raise ValueError(f'{name} is "{os.environ[name]}"; expected 1 or 0.')


def activate(is_child: bool = False) -> None:
    """From now on this thread, and each that Python starts, has a region as soon as torch is there."""
    global _active
    _active = True
    if not is_child:
        _here.wants = True
    if not _watches:
        # Before the handlers of the program, and so called after them: they may train.
        atexit.register(_at_end)
        os.register_at_fork(after_in_child=_after_fork)
        _watch_threads()
        _watches.append("threads")
    if "torch" in sys.modules and not getattr(sys.modules["torch"].__spec__, "_initializing", False):
        _torch_is_there()
    elif not any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchFinder())
    if is_child:
        _watch_processes()


def deactivate() -> None:
    """Threads that start from now on have no region."""
    global _active
    _active = False
    _here.wants = False


def _torch_is_there() -> None:
    _watch_processes()
    _open_here()


def _runtime() -> Any:
    """ac2._automatic, or None while no region of this process was opened."""
    return sys.modules.get("ac2._automatic")


def _open_here() -> None:
    if _active and getattr(_here, "wants", False):
        from ac2 import _automatic

        _automatic.open_here()


def begin_again() -> None:
    """After an end that was not that of the program."""
    runtime = _runtime()
    if runtime is not None:
        runtime.begin_again()


def _close_here() -> None:
    runtime = _runtime()
    if runtime is not None:
        runtime.close_here()


class _Loader(importlib.abc.Loader):
    """torch's own, and what follows."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()


#: Of the frame that an error of torch's own import passes.
LOADER_CODE = _Loader.exec_module.__code__


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Tells when torch has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None and finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._imported)
                return spec
        return None

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if _active:
            _torch_is_there()


def _runs_for(target: Any, what: Any) -> bool:
    """Whether a thread or a process that runs `target` may train."""
    modules = (getattr(target, "__module__", None) or "", type(what).__module__ or "")
    return not any(f"{module}.".startswith(name) for module in modules for name in _NO_TRAINING)


def _watch_threads() -> None:
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    # Around all that Thread does in its thread, so that a traceback from within has no frame of this.
    @functools.wraps(bootstrap)
    def _bootstrap_inner(self: threading.Thread) -> None:
        _here.wants = _active and _runs_for(getattr(self, "_target", None), self)
        if "ac2._automatic" in sys.modules:
            _open_here()
        try:
            bootstrap(self)
        finally:
            _close_here()

    threading.Thread._bootstrap_inner = _bootstrap_inner  # type: ignore[attr-defined]


class _Child:
    """Unpickled by a process that multiprocessing starts, together with what multiprocessing has prepared for it."""

    def __reduce__(self) -> Any:
        return runpy.run_path, (os.path.abspath(__file__), {_IN_CHILD: True})


def _watch_processes() -> None:
    """To be called once multiprocessing may be imported, which torch does."""
    if "processes" in _watches:
        return
    _watches.append("processes")
    from multiprocessing import process, spawn

    bootstrap = process.BaseProcess._bootstrap  # type: ignore[attr-defined]
    prepare = spawn.get_preparation_data

    @functools.wraps(bootstrap)
    def _bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        _begin_child(self)
        try:
            return bootstrap(self, *args, **kwargs)
        finally:
            _end_child()

    @functools.wraps(prepare)
    def get_preparation_data(name: str) -> Dict[str, Any]:
        data = prepare(name)
        if _active:
            data["ac2"] = _Child()
        return data

    process.BaseProcess._bootstrap = _bootstrap  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


def _begin_child(child: Any) -> None:
    _here.wants = _active and _runs_for(getattr(child, "_target", None), child)
    if not _here.wants:
        deactivate()  # its threads have none either
        _close_here()
    elif "torch" in sys.modules:
        _open_here()


def _end_child() -> None:
    runtime = _runtime()
    if runtime is not None:
        runtime.end()


def _after_fork() -> None:
    runtime = _runtime()
    if runtime is not None:
        runtime.forked()


def _at_end() -> None:
    runtime = _runtime()
    if runtime is not None:
        runtime.end()
    elif _active and "processes" not in _watches and os.environ.get(QUIET) != "1":
        say("ac2: nothing was done: the program did not import torch.\n")


def say(text: str) -> None:
    """To stderr, or nowhere if it is closed."""
    for stream in (sys.stderr, sys.__stderr__):
        try:
            stream.write(text)
            stream.flush()
            return
        except (AttributeError, OSError, ValueError):
            continue


def note_error(error: Optional[BaseException]) -> None:
    """An error ends the program."""
    runtime = _runtime()
    if runtime is not None and error is not None:
        runtime.note_error(error)


if globals().get(_IN_CHILD):
    activate(is_child=True)
