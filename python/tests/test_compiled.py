"""Regions in functions that torch.compile compiles: PyTorch's selective checkpointing with ac2's decisions."""

import contextlib
import functools
import subprocess
import sys

import pytest
import torch
import torch._inductor.compile_fx  # noqa: F401  Here and not in a test, so that the collector leaves it out: conftest.py.
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
@pytest.mark.parametrize("how", ["checkpoint", "wrapper", "apply"])
def test_a_policy_holds_in_a_graph_that_is_not_broken(policy, products, how):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 32)
    expected = gradients(block, block, x)
    if how == "wrapper":
        ac2.checkpoint_wrapper(block, policy)
        compiled, called = compile_and_count(lambda x: block(x).cos())
    elif how == "apply":
        compiled, called = compile_and_count(lambda x: ac2.apply_ac_policy_fn(block, x, policy=policy).cos())
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


def test_policies_and_pack_functions_are_no_part_of_the_program_that_is_compiled():
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.tolist()  # which Dynamo cannot compile

    hooks = ac2.SaveWithHooks(pack, torch.tensor)

    def policy(ctx, op, *args, **kwargs):
        packed.extend([])
        return hooks if op is torch.ops.aten.sin.default else ac2.CheckpointPolicy.PREFER_RECOMPUTE

    def compiled(x):
        return x.cos()

    def function(x):
        return compiled(x.sin().sin()).exp()

    # Its own ops run while Dynamo looks at each frame that they come to.
    torch._dynamo.eval_frame.skip_code(function.__code__)
    x = torch.randn(4, requires_grad=True)
    expected = torch.autograd.grad(function(x).sum(), x)[0]
    with ac2.PolicyScope(policy):
        y = torch.compile(function, backend="eager", fullgraph=True)(x)
    assert same_bits(torch.autograd.grad(y.sum(), x)[0], expected)
    assert len(packed) > 0


def test_tensors_hand_their_pointers_out_behind_a_graph_break_and_dynamo_compiles_nothing_of_ac2():
    # In a process of its own, as above.
    program = """
import warnings
import torch, ac2

with ac2.PolicyScope("recompute_all"):
    torch.ones(2, requires_grad=True).exp()

def inner(x):
    return x * (x.data_ptr() != 0)

def function(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return inner(y) * x.untyped_storage().nbytes()

compiled = torch.compile(function, backend="eager")
with warnings.catch_warnings():
    warnings.filterwarnings("error", message=".*Dynamo.*")
    for x in (torch.ones(3), torch.nn.Parameter(torch.ones(3)), torch.ones(2, 2).double()):
        assert torch.equal(compiled(x), function(x))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_compiled_autograd_is_refused_with_an_error_that_says_what_to_do():
    x = torch.randn(4, requires_grad=True)
    with ac2.PolicyScope("recompute_all"):
        loss = x.sin().cos().sum()
    with pytest.raises(RuntimeError, match="an ac2 region has saved.*Call backward outside of"):
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
            loss.backward()
    torch._dynamo.reset()


def test_a_scripted_module_has_no_region_and_a_warning_says_so():
    module = ac2.checkpoint_wrapper(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()))
    with pytest.warns(UserWarning, match="no region opens where the scripted module runs"):
        scripted = torch.jit.script(module)
    x = torch.randn(2, 4)
    assert same_bits(scripted(x), module(x))
    assert ac2.last_trace(module) is not None


@pytest.mark.parametrize("form", ["torch", "ac2", "contexts"])
def test_under_the_patch_a_compiled_function_recomputes_as_without_it(form):
    # In a process of its own, in which no region has opened before.
    program = f"""
import functools
import torch, torch.utils.checkpoint, ac2
from torch._dynamo.backends.common import aot_autograd

products = []

def count(graph, inputs):
    products.append([node.target for node in graph.graph.nodes].count(torch.ops.aten.mm.default))
    return graph

def inner(x, y):
    return torch.sigmoid(x @ y)

