"""The ready-made forms, for the ``forms=`` of PolicyScope, plan and StepPlanner, and as decisions of policies.

| form                   | holds a value                                     | exact           |
|------------------------|---------------------------------------------------|-----------------|
| host_memory()          | in pinned memory of the host                      | yes             |
| quantized(8)           | in 8 or 4 bits a number                           | no              |
| narrow(torch.bfloat16) | in a narrower floating-point format               | no              |
| one_bit()              | in one bit a number, if it has two numbers        | yes             |
| file("/scratch")       | in a file without a name                          | yes             |
| functions(pack, unpack)| as two functions of the program's make of it      | if exact=True   |

A form of the program's own is a class that is derived from ``ac2.Form``. Forms are equal if they were made by the same call,
and can be stored by pickle, but for those of functions.
"""

import os
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch

from ac2 import _C
from ac2._form import Form

__all__ = ["file", "functions", "host_memory", "narrow", "one_bit", "quantized"]

_DEFAULTS = _C.OffloadOptions()


class _Made(Form):
    """A form of the runtime's."""

    def __init__(self, call: str, args: Tuple[Any, ...], options: Dict[str, Any], made: "_C.LibraryForm") -> None:
        self._call = (call, args, options)
        self._made = made

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._made.name

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return self._made.is_exact

    def takes(self, bytes: int, dtype: torch.dtype, device: torch.device) -> bool:
        return self._made.takes(bytes, dtype, device)

    def estimate(self, bytes: int, dtype: torch.dtype, device: torch.device) -> Optional[Tuple[int, float, float]]:
        return self._made.estimate(bytes, dtype, device)

    def pack(self, tensor: torch.Tensor) -> Any:
        """An object that unpack() takes, and nothing else; None if the form does not take this tensor."""
        return self._made.pack(tensor)

    def unpack(self, packed: Any) -> torch.Tensor:
        return self._made.unpack(packed)

    def __repr__(self) -> str:
        call, args, options = self._call
        given = [*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())]
        return f"ac2.forms.{call}({', '.join(given)})"

    def __eq__(self, other: object) -> bool:
        return self._call == other._call if isinstance(other, _Made) else NotImplemented

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> Any:
        return _make, self._call


class _OfFunctions(Form):
    def __init__(self, pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor], exact: bool) -> None:
        self._made = _C.SaveWithHooks._with_exact(pack, unpack, exact)
        self._exact = exact

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._made._name

    @property
    def is_exact(self) -> bool:  # type: ignore[override]
        return self._exact

    def pack(self, tensor: torch.Tensor) -> Any:
        return self._made.pack(tensor)

    def unpack(self, packed: Any) -> torch.Tensor:
        return self._made.unpack(packed)

    def __repr__(self) -> str:
        exact = ", exact=True" if self._exact else ""
        return f"ac2.forms.functions({self._made.pack!r}, {self._made.unpack!r}{exact})"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"pickle was given {self!r}, which is made of functions of this process. Make a class that is derived from ac2.Form "
            "instead, at the top level of a module: its objects can be stored."
        )


def _make(call: str, args: Tuple[Any, ...], options: Dict[str, Any]) -> Form:
    return globals()[call](*args, **options)


def _check_whole_number(function: str, what: str, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"ac2.forms.{function} was given {given!r} as its {what}; expected a whole number.")


def host_memory(
    *,
    min_bytes: int = _DEFAULTS.min_bytes,
    inputs: bool = _DEFAULTS.inputs,
    read_ahead_bytes: int = _DEFAULTS.read_ahead_bytes,
    in_flight_bytes: int = _DEFAULTS.in_flight_bytes,
    max_pinned_bytes: int = _DEFAULTS.max_pinned_bytes,
) -> Form:
    """In pinned memory of the host, copied beside the ops. Exact.

    Takes tensors of at least ``min_bytes`` on an accelerator. The options are those of ``ac2.OffloadOptions``. In a list of
    forms they hold for what leaves the device there. As the decision of a policy the form means ``MUST_CPU_OFFLOAD``, whose
    options are the scope's (``offload=``), so that options given here are an error.

    Raises:
        ValueError, TypeError: an option that OffloadOptions does not take.
    """
    given = {
        "min_bytes": min_bytes,
        "inputs": inputs,
        "read_ahead_bytes": read_ahead_bytes,
        "in_flight_bytes": in_flight_bytes,
        "max_pinned_bytes": max_pinned_bytes,
    }
    made = _C.host_memory_form(_C.OffloadOptions(**given))  # which names what is wrong
    return _Made("host_memory", (), {name: value for name, value in given.items() if value != getattr(_DEFAULTS, name)}, made)


