"""Four processes whose memory budgets agree (``group=``). One rank has less memory, one has longer sequences, one runs out in the
middle: replays communicate in one order on all of them, and gradients are those without regions."""

import contextlib
import os
import pickle
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from processes import Ranks, communication_of
from support import assert_same, same_bits
from test_distributed import CROSSINGS, Model, Way, local, shard
from test_managed import Elsewhere
from torch import nn

import ac2

COUNT = 4
LITTLE, MUCH = 1 << 12, 1 << 30


@pytest.fixture(scope="module")
def ranks():
    made = Ranks(COUNT)
    yield made
    made.close()


def soft(count):
    return ac2.MemoryBudget.soft(count, group=dist.group.WORLD)


# The group meets by one all-reduce a backward, and by one more where they have not dropped the same.
MEETING = "c10d::allreduce_"


# --- Units that are gathered -----------------------------------------------------------------------------------------


def cross(crossing):
    def step(scope):
        torch.manual_seed(0)
        model = shard(Model(), Way())
        model(torch.ones(2, 16)).sum().backward()  # FSDP makes what it keeps
        communicated, of_input = communication_of(lambda: crossing(model, scope))
        gradients = {name: local(parameter.grad) for name, parameter in model.named_parameters()}
        gradients["input"] = torch.empty(0) if of_input is None else of_input
        return gradients, communicated

    gradients, communicated = step(contextlib.nullcontext())
    scope = ac2.PolicyScope(gather_units=True, memory_budget=soft(1 if dist.get_rank() == 1 else MUCH))
    in_region, in_order = step(scope)
    assert_same(in_region, gradients)
    assert ac2.live_node_count() == 0
    return Counter(in_order) - Counter(communicated), in_order, scope.trace.stats().recomputed_ops


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_a_rank_with_less_memory_gathers_units_with_the_others(ranks, crossing):
    results = ranks.run(cross, crossing)
    more, in_order, _ = results[0]
    assert all(order == in_order for _, order, _ in results)
    assert more.pop(MEETING) == 2
    assert sum(more.values()) == CROSSINGS[crossing]
    assert results[1][2] > 0
    assert results[2][2] > 0  # which has room for all


class ElsewhereOnAllRanks(Elsewhere):
    """What brings a weight says to the others which one it is: each must have the same."""

    def gather(self, parameters):
        over = super().gather(parameters)
        calls = [None] * COUNT
        dist.all_gather_object(calls, self.calls[-1])
        assert calls == [self.calls[-1]] * COUNT
        return over

    def forward(self, x, swaps=True):
        """The last replays need what the first weight has made."""
        first = None
        for i, weight in enumerate(self.weights):
            self.put(i)
            x = torch.nn.functional.linear(x.sin(), weight).cos()
            first = x if first is None else first
            if swaps:
                self.let_go(i)
        return (x.sin() * first.sin().exp()).sum()


def gather_alike():
    weights = ElsewhereOnAllRanks()

    def step(scope, swaps):
        x = torch.linspace(-1, 1, 32 * 16).reshape(32, 16).requires_grad_()
        with scope:
            loss = weights.forward(x, swaps)
        loss.backward()
        return x.grad

    expected = step(contextlib.nullcontext(), False)
    ac2.managed_elsewhere(weights.weights, gather=weights.gather)
    for budget in (soft(1 if dist.get_rank() == 2 else MUCH), soft(MUCH)):
        assert same_bits(step(ac2.PolicyScope(memory_budget=budget), True), expected)
    return [position for call in weights.calls if call is not None for position in call]


def test_a_function_that_brings_weights_is_called_alike_on_all_ranks(ranks):
    results = ranks.run(gather_alike)
    assert results[0] == results[1] == results[2] == results[3]
    # In plain training backward reads the weights from the last to the first, which the second step does.
    assert results[0][-3:] == [2, 1, 0]
    assert results[0][:-3] != [2, 1, 0]


