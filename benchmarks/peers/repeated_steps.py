"""What a repeated step costs under a budget that learns from the steps before, beside a plan for the same bytes.

    python benchmarks/peers/repeated_steps.py                              # soft budgets; some minutes
    python benchmarks/peers/repeated_steps.py --address-space 3550 3450    # whatever_fits() in so many MiB, as of `ulimit -v`

The step is that of unmodified_gpt.py, its optimizer included, on one thread. A budget has one region around all steps, as under
`python -m ac2`. A plan, which knows the step before it begins, has a region for each, and the bytes of the budget. Of
whatever_fits() the bytes are those that it held after a module's forward, at most, in the later steps: the plan has the median of
them, and runs without a limit.

Prints a table. Times are CPU seconds of a step, because a clock would count what else the machine does; medians of the third and
later steps. "cost" is such a time by that of the planned step, and "of plain" by that of a plain one.
Ends with an error if a loss differs from plain training's in one bit.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import torch

import ac2

MIB = 1 << 20


class Training:
    """The program's model, optimizer and texts, from the beginning."""

    def __init__(self):
        source = (pathlib.Path(__file__).parent / "unmodified_gpt.py").read_text()
        self._program = {"__name__": "unmodified_gpt"}
        exec(source[: source.rindex("\nmain()")], self._program)
        torch.manual_seed(0)
        self.model = self._program["GPT"]()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def loss(self):
        words, shape = self._program["VOCABULARY"], (self._program["SEQUENCES"], self._program["TOKENS"] + 1)
        text = torch.randint(words, shape)
        return torch.nn.functional.cross_entropy(self.model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    def end(self, loss):
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.item().hex()


def plain(steps):
    training = Training()
    return [timed(lambda: training.end(training.loss())) for _ in range(steps)]


def timed(step):
    begun = time.process_time()
    loss = step()
    return {"loss": loss, "seconds": time.process_time() - begun}


def by_budget(budget, steps):
    """In one region that lasts. Each step, with what was computed again in it, and the most that the budget held in forward."""
    training, done = Training(), []
    seen = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(budget.held_bytes()))
    with ac2.PolicyScope(memory_budget=budget) as scope:
        before = 0
        for _ in range(steps):
            seen.clear()
            step = timed(lambda: training.end(training.loss()))
            again = scope.trace.stats().recomputed_ops
            done.append(step | {"ops": again - before, "held": max(seen)})
            before = again
    hook.remove()
    return {"steps": done}


def by_plan(policy, steps):
    training, done = Training(), []
    for _ in range(steps):
        scopes = []

        def step():
            with ac2.PolicyScope(policy) as scope:
                loss = training.loss()
            scopes.append(scope)
            return training.end(loss)

        done.append(timed(step) | {"ops": scopes[0].trace.stats().recomputed_ops})
    return {"steps": done}


def in_little_memory(mib, steps):
    """What by_budget() returns of a process with whatever_fits(), or its error's last line."""
    command = [sys.executable, __file__, "--steps", str(steps), "--child"]
    limit = mib * MIB
    ended = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    )
    if ended.returncode != 0:
        return (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    return json.loads(ended.stdout)


def later(run, what):
    return statistics.median(step[what] for step in run["steps"][2:])


def expect_same(expected, run, what):
    losses = [step["loss"] for step in run["steps"]]
    if losses != [step["loss"] for step in expected["steps"]]:
        sys.exit(f"repeated_steps: {what} has other losses than plain training")


def row(name, planner, bytes, run, expected, steps):
    expect_same(expected, run, name)
    first, second = (run["steps"][i]["ops"] for i in (0, 1))
    begun = f"| {name} | {bytes / MIB:.0f} MiB | {first} | {second} | {later(run, 'ops'):.0f} |"
    of_plain = later(run, "seconds") / later(expected, "seconds")
    try:
        made = planner.plan(bytes)
    except RuntimeError as error:
        print(f"{begun} none | {of_plain:.3f} | | | {str(error).splitlines()[0][:60]} |", flush=True)
        return
    planned = by_plan(made, steps)
    expect_same(expected, planned, f"the plan for {name}")
    plan_of_plain = later(planned, "seconds") / later(expected, "seconds")
    print(
        f"{begun} {later(planned, 'ops'):.0f} | {of_plain:.3f} | {plan_of_plain:.3f} | {of_plain / plan_of_plain:.3f} | |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.7, 0.5, 0.35, 0.25], help="of what a step holds without a budget")
    parser.add_argument("--address-space", type=int, nargs="+", metavar="MIB")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 3:
        parser.error("--steps must be 3 at least")
    torch.set_num_threads(1)
    if arguments.child:
        print(json.dumps(by_budget(ac2.whatever_fits(), arguments.steps)))
        return
    expected = {"steps": plain(arguments.steps)}
    training = Training()
    planner = ac2.StepPlanner(lambda: training.loss().backward())
    print("| limit | bytes | ops again, step 1 | step 2 | later steps | planned | of plain | planned, of plain | cost | |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|", flush=True)
    if arguments.address_space:
        for mib in arguments.address_space:
            run = in_little_memory(mib, arguments.steps)
            if isinstance(run, str):
                print(f"| {mib} MiB | | | | | | | | | {run[:80]} |", flush=True)
            else:
                row(f"{mib} MiB", planner, int(later(run, "held")), run, expected, arguments.steps)
        return
    everything = by_budget(ac2.MemoryBudget.soft(1 << 40), 1)["steps"][0]["held"]
    for share in arguments.shares:
        bytes = int(share * everything)
        row(f"soft, {share:g}", planner, bytes, by_budget(ac2.MemoryBudget.soft(bytes), arguments.steps), expected, arguments.steps)


if __name__ == "__main__":
    main()
