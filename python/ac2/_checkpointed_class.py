"""The class of a wrapped module: derived from the module's own, of the same name, with a forward that runs in a region."""

import copy
import functools
import threading
import types
import warnings
from typing import Any, Callable, Dict, NamedTuple, Optional, Set, Tuple

import torch

from ac2 import _C, _compiled
from ac2._checkpoint import policy_of_context
from ac2._policy import PolicyLike
from ac2._regions import Regions, checked
from ac2._scope import PolicyScope, region_of

# In the instance's dictionary. Copies and archives carry the settings along, and begin to count anew.
_SETTINGS = "_ac2_checkpointing"
_REGIONS = "_ac2_regions"
_IS_CHECKPOINTED = "_ac2_is_checkpointed"
# Members that a module looks for in its own class, not in bases. Without them torch.fx's recompile() would make another
# _wrapped_call, whose call of the base's __call__ comes back to itself.
_OWN_MEMBERS = ("_wrapped_call",)


class Settings(NamedTuple):
    policy: PolicyLike
    options: Dict[str, Any]  # of PolicyScope
    off_in_eval: bool = False
    off_under_no_grad: bool = False
    context_fn: Optional[Callable[[], Any]] = None  # makes the policy anew for each region

    def policy_of_a_region(self) -> PolicyLike:
        return self.policy if self.context_fn is None else policy_of_context(self.context_fn()[0])[0]


_classes: Dict[type, type] = {}
_classes_lock = threading.Lock()


