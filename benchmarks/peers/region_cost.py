"""The least time of a step of ten ops on eight numbers, forward and backward, with a region a step, in microseconds.

    python benchmarks/peers/region_cost.py     # 10 ops, or as many as are given. region_cost.cc is the same from C++
"""

import contextlib
import sys
import time

import torch

import ac2

OPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
ROUNDS, STEPS = 400, 10

torch.set_num_threads(1)
weight = torch.ones(8, requires_grad=True)
shared = ac2.whatever_fits()
SCOPES = {
    "no region": contextlib.nullcontext,
    "recompute_all": lambda: ac2.PolicyScope("recompute_all"),
    "must_save_all": lambda: ac2.PolicyScope("must_save_all"),
    "whatever_fits(), called once": lambda: ac2.PolicyScope(memory_budget=shared),
    "whatever_fits(), called in each step": lambda: ac2.PolicyScope(memory_budget=ac2.whatever_fits()),
}


def step(scope):
    weight.grad = None
    with scope():
        x = weight
        for _ in range(OPS):
            x = x.cos()
        loss = x.sum()
    loss.backward()


def empty(scope):
    with scope():
        pass


for run in (step, empty):
    least = dict.fromkeys(SCOPES, float("inf"))
    for _ in range(ROUNDS):
        for name, scope in SCOPES.items():
            start = time.perf_counter()
            for _ in range(STEPS):
                run(scope)
            least[name] = min(least[name], (time.perf_counter() - start) / STEPS)
    print(run.__name__, {name: round(seconds * 1e6, 1) for name, seconds in least.items()})
