"""Parameters that something else gives their data: a replay asks for what it needs (ac2.managed_elsewhere(gather=))."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from support import same_bits

import ac2

WIDTH, UNITS = 16, 3


class Elsewhere:
    """Weights in another memory. ``calls`` are the positions that each call of gather() was given, and None at an end."""

    def __init__(self):
        torch.manual_seed(1)
        self.weights = [torch.nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False) for _ in range(UNITS)]
        self.elsewhere = [weight.detach().clone() for weight in self.weights]
        self.calls = []
        self.there = set()

    def put(self, position):
        self.there.add(position)
        self.weights[position].data = self.elsewhere[position].clone()

    def let_go(self, position):
        self.there.discard(position)
        self.weights[position].data = torch.empty(0)

    def gather(self, parameters):
        positions = [next(i for i, weight in enumerate(self.weights) if weight is parameter) for parameter in parameters]
        self.calls.append(positions)
        for position in positions:
            self.put(position)

        def over():
            self.calls.append(None)
            for position in positions:
                self.let_go(position)

        return over

    def forward(self, x, swaps=True):
        for i, weight in enumerate(self.weights):
            if swaps:
                self.put(i)
            x = F.linear(x.sin(), weight).cos()
            if swaps:
                self.let_go(i)
        return x


def leaf():
    torch.manual_seed(2)
    return torch.randn(4, WIDTH, requires_grad=True)


def expected():
    x = leaf()
    return torch.autograd.grad(Elsewhere().forward(x, swaps=False).sum(), x)[0]


@pytest.mark.parametrize("policy", ["recompute_all", "save_compute_intensive", "must_save_all", None])
def test_a_replay_gathers_what_it_needs_and_the_end_of_backward_is_told(policy):
    weights, x = Elsewhere(), leaf()
    ac2.managed_elsewhere(weights.weights, gather=weights.gather)
    with ac2.PolicyScope(policy):
        y = weights.forward(x)
    y.sum().backward()
    assert same_bits(x.grad, expected())
    asked = [call for call in weights.calls if call is not None]
    assert sorted(asked) == [[0], [1], [2]], weights.calls  # each once
    assert weights.calls[len(asked) :] == [None] * UNITS and not weights.there


def test_what_is_there_is_not_asked_for():
    weights, x = Elsewhere(), leaf()
    ac2.managed_elsewhere(weights.weights, gather=weights.gather)
    with ac2.PolicyScope("recompute_all"):
        y = weights.forward(x)
    for i in range(UNITS):
        weights.put(i)
    y.sum().backward()
    assert same_bits(x.grad, expected()) and weights.calls == []


def test_several_functions_each_get_their_own():
    weights, x = Elsewhere(), leaf()
    given = []

    def other(parameters):
        given.extend(parameters)
        weights.put(1)

    ac2.managed_elsewhere(weights.weights, gather=weights.gather)
    ac2.managed_elsewhere([weights.weights[1]], gather=other)
    with ac2.PolicyScope("recompute_all"):
        y = weights.forward(x)
    y.sum().backward()
    assert same_bits(x.grad, expected())
    assert len(given) == 1 and given[0] is weights.weights[1]
    assert [1] not in weights.calls


def test_without_a_function_the_error_names_the_line():
    weights, x = Elsewhere(), leaf()
    ac2.managed_elsewhere(weights.weights)
    with ac2.PolicyScope("recompute_all"):
        y = weights.forward(x)
    with pytest.raises(RuntimeError, match=r"of shape \(16, 16\).*ac2.managed_elsewhere\(parameters, gather=function\)"):
        y.sum().backward()


def test_a_function_that_gathers_nothing_is_an_error_and_the_backward_may_be_tried_again():
    weights, x = Elsewhere(), leaf()
    works = [False]
    ac2.managed_elsewhere(weights.weights, gather=lambda parameters: weights.gather(parameters) if works[0] else None)
    with ac2.PolicyScope("recompute_all"):
        y = weights.forward(x)
    with pytest.raises(RuntimeError, match="function that managed_elsewhere.. was given has been called.*still not there"):
        y.sum().backward(retain_graph=True)
    works[0] = True
    y.sum().backward()
    assert same_bits(x.grad, expected())


def test_its_exceptions_pass_through():
    weights, x = Elsewhere(), leaf()

    def gather(parameters):
        raise KeyError("the network is down")

    ac2.managed_elsewhere(weights.weights, gather=gather)
    with ac2.PolicyScope("recompute_all"):
        y = weights.forward(x)
    with pytest.raises(KeyError, match="the network is down"):
        y.sum().backward()


def test_the_function_lives_as_long_as_the_parameters():
    weights = Elsewhere()
    ac2.managed_elsewhere(weights.weights, gather=weights.gather)
    watched = weakref.ref(weights)
    del weights
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("other", [lambda w: w.t().contiguous().t(), lambda w: w.view(8, 32), lambda w: w.view(torch.int32)])
@pytest.mark.parametrize("policy", ["recompute_all", "save_compute_intensive"])
def test_data_that_comes_back_in_another_layout_is_an_error(other, policy):
    weights, x = Elsewhere(), leaf()
    ac2.managed_elsewhere(weights.weights)
    with ac2.PolicyScope(policy):
        y = weights.forward(x)
    for weight, elsewhere in zip(weights.weights, weights.elsewhere):
        weight.data = other(elsewhere)
    with pytest.raises(RuntimeError, match=r"of shape \(16, 16\).*as forward has read it, Float of sizes \[16, 16\] and strides \[16, 1\]"):
        y.sum().backward()


def test_wrong_functions_are_errors():
    weights, x = Elsewhere(), leaf()
    with pytest.raises(TypeError, match="gather is 3; expected a function"):
        ac2.managed_elsewhere(weights.weights, gather=3)

    def gather(parameters):
        weights.gather(parameters)
        return 7

    ac2.managed_elsewhere(weights.weights, gather=gather)
    with ac2.PolicyScope("recompute_all"):
        y = weights.forward(x)
    with pytest.raises(TypeError, match="returned 7; expected None, or a function"):
        y.sum().backward()
