"""Random programs give in regions what they give in plain PyTorch, bit for bit."""

import contextlib
import dataclasses
import gc
import logging
import os
import traceback
from typing import Any, Dict, List, Optional, Tuple

import numpy
import pytest
import random_programs
import torch
from device import IS_CPU, generator_states
from random_programs import Program, RandomPolicy, draw
from random_subclasses import WRAPPERS, parts_of
from support import same_bits

import ac2

FIRST, COUNT = map(int, os.environ.get("AC2_RANDOM_SEEDS", "0:250").split(":"))

WAYS = [
    'ac2.PolicyScope("recompute_all")',
    'ac2.PolicyScope("must_save_all")',
    'ac2.PolicyScope("save_compute_intensive")',
    "ac2.PolicyScope(RandomPolicy({seed}))",
    "ac2.PolicyScope(RandomPolicy({seed} + 1), memory_budget=1000)",
    "ac2.PolicyScope(memory_budget=200)",
    "ac2.PolicyScope(ac2.policies.by_module(module_rules({seed})))",
    "ac2.PolicyScope('recompute_all', verify=True)",
]


@dataclasses.dataclass
class Value:
    """A tensor as the name of its class and the plain tensors that it is made of.

    A Loud tensor that was saved comes back as a torch.Tensor, so that a gradient may be of either class.
    """

    kind: str
    parts: List[torch.Tensor]

    def has_the_bits_of(self, other: "Value") -> bool:
        return self.kind == other.kind and len(self.parts) == len(other.parts) and all(map(same_bits, self.parts, other.parts))


def value_of(tensor: Optional[torch.Tensor]) -> Value:
    if tensor is None:
        return Value("None", [])
    kind = type(tensor).__name__ if isinstance(tensor, WRAPPERS) else "Tensor"
    return Value(kind, [part.clone() for part in parts_of(tensor)])


@dataclasses.dataclass
class Outcome:
    values: Optional[List["Value"]] = None
    error: str = ""
    step: Optional[int] = None  # that raised
    replayed: int = 0

    @property
    def lacks_budget(self) -> bool:
        return "cannot be met" in self.error


def run(program: Program, way: str) -> Outcome:
    source, step_of_line = program.source()
    names: Dict[str, Any] = {**vars(random_programs), "contextlib": contextlib, "numpy": numpy}
    exec(compile(source, "<random program>", "exec"), names)
    torch.manual_seed(1)
    regions: List[Any] = []

    def region() -> Any:
        regions.append(eval(way, names))
        return regions[-1]

    try:
        values = list(map(value_of, names["program"](region)))
        replayed = sum(r.trace.stats().recomputed_ops for r in regions if isinstance(r, ac2.PolicyScope))
        return Outcome(values + [value_of(generator_states())], replayed=replayed)
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == "<random program>"]
        return Outcome(error=traceback.format_exc(), step=step_of_line.get(lines[-1]) if lines else None)
    finally:
        torch.set_default_dtype(torch.float32)
        random_programs.BOX.clear()


PLAIN = "contextlib.nullcontext()"


def without_refused_steps(program: Program) -> Tuple[Program, Outcome]:
    """Without the steps that PyTorch refuses. What raises in backward stays."""
    while True:
        outcome = run(program, PLAIN)
        if outcome.step is None:
            return program, outcome
        program = program.without(outcome.step, outcome.step + 1)


def nodes_left() -> int:
    if ac2.live_node_count() == 0:
        return 0
    gc.collect()
    return ac2.live_node_count()


def difference(ours: Outcome, expected: Outcome) -> str:
    """What is wrong with a program in regions, or nothing."""
    if ac2.is_checkpoint_enabled():
        return "a region is left open"
    if ours.values is None:
        return "" if ours.lacks_budget else "raises only in a region: " + ours.error
    names = ["loss", *"abcdpqxyz", "memory", "image", "p.grad", "q.grad", "generator"]
    for name, ours_, expected_ in zip(names, ours.values, expected.values, strict=True):
        if not ours_.has_the_bits_of(expected_):
            return f"{name} is {ours_}, but in plain PyTorch {expected_}"
    return f"{left} nodes are left behind" if (left := nodes_left()) else ""


def reduced(program: Program, way: str) -> Program:
    """With the fewest steps with which something is still wrong."""
    size = len(program.steps)
    while size > 0:
        begin = 0
        while begin < len(program.steps):
            shorter = program.without(begin, begin + size)
            expected = run(shorter, PLAIN)
            if expected.values is not None and difference(run(shorter, way), expected):
                program = shorter
            else:
                begin += size
        size //= 2
    return program


def report(seed: int, program: Program, way: str) -> str:
    what = difference(run(program, way), run(program, PLAIN))
    imports = "import contextlib\n\nimport numpy\nfrom random_programs import *\n\n\n"
    source = program.source()[0]
    return f"\n# seed {seed}: {what}\n\n{imports}{source}\n\ntorch.manual_seed(1)\nprint(program(lambda: {way}))\n"


@pytest.mark.filterwarnings("ignore")
def test_random_programs_give_in_regions_what_they_give_without(monkeypatch):
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)  # pytest would print thousands of lines
    compared = replayed = 0
    for seed in range(FIRST, FIRST + COUNT):
        program, expected = without_refused_steps(draw(seed))
        if expected.values is None:
            continue
        if not IS_CPU and difference(run(program, PLAIN), expected):
            continue  # PyTorch itself computes other bits each time
        compared += 1
        for way in [way.format(seed=seed) for way in WAYS]:
            ours = run(program, way)
            replayed += ours.replayed
            if difference(ours, expected):
                pytest.fail(report(seed, reduced(program, way), way), pytrace=False)
    print(f"{compared} of {COUNT} programs compared, {replayed} ops replayed")
    assert compared > COUNT * 2 // 3 and replayed > COUNT
