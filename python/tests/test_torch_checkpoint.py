"""What PyTorch's own tests ask of torch.utils.checkpoint, asked of ac2 through patch_torch_checkpoint().

The cases are those of PyTorch's test_utils.py (TestCheckpoint) and test_autograd.py (test_checkpointing_*,
TestNestedCheckpoint, TestSelectiveActivationCheckpoint), written anew, each with use_reentrant=False. Where PyTorch's tests
count that a function runs a second time, here it must not. Left out, with the reason:

- use_reentrant=True, and what tells the two variants apart: it is an error here (test_checkpoint.py);
- GPUs, several devices and get_device_states: nothing is stashed for a second run;
- determinism_check, debug traces and early stop: there is no second run that could differ, or that could stop;
- contexts other than those of create_selective_checkpoint_contexts: the second of such a pair is for the second run;
- DataParallel and DistributedDataParallel: test_distributed.py has several processes.
"""

import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import ac2
from support import same_bits


@pytest.fixture(autouse=True)
def patched():
    with ac2.patch_torch_checkpoint():
        yield


def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)


def sequential(functions, segments, input, **kwargs):
    return torch.utils.checkpoint.checkpoint_sequential(functions, segments, input, use_reentrant=False, **kwargs)


def selective(policy, **kwargs):
    return lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts(policy, **kwargs)


def network():
    return nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())


def same(actual, expected):
    actual, expected = list(actual), list(expected)
    return len(actual) == len(expected) and all(same_bits(a, b) for a, b in zip(actual, expected))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * torch.tensor(2.0)


# TestCheckpoint


def test_each_module_runs_once():
    modules = [Counts() for _ in range(10)]
    out = sequential(modules, 2, torch.randn(3, 4, requires_grad=True))
    out.sum().backward()
    assert [module.calls for module in modules] == [1] * 10


@pytest.mark.parametrize("form", ["sequential", "list", "module list"])
@pytest.mark.parametrize("segments", [1, 2, 3])
def test_sequential_gives_outputs_and_gradients(form, segments):
    model = network()
    x = torch.randn(2, 10, requires_grad=True)
    expected = model(x)
    expected_grads = torch.autograd.grad(expected.sum(), [x, *model.parameters()])
    functions = {"sequential": model, "list": list(model), "module list": nn.ModuleList(model)}[form]
    actual = sequential(functions, segments, x)
    assert same_bits(actual, expected)
    assert same(torch.autograd.grad(actual.sum(), [x, *model.parameters()]), expected_grads)


def test_gradients_can_be_differentiated_again():
    model, x = network(), torch.randn(2, 10, requires_grad=True)
    for _ in range(2):
        expected, = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        actual, = torch.autograd.grad(sequential(model, 2, x).square().sum(), x, create_graph=True)
        assert same_bits(actual, expected)
        assert same(torch.autograd.grad(actual.square().sum(), list(model.parameters()), materialize_grads=True),
                    torch.autograd.grad(expected.square().sum(), list(model.parameters()), materialize_grads=True))


@pytest.mark.parametrize("inputs", [0, 2])
def test_sequential_takes_one_input(inputs):
    class Two(nn.Module):
        def forward(self, a, b):
            return a, b

    arguments = [torch.randn(1, 4, requires_grad=True) for _ in range(inputs)]
    with pytest.raises(TypeError):
        torch.utils.checkpoint.checkpoint_sequential(nn.Sequential(Two()), 1, *arguments)


@pytest.mark.parametrize("preserve", [True, False])
def test_random_draws_are_those_of_the_function(preserve):
    first, second = nn.Dropout(), nn.Dropout()
    x = torch.randn(1000, requires_grad=True)
    state = torch.get_rng_state()
    actual, = torch.autograd.grad(checkpoint(second, first(x), preserve_rng_state=preserve).sum(), x)
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    expected, = torch.autograd.grad(second(first(x)).sum(), x)
    assert same_bits(actual, expected)
    assert torch.equal(torch.get_rng_state(), after)


