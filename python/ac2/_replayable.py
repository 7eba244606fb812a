"""A kernel is an op: a call of a function is one node of a region, whatever the function does."""

import contextlib
import functools
import re
import types
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Tuple, Union

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ac2 import _C, _compiled

# Stand for a tensor and for a generator in a list of what a function was given or has returned.
_TENSOR, _GENERATOR = object(), object()

_Leaves = Tuple[List[Any], pytree.TreeSpec]


def replayable(fn: Any = None, *, name: Optional[str] = None) -> Any:
    """``fn`` as an op of regions: a call is computed again by another call, whatever ``fn`` does.

        @ac2.replayable
        def scan(x, decay, *, chunk=64):             # a kernel by ctypes, pybind, Triton, TileLang, CuTe ...
            out = torch.empty_like(x)
            library.scan(x.data_ptr(), decay.data_ptr(), out.data_ptr(), x.numel(), chunk)
            return out

        Scan = ac2.replayable(Scan)                  # a torch.autograd.Function: its forward is such an op

    Without it a region holds what a kernel that no dispatcher sees takes and returns. With it policies, budgets, plans, verify
    mode and reports know the call as ``replayable::scan``, and its results are saved, recomputed or dropped as those of any op.
    A replay calls ``fn`` again with what the replay has in place of the tensors, in forward's environment (autocast, default
    dtype and device, switches), and on the numbers that forward drew from PyTorch's default generators and from those among
    the arguments.

    ``fn`` must compute its results from its arguments, write to none of them, and have no other effect; verify mode finds a
    function that does not. ``fn`` runs below autograd, in and outside of regions: a backward through its results is an error, and
    tensors that it takes from elsewhere than its arguments get no gradient. What has a derivative is a
    ``torch.autograd.Function``, given to ``replayable`` itself, or calling ``fn`` in its forward.

    Args:
        fn: a function, or a subclass of ``torch.autograd.Function``. Tensors may lie in lists, tuples and dicts, as arguments and
            as results, of which there is at least one; so may up to two ``torch.Generator``, as arguments. All else is kept by
            reference and given again to each replay, tensors in other objects and NumPy's arrays too: it must not change. Of
            results all else is forward's. Parameters arrive as plain tensors. The forward of a Function may save what it likes
            with ``ctx.save_for_backward``, and is called again to make what it has saved; it cannot differentiate inside
            (``torch.enable_grad``), and is not for ``torch.vmap``.
        name: of the op: letters, digits and underscores. By default that of ``fn``.

    Returns:
        A function that takes what ``fn`` takes; for a Function a subclass of it; without ``fn`` a decorator.

    Raises:
        TypeError: ``fn`` is neither, or is a module, whose parameters would get no gradient.
        ValueError: a name that is none.
    """
    if fn is None:
        return functools.partial(replayable, name=name)
    if isinstance(fn, torch.nn.Module):
        raise TypeError(
            f"replayable was given the module {type(fn).__name__}, whose parameters would get no gradient. Give it the function or "
            "the torch.autograd.Function that the module calls; for a whole module there is ac2.checkpoint_wrapper."
        )
    if not callable(fn) or isinstance(fn, type) and not issubclass(fn, torch.autograd.Function):
        raise TypeError(f"replayable was given {fn!r}; expected a function, or a subclass of torch.autograd.Function.")
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"replayable: name is {name!r}; expected a text.")
    name = _name_of(fn) if name is None else name
    _C.add_replayable(name)
    return _of_autograd_function(fn, name) if isinstance(fn, type) else _Replayable(fn, name)


