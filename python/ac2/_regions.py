"""Which modules and functions have had regions: what ac2.report() tells."""

import functools
import types
from typing import Any, Callable, Dict, Optional

import torch

from ac2 import _C


class Regions:
    """Those of one module: how many have been opened, and the trace of the last one. Copies and archives begin anew."""

    def __init__(self) -> None:
        self.count = 0
        self.trace: Optional[_C.Trace] = None

    def opened(self, trace: "_C.Trace") -> None:
        self.count += 1
        self.trace = trace

    def __reduce__(self) -> Any:
        return Regions, ()


# Their code runs when somebody asks for the next item, or waits for the result: after the region.
_RUN_LATER = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def checked(result: Any, function: Callable[..., Any]) -> Any:
    """What a function has returned in a region that was opened for it, if the region could see what the function does."""
    if isinstance(result, _RUN_LATER):
        kind = "a coroutine" if isinstance(result, types.CoroutineType) else "a generator"
        if isinstance(result, types.CoroutineType):
            result.close()  # else Python warns that nobody waits for it
        raise TypeError(
            f"{_name_of(function)} returned {kind}, whose code would run when the region is over, and nothing of it would be "
            "recomputed. Open an ac2.PolicyScope inside it, around code that neither yields nor awaits."
        )
    return result


# By the name of the function, which is often made anew for each call.
_of_functions: Dict[str, int] = {}


def opened_for(function: Callable[..., Any]) -> None:
    """A region has been opened around a call of a function: ac2.checkpoint(), also under a patch."""
    name = _name_of(function)
    _of_functions[name] = _of_functions.get(name, 0) + 1


def of_functions() -> Dict[str, int]:
    return dict(_of_functions)


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    named = type(owner) if isinstance(owner, torch.nn.Module) else function
    if isinstance(function, torch.nn.Module) or not hasattr(named, "__qualname__"):
        named = type(function)
    return f"{named.__module__}.{named.__qualname__}"
