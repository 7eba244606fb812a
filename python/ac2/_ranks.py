"""Ranks of a process group that agree on what their memory budgets drop: ``group=`` of the budgets."""

import weakref
from typing import Any

import torch
import torch.distributed

from ac2 import _C

# The runtime keeps what it knows of a group to the end of the process, and must not keep the group's connections.
_ranks_of_group: "weakref.WeakKeyDictionary[Any, _C._RankGroup]" = weakref.WeakKeyDictionary()


def ranks_of(group: Any) -> "_C._RankGroup":
    """The ranks of a process group, the same object for each call with the group.

    Raises TypeError for what is no process group, and ValueError where this process is no rank of it.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise ValueError("group= needs a process group. Call torch.distributed.init_process_group() first, or leave it out.")
    if group is torch.distributed.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("group= is a process group of which this process is no rank. Give each rank the group that it belongs to.")
    if not isinstance(group, torch.distributed.ProcessGroup):
        raise TypeError(f"group is {group!r}; expected a process group, such as torch.distributed.group.WORLD or mesh.get_group().")
    if group not in _ranks_of_group:
        _ranks_of_group[group] = _C._rank_group(_Largest(group))
    return _ranks_of_group[group]


class _Largest:
    """Called with numbers on the CPU: each becomes the largest of all ranks."""

    def __init__(self, group: Any) -> None:
        self._group = weakref.ref(group)

    def __call__(self, numbers: torch.Tensor) -> None:
        group = self._group()
        if group is None:
            raise RuntimeError("The process group of a memory budget (group=) is gone. Make the budget anew for another group.")
        try:
            sent = numbers.to(_device_of(group))
            torch.distributed.all_reduce(sent, op=torch.distributed.ReduceOp.MAX, group=group)
            numbers.copy_(sent)
        except Exception as error:
            raise RuntimeError(
                "The ranks of a memory budget (group=) could not agree on what to drop, because one of them did not answer: it "
                "has ended, or it runs another program. All ranks must run the same backwards through regions of the budget."
            ) from error


def _device_of(group: Any) -> torch.device:
    """Where the group's collectives take tensors: on the CPU if one of its backends does."""
    types = {device.type for device in group._device_types}
    return torch.device("cpu") if not types or "cpu" in types else torch.device(sorted(types)[0])
