"""The logits of a large vocabulary and their cross entropy, forward and backward, plain, in one region and in chunks.

    python benchmarks/peers/chunked_loss.py     # 2,048 rows of 256 numbers, 16,384 words, on the CPU
    python benchmarks/peers/chunked_loss.py --rows 4096 --columns 64 --words 131072 --ways plain,in_chunks-16,fused
    python benchmarks/peers/chunked_loss.py --rows 32768 --columns 64 --words 131072 --ways fused --peak-only

Prints the most bytes that all tensors take during a step, on top of what was there before, as the profiler counts them, and the
least time of three steps as a ratio of the plain one's.
"""

import argparse
import functools

import torch
import torch.nn.functional as F
import torch.utils.checkpoint as torch_checkpoint
from step_costs import least_seconds, most_bytes

import ac2

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=2048)
parser.add_argument("--columns", type=int, default=256)
parser.add_argument("--words", type=int, default=16384)
parser.add_argument("--ways", help="those to run, of the names that a run without this prints")
parser.add_argument("--peak-only", action="store_true", help="one step of each way, without its time")
options = parser.parse_args()

torch.manual_seed(0)
words = torch.randn(options.words, options.columns, requires_grad=True)
hidden = torch.randn(options.rows, options.columns, requires_grad=True)
target = torch.randint(options.words, (options.rows,))


def loss_of(hidden, target):
    return F.cross_entropy(hidden @ words.T, target, reduction="sum")


def in_chunks(count):
    return lambda: ac2.in_chunks(loss_of, hidden, target, chunks=count, reduce="sum")


def fused(count):
    return lambda: ac2.linear_cross_entropy(hidden, words, target, reduction="sum", chunks=count)


WAYS = {
    "plain": lambda: loss_of(hidden, target),
    "torch.checkpoint": lambda: torch_checkpoint.checkpoint(loss_of, hidden, target, use_reentrant=False),
    "ac2.checkpoint": lambda: ac2.checkpoint(loss_of, hidden, target),
    "in_chunks-4": in_chunks(4),
    "in_chunks-16": in_chunks(16),
    "in_chunks-64": in_chunks(64),
    "fused-4": fused(4),
    "fused-16": fused(16),
    "fused": fused(None),
}
if hasattr(F, "linear_cross_entropy"):  # torch 2.15 has it, 2.11 has not
    WAYS["pytorch-fused"] = lambda: F.linear_cross_entropy(
        hidden, words, target, reduction="sum", options=torch.nn.LinearCrossEntropyOptions()
    )


def clear():
    hidden.grad = words.grad = None


def run(loss):
    loss().backward()


if options.ways:
    unknown = set(options.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"--ways has {sorted(unknown)}; expected some of {sorted(WAYS)}")
    WAYS = {name: WAYS[name] for name in options.ways.split(",")}

first = None  # the time of the first way, which the others are compared with
for name, way in WAYS.items():
    of_way = functools.partial(run, way)
    bytes = most_bytes(clear, of_way)
    if options.peak_only:
        print(f"{name:16} {bytes / 2**20:8.1f} MiB", flush=True)
        continue
    seconds = least_seconds(clear, of_way)
    first = seconds if first is None else first
    print(f"{name:16} {bytes / 2**20:8.1f} MiB   {seconds / first:.2f} of the first one's time", flush=True)