# --- Collectives that are replayed -----------------------------------------------------------------------------------


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ops = torch.ops._c10d_functional
        return ops.wait_tensor(ops.all_reduce(x, "sum", dist.group.WORLD.group_name))

    @staticmethod
    def backward(ctx, gradient):
        return Summed.apply(gradient)


def sum_again(ctx, op, *args, **kwargs):
    return ac2.CheckpointPolicy.MUST_RECOMPUTE if "_c10d_functional" in str(op) else ac2.CheckpointPolicy.PREFER_SAVE


class Norms(nn.Module):
    """Layers whose activations are normed over all ranks, so that ranks may have sequences of different lengths."""

    def __init__(self, layers=4, width=16):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x, in_the_middle=lambda layer: None):
        for i, layer in enumerate(self.layers):
            x = torch.nn.functional.gelu(layer(x))
            total = Summed.apply(x.square().mean(0))
            x = (x * total.rsqrt().exp()).sin() + x
            in_the_middle(i)
        return x.sum()


STEPS = 3


def train_norms(around, rows, steps=STEPS, in_the_middle=lambda step, layer: None):
    torch.manual_seed(0)
    model = Norms()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    results = {}
    for step in range(steps):
        x = torch.randn(rows, 16, generator=torch.Generator().manual_seed(step)).requires_grad_()
        optimizer.zero_grad()
        with around():
            loss = model(x, lambda layer: in_the_middle(step, layer))
        loss.backward()
        optimizer.step()
        results |= {f"loss {step}": loss.detach(), f"gradient {step}": x.grad}
    return results | {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def agree_on_norms(bytes_of_rank, rows_of_rank):
    rank = dist.get_rank()
    rows, budget = rows_of_rank[rank], soft(bytes_of_rank[rank])
    plain, expected = communication_of(lambda: train_norms(contextlib.nullcontext, rows))
    scopes = []

    def around():
        scopes.append(ac2.PolicyScope(sum_again, memory_budget=budget))
        return scopes[-1]

    communicated, results = communication_of(lambda: train_norms(around, rows))
    assert_same(results, expected)
    assert ac2.live_node_count() == 0
    replayed = sum(scope.trace.stats().recomputed_ops for scope in scopes)
    return communicated, Counter(communicated) - Counter(plain), replayed


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [([MUCH, LITTLE, MUCH, MUCH], [32] * 4), ([1 << 14] * 4, [8, 8, 128, 8]), ([1 << 10, 1 << 12, MUCH, 1 << 11], [8, 64, 16, 32])],
    ids=["one has less memory", "one has longer sequences", "all differ"],
)
def test_ranks_replay_collectives_in_one_order(ranks, sizes, rows):
    results = ranks.run(agree_on_norms, sizes, rows)
    assert all(communicated == results[0][0] for communicated, _, _ in results)
    # More than the meetings, so that sums were replayed.
    assert all(more.keys() == {MEETING} and more[MEETING] > 2 * STEPS for _, more, _ in results)
    assert all(replayed > 0 for _, _, replayed in results)


def test_where_all_ranks_have_room_no_collective_is_replayed_and_ranks_meet_once_a_backward(ranks):
    for _, more, replayed in ranks.run(agree_on_norms, [MUCH] * 4, [8, 16, 24, 32]):
        assert replayed == 0
        assert more == {MEETING: STEPS}


# --- Memory that runs out --------------------------------------------------------------------------------------------


