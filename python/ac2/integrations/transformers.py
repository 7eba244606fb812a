"""Hugging Face transformers: ``gradient_checkpointing_enable()`` of any model goes through ac2.

    import ac2.integrations.transformers

    ac2.integrations.transformers.install("save_compute_intensive")
    model.gradient_checkpointing_enable()          # or TrainingArguments(gradient_checkpointing=True)

Each layer then runs its forward in a region, once. So, unlike with transformers' own checkpointing, ``use_cache`` and
``past_key_values`` are left alone: nothing is written to a cache a second time.

``install()`` is for the process, and for models that enable checkpointing from then on. ``uninstall()`` takes it back, for
models that have it enabled too. With ``install(chunked_loss="auto")`` the losses of causal language models are computed a few
tokens at a time, of models that enable no checkpointing too.
"""

import functools
import inspect
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2._budgets import BudgetLike
from ac2._checkpointed_class import Settings, regions_of, settings_of, unwrap, wrap
from ac2._regions import Regions
from ac2._policy import PolicyLike
from ac2.integrations import _chunked_loss
from ac2.integrations._switch import Replacement, Switch, cannot_import, offloading_inputs, run_in_region, with_given

try:
    import transformers
except ImportError as error:
    raise cannot_import("transformers", error) from error

__all__ = ["install", "uninstall"]


def install(policy: PolicyLike = None, *, chunked_loss: BudgetLike = None, **options: Any) -> None:
    """Makes every model's ``gradient_checkpointing_enable`` (``activation_checkpointing_enable``) use ac2 from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a layer is saved but its inputs.
        chunked_loss: "auto", or the bytes of a chunk as for ac2.in_chunks ("256MiB"): all causal language models that are
            given labels in training compute their logits and their loss a few tokens at a time, whether they enable
            checkpointing or not. With "auto" a chunk has as many tokens as the hidden size. Losses and gradients differ from
            plain ones by the order of additions. ``outputs.logits`` are computed whole for whoever reads them. Of a model
            that is given labels and left as it is, as where torch.compile compiles it as a whole, a warning tells.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...), with off_in_eval and off_under_no_grad
            True: to generate text takes no region. A MemoryBudget is shared by all layers.

    Both are defaults: ``gradient_checkpointing_kwargs={"policy": ..., "memory_budget": ...}`` overrides them for a
    model, as does a ``context_fn`` that create_selective_checkpoint_contexts (ac2's or PyTorch's) made. Other
    arguments there for PyTorch's checkpoint (use_reentrant, ...) have no effect. To install again exchanges the defaults.
    transformers' own ``offload=True`` offloads the inputs of layers (``ac2.OffloadOptions(inputs=True)``). Raises as
    PolicyScope does for wrong arguments.
    """
    _chunked_loss.check_setting(chunked_loss)
    global _chunks
    before, _chunks = _chunks, chunked_loss
    try:
        _switch.install(policy, options)
    except BaseException:
        _chunks = before
        raise


def uninstall() -> None:
    """transformers' own checkpointing again, of models that have it enabled too. It may be off."""
    _switch.uninstall()


# Models that have been switched on, with what transformers' own switch would have been given.
_enabled: "weakref.WeakKeyDictionary[Any, Dict[str, Any]]" = weakref.WeakKeyDictionary()
# The regions of layers that have been switched off: trl switches off and on again within a step.
_regions_before: "weakref.WeakKeyDictionary[torch.nn.Module, Regions]" = weakref.WeakKeyDictionary()


# _chunks is what install() was given for chunked_loss.
_chunks: BudgetLike = None


def _give_back() -> None:
    for model, given in list(_enabled.items()):
        for layer in _layers(model):
            unwrap(layer)
        model._set_gradient_checkpointing(enable=True, **given)
    _enabled.clear()


def _replacements(switch: Switch) -> Iterator[Replacement]:
    model = transformers.PreTrainedModel
    name = "_set_gradient_checkpointing"
    original = switch.member(model, name)
    yield Replacement(model, name, switch.instead_of(original, _setter(original)))
    for name in ("is_gradient_checkpointing", "is_activation_checkpointing"):
        property_of_it = vars(model).get(name)
        if property_of_it is not None:
            yield Replacement(model, name, property(_or_wrapped(property_of_it.fget)))
    if _chunks is not None:
        yield from _of_losses(model)


