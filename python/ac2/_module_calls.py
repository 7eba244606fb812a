"""The module that an op runs in, for ac2.policies.by_module.

Hooks around every call of a module tell the runtime which module the thread is in, by its dotted name and its class. They are
installed with the first such policy and stay. The outermost module that is called is the model: names are relative to it, and to each
model that a policy was given.

Dynamo does not trace the hooks: in compiled code nothing is recorded, and no policy is asked.
"""

import sys
import threading
import types
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch.nn.modules import module as torch_module

from ac2 import _C

# Components that wrappers put into names: torch.compile, FSDP, and PyTorch's checkpoint_wrapper.
_OF_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_DATA_PARALLEL = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)

_OUTERMOST = 0  # the model that a policy goes by if it was given none


def _class_name(module: torch.nn.Module) -> str:
    """That of the model's author: fully_shard() gives a module a class of its own, derived from FSDPModule and that."""
    wrapper = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    for cls in type(module).__mro__:
        if wrapper in cls.__bases__ and len(cls.__bases__) > 1:
            return cls.__bases__[1].__name__
    return type(module).__name__


def _named(root: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module]]:
    """As named_modules(), with names in which no wrapper shows. Modules that say they are equal are two all the same."""
    seen = set()

    def visit(name: str, module: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module]]:
        if id(module) in seen:
            return
        seen.add(id(module))
        yield name, module
        for last, child in list(module._modules.items()):
            if child is not None:
                is_wrapped = last in _OF_WRAPPERS or (last == "module" and isinstance(module, _DATA_PARALLEL))
                yield from visit(name if is_wrapped else f"{name}.{last}" if name else last, child)

    return visit("", root)


class _Model:
    """The names of a model's modules, by the modules themselves."""

    def __init__(self, root: torch.nn.Module, number: int) -> None:
        self.root = weakref.ref(root)
        self.number = number
        self.look()

    def look(self) -> None:
        """Looks what modules there are. A module that is there twice has its first name."""
        root = self.root()
        named = [] if root is None else list(_named(root))
        self.known = [(path, _class_name(module)) for path, module in named]
        self._paths = {id(module): (weakref.ref(module), path) for path, module in reversed(named)}

    def path_of(self, module: torch.nn.Module) -> Optional[str]:
        """None for a module that was not there."""
        of, path = self._paths.get(id(module), (None, None))
        return path if of is not None and of() is module else None


class _Root(_Model):
    """A model whose call is the outermost one, and what the runtime is told of its modules."""

    def __init__(self, root: torch.nn.Module) -> None:
        self._entries: Dict[int, _Entry] = {}
        self.has_looked = False  # in this call, for a module that was not there
        super().__init__(root, _OUTERMOST)

    def look(self) -> None:
        super().look()
        self._entries.clear()
        self._all = _C.KnownModules(self.known)
        # A model that was given before may have modules that it did not have then. One module alone is seldom such: often it is
        # made anew for each call, as a loss is.
        if len(self.known) > 1:
            for model in list(_given.values()):
                model.look()

    def entry_of(self, module: torch.nn.Module) -> "Optional[_Entry]":
        entry = self._entries.get(id(module))
        if entry is not None and entry.module() is module:
            return entry
        path = self.path_of(module)
        if path is None:
            return None
        names = [(_OUTERMOST, path)]
        for model in list(_given.values()):
            of_given = model.path_of(module)
            if of_given is not None:
                names.append((model.number, of_given))
        entry = _Entry(module, self, path, _C.CalledModule(_class_name(module), names, self._all))
        self._entries[id(module)] = entry
        return entry

    def entry_of_new(self, module: torch.nn.Module, caller: torch.nn.Module) -> "Optional[_Entry]":
        """Looks again for a module that was not there: one that ``caller`` has now, or, once in a call, any other."""
        is_child = any(child is module for child in caller._modules.values())
        if self.has_looked and not is_child:
            return None
        self.has_looked = True
        self.look()
        return self.entry_of(module)


