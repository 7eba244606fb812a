"""in_chunks(exact=True): what it takes has the bits of one call, in random programs of any sizes, types and cuts."""

import os
import random

import pytest
import torch
import torch.nn.functional as F
from support import same_bits

import ac2

# The functions behind the rows of ac2/internal/operators/row_ops.cc, of one tensor.
BY_ELEMENT = [
    torch.abs, torch.atan, torch.ceil, torch.cos, torch.erf, torch.erfc, torch.exp, torch.expm1, torch.floor, torch.frac, torch.neg,
    torch.reciprocal, torch.relu, torch.round, torch.sgn, torch.sign, torch.sin, torch.sqrt, torch.square, torch.tan, torch.tanh,
    torch.trunc, torch.log, torch.log10, torch.log1p, torch.log2, F.hardtanh, torch.clone, torch.zeros_like, torch.ones_like,
    lambda x: x.clamp(-0.5, 0.7), lambda x: x.clamp_min(0.1), lambda x: x.clamp_max(0.1), lambda x: F.threshold(x, 0.1, 0.3),
    lambda x: x.pow(2), lambda x: x.pow(3), lambda x: x.bfloat16().to(x.dtype), lambda x: x.masked_fill(x > 0.3, 0.2),
    lambda x: torch.where(x.isnan() | (x != 0), x, 1), lambda x: torch.where((x < 0.2).logical_not(), x, x * 3), lambda x: 1 - x,
    lambda x: torch.full_like(x, 0.3) * x, lambda x: x.clone().mul_(0.7).add_(0.1), lambda x: x.detach().clone().fill_(0.2) + x,
]  # fmt: skip

# Of a tensor and one that broadcasts to it.
OF_TWO = [
    torch.add, torch.sub, torch.rsub, torch.mul, torch.div, torch.maximum, torch.minimum,
    lambda x, y: torch.where(x >= y, x, y), lambda x, y: torch.where((x <= y).logical_and(x.eq(y).logical_or(x > 0)), y, x),
]  # fmt: skip

# Of a tensor and one of its other dimensions; sizes stay as they are.
ALONG = [
    lambda x, d: x - x.mean(d, keepdim=True).detach(), lambda x, d: x + x.sum(d).unsqueeze(d).detach(),
    lambda x, d: torch.cat([x.sum(d, keepdim=True)] * x.shape[d], d), lambda x, d: torch.cat([x.mean(d).unsqueeze(d)] * x.shape[d], d),
    lambda x, d: torch.cat([x.amax(d, keepdim=True)] * x.shape[d], d), lambda x, d: torch.cat([x.amin(d).unsqueeze(d)] * x.shape[d], d),
    lambda x, d: x.cumsum(d), lambda x, d: x.transpose(d, -1).softmax(-1).transpose(d, -1),
    lambda x, d: x.transpose(d, -1).log_softmax(-1).transpose(d, -1),
    lambda x, d: torch.cat([x, x.exp()], d).narrow(d, 1, x.shape[d]), lambda x, d: x * (x > 0).any(d, keepdim=True),
    lambda x, d: x * x.argmax(d, keepdim=True) + x.argmin(d).unsqueeze(d), lambda x, d: x * (x > -1).all(d).unsqueeze(d),
    lambda x, d: torch.cat([x.select(d, -1).unsqueeze(d), x], d).narrow(d, 0, x.shape[d]), lambda x, d: torch.cat(x.split(2, d), d),
    lambda x, d: torch.cat([each.unsqueeze(d) for each in x.unbind(d)[:3]] + [x], d).narrow(d, 0, x.shape[d]),
    lambda x, d: x.permute(*reversed(range(x.dim()))).sin().permute(*reversed(range(x.dim()))),
]  # fmt: skip


def by_last(x, dim):
    """Layer norm over what is behind the rows."""
    behind = x.shape[dim + 1 :]
    return F.layer_norm(x, behind) if behind else x.tan()


def flat(x, dim):
    """With what is behind the rows in their dimension."""
    return x.flatten(dim).cos().view(x.shape)


