"""The loss of a causal language model, computed a few tokens at a time: all of its logits are never there.

A model of transformers calls its output head and then its loss function. Here the head returns logits that are not computed,
and the loss function computes them and their cross entropy by ac2.in_chunks(). Whoever else reads the logits gets them whole.
"""

import functools
import inspect
import sys
import threading
import types
import warnings
import weakref
from typing import Any, Callable, List, Optional, Set, Tuple

import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._pytree import tree_map_only

from ac2._budgets import BudgetLike, as_bytes
from ac2._chunks import in_chunks
from ac2._compiled import is_tracing, keep_frames_out_of_graphs, when_imported

# _OF_THE_LAYOUT are the functions that answer without logits.
_OF_THE_LAYOUT = frozenset({
    torch.Tensor.shape.__get__,
    torch.Tensor.ndim.__get__,
    torch.Tensor.dtype.__get__,
    torch.Tensor.device.__get__,
    torch.Tensor.layout.__get__,
    torch.Tensor.requires_grad.__get__,
    # DistributedDataParallel and fully_shard ask these of a model's outputs.
    torch.Tensor.grad_fn.__get__,
    torch.Tensor.is_leaf.__get__,
    torch.Tensor._base.__get__,
    torch.Tensor.register_hook,
    torch.Tensor.size,
    torch.Tensor.dim,
    torch.Tensor.numel,
    torch.Tensor.__len__,
    torch.Tensor.is_floating_point,
})

# _BY_ELEMENT are the functions that models apply to logits before the loss: a scale, a soft cap, another type. With numbers for
# their other arguments they compute each logit by itself.
_BY_ELEMENT = frozenset({
    torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__, torch.mul,
    torch.Tensor.div, torch.Tensor.__truediv__, torch.div,
    torch.Tensor.tanh, torch.tanh,
    torch.Tensor.float, torch.Tensor.to, torch.Tensor.contiguous, torch.Tensor.clone,
})  # fmt: skip


def check_setting(chunked_loss: Any) -> None:
    """Raises TypeError or ValueError for what install(chunked_loss=...) does not take."""
    if chunked_loss not in (None, "auto"):
        as_bytes(chunked_loss, "chunked_loss")


class _Computation:
    """How logits are computed, once somebody reads them: with gradients, and with autocast as where the head was called."""

    def __init__(
        self, head: torch.nn.Module, hidden: torch.Tensor, steps: Tuple[Callable[[torch.Tensor], torch.Tensor], ...] = ()
    ) -> None:
        self.head, self.hidden, self.steps = head, hidden, steps
        self._whole: Optional[torch.Tensor] = None
        kind = hidden.device.type
        self._autocast = {
            "device_type": kind,
            "dtype": torch.get_autocast_dtype(kind),
            "enabled": torch.is_autocast_enabled(kind),
        }
        self._versions = self._read_versions()

    def _read_versions(self) -> List[int]:
        return [tensor._version for tensor in (self.hidden, *self.head.parameters())]

    def then(self, step: Callable[[torch.Tensor], torch.Tensor]) -> "_Computation":
        return _Computation(self.head, self.hidden, (*self.steps, step))

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """The logits of some rows of the hidden states."""
        # A weight that autocast has cast once for all chunks would add up its gradients in the type that it was cast to.
        with torch.autocast(**self._autocast, cache_enabled=False):
            logits = type(self.head).forward(self.head, rows)
            for step in self.steps:
                logits = step(logits)
        return logits

    def is_done(self) -> bool:
        return self._whole is not None

    def whole(self, reader: str) -> torch.Tensor:
        if self._whole is None:
            if self._versions != self._read_versions():
                raise RuntimeError(
                    f"{reader} reads logits that chunked_loss has not computed, and the hidden states or the weights of the "
                    "head have been written to since forward. Read them before the optimizer's step, or turn chunked_loss off."
                )
            _say_once(self.head, f"{reader} reads all logits, which are computed whole for it: chunked_loss saves less memory.")
            with torch.enable_grad():
                self._whole = self.of(self.hidden)
        return self._whole


