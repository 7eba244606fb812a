"""Code that Inductor has compiled, in a region: its forward is one op, "replayable::inductor_compiled_code".

Inductor's kernels write to buffers without any dispatcher seeing it, and reuse them. Only what it calls of ATen would be recorded, and
replaying that would read buffers with other contents. So a replay calls the code again as a whole, as PyTorch's selective
checkpointing does (``torch.ops.higher_order.inductor_compiled_code``), and policies, budgets and plans decide for the whole.

Not recorded are derivatives, code that writes and has no derivative (an optimizer's step), and, with a warning, code that might choose
otherwise when it runs again and what runs in CUDA graphs: what autograd saves of that is held, and the ops around it are recomputed as
ever. Of the arguments that compiled code writes to, replays read the bytes of before.

CompiledFxGraph.__call__ is what runs such code, under every mode of torch.compile. It is wrapped when the first region opens, or when
its module is imported after that.
"""

import functools
import re
import sys
import warnings
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from ac2 import _C, _compiled, _replayable

_NAME = "inductor_compiled_code"


def watch() -> None:
    """Wraps what runs compiled code, now or when its module is imported. To be called once."""
    _C.add_replayable(_NAME)
    _compiled.when_imported("torch._inductor.output_code", _wrap)


def _wrap(module: Any) -> None:
    graph = module.CompiledFxGraph
    original = graph.__call__
    if hasattr(graph, "post_compile"):
        graph.post_compile = _noting_the_budget(graph.post_compile)

    @functools.wraps(original)
    def __call__(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        in_region = _C.is_checkpoint_enabled()
        _look_for_numbers_drawn_anew(self, in_region)
        if in_region and not args and not kwargs and _can_be_an_op(self):
            return _call_as_an_op(functools.partial(original, self), self, inputs)
        for position in _written(self):
            if isinstance(inputs[position], torch.Tensor):
                _C.before_unseen_write(inputs[position])
        with _C.DisableCheckpointing():
            return original(self, inputs, *args, **kwargs)

    graph.__call__ = __call__


def _written(graph: Any) -> Sequence[int]:
    return tuple(getattr(graph, "mutated_input_idxs", ()))


def _can_be_an_op(graph: Any) -> bool:
    options = getattr(graph, "fx_kwargs", None)
    # A derivative may write to what forward has saved for it.
    if options is None or options.get("is_backward"):
        return False
    if options.get("cudagraphs") and "cuda" in getattr(graph, "device_types", ()):
        _warn_of_cuda_graphs()
        return False
    if _may_choose_anew(graph):
        return False
    # Code without a derivative may be an optimizer's step, whose weights would all be copied.
    return not _written(graph) or not options.get("is_inference", True)


# An op may return neither an argument nor a view of one, nor two results in one storage; compiled code does, for backward. Of each
# result: which of the arguments and, behind these, of the results before it has the storage too. None if none has.
_Bases = List[Optional[int]]


def _call_as_an_op(run: Callable[[List[Any]], Any], graph: Any, inputs: Any) -> Any:
    given = list(inputs)
    if isinstance(inputs, list):
        inputs.clear()  # as the code itself does, so that what it needs no more is freed
    written = _written(graph)
    layouts: List[Any] = []  # of those results that have a base

    def function(given: List[Any]) -> List[Any]:
        # An op writes to none of its arguments. The statistics of BatchNorm, to which the code does, are few bytes.
        given = [tensor.clone() if i in written else tensor for i, tensor in enumerate(given)]
        results = list(run(list(given)))
        bases = _bases_of(graph, given, results)
        if not layouts:
            layouts.extend(None if base is None else _Layout.of(results[i]) for i, base in enumerate(bases))
        own = [result for result, base in zip(results, bases) if base is None] + [given[i] for i in written]
        return own if any(isinstance(result, torch.Tensor) for result in own) else [*own, torch.empty(0)]

    own = iter(_replayable.call(_NAME, function, (given,), {}))
    tensors = list(given)
    for base, layout in zip(graph._ac2_bases, layouts):
        tensors.append(next(own) if base is None else _laid_out(tensors[base], layout))
    for i in written:
        _write(given[i], next(own))
    return tuple(tensors[len(given) :])


def _write(tensor: torch.Tensor, result: torch.Tensor) -> None:
    """As the code writes: without a new version, which the caller of the code counts."""
    _C.before_unseen_write(tensor)
    with _C.DisableCheckpointing(), torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tensor):
        tensor.copy_(result)


