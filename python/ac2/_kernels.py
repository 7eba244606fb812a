"""Kernels that extension modules bind: functions of C++ that take tensors of Python and write through their pointers.

Neither the dispatcher nor the methods of torch.Tensor see that (_pointers.py). So each function and method of an extension
module that links LibTorch tells the runtime of the tensors that it takes and returns, from the first region on
(python/binding/kernels.h says how, and what was rejected). Modules are found in sys.modules, and as they are loaded, by an import
or by torch.utils.cpp_extension. Operators of TORCH_LIBRARY go through the dispatcher and need nothing.

Not seen: tensors that an object of C++ was given before and writes to later; a method of a class that was made without pybind11
where Python has bound it to its object first (``run = kernel.run``).
"""

import functools
import gc
import importlib.machinery
import os
import sys
import types
from typing import Any, Mapping, Optional

from ac2 import _C

_SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)

# What PyTorch binds itself goes through its dispatcher or is watched already. Code that Inductor has compiled runs past regions as a
# whole (_compiled.py).
_NOT_KERNELS = ("torch", "functorch", "ac2")
_COMPILER = "torch._inductor"


def watch() -> None:
    """Watches the modules that are there, and those that are loaded later. To be called once."""
    loader = importlib.machinery.ExtensionFileLoader
    loader.exec_module = _looking_at_modules(loader.exec_module)  # type: ignore[method-assign]
    for module in list(sys.modules.values()):
        _look_at(module)
    # torch.utils.cpp_extension gives its modules to nobody but its caller.
    if "torch.utils.cpp_extension" in sys.modules:
        for module in gc.get_objects():
            if type(module) is types.ModuleType:
                _look_at(module)


def _looking_at_modules(original: Any) -> Any:
    @functools.wraps(original)
    def exec_module(self: Any, module: types.ModuleType) -> None:
        original(self, module)
        if not str(sys._getframe(1).f_globals.get("__name__")).startswith(_COMPILER):
            _look_at(module)

    return exec_module


def _look_at(module: Any) -> None:
    path = _path_of(module)
    if path is not None and _C.links_libtorch(path):
        _watch_functions(module.__name__, vars(module), module.__name__)


def _path_of(module: Any) -> Optional[str]:
    """The shared object that the module is, if it may have kernels."""
    if not isinstance(module, types.ModuleType):
        return None
    path, name = module.__dict__.get("__file__"), module.__dict__.get("__name__")
    if not isinstance(path, str) or not isinstance(name, str) or not path.endswith(_SUFFIXES):
        return None
    if name.split(".")[0] in _NOT_KERNELS:
        return None
    # Inductor sets it when it needs a directory for what it compiles.
    compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return None if compiled and path.startswith(os.path.join(compiled, "")) else path


def _watch_functions(root: str, members: Mapping[str, Any], prefix: str) -> None:
    """Those of a module or a class that were defined in the module ``root``, or in one that it has made."""
    for name, member in list(members.items()):
        function = getattr(member, "__func__", member)  # of methods
        if isinstance(member, types.ModuleType):
            if _is_of(root, member.__name__) and "__file__" not in vars(member) and member.__name__ != prefix:
                _watch_functions(root, vars(member), member.__name__)
        elif isinstance(member, type):
            if _is_of(root, member.__module__):
                _watch_functions(root, vars(member), f"{prefix}.{name}")
        elif isinstance(function, types.MethodDescriptorType):
            _C.watch_kernel(function, f"{prefix}.{name}")
        elif isinstance(function, types.BuiltinFunctionType) and _is_of(root, getattr(function, "__module__", None)):
            _C.watch_kernel(function, f"{prefix}.{name}")


def _is_of(root: str, module: Any) -> bool:
    # A module may have been loaded under another name than it was compiled with.
    return isinstance(module, str) and (module == root or module.startswith(root + ".") or module not in sys.modules)
