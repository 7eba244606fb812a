"""Modules whose forward runs in a region."""

from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, TypeVar, Union

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2 import _C, _checkpointed_class
from ac2._budgets import as_budget
from ac2._checkpoint import contexts_of, policy_of_context
from ac2._checkpointed_class import Settings
from ac2._policy import PolicyLike, as_flag
from ac2._scope import PolicyScope, region_of

_M = TypeVar("_M", bound=torch.nn.Module)

# Of PolicyScope.
_OPTIONS = (
    "memory_budget", "modelled_costs", "verify", "timeline", "offload", "gather_units", "keep_for_next_backward", "forms")
_ALL_OPTIONS = ("policy", *_OPTIONS, "off_in_eval", "off_under_no_grad")

# Arguments of PyTorch's functions that mean nothing here: see ac2.checkpoint.
_WITHOUT_EFFECT = ("preserve_rng_state", "determinism_check", "debug", "early_stop", "respect_saved_tensors_hooks")


def checkpoint_wrapper(module: _M, policy: PolicyLike = None, **options: Any) -> _M:
    """Makes ``module`` run its forward in a region from now on, and returns it.

        model.encoder = ac2.checkpoint_wrapper(model.encoder, "save_compute_intensive")

    The module stays what it is: its parameters' and submodules' names, its state_dict, isinstance checks, copy.deepcopy
    and pickle are its own. (Its class becomes one derived from it, of the same name.) Wrapping it again exchanges the
    policy.

    Args:
        module: a torch.nn.Module.
        policy: as for PolicyScope. Without one nothing is saved but the inputs. To be pickled with the module it must
            be something that pickle knows: a name, a list of names, a function of a module.
        **options: as for PolicyScope (memory_budget, verify, ...). With off_in_eval=True there is no region while the module
            is in evaluation mode, with off_under_no_grad=True none where no gradient is recorded. The arguments of PyTorch's checkpoint_wrapper that
            only matter where forward runs a second time (preserve_rng_state, early_stop, ...) have no effect.
            offload_to_cpu=True, of fairscale's, offloads the inputs that backward needs:
            offload=ac2.OffloadOptions(inputs=True).

    Raises:
        TypeError: not a module, a compiled or scripted one, or an unknown option.
        ValueError: the module has no forward, as a ModuleList has none; use_reentrant or checkpoint_impl ask for the
            reentrant variant; the policy is wrong.
    """
    _check_module("checkpoint_wrapper", module)
    if not _has_forward(module):
        raise ValueError(
            f"checkpoint_wrapper was given a {type(module).__name__}, which has no forward. Nobody calls it, so that no region "
            "would ever open. Wrap the modules in it."
        )
    _checkpointed_class.wrap(module, settings_from("checkpoint_wrapper", policy, options))
    return module


def _check_module(function: str, module: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{function} was given {module!r}; expected a torch.nn.Module.")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            f"{function} was given a scripted module, whose class cannot be extended. Open a PolicyScope around the call: the "
            "ops of scripted code are recorded too."
        )


def _has_forward(module: torch.nn.Module) -> bool:
    """A ModuleList has none, nor has any other container that is not called."""
    return type(module).forward is not torch.nn.Module.forward or "forward" in module.__dict__


