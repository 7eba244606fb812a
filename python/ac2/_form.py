"""The class of forms, and lists of forms in the ways in which people give them."""

import abc
from typing import Any, List, Optional, Sequence, Tuple

import torch


class Form(abc.ABC):
    """A way in which a value is held for backward other than as it is: fewer bits, the host's memory, a file.

        class Halves(ac2.Form):
            name = "halves"
            is_exact = False

            def pack(self, tensor):
                return tensor.half() if tensor.dtype is torch.float32 else None

            def unpack(self, packed):
                return packed.float()

        with ac2.PolicyScope(memory_budget="8GiB", forms=[Halves()]):
            ...

    A memory budget and a plan take forms as ``forms=``, and use each where it costs less than to compute the value again. A
    form may also be the decision of a policy, or a policy. ``ac2.forms`` has the ready-made ones.

    ``name`` says all that is needed to make the form again, as "quantized 8 bits, seed 0": reports and plans' files use it.
    ``is_exact`` says that what is unpacked has the bits of what was packed. Both are read once, when the form is first used, and
    must not change: a form is one and the same wherever it is used, so that copy.copy() and copy.deepcopy() return it as it
    is. Any number of threads may call its functions at once.
    """

    name: str
    is_exact: bool

    @abc.abstractmethod
    def pack(self, tensor: torch.Tensor) -> Any:
        """Returns any object from which unpack() makes the tensor again, or None: the form does not take this tensor.

        ``tensor`` is a whole storage, dense, without a gradient. It must not be written to, which is an error, nor kept. If it
        is returned, or a view of it, ac2 holds a copy; if an object hides it, pack() is called again, with a copy that belongs to
        the form alone. The bytes of tensors that are returned, alone or in a tuple, count where those of the value did; what other
        objects hold does not. What it raises reaches the program as itself, from the op that needed the value or the room.
        """

    @abc.abstractmethod
    def unpack(self, packed: Any) -> torch.Tensor:
        """Returns a tensor of the sizes, dtype and device of the one that was packed; its strides may differ.

        It runs in backward, each time the value is needed, on any thread.
        """

    def takes(self, bytes: int, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether there is any use in calling pack() for such a tensor. ``bytes`` are those of the whole storage."""
        return True

    def estimate(self, bytes: int, dtype: torch.dtype, device: torch.device) -> Optional[Tuple[int, float, float]]:
        """What the form comes to for such a tensor, if that is known before packing: (bytes, pack_cost, unpack_cost).

        The unit of costs is that of modelled costs, nanoseconds of an imagined machine whose copy of a tensor takes a
        nanosecond for 5 bytes. None, as here: it is found by packing.
        """
        return None

    def __copy__(self) -> "Form":
        return self

    def __deepcopy__(self, memo: Any) -> "Form":
        return self


def as_forms(given: Optional[Sequence[Form]], name: str = "forms") -> List[Form]:
    """Raises TypeError for what is no list of forms, ValueError for one that is there twice."""
    if given is None:
        return []
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{name} is {given!r}; expected a list of forms, such as [ac2.forms.one_bit()].")
    names: List[str] = []
    for place, form in enumerate(given):
        if not isinstance(form, Form):
            raise TypeError(
                f"{name}[{place}] is {form!r}; expected a form: ac2.forms.one_bit(), or an object of a class that is derived from "
                "ac2.Form."
            )
        form_name = getattr(form, "name", None)
        if form_name in names:
            raise ValueError(
                f'{name} has the form "{form_name}" twice. Give each form once; what it costs is learned for both together.'
            )
        names.append(form_name)
    return list(given)