def run_out_in_the_middle(kind):
    rank, rows = dist.get_rank(), 512
    expected = train_norms(contextlib.nullcontext, rows, steps=5)
    if kind == "whatever_fits":
        budget = ac2.whatever_fits(group=dist.group.WORLD)
        assert ac2.whatever_fits(group=dist.group.WORLD).bytes() == budget.bytes()
    else:
        budget = ac2.MemoryBudget.peak(1 << 20 if rank == 2 else MUCH, group=dist.group.WORLD)
    ballast = []

    def in_the_middle(step, layer):
        # Another rank's memory is short in the second step alone, after the second layer.
        if rank == 2 and kind == "peak" and (step, layer) == (1, 1):
            ballast.append(torch.empty(1 << 19, dtype=torch.uint8))

    scopes = []

    def around():
        ballast.clear()
        scopes.append(ac2.PolicyScope(sum_again, memory_budget=budget))
        return scopes[-1]

    communicated, results = communication_of(lambda: train_norms(around, rows, 5, in_the_middle))
    assert_same(results, expected)
    assert ac2.live_node_count() == 0
    return communicated, [scope.trace.stats().recomputed_ops for scope in scopes], budget.bytes()


def test_a_rank_that_runs_out_in_the_middle_of_a_step(ranks):
    results = ranks.run(run_out_in_the_middle, "peak")
    assert all(communicated == results[0][0] for communicated, _, _ in results)
    assert results[2][1][1] > 0
    assert all(replayed[1] > 0 for _, replayed, _ in results)


def test_whatever_fits_drops_nothing_where_all_fits(ranks):
    for _, replayed, learned in ranks.run(run_out_in_the_middle, "whatever_fits"):
        assert replayed == [0] * 5
        assert learned == 2**63 - 1


# --- A rank that dies ------------------------------------------------------------------------------------------------

_PROGRAM = """
    import datetime, os, sys
    import torch
    import torch.distributed as dist
    import ac2

    rank, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo", store=dist.FileStore(path, count), rank=rank, world_size=count, timeout=datetime.timedelta(seconds=60))
    budget = ac2.MemoryBudget("1MiB", group=dist.group.WORLD)
    x = torch.ones(8, requires_grad=True)
    for step in range(2):
        with ac2.PolicyScope(memory_budget=budget):
            loss = x.sin().exp().sum()
        if (rank, step) == (1, 1):
            os._exit(7)
        try:
            loss.backward()
        except RuntimeError as error:
            assert ac2.live_node_count() > 0
            print("caught", type(error).__name__, error, flush=True)
            os._exit(0)
"""


def test_a_rank_that_dies_is_an_error_on_the_others(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(_PROGRAM))
    processes = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), "3", str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        for rank in range(3)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 7, 0]
    for rank in (0, 2):
        assert "caught RuntimeError The ranks of a memory budget (group=) could not agree" in outputs[rank]


# --- Arguments -------------------------------------------------------------------------------------------------------


def refuse():
    with pytest.raises(TypeError, match="group is 2; expected a process group"):
        ac2.MemoryBudget(64, group=2)
    with pytest.raises(ValueError, match="modelled_costs=False and a group"):
        ac2.MemoryBudget(64, modelled_costs=False, group=dist.group.WORLD)
    others = dist.new_group([0, 1])
    if dist.get_rank() > 1:
        with pytest.raises(ValueError, match="of which this process is no rank"):
            ac2.whatever_fits(group=others)
    budget = soft(64)
    assert repr(budget) == "MemoryBudget.soft(64, group=...)"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(budget)


def test_wrong_groups_are_errors(ranks):
    ranks.run(refuse)


def test_a_group_without_processes_is_an_error():
    with pytest.raises(ValueError, match="init_process_group"):
        ac2.MemoryBudget(64, group=object())


def test_a_group_of_one_rank_is_like_none():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = torch.ones(64, requires_grad=True)
        with ac2.PolicyScope(memory_budget=soft(256)) as scope:
            loss = x.sin().cos().sin().cos().sum()
        loss.backward()
        assert scope.trace.stats().recomputed_ops > 0
        expected = torch.ones(64, requires_grad=True)
        expected.sin().cos().sin().cos().sum().backward()
        assert same_bits(x.grad, expected.grad)
    finally:
        dist.destroy_process_group()