def program(draw, dims, dim):
    """Steps from a tensor to one of the same sizes."""
    steps = []
    for _ in range(draw.randint(1, 5)):
        kind = draw.random()
        others = [d for d in range(dims) if d != dim]
        if kind < 0.45:
            steps.append((draw.choice(BY_ELEMENT), None))
        elif kind < 0.6:
            steps.append((draw.choice(OF_TWO), "two"))
        elif kind < 0.9 and others:
            steps.append((draw.choice(ALONG), draw.choice(others)))
        else:
            steps.append((draw.choice([by_last, flat]), dim))

    def run(x, shared):
        first = x
        for step, what in steps:
            x = step(x) if what is None else step(x, shared if len(steps) % 2 else first) if what == "two" else step(x, what)
        return x

    return run


def bits(tensor):
    """NaNs are alike."""
    return torch.where(tensor.isnan(), torch.full_like(tensor, 7e7), tensor)


FIRST, COUNT = (int(number) for number in os.environ.get("AC2_RANDOM_SEEDS", "0:300").split(":"))


@pytest.mark.parametrize("part", range(4))
def test_random_work_by_rows_has_the_bits_of_one_call(part):
    refused = 0
    for seed in range(FIRST + part * COUNT // 4, FIRST + (part + 1) * COUNT // 4):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        dims = draw.choice([2, 2, 3, 3, 4])
        dim = draw.randrange(dims)
        sizes = [draw.choice([1, 2, 3, 5, 8, 17]) for _ in range(dims)]
        sizes[dim] = draw.choice([4, 5, 7, 13, 33])
        if draw.random() < 0.1:
            sizes[draw.choice([d for d in range(dims) if d != dim])] = 5001
        dtype = draw.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        x = torch.randn(sizes, dtype=torch.float64).to(dtype).requires_grad_()
        shared = torch.rand(sizes[-1] if dim != dims - 1 else 1).add(0.5).to(dtype)
        run = program(draw, dims, dim)
        with torch.no_grad() if draw.random() < 0.1 else torch.enable_grad():
            plain = run(x, shared)
            size = {"bytes": draw.choice([1, 4000])} if draw.random() < 0.3 else {"chunks": draw.choice([2, 3, 5])}
            try:
                ours = ac2.in_chunks(lambda x: run(x, shared), x, dim=dim, exact=True, **size)
            except RuntimeError as error:  # of sums
                assert "row by row in memory" in str(error), f"seed {seed}"
                refused += 1
                continue
        assert same_bits(bits(ours), bits(plain)), f"seed {seed}"
        if plain.requires_grad:
            gradient = torch.randn(sizes, dtype=torch.float64).to(dtype)
            expected, found = (torch.autograd.grad(y, x, gradient)[0] for y in (plain, ours))
            assert same_bits(bits(found), bits(expected)), f"gradient of seed {seed}"
    assert refused < COUNT / 4 * 0.3


def test_what_may_differ_is_an_error_that_names_it():
    x, weight = torch.randn(6, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    table = torch.randn(9, 8)
    assert torch.equal(ac2.in_chunks(lambda i: F.embedding(i, table), torch.arange(6), chunks=3, exact=True), table[:6])

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    for match, fn in [
        ("aten::mul.Tensor takes a tensor of .8. .* requires a gradient and is not cut", lambda x: x * weight),
        ("aten::mm may add in another order", lambda x: x @ torch.ones(8, 8)),
        ("aten::gelu is not known", F.gelu),
        ("aten::silu is not known", F.silu),
        ("draws random numbers", F.dropout),
        ("aten::cumsum computes along the dimension that is cut", lambda x: x.cumsum(0)),
        ("aten::select.int computes along the dimension that is cut", lambda x: x * x[0]),
        ("backward of the chunk goes through", Doubled.apply),
    ]:
        with pytest.raises(RuntimeError, match=match):
            ac2.in_chunks(fn, x, chunks=3, exact=True)
    with pytest.raises(ValueError, match='reduce is "sum"'):
        ac2.in_chunks(torch.sum, x, chunks=3, reduce="sum", exact=True)
    with pytest.raises(TypeError, match="exact is 1"):
        ac2.in_chunks(torch.sin, x, chunks=3, exact=1)
    assert ac2.live_node_count() == 0
