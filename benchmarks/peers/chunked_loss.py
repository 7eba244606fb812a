"""The logits of a large vocabulary and their cross entropy, forward and backward, plain, in one region and in chunks.

    python benchmarks/peers/chunked_loss.py     # 2,048 rows of 256 numbers, 16,384 words, on the CPU

Prints the most bytes that all tensors take during a step, on top of what was there before, as the profiler counts them, and the
least time of three steps as a ratio of the plain one's.
"""

import functools

import torch
import torch.nn.functional as F
from step_costs import least_seconds, most_bytes

import ac2

ROWS, COLUMNS, WORDS = 2048, 256, 16384

torch.manual_seed(0)
words = torch.randn(WORDS, COLUMNS, requires_grad=True)
hidden = torch.randn(ROWS, COLUMNS, requires_grad=True)
target = torch.randint(WORDS, (ROWS,))


def loss_of(hidden, target):
    return F.cross_entropy(hidden @ words.T, target, reduction="sum")


def in_chunks(count):
    return lambda: ac2.in_chunks(loss_of, hidden, target, chunks=count, reduce="sum")


def fused(count):
    return lambda: ac2.linear_cross_entropy(hidden, words, target, reduction="sum", chunks=count)


WAYS = {
    "plain": lambda: loss_of(hidden, target),
    "ac2.checkpoint": lambda: ac2.checkpoint(loss_of, hidden, target),
    "in_chunks, 4": in_chunks(4),
    "in_chunks, 16": in_chunks(16),
    "in_chunks, 64": in_chunks(64),
    "ac2's, fused, 4": fused(4),
    "ac2's, fused, 16": fused(16),
    "ac2's, fused": fused(None),
}
if hasattr(F, "linear_cross_entropy"):  # torch 2.15 has it, 2.11 has not
    WAYS["PyTorch's, fused"] = lambda: F.linear_cross_entropy(
        hidden, words, target, reduction="sum", options=torch.nn.LinearCrossEntropyOptions()
    )


def clear():
    hidden.grad = words.grad = None


def run(loss):
    loss().backward()


for way in WAYS.values():
    clear()
    run(way)
plain = least_seconds(clear, functools.partial(run, WAYS["plain"]))
for name, way in WAYS.items():
    of_way = functools.partial(run, way)
    ratio = least_seconds(clear, of_way) / plain
    print(f"{name:16} {most_bytes(clear, of_way) / 2**20:7.1f} MiB   {ratio:.2f} of plain's time")
