#!/usr/bin/env python3
"""Steps of an MLP on the CPU under a memory budget that drops values, and under one that may pack them in 8 bits a number.

    python benchmarks/peers/narrow_or_drop.py

Needs ac2 as installed. Plain steps, steps that drop and steps that narrow take turns. For half and three tenths of the bytes of all
results it prints the median CPU time of a step as a ratio to plain training, the ops that were replayed, the values that were narrowed,
and how far the gradients are from plain training's, all of the last step.
"""

import contextlib
import statistics
import time

import torch

import ac2

LAYERS, WIDTH, BATCH = 12, 1024, 1024
ROUNDS = 8
WARM_UP = 2  # rounds, in which the budgets learn the step


def make_step():
    torch.manual_seed(0)
    weights = [(torch.randn(WIDTH, WIDTH) / WIDTH**0.5).requires_grad_() for _ in range(LAYERS)]
    x = torch.randn(BATCH, WIDTH)

    def step(options):
        for weight in weights:
            weight.grad = None
        y = x
        with ac2.PolicyScope(**options) if options else contextlib.nullcontext() as scope:
            for weight in weights:
                y = torch.nn.functional.gelu(y @ weight)
        y.square().mean().backward()
        return scope, [weight.grad for weight in weights]

    return step


def distance(gradients, plain):
    apart = sum((a - b).square().sum() for a, b in zip(gradients, plain))
    return (apart / sum(b.square().sum() for b in plain)).sqrt().item()


def main():
    torch.set_num_threads(1)
    step = make_step()
    of_all_results = LAYERS * 2 * BATCH * WIDTH * 4
    print("| budget | | step / plain | ops replayed | values narrowed | distance of gradients |\n|---|---|---:|---:|---:|---:|")
    for share in (0.5, 0.3):
        budgets = [ac2.MemoryBudget(int(of_all_results * share)) for _ in range(2)]
        ways = {
            "plain": {},
            "drop": {"memory_budget": budgets[0]},
            "narrow": {"memory_budget": budgets[1], "forms": [ac2.forms.quantized(8)]},
        }
        times = {name: [] for name in ways}
        last = {}
        for round in range(WARM_UP + ROUNDS):
            for name, options in ways.items():
                start = time.process_time()
                last[name] = step(options)
                if round >= WARM_UP:
                    times[name].append(time.process_time() - start)
        plain = statistics.median(times["plain"])
        for name in ("drop", "narrow"):
            scope, gradients = last[name]
            stats = scope.trace.stats()
            print(
                f"| {share} | {name} | {statistics.median(times[name]) / plain:.3f} | {stats.recomputed_ops} | {stats.packed_values} "
                f"| {distance(gradients, last['plain'][1]):.1e} |"
            )


if __name__ == "__main__":
    main()
