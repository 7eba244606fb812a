"""What a training step costs on the CPU: the most bytes that its tensors take, and the least time of a few."""

import time
from typing import Callable

from torch.profiler import ProfilerActivity, profile

STEPS = 3


def most_bytes(clear: Callable[[], None], run: Callable[[], None]) -> int:
    """Of `run`, on top of what is there after `clear`, as the profiler counts them."""
    clear()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def least_seconds(clear: Callable[[], None], run: Callable[[], None]) -> float:
    """Of both together."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        clear()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
