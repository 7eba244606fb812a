"""The loss of a causal language model, computed a few tokens at a time: all of its logits are never there.

A model of transformers calls its output head and then its loss function. Here the head returns logits that are not computed,
and the loss function computes them and their cross entropy by ac2.in_chunks(). Whoever else reads the logits gets them whole.
"""

import inspect
import threading
import types
import warnings
import weakref
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

from ac2._budgets import BudgetLike, as_bytes
from ac2._chunks import in_chunks

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


# _running.forwards are the models whose forward runs on this thread, innermost last, each with the head that defers its logits.
_running = threading.local()


def _forwards() -> List[Tuple[torch.nn.Module, Optional[torch.nn.Module]]]:
    if not hasattr(_running, "forwards"):
        _running.forwards = []
    return _running.forwards  # type: ignore[no-any-return]


class ChunkedLoss:
    """A model whose head defers its logits in training, and whose loss function computes them in chunks."""

    def __init__(self, model: Any, chunked_loss: BudgetLike) -> None:
        """Raises nothing: what keeps the model as it is, is warned of."""
        self._chunked_loss = chunked_loss
        self._hooks: List[Any] = []
        head = _head_of(model)
        reason = _reason_against(model, head)
        if reason:
            _say_once(model, f"chunked_loss leaves {type(model).__name__} as it is: {reason}.")
            return
        assert head is not None
        self._plain_loss = model.loss_function
        self._parameters = inspect.signature(model.forward)
        self._hooks = [
            model.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            model.register_forward_hook(self._after_forward, always_call=True),
        ]
        model._loss_function = self._loss
        # A bound method without a reference to the model: a copy of the head has the copy's.
        head.forward = types.MethodType(_deferring_forward, head)
        self._head = head

    @property
    def is_on(self) -> bool:
        """False for a model that was left as it is."""
        return bool(self._hooks)

    def remove_from(self, model: Any) -> None:
        """What others have put in the place of ours stays, and gets what the model does by itself."""
        if not self.is_on:
            return
        for hook in self._hooks:
            hook.remove()
        if vars(model).get("_loss_function") == self._loss:
            del model._loss_function
        if getattr(vars(self._head).get("forward"), "__func__", None) is _deferring_forward:
            del self._head.forward

    def _before_forward(self, model: Any, args: Any, kwargs: Any) -> None:
        # Without labels the logits are what is asked for.
        labels = kwargs.get("labels")
        if labels is None and args:
            try:
                labels = self._parameters.bind_partial(*args).arguments.get("labels")
            except TypeError:  # forward will say what is wrong
                pass
        wanted = labels is not None and model.training and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        _forwards().append((model, _head_of(model) if wanted else None))

    def _after_forward(self, model: Any, *_: Any) -> None:
        # Where another hook has raised before ours, there is nothing of this call.
        if _forwards() and _forwards()[-1][0] is model:
            _forwards().pop()

    def _loss(
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
        if not isinstance(logits, DeferredLogits) and _forwards() and (head := _forwards()[-1][1]) is not None:
            _say_once(
                head,
                "chunked_loss does nothing: the logits are not those of the head that the model had when checkpointing was "
                "enabled. Enable it again.",
            )
        if not isinstance(logits, DeferredLogits) or logits.computation.is_done() or logits.shape[-1] != vocab_size:
            return self._plain_loss(  # type: ignore[no-any-return]
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
    if "forward" in vars(head):
        return "the forward of its head has been replaced"
    return ""


def _deferring_forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
    plain = type(self).forward
    forwards = _forwards()
    if not forwards or forwards[-1][1] is not self or kwargs or len(args) != 1 or args[0].dim() < 2:
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
