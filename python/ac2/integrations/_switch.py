"""The common part of the integrations: they replace functions of a library, put them back, and call them in regions."""

import functools
import sys
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Tuple

import torch
import torch.utils.checkpoint as torch_checkpoint

from ac2 import _C, _compiled
from ac2._checkpointed_class import Settings
from ac2._modules import settings_from, with_one_budget
from ac2._policy import PolicyLike
from ac2._regions import checked, opened_for
from ac2._scope import region_of

_Function = Callable[..., Any]


class Replacement(NamedTuple):
    owner: Any  # a module or a class
    name: str
    member: Any


_INHERITED = object()  # what a class had from those that it is derived from


class Switch:
    """The ``install()`` and ``uninstall()`` of one integration.

    Args:
        library: its name, for errors.
        replacements: says what is to be replaced. It is called each time that the switch is turned on, with the library
            as it is by itself, and calls not_found() if the library lacks what is replaced.
        *other_names: packages that are the library, too.
        when_off: is called when the switch has been turned off, but not where it is turned on again.
    """

    def __init__(
        self,
        library: str,
        replacements: Callable[["Switch"], Iterable[Replacement]],
        *other_names: str,
        when_off: Optional[Callable[[], None]] = None,
    ) -> None:
        self.library = library
        self._when_off = when_off
        self.settings: Optional[Settings] = None  # None while it is off
        self._packages = (library, *other_names)
        self._replacements = replacements
        self._lock = threading.RLock()
        self._replaced: List[Tuple[Replacement, Any]] = []  # with what was there

    def install(self, policy: PolicyLike, options: Dict[str, Any]) -> None:
        """Wrong arguments are errors before anything changes. Installing again exchanges policy and options."""
        given = {"off_in_eval": True, "off_under_no_grad": True, **with_one_budget(options)}
        settings = settings_from("install", policy, given)
        with self._lock:
            self._put_back()
            replacements = list(self._replacements(self))
            for replacement in replacements:
                self._replaced.append((replacement, vars(replacement.owner).get(replacement.name, _INHERITED)))
                setattr(*replacement)
            self.settings = settings

    def uninstall(self) -> None:
        """Does nothing if it is off. Functions that others have put over a replacement stay, and get the library's own
        function from it."""
        with self._lock:
            was_on = self.settings is not None
            self._put_back()
            if was_on and self._when_off is not None:
                self._when_off()

    def _put_back(self) -> None:
        with self._lock:
            self.settings = None
            for replacement, original in reversed(self._replaced):
                if vars(replacement.owner).get(replacement.name) is replacement.member:
                    if original is _INHERITED:
                        delattr(replacement.owner, replacement.name)
                    else:
                        setattr(replacement.owner, replacement.name, original)
            self._replaced.clear()

    def instead_of(self, original: _Function, ours: _Function) -> _Function:
        """Calls ``ours(settings, ...)`` while the switch is on, and ``original(...)`` for who keeps it when it is
        off."""

        @functools.wraps(original)
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            settings = self.settings
            return original(*args, **kwargs) if settings is None else ours(settings, *args, **kwargs)

        return stand_in

    def everywhere(self, stand_ins: Dict[_Function, _Function]) -> Iterator[Replacement]:
        """Puts them in the place of their originals in the library's modules, by whatever names these have imported
        them."""
        by_id = {id(original): stand_in for original, stand_in in stand_ins.items()}
        for name, module in list(sys.modules.items()):
            members = getattr(module, "__dict__", None)
            if name.partition(".")[0] in self._packages and type(members) is dict:
                for member, value in list(members.items()):
                    if id(value) in by_id:
                        yield Replacement(module, member, by_id[id(value)])

    def member(self, owner: Any, name: str) -> Any:
        """The library's member of that name; not_found() if there is none."""
        if name not in vars(owner):
            self.not_found(f"{getattr(owner, '__qualname__', owner.__name__)}.{name}")
        return vars(owner)[name]

    def not_found(self, expected: str) -> NoReturn:
        packages = [sys.modules.get(name) for name in (*self._packages, self.library + ".core")]
        version = next((package.__version__ for package in packages if hasattr(package, "__version__")), "")
        raise RuntimeError(
            f"ac2.integrations.{self.library}.install() reaches nothing: the {self.library} {version} that is "
            f"installed has no {expected}, which the releases named in docs/python.md of ac2 have. Install one of "
            "them, or wrap the layers with ac2.apply_checkpointing(model, modules=...), which needs no library's switch."
        )


def cannot_import(library: str, error: ImportError, package: str = "") -> ImportError:
    """To be raised in the place of an error of ``import library``."""
    return ImportError(
        f"ac2.integrations.{library} needs {library}, which cannot be imported here: {error}. Install it (pip install "
        f"{package or library}), or use ac2.checkpoint and ac2.apply_checkpointing, which need no library."
    )


def with_given(function: str, settings: Settings, given: Dict[str, Any]) -> Settings:
    """``settings``, but for what is given for one model. A model's own context_fn says what is saved."""
    given = dict(given)
    if given.get("context_fn") is torch_checkpoint.noop_context_fn:  # PyTorch's way to say that there is none
        del given["context_fn"]
    policy = None if "context_fn" in given else settings.policy
    options = {
        "policy": policy,
        **settings.options,
        "off_in_eval": settings.off_in_eval,
        "off_under_no_grad": settings.off_under_no_grad,
        **given,
    }
    return settings_from(function, options.pop("policy"), options)


def offloading_inputs(settings: Settings) -> Settings:
    """``settings`` with the inputs of regions offloaded, unless they say otherwise."""
    if settings.options.get("offload") is not None:
        return settings
    return settings._replace(options={**settings.options, "offload": _C.OffloadOptions(inputs=True)})


def run_in_region(settings: Settings, function: _Function, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """``function(*args, **kwargs)``, where the settings want no region without one."""
    if settings.off_under_no_grad and not torch.is_grad_enabled():
        return function(*args, **kwargs)
    if settings.off_in_eval and not _is_in_training(function):
        return function(*args, **kwargs)
    if _compiled.is_tracing():
        if _compiled.can_be_in_a_graph(settings.policy, settings.options):
            return _compiled.checkpoint_in_a_graph(function, settings.policy, args, kwargs)
        return _compiled.outside_of_graphs(run_in_region, (settings, function, args, kwargs), {})
    with region_of(settings.policy_of_a_region(), **settings.options):
        opened_for(function)
        return checked(function(*args, **kwargs), function)


def _is_in_training(function: Any) -> bool:
    """Of a module, a method of one, or what else has the attribute. Other functions do not tell, and are taken for
    being so."""
    while isinstance(function, functools.partial):
        function = function.func
    return bool(getattr(getattr(function, "__self__", function), "training", True))