def test_arguments_and_results_may_be_anything():
    def function(a, b, scale, c, *, key):
        d, e = a + b * c, a * b + c
        d *= scale
        e *= scale
        return scale, d, None, True, {"e": e, key: [a]}, "bar"

    a, b, c = torch.rand(10, requires_grad=True), torch.rand(10, requires_grad=True), torch.rand(10)
    results = []
    for call in (checkpoint, lambda f, *args, **kwargs: f(*args, **kwargs)):
        result = call(function, a, b, 7, c, key="k")
        assert result[0] == 7 and result[2] is None and result[3] is True and result[5] == "bar" and result[4]["k"][0] is a
        result[1].sum().backward(retain_graph=True)
        result[4]["e"].sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            result[4]["e"].sum().backward()
        results.append([result[1], result[4]["e"], a.grad, b.grad])
        a.grad = b.grad = None
    assert same(*results)
    assert checkpoint(lambda x, y: x if y is None else x + y, a, None) is a
    assert checkpoint(lambda x: x + 1, 2) == 3


def test_results_that_require_no_gradient():
    a, b = torch.randn(4, requires_grad=True), torch.randn(4)
    first, second = checkpoint(lambda x, y: (x * 2, y * 2), a, b)
    assert first.requires_grad and not second.requires_grad
    first.sum().backward()
    with torch.no_grad():
        assert not checkpoint(lambda x: x * 2, a).requires_grad


# test_autograd.py: test_checkpointing_*


@pytest.mark.parametrize("requires_grad", [True, False])
def test_an_input_need_not_require_a_gradient(requires_grad):
    model, x = network(), torch.randn(2, 10, requires_grad=requires_grad)
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    assert same(torch.autograd.grad(checkpoint(model, x).sum(), list(model.parameters())), expected)


def test_a_parameter_used_inside_and_outside():
    w, x = torch.randn(10, 10, requires_grad=True), torch.rand(10, 10, requires_grad=True)

    def function(a):
        return a.mm(w) * w.relu()

    expected = torch.autograd.grad((w.mul(2).mm(function(x)) + w).sum(), [w, x])
    assert same(torch.autograd.grad((w.mul(2).mm(checkpoint(function, x)) + w).sum(), [w, x]), expected)
    accumulated = []
    w.register_hook(lambda grad: accumulated.append(grad))
    (checkpoint(function, x) + w).sum().backward()
    assert len(accumulated) == 1


def test_a_function_that_saves_several_tensors():
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, z):
            w, out = x * y * z, x * y * z + 1
            ctx.save_for_backward(x, y, z, w, out)
            return x, w, out

        @staticmethod
        def backward(ctx, grad_x, grad_w, grad_out):
            x, y, z, w, out = ctx.saved_tensors
            assert same_bits(out, w + 1)
            assert ctx.saved_tensors[0] is not None  # more than once
            return grad_x + (grad_w + grad_out) * y * z, (grad_w + grad_out) * x * z, (grad_w + grad_out) * x * y

    def function(a):
        x, w, out = Saves.apply(a.sin(), a.exp(), a.cos())
        return (x * w * out).exp()

    a = torch.randn(5, requires_grad=True)
    expected, = torch.autograd.grad(function(a).sum(), a)
    assert same_bits(torch.autograd.grad(checkpoint(function, a).sum(), a)[0], expected)


def test_a_function_sees_the_very_object_of_an_input_without_a_gradient():
    seen = []

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            seen.extend(ctx.saved_tensors)
            return gradient, None

    x, y = torch.tensor(1.0, requires_grad=True), torch.tensor(1.0)
    checkpoint(Keeps.apply, x, y).backward()
    assert seen[0] is y