def quantized(bits: int, *, seed: int = 0) -> Form:
    """In 8 or 4 bits a number, and the range of each 256 numbers; rounded at random, by the seed. Inexact.

    Takes floating-point tensors, and bools exactly, on devices with kernels for it. docs/quantisation.md has the bound on
    the error.

    Raises:
        ValueError: other bits. For one bit a number see one_bit(), for 16 narrow().
    """
    _check_whole_number("quantized", "bits", bits)
    _check_whole_number("quantized", "seed", seed)
    if bits not in (8, 4):
        raise ValueError(
            f"ac2.forms.quantized was given {bits} bits; expected 8 or 4. For one bit a number see ac2.forms.one_bit, for 16 "
            "ac2.forms.narrow."
        )
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"ac2.forms.quantized was given the seed {seed}; expected one of 0 to 2**64 - 1.")
    return _Made("quantized", (bits,), {"seed": seed} if seed else {}, _C.quantized_form(bits, seed))


def narrow(dtype: torch.dtype) -> Form:
    """In a narrower floating-point format: torch.bfloat16, float16, float8_e4m3fn or float8_e5m2. Inexact.

    Raises:
        ValueError: another format.
    """
    formats = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"ac2.forms.narrow was given {dtype!r}; expected a dtype, such as torch.bfloat16.")
    if dtype not in formats:
        raise ValueError(f"ac2.forms.narrow was given {dtype}; expected one of {', '.join(map(str, formats))}.")
    return _Made("narrow", (dtype,), {}, _C.narrow_form(dtype))


def one_bit() -> Form:
    """In one bit a number, what has at most two numbers. Exact.

    Takes bools on any device, and on the CPU floating-point tensors such as a dropout's mask {0, 1/(1-p)}. Whether a tensor
    has two numbers is found by looking at it.
    """
    return _Made("one_bit", (), {}, _C.one_bit_form())


def file(directory: Union[str, "os.PathLike[str]"]) -> Form:
    """In files without a name in the directory. Exact. Takes tensors of at least 64 KiB on any device.

    Where a file cannot grow, a tensor is not taken, and that is said once.

    Raises:
        ValueError: a directory in which no file can be made.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise TypeError(f"ac2.forms.file was given {directory!r}; expected the path of a directory: a text or an os.PathLike.")
    path = os.fsdecode(directory)
    if not path:
        raise ValueError('ac2.forms.file was given "" as its directory; expected the path of one in which this process may write.')
    return _Made("file", (path,), {}, _C.file_form(path))


def functions(pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor], exact: bool = False) -> Form:
    """As two functions of the program's make of it, which are as Form.pack and Form.unpack.

    The name has a number that no other form has, and a plan's file cannot name the form. Where such a form is the decision
    of a policy it is what ``ac2.SaveWithHooks`` is: None is a packed value like any other.

    Args:
        exact: what is unpacked has the bits of what was packed.
    """
    for name, function in (("pack", pack), ("unpack", unpack)):
        if not callable(function):
            raise TypeError(f"ac2.forms.functions was given {function!r} as {name}; expected a function.")
    if not isinstance(exact, bool):
        raise TypeError(f"exact is {exact!r}; expected True or False.")
    return _OfFunctions(pack, unpack, exact)


_FORMATS = {
    "bfloat16": torch.bfloat16,
    "half": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


def forms_of_list(text: str, option: str) -> List[Form]:
    """The forms of a list as a command line has it: "one_bit,file:/scratch,quantized:8,narrow:bfloat16,host_memory".

    Raises:
        ValueError: an item that is no form; the text names ``option``.
    """
    made: List[Form] = []
    for item in filter(None, text.split(",")):
        kind, _, value = item.partition(":")
        if item == "one_bit":
            made.append(one_bit())
        elif item == "host_memory":
            made.append(host_memory())
        elif kind == "file" and value:
            made.append(file(value))
        elif kind == "quantized" and value in ("8", "4"):
            made.append(quantized(int(value)))
        elif kind == "narrow" and value in _FORMATS:
            made.append(narrow(_FORMATS[value]))
        else:
            raise ValueError(
                f'{option} has "{item}"; expected some of one_bit, file:FOLDER, quantized:8, quantized:4, narrow:bfloat16 (or '
                "half, float8_e4m3fn, float8_e5m2) and host_memory, with commas between them."
            )
    return made