class _Unannounced:
    """The first base of a checkpointed class whose own class has an __init_subclass__, which does not hear of it: it may want
    keywords, forbid subclasses, or write them into a table in place of the class itself.

    Without __slots__: it has a dictionary as every module has, so that Python finds both of one layout when it exchanges classes.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class _OpenHere(threading.local):
    """The modules whose region is open on this thread, by id."""

    def __init__(self) -> None:
        self.modules: Set[int] = set()


_open_here = _OpenHere()


def settings_of(module: torch.nn.Module) -> Optional[Settings]:
    """None for a module that is not wrapped."""
    return module.__dict__.get(_SETTINGS)


def regions_of(module: torch.nn.Module) -> Regions:
    return module.__dict__.setdefault(_REGIONS, Regions())


def wrap(module: torch.nn.Module, settings: Settings, regions: Optional[Regions] = None) -> None:
    """Its forward opens a region from now on. ``regions`` are those that it had when it was wrapped before."""
    cls = type(module)
    # Of a base too: fully_shard() and others derive from the class that they find.
    if not hasattr(cls, _IS_CHECKPOINTED):
        if _is_injected(module):
            module.__class__ = _with_base(cls, _checkpointed(cls.__bases__[0]))
        else:
            module.__class__ = _checkpointed(cls)
    module.__dict__[_SETTINGS] = settings
    if regions is not None:
        module.__dict__[_REGIONS] = regions


def unwrap(module: torch.nn.Module) -> bool:
    """Its forward opens no region from now on. Its class is its own again, but for one that others have derived from ours.

    Returns whether it was wrapped.
    """
    was_wrapped = module.__dict__.pop(_SETTINGS, None) is not None
    module.__dict__.pop(_REGIONS, None)
    cls = type(module)
    if _is_ours(cls):
        module.__class__ = cls.__bases__[-1]
    elif _is_injected(module) and _is_ours(cls.__bases__[0]):
        module.__class__ = _with_base(cls, cls.__bases__[0].__bases__[-1])
    return was_wrapped


def _is_ours(cls: type) -> bool:
    return _IS_CHECKPOINTED in vars(cls)


def _is_injected(module: torch.nn.Module) -> bool:
    """Whether torch.nn.utils.parametrize has made its class, for this module alone. remove_parametrizations() looks into that
    class, and puts its base in its place, so that ours has to lie below."""
    parametrizations = module.__dict__.get("_modules", {}).get("parametrizations")
    return parametrizations is not None and any(isinstance(vars(type(module)).get(name), property) for name in parametrizations)


def _with_base(cls: type, base: type) -> type:
    members = {name: member for name, member in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    return types.new_class(cls.__name__, (base,), exec_body=lambda namespace: namespace.update(members))


def _checkpointed(original: type) -> type:
    with _classes_lock:
        found = _classes.get(original)
        if found is None:
            found = _classes[original] = _make_class(original)
        return found


def _restore(create: Callable[..., Any], arguments: Tuple[Any, ...]) -> Any:
    """Makes an object of the checkpointed class again, in this process or another."""
    module = create(*arguments)
    module.__class__ = _checkpointed(type(module))
    return module


class _Forward(property):
    """``forward`` of a checkpointed class.

    A data descriptor, which Python asks before the instance's dictionary. There accelerate's mixed precision and hooks, and
    others, put a forward: this runs in the region in the place of the class's. A property, because Dynamo of torch 2.7 looks
    into no other descriptor.
    """

    def __init__(self, of_class: Callable[..., Any]) -> None:
        def get(module: Any) -> Any:
            if "forward" not in module.__dict__:
                return _bound(of_class, module)
            own = module.__dict__["forward"]
            return _bound(_around(own), module) if _SETTINGS in module.__dict__ else own

        def put(module: Any, value: Any) -> None:
            module.__dict__["forward"] = value

        def delete(module: Any) -> None:
            if "forward" not in module.__dict__:
                raise AttributeError("forward")
            del module.__dict__["forward"]

        super().__init__(get, put, delete)
        self._get = get
        self._of_class = of_class
        of_class.fget = get  # type: ignore[attr-defined]  # Dynamo's guards ask the class for the property

    # Without super(), because Dynamo of torch 2.11 traces this method and can look up no slot of a built-in class.
    def __get__(self, module: Any, cls: Any = None) -> Any:
        return self._of_class if module is None else self._get(module)


def _bound(function: Callable[..., Any], module: Any) -> Callable[..., Any]:
    # Dynamo knows no MethodType.
    return functools.partial(function, module) if _compiled.is_tracing() else types.MethodType(function, module)


def _around(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _run(self, own, self.__dict__.get("forward") is own, args, kwargs)

    return forward


def _run(
    module: Any, forward: Callable[..., Any], is_outermost: bool, args: Tuple[Any, ...], kwargs: Dict[str, Any]
) -> Any:
    """``forward(*args, **kwargs)`` in a region of the module's. A forward that was replaced may call the one before it: both
    are in one region. ``is_outermost`` says so to Dynamo, which cannot see what is open."""
    settings = module.__dict__.get(_SETTINGS)
    if (
        settings is None
        or (settings.off_in_eval and not module.training)
        or (settings.off_under_no_grad and not torch.is_grad_enabled())
    ):
        return forward(*args, **kwargs)
    if _compiled.is_tracing():
        if not is_outermost:
            return forward(*args, **kwargs)
        if _compiled.can_be_in_a_graph(settings.policy, settings.options):
            return _compiled.checkpoint_in_a_graph(forward, settings.policy, args, kwargs)
        return _compiled.outside_of_graphs(module.forward, args, kwargs)
    modules = _open_here.modules
    if id(module) in modules and _C.is_checkpoint_enabled():
        return forward(*args, **kwargs)
    is_first = id(module) not in modules
    with region_of(settings.policy_of_a_region(), **settings.options) as scope:
        regions_of(module).opened(scope.trace)
        try:
            modules.add(id(module))
            return checked(forward(*args, **kwargs), module)
        finally:
            if is_first:
                modules.discard(id(module))


def _make_class(original: type) -> type:
    made: Any = None

    @functools.wraps(original.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A caller that has kept this function may call it when the module's class is its own again.
        plain = super(made, self).forward if isinstance(self, made) else types.MethodType(original.forward, self)
        return _run(self, plain, "forward" not in self.__dict__, args, kwargs)

    def __reduce_ex__(self: Any, protocol: int) -> Any:
        # Pickle finds classes by name, and the name is the original's.
        create, arguments, *state = super(made, self).__reduce_ex__(protocol)
        arguments = tuple(original if argument is made else argument for argument in arguments)
        if state and isinstance(state[0], dict):
            state[0] = {name: value for name, value in state[0].items() if name != _REGIONS}
        return (_restore, (create, arguments), *state)

    def copied_by(name: str) -> Callable[..., Any]:
        # torch.fx's graph modules copy themselves: into a new class, without what they do not know.
        @functools.wraps(getattr(original, name))
        def copied(self: Any, *memo: Any) -> Any:
            other = getattr(super(made, self), name)(*memo)
            settings = settings_of(self)
            if settings is not None and settings_of(other) is None:
                wrap(other, copy.deepcopy(settings, *memo) if memo else settings)
            return other

        return copied

    def __prepare_scriptable__(self: Any) -> Any:
        if settings_of(self) is not None:
            warnings.warn(
                f"torch.jit.script compiles the forward of {original.__name__} itself: no region opens where the scripted module "
                "runs. Open an ac2.PolicyScope around the call of the scripted module; its ops are recorded too.",
                stacklevel=2,
            )
        prepare = getattr(super(made, self), "__prepare_scriptable__", None)
        return self if prepare is None else prepare()

    class Kind(type(original)):  # type: ignore[misc]
        def __setattr__(cls, name: str, value: Any) -> None:
            if name != "forward" or not _is_ours(cls):
                super().__setattr__(name, value)
            else:
                # Code that replaces the forward of the class that it finds replaces the forward of the module's own class.
                setattr(original, name, value)

    members = {
        "forward": _Forward(forward),
        "__reduce_ex__": __reduce_ex__,
        "__prepare_scriptable__": __prepare_scriptable__,
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        _IS_CHECKPOINTED: True,
        **{name: vars(original)[name] for name in _OWN_MEMBERS if name in vars(original)},
        **{name: copied_by(name) for name in ("__copy__", "__deepcopy__") if hasattr(original, name)},
    }
    # GraphModules, which have none, look for their own class at this place.
    announces = hasattr(original.__init_subclass__, "__func__")  # not object's, which is written in C
    bases = (_Unannounced, original) if announces else (original,)
    made = types.new_class(
        original.__name__, bases, {"metaclass": Kind}, exec_body=lambda namespace: namespace.update(members)
    )
    return made