def test_detached_parts_inside():
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))

    def function(x):
        with torch.no_grad():
            bias = model(x).exp()
        return model(x) + bias + model(x).detach()

    x = torch.randn(3, 5, requires_grad=True)
    expected = torch.autograd.grad(function(x).sum(), list(model.parameters()))
    assert same(torch.autograd.grad(checkpoint(function, x).sum(), list(model.parameters())), expected)


def test_saved_tensors_can_be_looked_at_more_than_once():
    a = torch.randn(4, requires_grad=True)
    out = checkpoint(lambda x: x.sin().exp(), a)
    assert same_bits(out.grad_fn._saved_result, out.grad_fn._saved_result)
    assert same_bits(out.grad_fn._saved_result, out)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        out.grad_fn._saved_result


def test_backwards_within_a_backward_and_one_part_at_a_time():
    a = torch.randn(4, requires_grad=True)
    x, y = checkpoint(lambda t: (t.sin().exp(), t.cos().exp()), a)
    expected = [torch.autograd.grad(f(a).exp().sum(), a)[0] for f in (torch.sin, torch.cos)]
    total, inner = y.sum(), []

    def differentiates(grad):
        inner.extend(torch.autograd.grad(total, a, retain_graph=True))

    x.register_hook(differentiates)
    outer, = torch.autograd.grad(x.sum(), a)
    assert same([outer, *inner], expected)
    assert same(torch.autograd.grad(total, a), expected[1:])


def test_what_is_recomputed_is_freed_with_the_graph():
    a = torch.randn(1000, requires_grad=True)
    out = checkpoint(lambda x: x.sin().exp().cos(), a)
    assert ac2.live_node_count() > 0
    del out
    gc.collect()
    assert ac2.live_node_count() == 0


# TestNestedCheckpoint


def grad(function):
    def first_derivative(x, **kwargs):
        x = x.detach().requires_grad_() if not x.requires_grad else x
        return torch.autograd.grad(function(x, **kwargs).sum(), x, create_graph=True)[0]

    return first_derivative


def nested(function, depth):
    for _ in range(depth):
        function = (lambda inner: lambda *args, **kwargs: checkpoint(inner, *args, **kwargs))(function)
    return function


@pytest.mark.parametrize("depth", [0, 1, 3, 5])
@pytest.mark.parametrize("derivatives", [1, 2, 3])
def test_nested_checkpoints_and_higher_derivatives(depth, derivatives):
    def function(x):
        return x.sin().exp().sin()

    actual, expected = nested(function, depth), function
    for _ in range(derivatives):
        actual, expected = grad(actual), grad(expected)
    x = torch.randn(3, requires_grad=True)
    assert same_bits(actual(x), expected(x))
    # A checkpoint around the derivative itself.
    assert same_bits(checkpoint(grad(nested(torch.sin, depth)), x), grad(torch.sin)(x))


def test_a_checkpoint_with_several_inside_runs_each_once():
    counts = {"outer": 0, "f": 0, "g": 0}

    def f(x):
        counts["f"] += 1
        return x.sin()

    def g(x, *, power):
        counts["g"] += 1
        return x.exp() ** power

    def outer(x, out):
        counts["outer"] += 1
        return out + checkpoint(g, checkpoint(f, x) * x, power=2) + checkpoint(f, x)

    x = torch.randn(3, requires_grad=True)
    actual, = torch.autograd.grad(checkpoint(outer, x, x.cos()).sum(), x)
    assert counts == {"outer": 1, "f": 2, "g": 1}
    expected, = torch.autograd.grad((x.cos() + (x.sin() * x).exp() ** 2 + x.sin()).sum(), x)
    assert torch.allclose(actual, expected)


def test_a_graph_that_is_retained_is_replayed_each_time():
    x = torch.randn(3, requires_grad=True)
    out = nested(lambda t: t.sin().exp(), 2)(x)
    grads = [torch.autograd.grad(out.sum(), x, retain_graph=True)[0] for _ in range(3)]
    assert same(grads, [torch.autograd.grad(x.sin().exp().sum(), x)[0]] * 3)
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        assert same_bits(torch.autograd.grad(nested(torch.sin, 2)(x).sum(), x)[0], x.cos())