class DeferredLogits(torch.Tensor):
    """Logits that are computed once somebody reads them. Their layout is known before."""

    computation: _Computation
    _layout: torch.Tensor  # of no rows

    @staticmethod
    def made(computation: _Computation, layout: torch.Tensor) -> "DeferredLogits":
        head = computation.head
        return _Deferral.apply(computation, layout, computation.hidden, *head.parameters())  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_THE_LAYOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        logits = args[0] if args else None
        others = (*args[1:], *kwargs.values())
        if (
            func in _BY_ELEMENT
            and isinstance(logits, DeferredLogits)
            and not logits.computation.is_done()
            and all(isinstance(other, (bool, int, float, torch.dtype)) for other in others)
        ):

            def step(tensor: torch.Tensor) -> torch.Tensor:
                return func(tensor, *args[1:], **kwargs)  # type: ignore[no-any-return]

            with torch.no_grad():
                layout = step(logits._layout)
            return DeferredLogits.made(logits.computation.then(step), layout)
        of_property = getattr(func, "__self__", None) if getattr(func, "__name__", "") == "__get__" else None
        name = getattr(of_property or func, "__name__", str(func))
        args, kwargs = tree_map_only(DeferredLogits, lambda logits: logits.computation.whole(name), (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(
            DeferredLogits, lambda logits: logits.computation.whole(str(func)), (args, kwargs or {})
        )
        return func(*args, **kwargs)


class _Deferral(torch.autograd.Function):
    """Hidden states and weights to logits that are not computed.

    Most readers are given the whole logits, which have a graph of their own. What is given the deferred ones themselves, as
    another Function is, sends its gradient here.
    """

    @staticmethod
    def forward(
        ctx: Any, computation: _Computation, layout: torch.Tensor, hidden: torch.Tensor, *_: torch.Tensor
    ) -> DeferredLogits:
        ctx.computation = computation  # and not the logits: they hold this context
        ctx.set_materialize_grads(False)
        logits = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            DeferredLogits, (*hidden.shape[:-1], layout.shape[-1]), dtype=layout.dtype, device=layout.device
        )
        logits.computation, logits._layout = computation, layout
        return logits  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Optional[torch.Tensor]) -> Any:  # type: ignore[override]
        computation = ctx.computation
        inputs = (computation.hidden, *computation.head.parameters())
        results: List[Optional[torch.Tensor]] = [None] * len(inputs)
        wanted = [i for i, tensor in enumerate(inputs) if tensor.requires_grad]
        if gradient is not None and wanted:
            gradients = torch.autograd.grad(
                computation.whole("backward"), [inputs[i] for i in wanted], gradient, retain_graph=True,
                create_graph=torch.is_grad_enabled(), allow_unused=True,
            )  # fmt: skip
            for i, of_input in zip(wanted, gradients):
                results[i] = of_input
        return (None, None, *results)


# _said holds the modules of which a warning has told something.
_said: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()


def _say_once(module: torch.nn.Module, text: str) -> None:
    if module not in _said:
        _said.add(module)
        warnings.warn(f"ac2.integrations.transformers: {text}", stacklevel=4)


# _running.calls are those of this thread, the innermost last.
_running = threading.local()


def _calls() -> "List[_Call]":
    if not hasattr(_running, "calls"):
        _running.calls = []
    return _running.calls  # type: ignore[no-any-return]


# _has_chunked: see has_chunked_losses(). _compiled are the classes of which a warning has told that they are compiled.
_has_chunked = False
_compiled: Set[type] = set()


def has_chunked_losses() -> bool:
    """Whether a loss has been computed in chunks since the import."""
    return _has_chunked


def has_left_models() -> bool:
    """Whether a warning has told of a model that is left as it is, or that computes all of its logits."""
    return bool(_said or _compiled)


def calls_of_models(plain: Callable[..., Any], setting: Callable[[], BudgetLike]) -> Callable[..., Any]:
    """What calls a model as ``plain`` does, with its loss in chunks where it is in training and is given labels.

    ``setting`` returns that of install(), or None while the integration is off.
    """

    @functools.wraps(plain)
    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training or not torch.is_grad_enabled():
            return plain(self, *args, **kwargs)
        if torch.compiler.is_compiling():
            if torch.compiler.is_dynamo_compiling():
                _note_traced(setting, type(self), len(args), kwargs.get("labels") is not None)
            return plain(self, *args, **kwargs)
        # While Dynamo compiles what is called from here, there is a callback.
        call = _call_in_chunks(setting, self, args, kwargs, callable(_frame_callback()))
        if call is None:
            return plain(self, *args, **kwargs)
        with call:
            return plain(self, *args, **kwargs)

    # As with torch.nn.Module's own function Dynamo begins with what is called from there.
    keep_frames_out_of_graphs(_call_impl)
    return _call_impl


