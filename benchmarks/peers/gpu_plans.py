#!/usr/bin/env python3
"""Planned steps of an MLP on a GPU, with and without copies to the host's memory: ac2.StepPlanner.

    python benchmarks/peers/gpu_plans.py

Needs ac2 as installed. Measures plain training, its forward and the speed of copies to the host first. For plans within half and
three tenths of the bytes that a plain step takes beside parameters and gradients it prints the median time of a step, as a ratio to
plain training, the ratio that the plan expects, the peak, and what is computed again and copied.
Ends with an error if a gradient differs from that of plain training in one bit.
"""

import statistics
import sys
import time

import torch

import ac2

LAYERS, WIDTH, BATCH = 16, 2048, 16384
MIB = 1 << 20
STEPS = 5


def make_model():
    torch.manual_seed(0)
    layers = (
        torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)
        )
        for _ in range(LAYERS)
    )
    return torch.nn.Sequential(*layers).cuda()


def seconds(run):
    taken = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def seconds_and_peak(run):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    taken = seconds(run)
    return taken, torch.cuda.max_memory_allocated() - before


def bytes_a_second():
    there = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    here = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    return there.nbytes / seconds(lambda: here.copy_(there, non_blocking=True))


def main():
    if not torch.cuda.is_available():
        sys.exit("gpu_plans: no GPU")
    model, x = make_model(), torch.randn(BATCH, WIDTH, device="cuda")

    def step():
        model(x).square().mean().backward()

    def gradients_of(run):
        model.zero_grad()
        run()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        return found

    step()
    expected = gradients_of(step)
    step()
    plain, plain_peak = seconds_and_peak(step)
    with torch.no_grad():
        forward = seconds(lambda: model(x))
    speed = bytes_a_second()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: plain {plain * 1e3:.1f} ms, {plain_peak // MIB} MiB; forward "
          f"{forward * 1e3:.1f} ms; copies {speed / 1e9:.1f} GB/s")
    for share in (0.5, 0.3):
        for copies in ({}, {"forms": [ac2.forms.host_memory()], "copy_bytes_per_forward": speed * forward}):
            model.zero_grad()
            plan = ac2.StepPlanner(step, modelled_costs=True, **copies).plan(int(share * plain_peak))

            def planned():
                with ac2.PolicyScope(plan):
                    loss = model(x).square().mean()
                loss.backward()

            planned()
            if not all(torch.equal(a, b) for a, b in zip(gradients_of(planned), expected)):
                sys.exit("gpu_plans: a gradient differs from that of plain training")
            planned()
            taken, peak = seconds_and_peak(planned)
            summary = plan.summary
            copied = summary.uses[0] if summary.uses else ac2.FormUse("host memory", 0, 0, 0.0)
            expects = 1 + (summary.replay_cost + copied.cost) / summary.forward_cost * forward / plain
            print(f"{share} of it, {'copies' if copies else 'replays alone'}: {taken / plain:.3f}, the plan expects {expects:.3f}; peak "
                  f"{peak // MIB} MiB, of them {summary.peak_bytes // MIB} planned; {summary.replayed_ops} ops replayed, "
                  f"{copied.values} values of {copied.bytes // MIB} MiB copied")


if __name__ == "__main__":
    main()
