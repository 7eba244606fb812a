"""The logits of a large vocabulary and their cross entropy, forward and backward, plain, in one region and in chunks.

    python benchmarks/peers/chunked_loss.py     # 2,048 rows of 256 numbers, 16,384 words, on the CPU

Prints the most bytes that all tensors take during a step, on top of what was there before, as the profiler counts them, and the
least time of three steps as a ratio of the plain one's.
"""

import time

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import ac2

ROWS, COLUMNS, WORDS, STEPS = 2048, 256, 16384, 3

torch.manual_seed(0)
words = torch.randn(WORDS, COLUMNS, requires_grad=True)
hidden = torch.randn(ROWS, COLUMNS, requires_grad=True)
target = torch.randint(WORDS, (ROWS,))


def loss_of(hidden, target):
    return F.cross_entropy(hidden @ words.T, target, reduction="sum")


def in_chunks(count):
    return lambda: ac2.in_chunks(loss_of, hidden, target, chunks=count, reduce="sum")


WAYS = {
    "plain": lambda: loss_of(hidden, target),
    "ac2.checkpoint": lambda: ac2.checkpoint(loss_of, hidden, target),
    "in_chunks, 4": in_chunks(4),
    "in_chunks, 16": in_chunks(16),
    "in_chunks, 64": in_chunks(64),
}


def step(loss):
    hidden.grad = words.grad = None
    loss().backward()


def peak_bytes(loss):
    hidden.grad = words.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss().backward()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def seconds(loss):
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step(loss)
        times.append(time.perf_counter() - start)
    return min(times)


for way in WAYS.values():
    step(way)
plain = seconds(WAYS["plain"])
for name, way in WAYS.items():
    print(f"{name:16} {peak_bytes(way) / 2**20:7.1f} MiB   {seconds(way) / plain:.2f} of plain's time")
