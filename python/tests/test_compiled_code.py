"""Code that Inductor has compiled, in a region: one op, which policies and budgets decide of and a replay runs again."""

import contextlib
import warnings

import pytest
import torch
import torch._functorch.config
import torch._inductor.compile_fx  # noqa: F401  Here and not in a test, so that the collector leaves it out: conftest.py.

import ac2
from ac2 import CheckpointPolicy, _compiled_code
from support import same_bits

WIDTH, ROWS = 16, 8
BYTES = WIDTH * ROWS * 4  # of an activation


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(x)).sin())


class Noisy(Block):
    def forward(self, x):
        return torch.nn.functional.dropout(super().forward(x), 0.5)


class Normed(Block):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return self.norm(super().forward(x)).sin()


@pytest.fixture(scope="module")
def compiled():
    """Each kind of block, compiled once."""
    torch.manual_seed(0)
    blocks = {kind: kind() for kind in (Block, Noisy, Normed)}
    return {kind: (block, torch.compile(block)) for kind, block in blocks.items()}


def in_plain():
    return contextlib.nullcontext()


def outcome(compiled, kind, region, rows=ROWS, backwards=1):
    """Gradients of two calls in one region each, what they have left in buffers, and the next number of the generator."""
    block, call = compiled[kind]
    for buffer in block.buffers():
        buffer.zero_()
    torch.manual_seed(1)
    x = torch.randn(rows, WIDTH, requires_grad=True)
    y, traces = x * 1, []
    for _ in range(2):
        with region() as scope:
            y = call(y)
        traces += [scope.trace] if scope is not None else []
    loss = (y * y).sum()
    inputs = [x, *block.parameters()]
    found = [torch.autograd.grad(loss, inputs, retain_graph=i + 1 < backwards) for i in range(backwards)]
    del y, loss
    return [*(g for gs in found for g in gs), *(b.clone() for b in block.buffers()), torch.rand(1)], traces


POLICIES = {
    "recompute_all": lambda: ac2.PolicyScope("recompute_all"),
    "must_save_all": lambda: ac2.PolicyScope("must_save_all"),
    "keeps what fits": lambda: ac2.PolicyScope(),
    "a soft budget": lambda: ac2.PolicyScope(memory_budget=ac2.MemoryBudget.soft(1024)),
    "verify": lambda: ac2.PolicyScope("recompute_all", verify=True),
}


@pytest.mark.filterwarnings("ignore:The soft memory budget")
@pytest.mark.parametrize("kind", [Block, Noisy, Normed])
@pytest.mark.parametrize("policy", POLICIES)
def test_compiled_code_in_a_region_has_the_bits_of_compiled_code_without(compiled, kind, policy):
    expected, _ = outcome(compiled, kind, in_plain, backwards=2)
    found, _ = outcome(compiled, kind, POLICIES[policy], backwards=2)
    assert all(same_bits(one, other) for one, other in zip(found, expected))


@pytest.mark.parametrize("kind", [Block, Noisy, Normed])
def test_compiled_code_is_run_again_as_one_op_and_holds_its_input_alone(compiled, kind):
    block, call = compiled[kind]
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    with ac2.PolicyScope("recompute_all") as scope:
        y = call(x)
    weights = sum(p.numel() * 4 for p in block.parameters())
    held = scope.trace.stats().saved_bytes - BYTES - weights
    small = sum(b.numel() * b.element_size() for b in block.buffers()) + 8  # as they were before; the state of a seed
    assert 0 <= held <= small
    y.sum().backward()
    assert scope.trace.stats().recomputed_ops == 1


def test_a_policy_is_asked_about_compiled_code_by_its_name(compiled):
    names = []

    def policy(ctx, op, *args, **kwargs):
        names.append(str(op))
        return CheckpointPolicy.PREFER_SAVE

    _, call = compiled[Block]
    with ac2.PolicyScope(policy) as scope:
        y = call(torch.randn(ROWS, WIDTH, requires_grad=True))
    y.sum().backward()
    assert [name for name in names if "inductor_compiled_code" in name] == ["replayable.inductor_compiled_code.default"]
    assert scope.trace.stats().recomputed_ops == 0


def test_a_list_of_ops_saves_compiled_code(compiled):
    _, call = compiled[Block]
    with ac2.PolicyScope(ac2.policies.save_ops(["replayable::inductor_compiled_code"])) as scope:
        y = call(torch.randn(ROWS, WIDTH, requires_grad=True))
    y.sum().backward()
    assert scope.trace.stats().recomputed_ops == 0


@pytest.mark.parametrize("rows", [3, 5, 7])
def test_code_for_sizes_that_vary_is_run_again(compiled, rows):
    block, _ = compiled[Block]
    dynamic = {Block: (block, torch.compile(block, dynamic=True))}
    expected, _ = outcome(dynamic, Block, in_plain, rows)
    found, traces = outcome(dynamic, Block, POLICIES["recompute_all"], rows)
    assert all(same_bits(one, other) for one, other in zip(found, expected))
    assert all(trace.stats().recomputed_ops == 1 for trace in traces)