_are_transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_frame_callback: Callable[[], Any] = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)


def _call_in_chunks(
    setting: Callable[[], BudgetLike], model: Any, args: Tuple[Any, ...], kwargs: Any, is_being_compiled: bool
) -> "Optional[_Call]":
    """None for a call like any other."""
    kind, chunked_loss = type(model), setting()
    # Without labels the logits are what is asked for.
    has_labels = kwargs.get("labels") is not None
    if not has_labels and len(args) > 1 and len(args) > _place_of_labels(kind):
        has_labels = args[_place_of_labels(kind)] is not None
    if chunked_loss is None or not has_labels:
        return None
    if is_being_compiled or _is_compiled(model):
        _say_compiled(kind)
        return None
    head = _head_of(model)
    reason = _reason_against(model, head)
    if reason:
        _say_once(model, f"chunked_loss leaves {kind.__name__} as it is: {reason}.")
        head = None
    return _Call(model, head, chunked_loss)


def _note_traced(setting: Callable[[], BudgetLike], kind: type, arguments: int, has_labels: bool) -> bool:
    """Called while a call of a model is traced, with what is known then. The result is a constant of the graph."""
    if setting() is not None and (has_labels or arguments > _place_of_labels(kind)):
        _say_compiled(kind)
    return True


def _tell_dynamo(dynamo: Any) -> None:
    global _call_in_chunks, _note_traced
    _call_in_chunks = dynamo.disable(_call_in_chunks)
    _note_traced = dynamo.assume_constant_result(_note_traced)


when_imported("torch._dynamo", _tell_dynamo)


@functools.lru_cache(maxsize=None)
def _place_of_labels(kind: type) -> int:
    """Among the arguments without a name, or behind all of them where there is no such argument."""
    parameters = list(inspect.signature(kind.forward).parameters)[1:]  # type: ignore[attr-defined]
    return parameters.index("labels") if "labels" in parameters else sys.maxsize


def _say_compiled(kind: type) -> None:
    if kind not in _compiled:
        _compiled.add(kind)
        part = getattr(kind, "base_model_prefix", "")
        warnings.warn(
            f"ac2.integrations.transformers: chunked_loss does nothing in {kind.__name__}, which torch.compile compiles as a "
            "whole: all of its logits are computed. Compile what is below its output head"
            + (f", as by model.{part}.compile(), or its layers." if part else ", or its layers."),
            stacklevel=4,
        )


def _is_compiled(module: torch.nn.Module) -> bool:
    """Whether torch.compile() or compile() made it what it is."""
    return hasattr(module, "_orig_mod") or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")


def loss_function_of(model: Any) -> Optional[Callable[..., Any]]:
    """The one in chunks, if this thread is in a call of the model that has one."""
    if is_tracing() or not _calls():
        return None
    call = _calls()[-1]
    return call.loss if call.model is model and call.head is not None else None


