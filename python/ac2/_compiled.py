"""Code that Inductor has compiled.

Its kernels write to buffers without any dispatcher seeing it, and reuse them. Only what it calls of ATen would be recorded, and
replaying that would read buffers with other contents. So nothing is recorded while it runs: what autograd saves of it is
saved, and the ops around it are recomputed as ever.

CompiledFxGraph.__call__ is what runs such code, under every mode of torch.compile. It is wrapped when the first region
opens, or when the module is imported after that.
"""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import Any, Optional

from ac2 import _C

_MODULE = "torch._inductor.output_code"


def watch() -> None:
    """Wraps the method, now or when its module is imported. To be called once."""
    module = sys.modules.get(_MODULE)
    if module is not None:
        _wrap(module)
    else:
        sys.meta_path.insert(0, _Finder())


def _wrap(module: Any) -> None:
    graph = module.CompiledFxGraph
    original = graph.__call__

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _C.DisableCheckpointing():
            return original(self, *args, **kwargs)

    graph.__call__ = __call__


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the import of the one module, and leaves finding it to those behind."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _wrap(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
