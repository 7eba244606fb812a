"""What a training step costs on the CPU: the most bytes that its tensors take, and the least time of a few."""

import itertools
import time
from typing import Callable, List

from torch.profiler import ProfilerActivity, profile

STEPS = 3


def changes_of_bytes(run: Callable[[], None]) -> List[int]:
    """Each allocation of `run`, and each release as a negative number, in order, as the profiler counts them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    return [event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]


def most_bytes(clear: Callable[[], None], run: Callable[[], None]) -> int:
    """Of `run`, on top of what is there after `clear`."""
    clear()
    return max(itertools.accumulate(changes_of_bytes(run), initial=0))


def least_seconds(clear: Callable[[], None], run: Callable[[], None]) -> float:
    """Of both together."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        clear()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