def _name_of(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = re.sub(r"\W", "_", getattr(fn, "__name__", type(fn).__name__), flags=re.ASCII).strip("_")
    return name if name and not name[0].isdigit() else f"kernel_{name}"


class _Replayable:
    """What ``replayable`` makes of a function."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call(self._name, self._function, args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str:
        """By its name, as a function is pickled and copied."""
        name = getattr(self, "__qualname__", None)
        if name is None:
            raise TypeError(f"{self!r} has no name of its own that a pickle could hold. Decorate a function that has one.")
        return str(name)

    def __repr__(self) -> str:
        return f"<ac2.replayable {self._name} of {self._function!r}>"


_compiled.keep_out_of_graphs(_Replayable, "__call__")


def _has_no_part(value: Any) -> bool:
    """Such a list is given as it is: the very object."""
    return not any(isinstance(leaf, (torch.Tensor, torch.Generator)) for leaf in pytree.tree_leaves(value))


def _without_parts(value: Any) -> Tuple[_Leaves, List[torch.Tensor], List[torch.Generator]]:
    leaves, spec = pytree.tree_flatten(value, is_leaf=_has_no_part)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    generators = [leaf for leaf in leaves if isinstance(leaf, torch.Generator)]
    kinds = ((torch.Tensor, _TENSOR), (torch.Generator, _GENERATOR))
    rest = [next((mark for kind, mark in kinds if isinstance(leaf, kind)), leaf) for leaf in leaves]
    return (rest, spec), tensors, generators


def _with_parts(rest: _Leaves, tensors: Sequence[torch.Tensor], generators: Sequence[torch.Generator]) -> Any:
    leaves, spec = rest
    more_tensors, more_generators = iter(tensors), iter(generators)

    def leaf_of(leaf: Any) -> Any:
        return next(more_tensors) if leaf is _TENSOR else next(more_generators) if leaf is _GENERATOR else leaf

    return pytree.tree_unflatten([leaf_of(leaf) for leaf in leaves], spec)


def _on(device: torch.device) -> ContextManager[Any]:
    return contextlib.nullcontext() if torch.get_default_device() == device else device


def _without_modes() -> ContextManager[Any]:
    """Forward runs below the dispatch modes that see the call. A replay would find those that are on in backward."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() > 0 else contextlib.nullcontext()


def call(name: str, function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    rest, tensors, generators = _without_parts((args, kwargs))
    of_forward: List[Any] = []  # emptied below: replays have no need of it
    in_forward = [True]
    default_device = torch.get_default_device()

    def run(tensors: List[torch.Tensor], generators: List[torch.Generator]) -> List[torch.Tensor]:
        args, kwargs = _with_parts(rest, tensors, generators)
        with _on(default_device), _without_modes():
            result_rest, made, made_generators = _without_parts(function(*args, **kwargs))
        if not made:
            raise TypeError(
                f"The replayable function {name} returned no tensor, alone or in a list, tuple or dict. It returns what it has "
                "computed."
            )
        if in_forward:
            of_forward[:] = [(result_rest, made_generators)]
        return made

    results = _C.call_replayable(name, run, tensors, generators)
    in_forward.clear()
    result_rest, made_generators = of_forward.pop()
    return _with_parts(result_rest, results, made_generators)


class _StandIn:
    """Takes the place of a Function's ctx while its forward runs as an op: in forward, and in each replay."""

    def __init__(self, needs_input_grad: Tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._ac2_saved: Tuple[Optional[torch.Tensor], ...] = ()
        self._ac2_non_differentiable: Tuple[torch.Tensor, ...] = ()
        self._ac2_materializes: Optional[bool] = None

    def save_for_backward(self, *tensors: Optional[torch.Tensor]) -> None:
        self._ac2_saved = tensors

    def save_for_forward(self, *tensors: Optional[torch.Tensor]) -> None:
        pass

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        self._ac2_non_differentiable = tensors

    def mark_dirty(self, *tensors: torch.Tensor) -> None:
        raise RuntimeError(
            "The forward of a replayable torch.autograd.Function has called mark_dirty(): it writes to its arguments, and a replay "
            "would write again. Have it write to a tensor of its own, or do without ac2.replayable."
        )

    def set_materialize_grads(self, value: bool) -> None:
        self._ac2_materializes = value


# Where a tensor that forward has saved is: among the arguments, the results, or what forward has made for it. None is itself.
_Place = Union[None, Tuple[str, int]]


def _place_of(tensor: Any, arguments: Sequence[Any], results: Sequence[Any], made: List[torch.Tensor]) -> _Place:
    if tensor is None:
        return None
    for kind, tensors in (("argument", arguments), ("result", results), ("made", made)):
        for i, other in enumerate(tensors):
            if other is tensor:
                return kind, i
    made.append(tensor)
    return "made", len(made) - 1


class _Forward:
    """What the first run of a Function's forward has done with its ctx."""

    def __init__(self) -> None:
        self.is_over = False
        self.materializes: Optional[bool] = None
        self.saved: List[_Place] = []
        self.non_differentiable: List[_Place] = []
        self.attributes: Dict[str, Any] = {}  # whether it is a tensor among arguments or results, and its place or value

    def take(self, stand_in: _StandIn, arguments: Sequence[Any], results: Sequence[Any], made: List[torch.Tensor]) -> None:
        self.materializes = stand_in._ac2_materializes
        self.saved = [_place_of(tensor, arguments, results, made) for tensor in stand_in._ac2_saved]
        self.non_differentiable = [_place_of(tensor, (), results, []) for tensor in stand_in._ac2_non_differentiable]
        known = {id(tensor): ("argument", i) for i, tensor in enumerate(arguments)}
        known.update((id(tensor), ("result", i)) for i, tensor in enumerate(results))
        own = {key: value for key, value in vars(stand_in).items() if key != "needs_input_grad" and not key.startswith("_ac2_")}
        self.attributes = {key: (id(value) in known, known.get(id(value), value)) for key, value in own.items()}

    def give(self, ctx: Any, tensors: Dict[str, Sequence[torch.Tensor]]) -> None:
        def at(place: _Place) -> Optional[torch.Tensor]:
            return None if place is None else tensors[place[0]][place[1]]

        if self.saved:
            ctx.save_for_backward(*map(at, self.saved))
        if self.non_differentiable:
            ctx.mark_non_differentiable(*map(at, self.non_differentiable))
        if self.materializes is not None:
            ctx.set_materialize_grads(self.materializes)
        for key, (is_place, value) in self.attributes.items():
            setattr(ctx, key, at(value) if is_place else value)
        # The op keeps this object for its replays, and nothing of forward alive by it.
        self.is_over = True
        self.attributes = {}


def _of_autograd_function(function: Any, name: str) -> Any:
    original = function.forward
    if function.setup_context is not torch.autograd.Function.setup_context:

        def forward(*args: Any) -> Any:
            return call(name, original, args, {})

    else:

        def forward(ctx: Any, *args: Any) -> Any:
            needs_input_grad, first = ctx.needs_input_grad, _Forward()

            def run(*given: Any) -> Any:
                stand_in = _StandIn(needs_input_grad)
                result = original(stand_in, *given)
                made: List[torch.Tensor] = []
                arguments, results = (pytree.tree_leaves(value) for value in (given, result))
                if first.is_over:  # made is in the same order each time
                    for tensor in stand_in._ac2_saved:
                        _place_of(tensor, arguments, results, made)
                else:
                    first.take(stand_in, arguments, results, made)
                return result, made

            result, made = call(name, run, args, {})
            tensors = {"argument": pytree.tree_leaves(args), "result": pytree.tree_leaves(result), "made": made}
            first.give(ctx, tensors)
            return result

    members = {"forward": staticmethod(functools.wraps(original)(forward))}
    members.update({key: getattr(function, key) for key in ("__module__", "__qualname__", "__doc__")})
    return type(function)(function.__name__, (function,), members)