def test_results_that_are_arguments_or_views_of_them_are_held_once(compiled):
    weight = torch.randn(WIDTH, WIDTH, requires_grad=True)
    product = torch.compile(lambda x, w: (x @ w.t()).sin() @ w)  # backward reads x, w and a transposed w
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    with ac2.PolicyScope("recompute_all") as scope:
        y = product(x, weight)
    assert scope.trace.stats().saved_bytes == BYTES + weight.numel() * 4
    expected = torch.autograd.grad(product(x, weight).sum(), [x, weight])
    assert all(same_bits(one, other) for one, other in zip(torch.autograd.grad(y.sum(), [x, weight]), expected))


COMPLEX = {
    "saved conjugated": lambda z: (z * z).real,
    "a product with the conjugate": lambda z: (z.conj() * z).real,
    "the imaginary part of the conjugate": lambda z: z.conj().imag * z.imag,
    "a real view of what is saved": lambda z: torch.view_as_real(z.exp()),
    "two": lambda z: torch.view_as_real((z * 2).conj().resolve_conj() * z.exp()),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_saved_as_compiled_code_saves_them(name):
    call = torch.compile(COMPLEX[name])
    z = torch.complex(torch.linspace(-1, 2, 4), torch.linspace(2, 0.5, 4)).requires_grad_()
    expected = torch.autograd.grad(call(z).sum(), z)
    for policy in ("recompute_all", "must_save_all"):
        with ac2.PolicyScope(policy):
            y = call(z)
        assert same_bits(torch.autograd.grad(y.sum(), z)[0], expected[0]), policy


def noisy(x, w):
    return torch.nn.functional.dropout((x @ w).sin(), 0.5).sin() @ w


def quiet(x, w):
    return (x @ w).sin().exp() @ w


def kept_by_a_checkpoint(x, w):
    return torch.utils.checkpoint.checkpoint(noisy, x, w, use_reentrant=False)


def warnings_of_steps(function, budget, region=POLICIES["recompute_all"], backward=None):
    """What two steps of the function say that is compiled and called under the budget, with another one in backward."""
    _compiled_code._warn_of_numbers_drawn_anew.cache_clear()
    _compiled_code._in_regions["drawn under a budget"] = False
    torch._dynamo.reset()
    call, config = torch.compile(function), torch._functorch.config
    x, w = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(WIDTH, WIDTH, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with config.patch(activation_memory_budget=budget), region():
                y = call(x, w)
            with config.patch(activation_memory_budget=budget if backward is None else backward):
                y.sum().backward()
    return [str(warning.message) for warning in caught if "activation_memory_budget" in str(warning.message)]


@pytest.mark.parametrize("budget", [0.0, 0.5])
def test_a_region_around_code_whose_derivative_draws_anew_says_so_once(budget):
    (text,) = warnings_of_steps(noisy, budget)
    assert "pytorch/issues/190758" in text and "Leave activation_memory_budget at 1" in text


def test_the_budget_counts_under_which_forward_was_compiled():
    assert len(warnings_of_steps(noisy, 0.5, backward=1.0)) == 1


def test_code_that_draws_nothing_anew_is_not_spoken_of():
    assert warnings_of_steps(noisy, 1.0) == []
    assert warnings_of_steps(quiet, 0.0) == []
    assert warnings_of_steps(kept_by_a_checkpoint, 0.5) == []
    assert warnings_of_steps(noisy, 0.5, region=in_plain) == []


def test_compiled_code_that_might_choose_otherwise_is_not_computed_again():
    calls = []

    @torch.library.custom_op("compiled_code::add_up", mutates_args=())
    def add_up(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.flip(1) if len(calls) > 1 else x.clone()

    @add_up.register_fake
    def _(x):
        return torch.empty_like(x)

    def experts(x, weights):
        chosen = add_up(x.detach()).topk(2).indices
        return (x.gather(1, chosen) * weights.gather(1, chosen)).sin()

    def smoothed(x, weights):
        return torch.nn.functional.dropout(add_up(x.detach()) * x * weights, 0.1).sin()

    x, weights = torch.randn(6, 8, requires_grad=True), torch.randn(6, 8)
    (plain,) = torch.autograd.grad(experts(x, weights).sum(), x)
    assert len(calls) == 1
    calls.clear()
    compiled = torch.compile(experts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ac2.PolicyScope("recompute_all"):
            y = compiled(x, weights)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], plain)
    assert len(calls) == 1
    assert [text for text in (str(w.message) for w in caught) if "compiled_code.add_up may compute other bits" in text]
    # No choice: computed again, and with forward's seeds, which are integers too.
    calls.clear()
    compiled = torch.compile(smoothed)
    with ac2.PolicyScope("recompute_all"):
        y = compiled(x, weights)
    y.sum().backward()
    assert len(calls) == 2
