"""A backward with create_graph inside a region, and regions beside the transforms of torch.func."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from support import same_bits
from torch.utils.checkpoint import checkpoint

import ac2

WIDTH = 64


def network(outputs=1):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(8, WIDTH), torch.nn.Tanh()]
    for _ in range(4):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, outputs))


def slope(of, at):
    return torch.autograd.grad(of.sum(), at, create_graph=True)[0]


def force_field(model, x):
    energies = model(x)
    return energies.square().mean() + slope(energies, x).neg().square().mean()


def gradient_penalty(model, x):
    return model(x).mean() + 10 * (slope(model(x), x).norm(2, dim=1) - 1).square().mean()


def heat_equation(model, x):
    u = slope(model(x), x)
    return (u[:, 0] - slope(u[:, 1], x)[:, 1]).square().mean()


def third_derivative(model, x):
    u = model(x)
    for _ in range(2):
        u = slope(u, x)
    return slope(u, x).square().mean()


def inner_steps(model, x):
    weights = dict(model.named_parameters())
    for _ in range(2):
        loss = torch.func.functional_call(model, weights, x).square().mean()
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: weight - 0.1 * one for (name, weight), one in zip(weights.items(), slopes)}
    return torch.func.functional_call(model, weights, x).square().mean()


def accumulated(model, x):
    model(x).square().mean().backward(create_graph=True)
    slopes = [leaf.grad for leaf in (x, *model.parameters())]
    for leaf in (x, *model.parameters()):
        leaf.grad = None  # else autograd's graph would be part of a circle
    return sum(one.square().sum() for one in slopes)


PROGRAMS = [force_field, gradient_penalty, heat_equation, third_derivative, inner_steps, accumulated]


def bytes_held(call):
    """The bytes that are allocated during a call and still there after it."""
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
        result = call()
    held = sum(event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]")
    return result, held


def step(program, region, seed=2):
    model = network()
    x = torch.randn(128, 8, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    loss, held = bytes_held(lambda: region(lambda x: program(model, x), x))
    gradients = torch.autograd.grad(loss, [x, *model.parameters()], allow_unused=True)
    return loss, gradients, held


def plain(function, x):
    return function(x)


def assert_same_gradients(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or same_bits(one, other)


@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all", "save_compute_intensive", "speed", ac2.policies.every_nth(2)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_plain_pytorch(program, policy):
    loss, gradients, _ = step(program, plain)
    actual_loss, actual, _ = step(program, lambda function, x: ac2.checkpoint(function, x, policy=policy))
    assert same_bits(actual_loss, loss)
    assert_same_gradients(actual, gradients)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_plain_pytorch_under_a_budget(program, share):
    loss, gradients, held = step(program, plain)
    budget = ac2.MemoryBudget.soft(int(share * held))
    actual_loss, actual, _ = step(program, lambda function, x: ac2.checkpoint(function, x, memory_budget=budget))
    assert same_bits(actual_loss, loss)
    assert_same_gradients(actual, gradients)


@pytest.mark.parametrize("program", PROGRAMS)
def test_replays_are_verified(program):
    def region(function, x):
        with ac2.PolicyScope("recompute_all", verify=True):
            return function(x)

    _, gradients, _ = step(program, plain)
    assert_same_gradients(step(program, region)[1], gradients)


@pytest.mark.parametrize("program", [force_field, gradient_penalty, heat_equation, third_derivative])
def test_holds_no_more_than_pytorchs_checkpointing(program):
    _, gradients, of_plain = step(program, plain)
    _, of_torch, held_by_torch = step(program, lambda function, x: checkpoint(function, x, use_reentrant=False))
    _, of_ac2, held = step(program, lambda function, x: ac2.checkpoint(function, x))
    assert_same_gradients(of_ac2, gradients)
    assert_same_gradients(of_torch, gradients)
    print(f"{program.__name__}: plain {of_plain}, torch.utils.checkpoint {held_by_torch}, ac2 {held}")
    assert held <= held_by_torch
    assert held < of_plain / 20


def run_program(text, *arguments):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


TRANSFORMS = """
    import sys
    import warnings
    import torch, ac2

    def around(transform, function):
        def call(x):
            with ac2.PolicyScope("recompute_all"):
                return transform(function)(x)

        return call

    x = torch.randn(4, 8)
    block = lambda x: x.sin().exp().sin()
    inside = lambda x: ac2.checkpoint(block, x).sum()
    outside = lambda x: block(x).sum()
    transforms = {
        "grad": torch.func.grad,
        "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(f)),
        "jacrev": torch.func.jacrev,
        "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](torch.ones(()))[0],
        "hessian": torch.func.hessian,
        "grad of grad": lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x).sum()),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.func.vmap(inside)(x)
        around(torch.func.vmap, outside)(x)
        around(lambda f: lambda x: torch.autograd.grad(f(x), x)[0], outside)(x.clone().requires_grad_())
        said = [one for one in caught if "torch.func" in str(one.message)]
        assert not said, said
        for name, transform in transforms.items():
            program = transform(inside) if sys.argv[1] == "inside" else around(transform, outside)
            assert torch.equal(program(x), transform(outside)(x)), name
    said = [str(one.message) for one in caught if "torch.func" in str(one.message)]
    assert len(said) == 1 and "torch.autograd.grad in place" in said[0], said
"""


@pytest.mark.parametrize("where", ["inside", "around"])
def test_a_region_beside_a_transform_that_differentiates_is_warned_of_once(where):
    result = run_program(TRANSFORMS, where)
    assert result.returncode == 0, result.stderr


def test_a_region_around_a_transform_has_the_bits_of_plain_pytorch():
    def forces(model, x):
        return torch.func.grad(lambda x: model(x).sum())(x).square().mean()

    _, gradients, _ = step(forces, plain)
    assert_same_gradients(step(forces, lambda function, x: ac2.checkpoint(function, x))[1], gradients)