def settings_from(function: str, policy: PolicyLike, given: Dict[str, Any]) -> Settings:
    """Without what PyTorch's checkpoint_wrapper takes and has no meaning here. Wrong arguments are errors of ``function``."""
    options = dict(given)
    implementation = options.pop("checkpoint_impl", None)
    if options.pop("use_reentrant", False) or getattr(implementation, "name", "NO_REENTRANT") == "REENTRANT":
        raise ValueError(
            "checkpoint_wrapper was asked for the reentrant variant, which runs forward a second time. Here it runs once: "
            "leave out checkpoint_impl, or pass use_reentrant=False."
        )
    if options.pop("checkpoint_fn", None) is not None:
        raise ValueError("checkpoint_wrapper was given a checkpoint_fn. In ac2 the policy says what is saved: pass policy=.")
    context_fn = options.pop("context_fn", None)
    for name in _WITHOUT_EFFECT:
        options.pop(name, None)
    if as_flag(options.pop("offload_to_cpu", False), "offload_to_cpu"):
        options.setdefault("offload", _C.OffloadOptions(inputs=True))
    if context_fn is not None and context_fn is not torch_checkpoint.noop_context_fn:
        of_context, entered = policy_of_context(contexts_of(context_fn)[0])
        if entered is not None or policy is not None:
            raise ValueError(
                "checkpoint_wrapper takes a context_fn that create_selective_checkpoint_contexts made, and not together "
                "with policy=. Open other contexts in the module's forward."
            )
        policy = of_context
    else:
        context_fn = None
    off_in_eval, off_under_no_grad = (as_flag(options.pop(name, False), name) for name in ("off_in_eval", "off_under_no_grad"))
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise TypeError(f"{function} was given {unknown[0]!r}, which is no option. Options are {', '.join(_ALL_OPTIONS)}.")
    if "memory_budget" in options:
        options["memory_budget"] = as_budget(options["memory_budget"])
    region_of(policy, **options)  # wrong arguments are errors here, not in the first forward
    return Settings(policy, options, off_in_eval, off_under_no_grad, context_fn)


def with_one_budget(options: Dict[str, Any]) -> Dict[str, Any]:
    """Options in which a number of bytes is a budget that all regions with these options share."""
    budget = as_budget(options.get("memory_budget"))
    if not isinstance(budget, int):
        return options
    return {**options, "memory_budget": _C.MemoryBudget(budget, modelled_costs=options.get("modelled_costs"))}


def apply_checkpointing(
    model: torch.nn.Module,
    *,
    modules: Union[None, str, type, Sequence[Union[str, type]]] = None,
    check_fn: Optional[Callable[[torch.nn.Module], bool]] = None,
    policy: PolicyLike = None,
    **options: Any,
) -> List[str]:
    """Wraps (see checkpoint_wrapper) modules of a finished model, and returns their names.

        ac2.apply_checkpointing(model, modules="layers.*")
        ac2.apply_checkpointing(model, modules=TransformerBlock, policy="save_compute_intensive")
        ac2.apply_checkpointing(model, check_fn=lambda module: isinstance(module, Block))

    Modules without a forward, such as a ModuleList, are passed over.

    Args:
        model: it is searched with all its submodules, itself included.
        modules: a pattern over the names of named_modules() ("layers.*"; '*' stays within one part, '**' stands for any
            number of parts), a module class, or a list of these. A module that any of them picks is wrapped.
        check_fn: as for torch's apply_activation_checkpointing: given a module, says whether to wrap it.
        policy, **options: as for checkpoint_wrapper. All modules share the memory budget, a number of bytes too.

    Raises:
        ValueError: neither or both of modules and check_fn are given, or check_fn, a pattern or a class picks nothing; the
            message names it, and nothing has changed.
    """
    _check_module("apply_checkpointing", model)
    if (modules is None) == (check_fn is None):
        raise ValueError(
            "apply_checkpointing needs either modules= (patterns such as \"layers.*\", or classes) or check_fn=, and not both."
        )
    named = list(model.named_modules())
    by_name = dict(named)
    if check_fn is not None:
        if not callable(check_fn) or isinstance(check_fn, type):
            raise TypeError(
                f"apply_checkpointing: check_fn is {check_fn!r}; expected a function that is given a module and says whether to "
                "wrap it. Classes and patterns go to modules=."
            )
        picked = [name for name, module in named if check_fn(module) and _has_forward(module)]
        if not picked:
            raise ValueError(f"apply_checkpointing: check_fn picks no module of {_described(model, named)}.")
    else:
        if isinstance(modules, torch.nn.Module) or not isinstance(modules, (str, type, Iterable)):
            raise TypeError(
                f"apply_checkpointing: modules is {modules!r}; expected a pattern such as \"layers.*\", a class, or a list of these."
            )
        selectors = [modules] if isinstance(modules, (str, type)) else list(modules)
        if not selectors:
            raise ValueError(f"apply_checkpointing: modules is {modules!r}, which picks no module of {_described(model, named)}.")
        chosen = set()
        for selector in selectors:
            names = _picked_by(selector, named)
            if not names:
                raise ValueError(f"apply_checkpointing: {selector!r} picks no module of {_described(model, named)}.")
            called = [name for name in names if _has_forward(by_name[name])]
            if not called:
                raise ValueError(
                    f"apply_checkpointing: {selector!r} picks {names[0]!r}, a {type(by_name[names[0]]).__name__}, which has no "
                    "forward. Nobody calls it, so that no region would ever open. Pick what is in it, as with "
                    f"modules=\"{names[0]}.*\"."
                )
            chosen.update(called)
        picked = [name for name, _ in named if name in chosen]
    if isinstance(policy, _C.Plan) and len(picked) > 1:
        raise ValueError(
            f"apply_checkpointing was given a plan for {len(picked)} modules, of which each would follow it from its beginning and hold "
            "its bytes. A plan is for the whole of a step: open one PolicyScope(plan) around it, and give modules a policy or a "
            "memory_budget."
        )
    settings = settings_from("apply_checkpointing", policy, with_one_budget(options))
    for name in picked:
        _check_module(f"apply_checkpointing, at {name!r},", by_name[name])
    for name in picked:
        _checkpointed_class.wrap(by_name[name], settings)
    return picked


