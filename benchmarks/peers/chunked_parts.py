"""An MLP over many tokens and attention over many queries, plain, checkpointed and in chunks, forward and backward on the CPU.

    python benchmarks/peers/chunked_parts.py    # 16,384 tokens of 256 numbers; 8 heads of 2,048 queries, with dropout

Prints the most bytes that all tensors take during a step, on top of what was there before, as the profiler counts them, and the
least time of three steps as a ratio of the plain one's.
"""

import functools

import torch
import torch.nn.functional as F
from step_costs import least_seconds, most_bytes
from torch.utils.checkpoint import checkpoint

import ac2

TOKENS, FEATURES, INNER = 16384, 256, 1024
HEADS, QUERIES, OF_HEAD = 8, 2048, 64

torch.manual_seed(0)
hidden = torch.randn(TOKENS, FEATURES, requires_grad=True)
mlp = torch.nn.Sequential(torch.nn.Linear(FEATURES, INNER), torch.nn.GELU(), torch.nn.Linear(INNER, FEATURES))
query, key, value = (torch.randn(1, HEADS, QUERIES, OF_HEAD, requires_grad=True) for _ in range(3))


def attention():
    return F.scaled_dot_product_attention(query, key, value, dropout_p=0.1)  # of which no fused kernel of the CPU knows


def tiled(chunks):
    return lambda: ac2.tiled_mlp(mlp, hidden, chunks=chunks)


def by_queries(chunks):
    return lambda: ac2.query_chunked_attention(query, key, value, dropout_p=0.1, chunks=chunks)


PARTS = {
    "MLP": {
        "plain": lambda: mlp(hidden),
        "torch.utils.checkpoint": lambda: checkpoint(mlp, hidden, use_reentrant=False),
        "tiled_mlp": tiled(None),
        "tiled_mlp, 4": tiled(4),
    },
    "attention": {
        "plain": attention,
        "torch.utils.checkpoint": lambda: checkpoint(attention, use_reentrant=False),
        "query_chunked_attention": by_queries(None),
        "query_chunked_attention, 2": by_queries(2),
    },
}


def clear():
    for tensor in (hidden, query, key, value, *mlp.parameters()):
        tensor.grad = None


def run(part):
    part().sum().backward()


for name, ways in PARTS.items():
    print(name)
    for way in ways.values():
        clear()
        run(way)
    plain = least_seconds(clear, functools.partial(run, ways["plain"]))
    for way, part in ways.items():
        of_way = functools.partial(run, part)
        ratio = least_seconds(clear, of_way) / plain
        print(f"  {way:27} {most_bytes(clear, of_way) / 2**20:7.1f} MiB   {ratio:.2f} of plain's time")