class _Entry:
    """A module that may be called, as the runtime knows it."""

    __slots__ = ("module", "root", "path", "called")

    def __init__(self, module: torch.nn.Module, root: _Root, path: str, called: "_C.CalledModule") -> None:
        self.module, self.root, self.path, self.called = weakref.ref(module), root, path, called

    def is_inside(self, other: "_Entry") -> bool:
        return self.root is other.root and self.path != other.path and (not other.path or self.path.startswith(other.path + "."))


# By the module's id: a module's class may say that modules are equal, or that they have no hash.
_roots: Dict[int, _Root] = {}
# The models that policies were given, by their numbers.
_given: Dict[int, _Model] = {}
_numbers = iter(range(1, sys.maxsize))

_lock = threading.Lock()
_watching = False

# A call: the module, what leave_module() takes, and the frame that calls forward.
_Call = Tuple[_Entry, int, types.FrameType]


class _Here(threading.local):
    """The calls of modules that this thread is in."""

    def __init__(self) -> None:
        self.calls: List[_Call] = []


_here = _Here()


def watch() -> None:
    """Begins to tell the runtime what modules are called."""
    global _watching
    with _lock:
        if not _watching:
            torch_module.register_module_forward_pre_hook(_enter)
            torch_module.register_module_forward_hook(_leave, always_call=True)
            _watching = True


def given_model(model: torch.nn.Module) -> Tuple[int, List[Tuple[str, str]]]:
    """The number of a model that a policy is given, and the paths and classes of its modules."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"by_module: model is {model!r}; expected the torch.nn.Module that the paths are relative to.")
    for known in list(_given.values()):
        if known.root() is model:
            known.look()
            return known.number, known.known
    made = _Model(model, next(_numbers))
    _given[made.number] = made
    weakref.finalize(model, _given.pop, made.number, None)
    _roots.clear()  # what they have told of modules lacks the names in this model
    return made.number, made.known


def _root_of(module: torch.nn.Module) -> _Root:
    root = _roots.get(id(module))
    if root is None or root.root() is not module:
        root = _roots[id(module)] = _Root(module)
        weakref.finalize(module, _roots.pop, id(module), None)
    root.has_looked = False
    return root


def _entry_of(module: torch.nn.Module, calls: List[_Call]) -> _Entry:
    """A module that belongs to no model around is a model by itself."""
    roots: List[_Root] = []
    for entry, _, _ in reversed(calls):
        if entry.root not in roots:
            roots.append(entry.root)
            found = entry.root.entry_of(module)
            if found is not None:
                return found
    for root in roots:
        caller = calls[-1][0].module()
        found = None if caller is None else root.entry_of_new(module, caller)
        if found is not None:
            return found
    own = _root_of(module).entry_of(module)
    assert own is not None
    return own


def _is_running(frame: types.FrameType) -> bool:
    here: Optional[types.FrameType] = sys._getframe(1)
    while here is not None:
        if here is frame:
            return True
        here = here.f_back
    return False


def forget_interrupted() -> None:
    """Leaves the modules whose calls are over without the hook having been called: KeyboardInterrupt and SystemExit skip it."""
    calls = _here.calls
    while calls and not _is_running(calls[-1][2]):
        _C.leave_module(calls.pop()[1])


def _enter(module: torch.nn.Module, args: Any) -> None:
    if torch.compiler.is_dynamo_compiling():
        return
    calls = _here.calls
    entry = _entry_of(module, calls)
    if calls and not entry.is_inside(calls[-1][0]):
        forget_interrupted()
        entry = _entry_of(module, calls)
    calls.append((entry, _C.enter_module(entry.called), sys._getframe(1)))


def _leave(module: torch.nn.Module, args: Any, output: Any) -> None:
    if torch.compiler.is_dynamo_compiling():
        return
    calls = _here.calls
    # Another hook may have failed before the module was entered.
    for i in range(len(calls) - 1, -1, -1):
        if calls[i][0].module() is module:
            _C.leave_module(calls[i][1])
            del calls[i:]
            return
