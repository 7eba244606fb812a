"""Modules whose forward runs in a region."""

import functools
import threading
import types
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type, TypeVar, Union

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2 import _C, _compiled
from ac2._policy import PolicyLike
from ac2._scope import PolicyScope

_M = TypeVar("_M", bound=torch.nn.Module)

# In the instance's dictionary: (policy, options). Copies and archives carry it along.
_SETTINGS = "_ac2_checkpointing"
_IS_CHECKPOINTED = "_ac2_is_checkpointed"

# Arguments of PyTorch's functions that mean nothing here: see ac2.checkpoint.
_WITHOUT_EFFECT = ("preserve_rng_state", "determinism_check", "debug", "early_stop", "respect_saved_tensors_hooks")

_classes: Dict[type, type] = {}
_classes_lock = threading.Lock()


def _restore(original: type, protocol_result: Tuple[Any, ...]) -> Any:
    """Makes an object of the checkpointed class again, in this process or another."""
    create, arguments = protocol_result
    module = create(*arguments)
    module.__class__ = _checkpointed(original)
    return module


def _checkpointed(original: Type[_M]) -> Type[_M]:
    """The class derived from ``original`` whose forward runs in a region. It has the name of ``original``."""
    with _classes_lock:
        found = _classes.get(original)
        if found is None:
            found = _classes[original] = _make_class(original)
        return found


def _make_class(original: type) -> type:
    @functools.wraps(original.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings = self.__dict__.get(_SETTINGS)
        if settings is None:
            return super(made, self).forward(*args, **kwargs)
        policy, options = settings
        if _compiled.is_tracing():
            if _compiled.can_be_in_a_graph(policy, options):
                return _compiled.checkpoint_in_a_graph(super(made, self).forward, policy, args, kwargs)
            return _compiled.outside_of_graphs(self.forward, args, kwargs)
        with PolicyScope(policy, **options):
            return super(made, self).forward(*args, **kwargs)

    def __reduce_ex__(self: Any, protocol: int) -> Any:
        # Pickle finds classes by name, and the name is the original's.
        reduced = super(made, self).__reduce_ex__(protocol)
        create, arguments = reduced[0], tuple(original if argument is made else argument for argument in reduced[1])
        return (_restore, (original, (create, arguments)), *reduced[2:])

    members = {
        "forward": forward,
        "__reduce_ex__": __reduce_ex__,
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        _IS_CHECKPOINTED: True,
    }
    made = types.new_class(original.__name__, (original,), exec_body=lambda namespace: namespace.update(members))
    return made


def _is_checkpointed(module: torch.nn.Module) -> bool:
    # Of a base too: fully_shard() and others derive from the class that they find.
    return hasattr(type(module), _IS_CHECKPOINTED)


def _is_wrapped(module: torch.nn.Module) -> bool:
    return _SETTINGS in module.__dict__


def _unwrap(module: torch.nn.Module) -> None:
    """Its forward opens no region from now on."""
    module.__dict__.pop(_SETTINGS, None)


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
        **options: as for PolicyScope (memory_budget, verify, ...). The arguments of PyTorch's checkpoint_wrapper that
            only matter where forward runs a second time (preserve_rng_state, early_stop, ...) have no effect.
            offload_to_cpu=True, of fairscale's, offloads the inputs that backward needs:
            offload=ac2.OffloadOptions(inputs=True).

    Raises:
        TypeError: not a module, a compiled or scripted one, or an unknown option.
        ValueError: use_reentrant or checkpoint_impl ask for the reentrant variant, or the policy is wrong.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"checkpoint_wrapper was given {module!r}; expected a torch.nn.Module.")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            "checkpoint_wrapper was given a scripted module, whose class cannot be extended. Open a PolicyScope around the "
            "call: the ops of scripted code are recorded too."
        )
    policy, options = _settings_of(policy, dict(options))
    PolicyScope(policy, **options)  # wrong arguments are errors here, not in the first forward
    if not _is_checkpointed(module):
        module.__class__ = _checkpointed(type(module))
    module.__dict__[_SETTINGS] = (policy, options)
    return module


def _settings_of(policy: PolicyLike, options: Dict[str, Any]) -> Tuple[PolicyLike, Dict[str, Any]]:
    """Without what PyTorch's checkpoint_wrapper takes and has no meaning here."""
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
    if options.pop("offload_to_cpu", False):
        options.setdefault("offload", _C.OffloadOptions(inputs=True))
    if context_fn is not None and context_fn is not torch_checkpoint.noop_context_fn:
        from ac2._checkpoint import _policy_of_context

        of_context, entered = _policy_of_context(context_fn()[0])
        if entered is not None or policy is not None:
            raise ValueError(
                "checkpoint_wrapper takes a context_fn that create_selective_checkpoint_contexts made, and not together "
                "with policy=. Open other contexts in the module's forward."
            )
        policy = of_context
    return policy, options


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

    Args:
        model: it is searched with all its submodules, itself included.
        modules: a pattern over the names of named_modules() ("layers.*"; '*' stays within one part, '**' stands for any
            number of parts), a module class, or a list of these. A module that any of them picks is wrapped.
        check_fn: as for torch's apply_activation_checkpointing: given a module, says whether to wrap it.
        policy, **options: as for checkpoint_wrapper. A MemoryBudget is shared by all; a number of bytes is each one's.

    Raises:
        ValueError: neither or both of modules and check_fn are given, or a pattern or class picks nothing; the message
            names it, and nothing has changed.
    """
    if (modules is None) == (check_fn is None):
        raise ValueError(
            "apply_checkpointing needs either modules= (patterns such as \"layers.*\", or classes) or check_fn=, and not both."
        )
    named = list(model.named_modules())
    if check_fn is not None:
        picked = [name for name, module in named if check_fn(module)]
    else:
        selectors = [modules] if isinstance(modules, (str, type)) else list(modules)  # type: ignore[arg-type]
        chosen = set()
        for selector in selectors:
            names = _picked_by(selector, named)
            if not names:
                some = ", ".join(repr(name) for name, _ in named[1:9])
                raise ValueError(
                    f"apply_checkpointing: {selector!r} picks no module of {type(model).__name__}. Names are those of "
                    f"named_modules(), such as {some}."
                )
            chosen.update(names)
        picked = [name for name, _ in named if name in chosen]
    by_name = dict(named)
    _settings_of(policy, dict(options))
    for name in picked:
        checkpoint_wrapper(by_name[name], policy, **options)
    return picked


def _picked_by(selector: Union[str, type], named: List[Tuple[str, torch.nn.Module]]) -> List[str]:
    if isinstance(selector, type):
        return [name for name, module in named if isinstance(module, selector)]
    if not isinstance(selector, str):
        raise TypeError(f"apply_checkpointing: modules has {selector!r}; expected a pattern such as \"layers.*\" or a class.")
    if not selector:
        return []
    names = [name for name, _ in named]
    return [names[place] for place in _C.match_names(selector, names)]
