"""Tensor subclasses for the random programs: made of one tensor, of two, of parts unknown to PyTorch, and of none."""

from typing import Any, List, Optional, Tuple, Type

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only


def depth(tensor: Optional[torch.Tensor]) -> int:
    """Of how many tensors within each other it is made."""
    levels = -1
    while tensor is not None:
        levels += 1
        tensor = getattr(tensor, "value", getattr(tensor, "inner", None))
    return levels


class One(torch.Tensor):
    """Is made of a tensor, which its ops take in its place."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "One":
        if depth(inner) == 2:
            raise ValueError("Each further level would make an op several times as slow.")
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "One":
        return cls(tensor)

    def __repr__(self, **kwargs: Any) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def __tensor_flatten__(self) -> Tuple[List[str], None]:
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: None, outer_size: Any, outer_stride: Any) -> "One":
        return cls(parts["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner_args, inner_kwargs = tree_map_only(cls, lambda one: one.inner, (args, kwargs or {}))
        result = tree_map_only(torch.Tensor, cls, func(*inner_args, **inner_kwargs))
        return return_and_correct_aliasing(func, args, kwargs or {}, result)


class Closed(torch.Tensor):
    """As One, but does not say that it is made of a tensor."""

    __new__, __init__, of, __repr__ = One.__new__, One.__init__, classmethod(One.of.__func__), One.__repr__

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner_args, inner_kwargs = tree_map_only(cls, lambda closed: closed.inner, (args, kwargs or {}))
        result = func(*inner_args, **inner_kwargs)
        written = [a for a, s in zip(args, func._schema.arguments) if s.alias_info is not None and s.alias_info.is_write]
        return written[0] if written else tree_map_only(torch.Tensor, cls, result)


class Scaled(torch.Tensor):
    """Is made of a value, a scale and an exponent, and stands for value * scale * 2^exponent."""

    value: torch.Tensor
    scale: torch.Tensor
    exponent: int  # no part of it, but what its parts are put together with

    @staticmethod
    def __new__(cls, value: torch.Tensor, scale: torch.Tensor, exponent: int) -> "Scaled":
        return One.__new__(cls, value)

    def __init__(self, value: torch.Tensor, scale: torch.Tensor, exponent: int):
        self.value, self.scale, self.exponent = value, scale, exponent

    @classmethod
    def of(cls, tensor: torch.Tensor, exponent: int = 1) -> "Scaled":
        return cls(tensor.clone().mul_(2), torch.full_like(tensor, 0.5**exponent / 2), exponent)

    def product(self) -> torch.Tensor:
        return (self.value * self.scale).mul_(2**self.exponent)

    def set(self, tensor: torch.Tensor) -> None:
        self.value.copy_(tensor * 2)
        self.scale.fill_(0.5**self.exponent / 2)

    def __repr__(self, **kwargs: Any) -> str:
        return f"Scaled({self.value!r}, {self.scale!r}, {self.exponent})"

    def __tensor_flatten__(self) -> Tuple[List[str], int]:
        return ["value", "scale"], self.exponent

    @staticmethod
    def __tensor_unflatten__(parts: Any, exponent: int, outer_size: Any, outer_stride: Any) -> "Scaled":
        return Scaled(parts["value"], parts["scale"], exponent)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.is_view and func is not torch.ops.aten.view.dtype:  # whose first argument is the only tensor
            values = func(args[0].value, *args[1:], **kwargs)
            scales = func(args[0].scale, *args[1:], **kwargs)
            if isinstance(values, (list, tuple)):
                return [Scaled(value, scale, args[0].exponent) for value, scale in zip(values, scales)]
            return Scaled(values, scales, args[0].exponent)
        inner_args, inner_kwargs = tree_map_only(Scaled, Scaled.product, (args, kwargs))
        result = func(*inner_args, **inner_kwargs)
        written = []
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            outer, inner = (kwargs[argument.name], inner_kwargs[argument.name]) if argument.kwarg_only else (args[i], inner_args[i])
            if isinstance(outer, Scaled):
                outer.set(inner)
            written.append(outer)
        exponent = len(func.name()) % 3
        return written[0] if written else tree_map_only(
            torch.Tensor, lambda t: Scaled.of(t, exponent) if t.is_floating_point() else t, result)


class Loud(torch.Tensor):
    """Changes what a function of torch gives: halves each exponential."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Loud":
        return tensor.as_subclass(cls)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result / 2 if func is torch.Tensor.exp else result


WRAPPERS = (One, Closed, Scaled)


def parts_of(tensor: torch.Tensor) -> List[torch.Tensor]:
    """The plain tensors that it is made of."""
    plain, left = [], [tensor]
    while left:
        part = left.pop()
        if isinstance(part, Scaled):
            left += [part.value, part.scale]
        elif isinstance(part, (One, Closed)):
            left.append(part.inner)
        else:
            plain.append(part.detach().as_subclass(torch.Tensor))
    return plain


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if it has memory; a copy of a part if it is made of other tensors and has none itself."""
    return parts_of(tensor)[0].clone() if isinstance(tensor, WRAPPERS) else tensor.detach()


def set_data(leaf: torch.Tensor, data: torch.Tensor) -> None:
    """Sets `leaf.data`, if both have memory: what PyTorch makes of others is a tensor that reads where there is none."""
    if not isinstance(leaf, WRAPPERS) and not isinstance(data, WRAPPERS):
        leaf.data = data


class Wrapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, kind: Type[torch.Tensor]) -> torch.Tensor:
        return kind.of(tensor.clone())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return inside(grad), None


class Unwrapping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.kind = type(tensor)
        return inside(tensor).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return ctx.kind.of(grad)


class Square(torch.autograd.Function):
    """Saves its input and its result, and computes with both in backward."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        result = tensor * tensor
        ctx.save_for_backward(tensor, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        tensor, result = ctx.saved_tensors
        # The derivative of no function, without exp(): what was saved of a Loud tensor is a torch.Tensor here.
        return grad * (tensor.cos() + result.sin())


def inside(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.product() if isinstance(tensor, Scaled) else tensor.inner if isinstance(tensor, (One, Closed)) else tensor


def wrapped(tensor: torch.Tensor, kind: Type[torch.Tensor]) -> torch.Tensor:
    return kind.of(tensor) if kind is Loud else Wrapping.apply(tensor, kind)


def quiet(tensor: torch.Tensor) -> torch.Tensor:
    """Not Loud: a backward from a Loud tensor runs with all __torch_function__ off."""
    return tensor.as_subclass(torch.Tensor) if isinstance(tensor, Loud) else tensor


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Without its outermost subclass."""
    return Unwrapping.apply(tensor) if isinstance(tensor, WRAPPERS) else tensor.as_subclass(torch.Tensor)
