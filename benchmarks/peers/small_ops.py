"""The least time that ops on eight numbers take, in microseconds, while a graph is alive (docs/launcher.md).

    python benchmarks/peers/small_ops.py            # beside
    python -m ac2 benchmarks/peers/small_ops.py
"""

import time

import torch

ROUNDS, OPS = 60, 200

x = torch.ones(8)
weight = torch.ones(8, requires_grad=True)
graph = (weight * weight).sum()  # backward is never asked for


def assign():
    x[2] = 1.0


CALLS = {
    "cos": lambda: x.cos(),
    "mul": lambda: x * x,
    "cumsum": lambda: x.cumsum(0),
    "outer": lambda: torch.outer(x, x),
    "add_(1)": lambda: x.add_(1),
    "x[2] = 1": assign,
    "x[0].item()": lambda: x[0].item(),
}


def least(call):
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(OPS):
            call()
        times.append((time.perf_counter() - start) / OPS)
    return round(min(times) * 1e6, 2)


with torch.no_grad():
    print("under no_grad():", {name: least(call) for name, call in CALLS.items()})
print("with grad mode on:", {name: least(call) for name, call in CALLS.items()})