# TestSelectiveActivationCheckpoint

POLICIES = torch.utils.checkpoint.CheckpointPolicy


def mm_chain(x, y):
    return torch.mm(torch.sigmoid(torch.mm(x, y)), y).sigmoid() * x


@pytest.mark.parametrize("policy", [
    [torch.ops.aten.mm.default],
    lambda ctx, op, *args, **kwargs: op == torch.ops.aten.mm.default,
    lambda ctx, op, *args, **kwargs: POLICIES.MUST_SAVE if op == torch.ops.aten.mm.default else POLICIES.PREFER_RECOMPUTE,
    lambda ctx, op, *args, **kwargs: POLICIES.PREFER_SAVE if op == torch.ops.aten.mm.default else POLICIES.MUST_RECOMPUTE,
])
def test_what_a_policy_saves_is_not_computed_again(policy):
    x, y = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    asked = []

    def watching(ctx, op, *args, **kwargs):
        asked.append((op, ctx.is_recompute))
        return policy(ctx, op, *args, **kwargs)

    used = policy if isinstance(policy, list) else watching
    actual = checkpoint(mm_chain, x, y, context_fn=selective(used))
    expected = mm_chain(x, y)
    assert same_bits(actual, expected)
    assert same(torch.autograd.grad(actual.sum(), [x, y]), torch.autograd.grad(expected.sum(), [x, y]))
    assert not any(is_recompute for _, is_recompute in asked)
    assert isinstance(policy, list) or [op for op, _ in asked].count(torch.ops.aten.mm.default) == 2


def test_a_policy_that_answers_nonsense_is_an_error():
    x = torch.randn(4, requires_grad=True)
    with pytest.raises((TypeError, ValueError), match="CheckpointPolicy"):
        checkpoint(torch.sin, x, context_fn=selective(lambda ctx, op, *args, **kwargs: "save"))
    with pytest.raises((TypeError, ValueError)):
        checkpoint(torch.sin, x, context_fn=selective([torch.sin]))


def test_writing_to_a_saved_result_leaves_the_gradients_right():
    def function(x):
        y = x.sin()
        z = y * 2
        y.mul_(3)  # PyTorch's selective form refuses to hand out such a result
        return y.exp() + z.cos()

    x = torch.randn(4, requires_grad=True)
    expected, = torch.autograd.grad(function(x).sum(), x)
    for policy in ([torch.ops.aten.sin.default], [torch.ops.aten.mul_.Tensor], []):
        actual, = torch.autograd.grad(checkpoint(function, x, context_fn=selective(policy)).sum(), x)
        assert same_bits(actual, expected)


def test_ops_with_several_results_and_with_views():
    def function(x):
        values, places = x.sort(dim=0)
        u, v = values.t().chunk(2)
        return (u.contiguous().view(-1) * v.exp().reshape(-1)).sin() + places.sum()

    x = torch.randn(4, 6, requires_grad=True)
    expected, = torch.autograd.grad(function(x).sum(), x)
    for policy in ([torch.ops.aten.sort.default], [torch.ops.aten.exp.default, torch.ops.aten.clone.default]):
        actual, = torch.autograd.grad(checkpoint(function, x, context_fn=selective(policy)).sum(), x)
        assert same_bits(actual, expected)


def test_the_program_may_keep_and_drop_results():
    x = torch.randn(4, 4, requires_grad=True)
    kept = []

    def function(x):
        y = torch.mm(x, x)
        kept.append(weakref.ref(y))
        return y.sin()

    out = checkpoint(function, x, context_fn=selective([torch.ops.aten.mm.default]))
    again = torch.autograd.grad(out.sum(), x, retain_graph=True)
    assert same(torch.autograd.grad(out.sum(), x), again)
    del out
    gc.collect()
    assert kept[0]() is None
