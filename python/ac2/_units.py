"""Units: parts of a model whose parameters are there only while the part runs, in forward and in backward.

Regions save the tensors that enter and leave a unit, so that no replay in a unit's backward needs another unit's parameters.
"""

import dataclasses
import functools
from typing import Any, Callable, Dict, Iterator, Tuple, TypeVar

import torch
import torch.utils._pytree

from ac2 import _C


_F = TypeVar("_F", bound=Callable[..., Any])


def unit(function: _F) -> _F:
    """A decorator: each call of the function is a unit, whose parameters are there only while it runs, in forward and in backward.

        @ac2.unit
        def block(x, weights):                        # called between what brings the weights and what takes them away
            return F.gelu(x @ weights.up) @ weights.down

    Regions save the tensors in what the function is given and in what it returns, whatever the policy, so that no replay in one
    unit's backward needs another unit's parameters. This is for units that are no modules; ``managed_elsewhere(units=...)`` takes
    those that are. Outside of regions, and in code that torch.compile compiles, the function is called as it is.
    """
    if isinstance(function, (type, torch.nn.Module)) or not callable(function):
        raise TypeError(f"unit was given {function!r}; expected a function. Modules are told of by managed_elsewhere(units=...).")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        save_at_boundary((args, kwargs))
        result = function(*args, **kwargs)
        save_at_boundary(result)
        return result

    return call  # type: ignore[return-value]


def watch_unit(module: torch.nn.Module) -> None:
    """From now on the module's calls are those of a unit, in any region. Again for the same module: no change."""
    if not getattr(module, "_ac2_is_unit", False):
        module._ac2_is_unit = True  # type: ignore[assignment]
        module.register_forward_pre_hook(_before_forward, with_kwargs=True)
        module.register_forward_hook(_after_forward)


def save_at_boundary(value: Any) -> None:
    """Saves the tensors in what enters or leaves a unit."""
    if _C.is_checkpoint_enabled():
        for tensor in _tensors_in(value):
            _C.save_at_boundary(tensor)


# Functions of the module, so that a model with units can be pickled.
def _before_forward(module: torch.nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
    if not torch.compiler.is_compiling():
        save_at_boundary((args, kwargs))


def _after_forward(module: torch.nn.Module, args: Tuple[Any, ...], result: Any) -> None:
    if not torch.compiler.is_compiling():
        save_at_boundary(result)


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors that a forward is given, or returns, with those that a subclass is made of."""
    for leaf in torch.utils._pytree.tree_leaves(value):
        if not isinstance(leaf, torch.Tensor):
            if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):  # which pytree does not look into
                yield from _tensors_in([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])
            continue
        if hasattr(leaf, "__tensor_flatten__"):
            names, _ = leaf.__tensor_flatten__()
            yield from _tensors_in([getattr(leaf, name) for name in names])
        else:
            yield leaf
