"""Errors about the kinds of arguments: they say what was given and what was expected.

Where no form of a function of the binding takes the given arguments, pybind11 raises a TypeError that speaks of the
binding. The functions here replace its text.
"""

import functools
from typing import Any, Callable, Optional

_MISMATCHES = ("incompatible function arguments", "incompatible constructor arguments")


def _expected(documentation: str) -> str:
    """The signature in the first line of what pybind11 writes, in the words of someone who calls it."""
    signature = documentation.split("\n")[0].partition(" -> ")[0]
    # The pybind11 of older LibTorches writes the first of the two alone.
    for kind in ("typing.SupportsInt | typing.SupportsIndex", "typing.SupportsInt"):
        signature = signature.replace(kind, "int")
    return signature.replace("collections.abc.", "")


def _in_words_of_the_caller(error: TypeError, called: str, expected: str, args: tuple, kwargs: dict) -> Optional[TypeError]:
    """None for an error that is about something else."""
    if not any(mismatch in str(error) for mismatch in _MISMATCHES):
        return None
    given = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
    return TypeError(f"{called} was called as {called.rpartition('.')[2]}({given}); expected {expected}.")


def with_readable_errors(prefix: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function of the binding, called ``prefix.name`` in its errors."""
    called = f"{prefix}.{original.__name__}"
    expected = _expected(original.__doc__ or original.__name__)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except TypeError as error:
            readable = _in_words_of_the_caller(error, called, expected, args, kwargs)
            if readable is None:
                raise
        raise readable

    return call


def give_readable_errors(cls: type) -> None:
    """The same for the constructor and the static functions of a class of the binding."""
    original = cls.__init__
    parameters = _expected(original.__doc__ or "").removeprefix(f"__init__(self: {cls.__module__}.{cls.__name__}")
    expected = f"{cls.__name__}({parameters.removeprefix(', ')}"

    @functools.wraps(original)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            return original(self, *args, **kwargs)
        except TypeError as error:
            readable = _in_words_of_the_caller(error, f"ac2.{cls.__name__}", expected, args, kwargs)
            if readable is None:
                raise
        raise readable

    cls.__init__ = construct  # type: ignore[misc]
    for name, member in list(vars(cls).items()):
        if isinstance(member, staticmethod) and not name.startswith("_"):
            setattr(cls, name, staticmethod(with_readable_errors(f"ac2.{cls.__name__}", member.__func__)))
