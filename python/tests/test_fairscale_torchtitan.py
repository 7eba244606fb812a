"""What the tests of fairscale's checkpoint_wrapper and of torchtitan's activation checkpointing ask, asked of ac2.

Written anew from tests/nn/checkpoint of fairscale 0.4 and test_activation_checkpoint.py of torchtitan. Left out: bytes on
a GPU (the project's tests of the C++ runtime count bytes there), fairscale's import under deprecated paths, and
torchtitan's options of its own configuration, of which only what they make of a policy is asked.
"""

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import ac2
from ac2 import CheckpointPolicy


# fairscale, test_checkpoint_activations.py


def feed_forward():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 128), nn.Dropout(0.5), nn.Linear(128, 32))


class Model(nn.Module):
    def __init__(self, wrap=lambda module: module):
        super().__init__()
        self.ffn = wrap(feed_forward())
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.ffn(x))


def loss_and_gradients(model, x):
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    loss = model(x).sum()
    loss.backward()
    return [loss.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


@pytest.mark.parametrize("options", [{}, {"offload_to_cpu": True}, {"offload_to_cpu": False}])
def test_fairscale_basic(options):
    x = torch.rand(2, 16, 32)
    expected = loss_and_gradients(Model(), x)
    wrapped = Model(lambda ffn: ac2.checkpoint_wrapper(ffn, **options))
    assert all(torch.equal(a, b) for a, b in zip(loss_and_gradients(wrapped, x), expected, strict=True))


class TwoInputs(nn.Module):
    def __init__(self, several_results, wrapped):
        super().__init__()
        torch.manual_seed(0)
        self.several_results = several_results
        self.conv1 = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, 5, 3))
        self.conv2 = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 5, 3))
        for name in wrapped:
            setattr(self, name, ac2.checkpoint_wrapper(getattr(self, name)))

    def forward(self, x1, x2=None):
        results = self.conv1(x1), self.conv2(x2)
        return results if self.several_results else results[0] + results[1]


@pytest.mark.parametrize("several_results", [True, False])
@pytest.mark.parametrize("wrapped", [["conv1"], ["conv2"], ["conv1", "conv2"]])
def test_fairscale_several_inputs_and_results(several_results, wrapped):
    def train(model):
        torch.manual_seed(3)
        x1, x2 = torch.rand(4, 1, 16, 16, requires_grad=True), torch.rand(4, 3, 16, 16, requires_grad=True)
        result = model(x1, x2=x2)
        loss = (torch.cat(result) if several_results else result).sum()
        return [loss.detach(), *torch.autograd.grad(loss, [x1, x2, *model.parameters()])]

    expected = train(TwoInputs(several_results, []))
    assert all(torch.equal(a, b) for a, b in zip(train(TwoInputs(several_results, wrapped)), expected, strict=True))


# fairscale, test_checkpoint_activations_norm.py


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.BatchNorm2d])
@pytest.mark.parametrize("half", ["no", "data", "call"])
def test_fairscale_norms_have_the_same_state_after_a_step(norm, half):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 2), norm(2))
    if half == "data":
        for parameter in plain.parameters():
            parameter.data = parameter.data.half()
        for name, buffer in plain[1].named_buffers():
            setattr(plain[1], name, buffer.half())
    elif half == "call":
        plain.half()
    ours = ac2.checkpoint_wrapper(copy.deepcopy(plain))
    assert list(ours.state_dict()) == list(plain.state_dict())
    x = torch.rand(2, 2, 3, 3).to(plain[0].weight.dtype)
    for model in (plain, ours):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(x.clone().requires_grad_()).sum().backward()
        optimizer.step()
    for name, value in plain.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value), name


# torchtitan, test_activation_checkpoint.py: a product of the router, one of attention, and one twice as large


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.gate = nn.Linear(width, width, bias=False)
        self.wq = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, 2 * width, bias=False)

    def forward(self, x):
        return self.output(self.wq(self.gate(x))).sum()


def mm_policy(saves):
    """Saves the products at the places that ``saves`` lists, in the order in which they run."""
    state = {"place": -1}

    def policy(ctx, op, *args, **kwargs):
        if op is not torch.ops.aten.mm.default:
            return CheckpointPolicy.PREFER_RECOMPUTE
        state["place"] = (state["place"] + 1) % 3
        return CheckpointPolicy.MUST_SAVE if state["place"] in saves else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def backward_products(model, width=64):
    """How many products of width x width matrices a backward computes: autograd's, and those that are replayed."""
    with ac2.PolicyScope("recompute_all") as scope:
        loss = model(torch.randn(width, width, requires_grad=True))
    with FlopCounterMode(display=False) as counter:  # does not see what is replayed
        loss.backward()
    return counter.get_total_flops() / (2 * width**3) + scope.trace.stats().recomputed_ops


def with_policy(policy):
    torch.manual_seed(0)
    return ac2.checkpoint_wrapper(Block(), policy)


def test_torchtitan_flops():
    assert backward_products(with_policy("must_save_all")) == 8
    # torchtitan's own counts, without its early stop, are 9, 10, 11 and 12: it runs forward again up to the end, and so
    # the last product too, which nobody needs. Of what somebody needs, it counts as many as here.
    assert backward_products(with_policy(mm_policy({0, 2}))) == 9
    assert backward_products(with_policy(mm_policy({2}))) == 10
    assert backward_products(with_policy(mm_policy({0}))) == 9
    assert backward_products(with_policy("recompute_all")) == 10


def test_torchtitan_memory():
    def held(model):
        x = torch.randn(64, 64, requires_grad=True)
        with ac2.PolicyScope("recompute_all") as scope:
            loss = model(x)
        parameters = sum(parameter.nbytes for parameter in model.parameters())
        bytes_held = scope.trace.stats().saved_bytes - parameters - x.nbytes
        loss.backward()
        return bytes_held / (64 * 64 * 4)

    # In matrices of width x width. torchtitan's are 2, 3, 2, 1 and 0: it saves a result that nobody needs, too.
    assert held(with_policy("must_save_all")) == 2
    assert held(with_policy(mm_policy({0, 2}))) == 1
    assert held(with_policy(mm_policy({2}))) == 0
    assert held(with_policy(mm_policy({0}))) == 1
    assert held(with_policy("recompute_all")) == 0


@pytest.mark.parametrize("policy", [mm_policy({0, 2}), mm_policy({2}), mm_policy({0}), "recompute_all"])
def test_torchtitan_correctness(policy):
    batch = torch.randn(64, 64)
    torch.manual_seed(0)
    plain = Block()
    ours = with_policy(policy)

    def run(model):
        x = batch.clone().requires_grad_()
        loss = model(x)
        return [loss.detach(), *torch.autograd.grad(loss, [x, *model.parameters()])]

    assert all(torch.equal(a, b) for a, b in zip(run(ours), run(plain), strict=True))
