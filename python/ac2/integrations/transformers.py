"""Hugging Face transformers: ``gradient_checkpointing_enable()`` of any model goes through ac2.

    import ac2.integrations.transformers

    ac2.integrations.transformers.install("save_compute_intensive")
    model.gradient_checkpointing_enable()          # or TrainingArguments(gradient_checkpointing=True)

Each layer then runs its forward in a region, once. So, unlike with transformers' own checkpointing, ``use_cache`` and
``past_key_values`` are left alone: nothing is written to a cache a second time.

``install()`` is for the process; ``uninstall()`` takes it back for models that enable checkpointing from then on.
"""

import functools
import threading
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.utils.checkpoint as torch_checkpoint
import transformers

from ac2._C import OffloadOptions
from ac2._checkpointed_class import Settings, settings_of, unwrap, wrap
from ac2._modules import settings_from
from ac2._policy import PolicyLike
from ac2._regions import opened_for
from ac2._scope import PolicyScope

__all__ = ["install", "uninstall"]

_lock = threading.Lock()
_originals: Dict[str, Any] = {}  # members of PreTrainedModel


def install(policy: PolicyLike = None, **options: Any) -> None:
    """Makes every model's ``gradient_checkpointing_enable`` (``activation_checkpointing_enable``) use ac2 from now on.

    Args:
        policy: as for ac2.PolicyScope. Without one nothing of a layer is saved but its inputs.
        **options: as for ac2.checkpoint_wrapper (memory_budget, offload, ...). A MemoryBudget is shared by all layers. Here
            off_in_eval and off_under_no_grad are True: to generate text takes no region.

    Both are defaults: ``gradient_checkpointing_kwargs={"policy": ..., "memory_budget": ...}`` overrides them for a model,
    as does a ``context_fn`` that create_selective_checkpoint_contexts (ac2's or PyTorch's) made.
    What else is passed there for PyTorch's checkpoint (use_reentrant, ...) has no effect. To install again exchanges the
    defaults. transformers' own ``offload=True`` offloads the inputs of layers (``ac2.OffloadOptions(inputs=True)``). Raises
    as PolicyScope does for wrong arguments.
    """
    options = {"off_in_eval": True, "off_under_no_grad": True, **options}
    settings_from("install", policy, options)  # wrong arguments are errors here
    with _lock:
        _uninstall()
        model = transformers.PreTrainedModel
        _replace(model, "_set_gradient_checkpointing", _setter(policy, options))
        for name in ("is_gradient_checkpointing", "is_activation_checkpointing"):
            original = model.__dict__.get(name)
            if original is not None:
                _replace(model, name, property(_or_wrapped(original.fget)))


def uninstall() -> None:
    """transformers' own checkpointing again. Models that have checkpointing enabled keep it as it is."""
    with _lock:
        _uninstall()


def _uninstall() -> None:
    for name, original in _originals.items():
        setattr(transformers.PreTrainedModel, name, original)
    _originals.clear()


def _replace(cls: type, name: str, member: Any) -> None:
    _originals[name] = cls.__dict__[name]
    setattr(cls, name, member)


def _or_wrapped(is_checkpointing: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(is_checkpointing)
    def asks(self: Any) -> bool:
        return is_checkpointing(self) or any(settings_of(module) is not None for module in self.modules())

    return asks


def _setter(default_policy: PolicyLike, default_options: Dict[str, Any]) -> Callable[..., None]:
    original = transformers.PreTrainedModel.__dict__["_set_gradient_checkpointing"]

    @functools.wraps(original)
    def _set_gradient_checkpointing(
        self: Any,
        enable: bool = True,
        gradient_checkpointing_func: Optional[Callable[..., Any]] = None,
        every_n_layers: int = 1,
    ) -> None:
        layers = _layers(self)
        for layer in layers:
            unwrap(layer)
        if not enable:
            original(self, enable=False)
            return
        given = dict(getattr(gradient_checkpointing_func, "keywords", None) or {})
        if given.get("context_fn") is torch_checkpoint.noop_context_fn:  # PyTorch's way to say that there is none
            del given["context_fn"]
        # A model's own context_fn says what is saved.
        options = {**default_options, **({} if "context_fn" in given else {"policy": default_policy}), **given}
        if _asks_for_offload(gradient_checkpointing_func):
            options.setdefault("offload", OffloadOptions(inputs=True))
        options.pop("use_reentrant", None)  # some releases of transformers pass it unasked
        settings = settings_from("gradient_checkpointing_kwargs", options.pop("policy", None), options)
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
            wrap(layer, settings)

    return _set_gradient_checkpointing


def _asks_for_offload(function: Optional[Callable[..., Any]]) -> bool:
    """Whether it is what transformers makes of ``offload=True``: its checkpoint function inside of another of its own."""
    inner = getattr(function, "func", None)
    return inner is not transformers.modeling_utils.checkpoint and getattr(inner, "__module__", "") == "transformers.modeling_utils"


def _layers(model: torch.nn.Module) -> List[torch.nn.Module]:
    """Those that transformers checkpoints by itself."""
    try:
        from transformers.modeling_layers import GradientCheckpointingLayer
    except ImportError:  # before 4.53 models called the function themselves
        return []
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _in_a_region(settings: Settings, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if settings.off_under_no_grad and not torch.is_grad_enabled():
        return function(*args, **kwargs)
    with PolicyScope(settings.policy, **settings.options):
        opened_for(function)
        return function(*args, **kwargs)