class _Call:
    """A call of a model in training: its head defers its logits, and its loss function computes them in chunks.

    Without a head it computes its loss by itself, and inside of it the call around it does not count.
    """

    def __init__(self, model: Any, head: Optional[torch.nn.Module], chunked_loss: BudgetLike) -> None:
        self.model, self.head, self._chunked_loss = model, head, chunked_loss
        self._has_replaced = False

    def __enter__(self) -> None:
        # Only for the time of the call, so that the model can be copied and saved. A call of another model around this one may
        # have the same head.
        if self.head is not None and "forward" not in vars(self.head):
            self.head.forward = types.MethodType(_deferring_forward, self.head)
            self._has_replaced = True
        _calls().append(self)

    def __exit__(self, *_: Any) -> None:
        _calls().pop()
        if self._has_replaced and self.head is not None and _is_deferring(self.head):
            del self.head.forward

    def loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        vocab_size: int,
        num_items_in_batch: Any = None,
        ignore_index: int = -100,
        shift_labels: Optional[torch.Tensor] = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """transformers' ForCausalLMLoss."""
        if not isinstance(logits, DeferredLogits):
            assert self.head is not None
            _say_once(
                self.head,
                f"chunked_loss does nothing in {type(self.model).__name__}: its logits are not what its output head "
                "(get_output_embeddings()) returned.",
            )
        if not isinstance(logits, DeferredLogits) or logits.computation.is_done() or logits.shape[-1] != vocab_size:
            from transformers.loss.loss_utils import ForCausalLMLoss

            return ForCausalLMLoss(  # type: ignore[no-any-return]
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **kwargs
            )
        if shift_labels is None:  # the token after each is what it predicts
            shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        target = shift_labels.reshape(-1).to(logits.device)
        computation = logits.computation
        hidden = computation.hidden.flatten(0, -2)

        def loss_of(rows: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(computation.of(rows).float(), target, ignore_index=ignore_index, reduction="sum")

        if self._chunked_loss == "auto":
            # The logits of a chunk are then no more numbers than a weight of the head and its gradient, which are there anyway.
            # With smaller chunks adding up that gradient takes longer than the rest.
            tokens, of_a_chunk = hidden.shape
            total = in_chunks(loss_of, hidden, target, chunks=max(-(-tokens // of_a_chunk), 1), reduce="sum")
        else:
            total = in_chunks(loss_of, hidden, target, bytes=self._chunked_loss, reduce="sum")
        global _has_chunked
        _has_chunked = True
        count = (target != ignore_index).sum() if num_items_in_batch is None else num_items_in_batch
        return total / (count.to(total.device) if isinstance(count, torch.Tensor) else count)  # type: ignore[no-any-return]


def _head_of(model: Any) -> Optional[torch.nn.Module]:
    find = getattr(model, "get_output_embeddings", None)
    return find() if find is not None else None


def _reason_against(model: Any, head: Optional[torch.nn.Module]) -> str:
    try:
        from transformers.loss.loss_utils import ForCausalLMLoss
    except ImportError:
        return "the loss functions of this transformers are not known"
    if getattr(model, "loss_function", None) is not ForCausalLMLoss or "_loss_function" in vars(model):
        return "its loss is not that of transformers' causal language models"
    if head is None:
        return "it has no output head"
    if _are_transforms_active() or forward_ad._current_level >= 0:
        return "it is called under a transform of torch.func, or for derivatives in forward mode"
    if _is_compiled(head) or getattr(head, "_compiled_call_impl", None) is not None:
        return "its head is compiled. Compile what is below it, or the layers"
    if "forward" in vars(head) and not _is_deferring(head):
        return "the forward of its head has been replaced"
    return ""


def _is_deferring(head: torch.nn.Module) -> bool:
    return getattr(vars(head).get("forward"), "__func__", None) is _deferring_forward


def _deferring_forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
    plain = type(self).forward
    calls = _calls()
    if not calls or calls[-1].head is not self or kwargs or len(args) != 1 or args[0].dim() < 2:
        return plain(self, *args, **kwargs)  # type: ignore[no-any-return]
    hidden = args[0]
    if _is_unit_of_fsdp(self) or any(not _is_plain(tensor) for tensor in (hidden, *self.parameters())):
        _say_once(self, "chunked_loss does nothing where the weights of the head are sharded, or are no plain tensors.")
        return plain(self, hidden)  # type: ignore[no-any-return]
    with torch.no_grad():
        layout = plain(self, hidden.detach().flatten(0, -2)[:0])
    return DeferredLogits.made(_Computation(self, hidden), layout)


def _is_unit_of_fsdp(head: torch.nn.Module) -> bool:
    """Whether its weights are there for the time of its own call alone."""
    if not torch.distributed.is_available():
        return False
    from torch.distributed import fsdp

    kinds = tuple(kind for kind in (getattr(fsdp, "FSDPModule", None), fsdp.FullyShardedDataParallel) if kind is not None)
    return isinstance(head, kinds)


def _is_plain(tensor: torch.Tensor) -> bool:
    # DeepSpeed marks the parameters that are gathered for the time of a module's call.
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and not hasattr(tensor, "ds_id")