def _bases_of(graph: Any, given: List[Any], results: List[Any]) -> _Bases:
    """The same in each run of the code, so that they are looked for in the first."""
    bases: Optional[_Bases] = getattr(graph, "_ac2_bases", None)
    if bases is None:
        bases = [_base_of(result, [*given, *results[:i]]) for i, result in enumerate(results)]
        graph._ac2_bases = bases
    return bases


def _base_of(result: Any, others: List[Any]) -> Optional[int]:
    if not isinstance(result, torch.Tensor):
        return None
    for i, other in enumerate(others):
        if isinstance(other, torch.Tensor) and torch._C._is_alias_of(other, result):
            return i
    return None


class _Layout(NamedTuple):
    """How a tensor lies in a storage."""

    dtype: torch.dtype
    size: Tuple[int, ...]
    stride: Tuple[int, ...]
    offset: int
    is_conj: bool
    is_neg: bool

    @staticmethod
    def of(tensor: torch.Tensor) -> "_Layout":
        return _Layout(
            tensor.dtype, tuple(tensor.size()), tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg()
        )

    def end(self) -> int:
        """How many elements of the storage it takes to lay such a tensor there."""
        return 0 if 0 in self.size else self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride)) + 1


def _laid_out(tensor: torch.Tensor, layout: _Layout) -> torch.Tensor:
    if _Layout.of(tensor) == layout:
        return tensor
    with torch.no_grad():
        tensor = tensor.conj() if tensor.is_conj() else tensor
        tensor = torch._neg_view(tensor) if tensor.is_neg() else tensor
        if tensor.dtype != layout.dtype:
            count = -(-layout.end() * layout.dtype.itemsize // tensor.itemsize)
            tensor = tensor.as_strided((count,), (1,), 0).view(layout.dtype)
        tensor = tensor.as_strided(layout.size, layout.stride, layout.offset)
        tensor = tensor.conj() if layout.is_conj else tensor
        return torch._neg_view(tensor) if layout.is_neg else tensor


def _noting_the_budget(post_compile: Callable[..., Any]) -> Callable[..., Any]:
    """What runs when code was compiled or has come out of a cache, of which the budget is a key."""

    @functools.wraps(post_compile)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._ac2_budget = _budget()
        return post_compile(self, *args, **kwargs)

    return noting


def _budget() -> float:
    # No import: the module is there where code was compiled, and who has not imported it has not set it.
    config = sys.modules.get("torch._functorch.config")
    return float(getattr(config, "activation_memory_budget", 1.0))


# What Inductor's code calls to draw, seeds for its kernels included: in Python, and with cpp_wrapper in C++. Not what a checkpoint
# inside of the code calls, run_with_rng_state(..., torch.ops.aten.rand.default, ...), which draws the numbers of before.
_DRAWERS = "rand|randn|randint|randperm|bernoulli|native_dropout|multinomial|normal|uniform|exponential|rrelu_with_noise"
_DRAWS = re.compile(rf"\baten\.(?:{_DRAWERS})_?(?:_like)?(?:\.\w+)?\(|\baoti_torch_(?:cpu|cuda|xpu|mps)_(?:{_DRAWERS})\w*\(")


def _draws(graph: Any) -> bool:
    draws: Optional[bool] = getattr(graph, "_ac2_draws", None)
    if draws is None:
        draws = graph._ac2_draws = bool(_DRAWS.search(getattr(graph, "source_code", None) or ""))
    return draws


# What Inductor's code calls that may compute other bits when it is called again: operators of other libraries, and additions in any
# order. Of the former the first group is the name.
_LIBRARIES = r"aten|prims|inductor|higher_order|rngprims|quantized|_quantized|_c10d_functional|c10d_functional|_dtensor|onednn|mkldnn|mkl"
_VARIES = re.compile(
    rf"= torch\.ops\.((?!(?:{_LIBRARIES})\.)\w+\.\w+)|\b(?:tl\.)?atomic_add(?:_vec)?\(|\baoti_torch_proxy_executor_call_function\("
)
# Ops that choose by numbers, which Inductor calls as they are, and indices that its own kernels compute.
_CHOOSERS = "topk|sort|argsort|multinomial|kthvalue|nonzero|unique\\w*|_unique\\w*|searchsorted|bucketize|max_pool\\dd_with_indices|mode|median"
_CHOOSES = re.compile(
    rf"\baten\.(?:{_CHOOSERS})\.|\baoti_torch_\w+?_(?:{_CHOOSERS})\b|\b(\w+) = empty_strided_\w+\([^\n]*torch\.int(?:8|16|32|64)\)"
)


def _may_choose_anew(graph: Any) -> bool:
    """Whether the code chooses by numbers, and numbers may be others when it runs again. A replay would choose otherwise for backward
    than forward did, and what it chose cannot be saved apart: the code is one op. Masks are not looked for: dropout and ReLU have them."""
    answer: Optional[bool] = getattr(graph, "_ac2_may_choose_anew", None)
    if answer is None:
        code = getattr(graph, "source_code", None) or ""
        varies = _VARIES.search(code)
        # Seeds are integers, too.
        answer = varies is not None and any(
            found[1] is None or f"out={found[1]})" not in code for found in _CHOOSES.finditer(code)
        )
        graph._ac2_may_choose_anew = answer
        if answer and varies is not None:
            _warn_of_choices(varies[1] or "an addition in any order")
    return answer


_in_regions = {"drawn under a budget": False}  # by the forward of code, ever


def _look_for_numbers_drawn_anew(graph: Any, in_region: bool) -> None:
    """Derivatives draw nothing themselves. One that does, where forward did under a budget below 1, draws forward's anew."""
    if (getattr(graph, "fx_kwargs", None) or {}).get("is_backward"):
        if _in_regions["drawn under a budget"] and _draws(graph):
            _warn_of_numbers_drawn_anew()
    elif in_region and min(getattr(graph, "_ac2_budget", 1.0), _budget()) < 1 and _draws(graph):
        _in_regions["drawn under a budget"] = True


@functools.cache
def _warn_of_numbers_drawn_anew() -> None:
    warnings.warn(
        "A region of ac2 called code that torch.compile has compiled with torch._functorch.config.activation_memory_budget below 1, and "
        "the derivative of that code draws random numbers: Inductor computes dropout and the like again there, with other numbers than "
        "forward's (github.com/pytorch/pytorch/issues/190758). Its gradients are wrong, with a region and without. Leave "
        "activation_memory_budget at 1 and give the region a policy or a memory_budget, or have nothing random in what is compiled. This "
        "is said once.",
        stacklevel=4,
    )


@functools.cache
def _warn_of_choices(varies: str) -> None:
    warnings.warn(
        f"A region of ac2 calls code that torch.compile has compiled, in which {varies} may compute other bits when it runs again, and in "
        "which indices are chosen by numbers (topk, argmax). It is not computed again, because it might choose otherwise: what autograd "
        "saves of it is held, whatever the policy says. Compile what chooses apart from the rest, or not at all. This is said once for "
        "each such operator.",
        stacklevel=4,
    )


@functools.cache
def _warn_of_cuda_graphs() -> None:
    warnings.warn(
        "A region of ac2 calls code that torch.compile runs in CUDA graphs, whose results lie in memory that their next run takes. It is "
        "not computed again: what autograd saves of it is held, whatever the policy says. Compile without CUDA graphs (no "
        'mode="reduce-overhead"), or call ac2.checkpoint inside of the function that is compiled. This is said once.',
        stacklevel=4,
    )
