"""ac2.integrations: what install() and uninstall() of every library have in common."""

import importlib
import sys
import types
from typing import Any, Dict

import pytest

from integrations_support import PACKAGES, REPLACED, integration
from integrations_support import uninstalls  # noqa: F401: fixtures


def members(library: str) -> Dict[Any, Any]:
    """Functions of the library's modules and members of its classes, and torch.distributed's wrappers."""
    found = {}
    prefixes = PACKAGES.get(library, (library, "transformers") if library == "trl" else (library,))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in prefixes or name.endswith("_checkpoint.checkpoint_wrapper"):
            for member, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, types.FunctionType):
                    found[name, member] = value
                elif isinstance(value, type) and value.__module__ == name:
                    for inner, attribute in vars(value).items():
                        if isinstance(attribute, (types.FunctionType, property)):
                            found[name, member, inner] = attribute
    return found


def same(before: Dict[Any, Any], library: str) -> bool:
    after = members(library)
    return all(after[name] is value for name, value in before.items())


@pytest.mark.parametrize("library", REPLACED)
def test_uninstall_puts_all_back_and_does_nothing_if_it_is_off(library):
    module = integration(library)
    before = members(library)
    module.uninstall()
    assert same(before, library)
    module.install()
    module.install("must_save_all", memory_budget="1MiB")
    assert not same(before, library)
    module.uninstall()
    assert same(before, library)
    module.uninstall()
    assert same(before, library)


@pytest.mark.parametrize("library", REPLACED)
def test_wrong_arguments_are_errors_that_name_them_and_change_nothing(library):
    module = integration(library)
    before = members(library)
    with pytest.raises(ValueError, match='"speeed" is no policy: did you mean "speed"'):
        module.install("speeed")
    with pytest.raises(
        TypeError, match="install was given 'budget', which is no option. Options are policy, memory_budget"
    ):
        module.install(budget=3)
    with pytest.raises(ValueError, match='such as "64MiB"'):
        module.install(memory_budget="64MB")
    assert same(before, library)


@pytest.mark.parametrize("library", REPLACED)
def test_a_library_without_what_is_replaced_is_an_error(library, monkeypatch):
    module = integration(library)
    path, cls, name = REPLACED[library]
    owner = importlib.import_module(path)
    monkeypatch.delattr(getattr(owner, cls) if cls else owner, name)
    before = members(library)
    with pytest.raises(
        RuntimeError,
        match=rf"integrations.{library}.install\(\) reaches nothing: .* has no .*{name}, which .*Install one of",
    ):
        module.install()
    assert same(before, library)


@pytest.mark.parametrize("library", REPLACED)
def test_a_library_that_is_not_installed_is_an_error_that_says_what_to_do(library, monkeypatch):
    for package in PACKAGES.get(library, (library,)):
        monkeypatch.setitem(sys.modules, package, None)
        for name in list(sys.modules):
            if name.startswith(package + "."):
                monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"ac2.integrations.{library}", raising=False)
    with pytest.raises(
        ImportError,
        match=rf"ac2.integrations.{library} needs {library}, which cannot be imported here: .*\(pip install ",
    ):
        importlib.import_module(f"ac2.integrations.{library}")
