"""Memory budgets in the forms in which people give them."""

import operator
from typing import Any, Optional, Union

import torch.distributed

from ac2 import _C
from ac2._policy import as_flag

BudgetLike = Union[None, int, str, "_C.MemoryBudget"]


def as_bytes(given: Any, name: str = "bytes") -> int:
    """The number of bytes, for the constructors of MemoryBudget too. None and a MemoryBudget are none."""
    if not isinstance(given, str) and _integer(given) is None:
        raise TypeError(f"{name} is {given!r}; expected a number of bytes, or a text such as \"64MiB\".")
    budget = as_budget(given, name)
    assert isinstance(budget, int)
    return budget


def as_budget(budget: Any, name: str = "memory_budget") -> Union[None, int, "_C.MemoryBudget"]:
    """The number of bytes, the MemoryBudget, or None.

    Raises ValueError for what is no positive number of bytes, TypeError for what is none of the kinds of a budget.
    """
    if budget is None or isinstance(budget, _C.MemoryBudget):
        return budget
    if isinstance(budget, str):
        return _C.parse_bytes(budget, name)
    count = _integer(budget)
    if count is None:
        raise TypeError(
            f"{name} is {budget!r}; expected a number of bytes, a text such as \"64MiB\", or an ac2.MemoryBudget."
        )
    return _checked(count, budget, name)


def _integer(given: Any) -> Optional[int]:
    """None for what is none, as a tensor that has a fraction or several elements."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


def models_costs(given: Any, group: Any = None) -> bool:
    """Whether costs of ops come from their shapes: as given, or, if None is, where a process group is initialised.

    Clocks differ between the processes of a job, and with them what each process would choose to drop.
    """
    if group is not None:
        if given is not None and not as_flag(given, "modelled_costs"):
            raise ValueError("modelled_costs=False and a group: ranks that agree need costs from shapes. Leave modelled_costs out.")
        return True
    if given is None:
        return torch.distributed.is_available() and torch.distributed.is_initialized()
    return as_flag(given, "modelled_costs")


def made_by(function: str, count: Optional[int], modelled_costs: bool) -> "_C.MemoryBudget":
    """The budget that a function of ac2 makes, named as in "MemoryBudget.peak": what a pickle of a budget has."""
    arguments = () if count is None else (count,)
    return operator.attrgetter(function)(_C)(*arguments, modelled_costs=modelled_costs)


def note_memory_fraction() -> None:
    """Tells the runtime the part of the current GPU's memory that PyTorch's allocator may have.

    ``torch.cuda.set_per_process_memory_fraction`` sets it. The runtime is built without CUDA and cannot ask for it.
    """
    if torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        _C.note_memory_fraction(device, torch.cuda.get_per_process_memory_fraction(device))


def _checked(count: int, given: Any, name: str) -> int:
    if not 0 < count < 1 << 63:
        raise ValueError(f"{name} is {given!r}; expected a positive number of bytes, below 2**63.")
    return count