def _described(model: torch.nn.Module, named: List[Tuple[str, torch.nn.Module]]) -> str:
    name = type(model).__name__
    if len(named) == 1:
        return f"{name}, which has no submodules: wrap it with checkpoint_wrapper(), or open a PolicyScope around its call"
    return f"{name}. Names are those of named_modules(), such as {', '.join(repr(name) for name, _ in named[1:9])}"


def remove_checkpointing(model: torch.nn.Module) -> List[str]:
    """Undoes apply_checkpointing() and checkpoint_wrapper() in a model, and returns the names of the modules that were wrapped.

    Class, pickles and state_dict of each module are as before; a ``forward`` of the instance's stays. A class that others
    have derived from the wrapped module's, as fully_shard() does, stays too, and opens no region any more.
    """
    _check_module("remove_checkpointing", model)
    return [name for name, module in list(model.named_modules()) if _checkpointed_class.unwrap(module)]


def last_trace(module: torch.nn.Module) -> Optional["_C.Trace"]:
    """The trace of the last region of a wrapped module; None if it has had none.

        ac2.apply_checkpointing(model, modules="layers.*")
        loss_fn(model(x), y).backward()
        print(ac2.last_trace(model.layers[0]).stats())

    Inside of another region it is that region's trace. Until the next forward the module keeps the memory of the trace
    itself (64 KiB, and more after some hundred ops), but no tensor.

    Raises:
        ValueError: the module is not wrapped.
    """
    _check_module("last_trace", module)
    if _checkpointed_class.settings_of(module) is None:
        raise ValueError(
            f"last_trace was given a {type(module).__name__} that is not wrapped. checkpoint_wrapper() and "
            "apply_checkpointing() wrap modules, the latter those that it returns the names of."
        )
    return _checkpointed_class.regions_of(module).trace


def _picked_by(selector: Union[str, type], named: List[Tuple[str, torch.nn.Module]]) -> List[str]:
    if isinstance(selector, type):
        return [name for name, module in named if isinstance(module, selector)]
    if not isinstance(selector, str):
        raise TypeError(f"apply_checkpointing: modules has {selector!r}; expected a pattern such as \"layers.*\" or a class.")
    if not selector:
        return []
    names = [name for name, _ in named]
    return [names[place] for place in _C.match_names(selector, names)]