def function(x, y):
    if {form!r} == "ac2":
        return ac2.checkpoint(inner, x.sin(), y)
    if {form!r} == "contexts":
        contexts = functools.partial(
            torch.utils.checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
        return torch.utils.checkpoint.checkpoint(inner, x.sin(), y, use_reentrant=False, context_fn=contexts)
    return torch.utils.checkpoint.checkpoint(inner, x.sin(), y, use_reentrant=False)

x, y = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
with ac2.patch_torch_checkpoint():
    compiled = torch.compile(function, backend=aot_autograd(fw_compiler=count, bw_compiler=count), fullgraph=True)
    compiled(x, y).sum().backward()
assert products == ([1, 2] if {form!r} == "contexts" else [1, 3]), products
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "nothing called" not in done.stderr


@pytest.mark.parametrize("form", ["torch", "ac2"])
def test_a_function_that_breaks_the_graph_is_checkpointed_by_pytorch(form):
    torch.manual_seed(0)
    block, x = Block(), torch.randn(4, 32)
    calls = []

    @torch.compiler.disable
    def count():
        calls.append(torch.is_grad_enabled())

    def broken(x):
        count()
        return block(x)

    def function(x):
        if form == "ac2":
            return ac2.checkpoint(broken, x).cos()
        return torch.utils.checkpoint.checkpoint(broken, x, use_reentrant=False).cos()

    expected = gradients(lambda x: block(x).cos(), block, x)
    with ac2.patch_torch_checkpoint() if form == "torch" else contextlib.nullcontext():
        ours = gradients(torch.compile(function, backend="eager"), block, x)
    assert all(same_bits(a, b) for a, b in zip(ours, expected, strict=True))
    assert len(calls) == 2


def test_dynamo_can_trace_the_descriptor_of_a_wrapped_modules_forward():
    """That of torch 2.11 traces the descriptor's __get__, where later ones ask it for the function."""
    model = ac2.checkpoint_wrapper(torch.nn.Linear(4, 4))
    descriptor = vars(type(model))["forward"]

    def forward(x):
        return type(descriptor).__get__(descriptor, model, type(model))(x)

    torch._dynamo.reset()
    x = torch.randn(2, 4)
    assert same_bits(torch.compile(forward, backend="eager", fullgraph=True)(x), model(x))


@torch.compile
def _move(average, value):
    average.mul_(0.5).add_(value, alpha=0.5)


def _between(scope, written):
    """Compiled code writes after the region to what the region took."""
    w, b, s = torch.ones(3, requires_grad=True), torch.full((3,), 3.0), torch.ones(3)
    with scope:
        loss = ((b * 1).exp() * w).sum()
    _move(written(b), s)
    loss.backward()
    return w.grad, b


def _inside(scope, written):
    """In the region, to what the region took."""
    w, b, s = torch.ones(3, requires_grad=True), torch.full((3,), 3.0), torch.ones(3)
    with scope:
        a = (b * 1).exp()
        _move(written(b), s)
        loss = (a * w).sum() + (b.sin() * w).sum()
    del a
    loss.backward()
    return w.grad, b


def _on_a_result(scope, written):
    """In the region, to a result of the region's that ops have read."""
    w, s = torch.ones(3, requires_grad=True), torch.ones(3)
    with scope:
        z = torch.eye(3) @ torch.full((3, 3), 3.0)
        a = z.exp()
        _move(written(z[0]), s)
        loss = (a * w).sum() + (z.sin() * w).sum()
    seen = z.clone()
    del a, z
    loss.backward()
    return w.grad, seen


@pytest.mark.parametrize("policy", ["recompute_all", "save_compute_intensive", "must_save_all", None])
@pytest.mark.parametrize("program", [_between, _inside, _on_a_result])
@pytest.mark.parametrize("written", [lambda t: t, lambda t: t.data, lambda t: t.detach()])
def test_what_compiled_code_writes_to_is_kept_as_replays_read_it(program, policy, written):
    expected = program(contextlib.nullcontext(), written)
    found = program(ac2.PolicyScope(policy), written)
    assert all(torch.equal(one, other) for one, other in zip(found, expected))


@pytest.mark.parametrize("policy", ["recompute_all", "save_compute_intensive", None])
def test_a_compiled_step_of_an_optimizer_may_come_before_backward(policy):
    def run(scope):
        torch.manual_seed(1)
        gate, w = torch.nn.Parameter(torch.randn(3)), torch.ones(3, requires_grad=True)
        optimizer = torch.optim.Adam([gate], lr=0.1)
        step = torch.compile(optimizer.step)
        for _ in range(2):
            with scope():
                loss = (torch.sigmoid(gate.detach() * 2).exp() * w).sum()
            gate.grad = torch.ones(3)
            step()
            loss.backward()
        return w.grad, gate.detach()

    expected, found = run(contextlib.nullcontext), run(lambda: ac2.PolicyScope(policy))
    assert all(torch.equal(one, other) for one, other in zip(found, expected))


def test_a_count_of_versions_by_the_program_is_no_write_that_was_seen():
    w, b = torch.ones(3, requires_grad=True), torch.full((3,), 3.0)
    with ac2.PolicyScope("recompute_all"):
        loss = ((b * 1).exp() * w).sum()
    torch.autograd.graph.increment_version(b)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