def _of_losses(model: Any) -> Iterator[Replacement]:
    def setting() -> BudgetLike:
        return None if _switch.settings is None else _chunks

    yield Replacement(model, "_call_impl", _chunked_loss.calls_of_models(model._call_impl, setting))
    own = vars(model).get("loss_function")
    if isinstance(own, property) and own.fget is not None:  # otherwise a warning says that it is not known
        own_getter = own.fget

        def loss_function(self: Any) -> Any:
            in_chunks = _chunked_loss.loss_function_of(self)
            return own_getter(self) if in_chunks is None else in_chunks

        yield Replacement(model, "loss_function", property(functools.wraps(own_getter)(loss_function), own.fset, own.fdel))


def _or_wrapped(is_checkpointing: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(is_checkpointing)
    def asks(self: Any) -> bool:
        return is_checkpointing(self) or any(settings_of(module) is not None for module in self.modules())

    return asks


def _setter(original: Callable[..., None]) -> Callable[..., None]:
    def set_gradient_checkpointing(
        defaults: Settings,
        self: Any,
        enable: bool = True,
        gradient_checkpointing_func: Optional[Callable[..., Any]] = None,
        every_n_layers: int = 1,
    ) -> None:
        layers = _layers(self)
        for layer in layers:
            if settings_of(layer) is not None:
                _regions_before[layer] = regions_of(layer)
                unwrap(layer)
        if not enable:
            _enabled.pop(self, None)
            original(self, enable=False)
            return
        its_own: Dict[str, Any] = {}
        if gradient_checkpointing_func is not None:
            its_own["gradient_checkpointing_func"] = _without_ours(gradient_checkpointing_func)
        if every_n_layers != 1:
            its_own["every_n_layers"] = every_n_layers
        given = dict(getattr(gradient_checkpointing_func, "keywords", None) or {})
        given.pop("use_reentrant", None)  # some releases of transformers pass it unasked
        settings = with_given("gradient_checkpointing_kwargs", defaults, given)
        if _asks_for_offload(gradient_checkpointing_func):
            settings = offloading_inputs(settings)
        flagged = [module for module in self.modules() if hasattr(module, "gradient_checkpointing")]
        if not flagged:
            original(self, enable=True)  # says what is missing
        inside = {id(module) for layer in layers for module in layer.modules()}
        for module in flagged:
            # A flag would make the model turn off its caches. Only models without layers call the function themselves.
            calls_it = id(module) not in inside and not any(id(part) in inside for part in module.modules())
            module.gradient_checkpointing = calls_it
            if calls_it:
                module._gradient_checkpointing_func = functools.partial(_in_a_region, settings)
        for layer in layers[::every_n_layers]:
            wrap(layer, settings, _regions_before.pop(layer, None))
        _enabled[self] = its_own

    return set_gradient_checkpointing


def _without_ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with those of its keywords that PyTorch's checkpoint takes."""
    if not isinstance(function, functools.partial):
        return function
    known = inspect.signature(torch_checkpoint.checkpoint).parameters
    keywords = {name: value for name, value in function.keywords.items() if name in known}
    return functools.partial(function.func, *function.args, **keywords)


def _asks_for_offload(function: Optional[Callable[..., Any]]) -> bool:
    """Whether it is what transformers makes of ``offload=True``: its checkpoint function inside of another of its
    own."""
    inner = getattr(function, "func", None)
    return (
        inner is not transformers.modeling_utils.checkpoint
        and getattr(inner, "__module__", "") == "transformers.modeling_utils"
    )


def _layers(model: torch.nn.Module) -> List[torch.nn.Module]:
    """Those that transformers checkpoints by itself."""
    try:
        from transformers.modeling_layers import GradientCheckpointingLayer
    except ImportError:  # before 4.53 models called the function themselves
        return []
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _in_a_region(settings: Settings, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return run_in_region(settings, function, args, kwargs)


_switch = Switch("transformers", _replacements, when_off=_give_back)
