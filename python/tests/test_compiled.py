"""Regions in functions that torch.compile compiles: PyTorch's selective checkpointing with ac2's decisions."""

import functools
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

import ac2
from support import same_bits

aten = torch.ops.aten


class Block(torch.nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = torch.nn.Linear(width, 2 * width)
        self.second = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x))).sin()


def compile_and_count(function):
    """The compiled function, and a list of what its backward graphs call."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    called = []

    def backward(graph, inputs):
        called.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph

    backend = aot_autograd(fw_compiler=lambda graph, inputs: graph, bw_compiler=backward,
                           partition_fn=min_cut_rematerialization_partition)
    return torch.compile(function, backend=backend, fullgraph=True), called


@pytest.fixture(autouse=True)
def reset():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradients(function, block, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).square().sum(), [x, *block.parameters()])


def by_list(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


@ac2.by_operator
def by_operator(ctx, op):
    return by_list(ctx, op)


def in_a_form_of_its_own(ctx, op, *args, **kwargs):
    """What is packed in a region is saved in a graph."""
    hooks = ac2.SaveWithHooks(torch.clone, torch.clone)
    return hooks if op is aten.addmm.default else ac2.CheckpointPolicy.PREFER_RECOMPUTE


def offloaded(ctx, op, *args, **kwargs):
    policies = ac2.CheckpointPolicy
    return policies.MUST_CPU_OFFLOAD if op is aten.addmm.default else policies.PREFER_RECOMPUTE


@pytest.mark.parametrize("policy, products", [
    (None, 1), ("recompute_all", 1), ("save_compute_intensive", 0), ([aten.addmm.default], 0), (by_list, 0), (by_operator, 0),
    (in_a_form_of_its_own, 0), (offloaded, 0), (lambda ctx, op, *args, **kwargs: ac2.CheckpointPolicy.MUST_RECOMPUTE, 1),
])
@pytest.mark.parametrize("how", ["checkpoint", "wrapper"])
def test_a_policy_holds_in_a_graph_that_is_not_broken(policy, products, how):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 32)
    expected = gradients(block, block, x)
    if how == "wrapper":
        ac2.checkpoint_wrapper(block, policy)
        compiled, called = compile_and_count(lambda x: block(x).cos())
    else:
        compiled, called = compile_and_count(lambda x: ac2.checkpoint(block, x, policy=policy).cos())
    x = x.clone().requires_grad_()
    loss = compiled(x).sum()
    ours = torch.autograd.grad(loss, [x, *block.parameters()])
    # The second product is needed for sin()'s gradient alone, and the first for GELU's.
    assert called.count(aten.addmm.default) == (2 if products else 0)
    plain = x.detach().clone().requires_grad_()
    expected = torch.autograd.grad(Block.forward(block, plain).cos().sum(), [plain, *block.parameters()])
    assert all(same_bits(a, b) for a, b in zip(ours, expected, strict=True))


@pytest.mark.parametrize("policy", [[aten.addmm.default], by_list, by_operator])
@pytest.mark.parametrize("contexts", [ac2.create_selective_checkpoint_contexts, create_selective_checkpoint_contexts])
def test_the_policy_of_a_context_fn_holds_in_a_graph_that_is_not_broken(policy, contexts):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 32)
    context_fn = functools.partial(contexts, policy)
    compiled, called = compile_and_count(lambda x: ac2.checkpoint(block, x, context_fn=context_fn).cos())
    expected = gradients(lambda x: block(x).cos(), block, x)
    ours = gradients(compiled, block, x)
    assert called.count(aten.addmm.default) == 0
    assert all(same_bits(a, b) for a, b in zip(ours, expected, strict=True))


def contexts_by_size():
    return ac2.create_selective_checkpoint_contexts(ac2.policies.by_size(1 << 20))


def test_a_policy_that_wants_arguments_saves_where_a_context_fn_makes_it():
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 32)
    compiled, called = compile_and_count(lambda x: ac2.checkpoint(block, x, context_fn=contexts_by_size).cos())
    expected = gradients(lambda x: block(x).cos(), block, x)
    ours = gradients(compiled, block, x)
    assert called.count(aten.addmm.default) == 0
    assert all(same_bits(a, b) for a, b in zip(ours, expected, strict=True))


def contexts_of(policy):
    return ac2.create_selective_checkpoint_contexts(policy)


@pytest.mark.parametrize("options", [
    {"memory_budget": 1 << 20},
    {"policy": ac2.policies.save_ops(["aten::mm"])},
    {"policy": "memory"},
    {"context_fn": functools.partial(ac2.create_selective_checkpoint_contexts, ac2.policies.save_ops(["aten::mm"]))},
    {"context_fn": functools.partial(contexts_of, policy=ac2.policies.save_ops(["aten::mm"]))},
])
def test_what_a_graph_cannot_do_breaks_it_and_is_a_region(options):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 32)
    nodes = []

    @torch.compiler.disable
    def count():
        nodes.append(ac2.live_node_count())

    def function(x):
        y = ac2.checkpoint(block, x, **options)
        count()
        return y.cos()

    expected = gradients(lambda x: block(x).cos(), block, x)
    ours = gradients(torch.compile(function, backend="eager"), block, x)
    assert all(same_bits(a, b) for a, b in zip(ours, expected, strict=True))
    assert nodes[-1] > 0


def test_a_scope_in_compiled_code_brings_no_warning():
    # In a process of its own: the first region, and Dynamo's first look at it, are what may warn.
    program = """
import warnings
import torch, ac2

def function(x):
    with ac2.PolicyScope("save_compute_intensive", memory_budget=1 << 20) as scope:
        y = x.sin().cos()
    return y.exp(), scope

x = torch.randn(3, requires_grad=True)
compiled = torch.compile(function, backend="eager")
with warnings.catch_warnings():
    warnings.filterwarnings("error", message=".*Dynamo.*")
    y, scope = compiled(x)
y.sum().backward()
assert scope.trace.stats().recorded_ops == 2
"""
    subprocess.run([sys.executable, "-c", program], check=True)
