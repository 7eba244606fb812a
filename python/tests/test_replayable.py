"""ac2.replayable: functions, methods and autograd functions of Python's as ops of regions."""

import contextlib
import copy
import ctypes
import functools
import pickle
import warnings

import pytest
import torch
from support import same_bits

import ac2
from ac2 import CheckpointPolicy


def tripled(x, *, calls=None):
    """A kernel that no dispatcher sees."""
    out, given = torch.empty_like(x), x.contiguous()
    source, target = (ctypes.cast(t.data_ptr(), ctypes.POINTER(ctypes.c_float)) for t in (given, out))
    for i in range(x.numel()):
        target[i] = 3 * source[i]
    if calls is not None:
        calls.append(1)
    return out


@pytest.fixture
def x():
    return torch.randn(16)


@pytest.fixture
def weight():
    return torch.randn(16, requires_grad=True)


def train(fn, x, weight, policy="recompute_all", **options):
    """The gradient, and what the region had done when it was closed and after backward."""
    with ac2.PolicyScope(policy, **options) as scope:
        y = (fn(x) * weight).cos()
    forward = scope.trace.stats()
    (gradient,) = torch.autograd.grad(y.sum(), weight)
    return gradient, forward, scope.trace.stats()


def test_a_call_is_one_op_that_is_computed_again(x, weight):
    calls = []
    fn = ac2.replayable(tripled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient, forward, backward = train(lambda x: fn(x, calls=calls), x, weight)
    assert same_bits(gradient, torch.autograd.grad((tripled(x) * weight).cos().sum(), weight)[0])
    assert forward.recorded_ops == 3 and forward.saved_bytes == 2 * 64
    assert backward.recomputed_ops == 2 and len(calls) == 2


def test_policies_know_it_by_its_name(x, weight):
    calls, asked = [], []
    fn = functools.partial(ac2.replayable(tripled, name="times_three"), calls=calls)
    train(fn, x, weight, ac2.policies.save_ops(["replayable::times_three"]))
    assert len(calls) == 1

    def policy(ctx, op, *args, **kwargs):
        asked.append(op)
        return CheckpointPolicy.PREFER_RECOMPUTE

    train(fn, x, weight, policy)
    assert torch.ops.replayable.times_three.default in asked


def test_a_budget_drops_its_results(x, weight):
    calls = []
    budget = ac2.MemoryBudget.soft(64, modelled_costs=True)
    _, _, backward = train(
        functools.partial(ac2.replayable(tripled), calls=calls), x, weight, CheckpointPolicy.PREFER_SAVE, memory_budget=budget
    )
    assert backward.evicted_values > 0 and len(calls) == 2


def test_tensors_lie_in_any_nesting_and_the_rest_is_given_again(x, weight):
    class Settings:
        scale = 2

    @ac2.replayable
    def fn(parts, *, settings, names=("a",)):
        total = sum(part * settings.scale for part in parts["tensors"])
        return {"total": total, "more": [total + 1, None], "names": (*names, "b")}

    with ac2.PolicyScope("recompute_all") as scope:
        result = fn({"tensors": [x, (x + 1)]}, settings=Settings)
        assert result["names"] == ("a", "b") and result["more"][1] is None
        y = (result["total"] * result["more"][0] * weight).cos()
    y.sum().backward()
    total = x * 2 + (x + 1) * 2
    assert same_bits(weight.grad, torch.autograd.grad((total * (total + 1) * weight).cos().sum(), weight)[0])
    assert scope.trace.stats().recomputed_ops > 0


def test_generators_among_the_arguments_draw_the_same_numbers(x, weight):
    @ac2.replayable
    def noise(x, generators):
        return sum(x * torch.rand(x.shape, generator=generator) for generator in generators)

    def step(region):
        generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
        with region:
            y = (noise(x, generators) * weight).cos()
        gradient = torch.autograd.grad(y.sum(), weight)[0]
        return gradient, *(generator.get_state() for generator in generators)

    expected = step(ac2.DisableCheckpointing())
    for options in ({}, {"verify": True}):
        scope = ac2.PolicyScope("recompute_all", **options)
        assert all(same_bits(a, b) for a, b in zip(step(scope), expected))
        assert scope.trace.stats().recomputed_ops == 2
    with pytest.raises(RuntimeError, match="was given 3 generators; expected 2 at most"):
        noise(x, [torch.Generator() for _ in range(3)])


def test_numpy_arrays_of_arguments_end_with_the_call(x, weight):
    @ac2.replayable
    def by_numpy(x):
        return torch.from_numpy(x.numpy() * 2)

    _, forward, backward = train(by_numpy, x, weight)
    assert forward.saved_bytes == 2 * 64 and backward.recomputed_ops == 2


def test_a_replay_has_forwards_default_device(x, weight):
    @ac2.replayable
    def fn(x):
        return x * (2 if torch.empty(1).device.type == "meta" else 5)

    with ac2.PolicyScope("recompute_all"), torch.device("meta"):
        y = (fn(x) * weight).cos()
    y.sum().backward()
    assert same_bits(weight.grad, torch.autograd.grad((x * 2 * weight).cos().sum(), weight)[0])


@ac2.replayable
def at_module_level(x):
    return x + 1


def test_a_function_is_pickled_and_copied_by_its_name():
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert copy.deepcopy([at_module_level])[0] is at_module_level


class LooksAtGradients(torch.autograd.Function):
    """As kernels of attention do: what forward saves depends on whether a gradient is wanted."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.seen = (x.requires_grad, y.requires_grad)
        if x.requires_grad:
            ctx.save_for_backward(x * 2)
        return x * 2 + y

    @staticmethod
    def backward(ctx, gradient):
        (doubled,) = ctx.saved_tensors
        return gradient * doubled, None


def test_the_forward_of_a_function_sees_whether_a_gradient_is_wanted(x, weight):
    def step(function, region):
        with region:
            out = function.apply(weight.sin(), x)
            assert out.grad_fn.seen == (True, False)
            y = out.cos()
        return torch.autograd.grad(y.sum(), weight)[0]

    expected = step(LooksAtGradients, ac2.DisableCheckpointing())
    made = ac2.replayable(LooksAtGradients)
    assert same_bits(step(made, ac2.DisableCheckpointing()), expected)
    assert same_bits(step(made, ac2.PolicyScope("recompute_all")), expected)


def test_methods_are_ops_too(x, weight):
    class Kernels:
        def __init__(self):
            self.calls = []

        @ac2.replayable
        def run(self, x):
            return tripled(x, calls=self.calls)

    kernels = Kernels()
    assert same_bits(train(kernels.run, x, weight)[0], train(tripled, x, weight)[0])
    assert len(kernels.calls) == 2


def test_a_replay_draws_forwards_numbers(x, weight):
    @ac2.replayable(name="noise")
    def noise(x):
        return x * torch.rand_like(x)

    torch.manual_seed(1)
    gradient = train(noise, x, weight)[0]
    after = torch.rand(4)
    torch.manual_seed(1)
    assert same_bits(gradient, torch.autograd.grad(((x * torch.rand(16)) * weight).cos().sum(), weight)[0])
    assert same_bits(after, torch.rand(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_replay_is_under_forwards_autocast(weight, dtype):
    x = torch.randn(4, 4)

    @ac2.replayable
    def product(x):
        return x @ x

    def step(fn, **options):
        with torch.autocast("cpu", dtype=dtype), ac2.PolicyScope("recompute_all", **options) as scope:
            made = fn(x)
            assert made.dtype == dtype
            y = (made * weight.view(4, 4)).cos()
        return torch.autograd.grad(y.sum(), weight)[0], scope.trace.stats().recomputed_ops

    expected, _ = step(lambda x: x @ x)
    gradient, recomputed = step(product)
    assert same_bits(gradient, expected) and recomputed > 0
    assert same_bits(step(product, verify=True)[0], expected)


def test_a_backward_through_its_results_is_an_error(weight):
    with pytest.raises(RuntimeError, match="replayable::tripled has no derivative.*torch.autograd.Function"):
        ac2.replayable(tripled)(weight).sum().backward()


class Scan(torch.autograd.Function):
    """Saves an argument, a result, and what it has made for backward; writes through pointers."""

    calls = 0

    @staticmethod
    def forward(ctx, x, scale):
        Scan.calls += 1
        state = tripled(x)
        y = tripled(state.sin())
        ctx.save_for_backward(x, None, state, y)
        ctx.scale, ctx.argument = scale, x
        count = torch.tensor([x.numel()])
        ctx.mark_non_differentiable(count)
        return y, count

    @staticmethod
    def backward(ctx, gradient, _):
        x, none, state, y = ctx.saved_tensors
        assert none is None and same_bits(ctx.argument, x)
        return gradient * 9 * state.cos() * ctx.scale + 0 * x * y, None


def test_the_forward_of_an_autograd_function_is_an_op(weight):
    def gradient_with(function, region):
        with region:
            y, count = function.apply(weight.sin(), 2.0)
            assert not count.requires_grad
            y = y.cos()
        return torch.autograd.grad(y.sum(), weight)[0]

    expected = gradient_with(Scan, ac2.DisableCheckpointing())
    made = ac2.replayable(Scan)
    assert issubclass(made, Scan) and made.__name__ == "Scan"
    assert same_bits(gradient_with(made, ac2.DisableCheckpointing()), expected)
    for policy, calls in (("recompute_all", 2), ("must_save_all", 1)):
        Scan.calls = 0
        scope = ac2.PolicyScope(policy)
        assert same_bits(gradient_with(made, scope), expected)
        assert Scan.calls == calls
    with ac2.PolicyScope("recompute_all") as scope:
        y = made.apply(weight.sin(), 2.0)[0].cos()
        assert scope.trace.stats().saved_bytes == 64  # weight
    del y


def test_a_function_with_a_setup_context_is_one_too(weight):
    class Doubled(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(x):
            Doubled.calls += 1
            return tripled(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3 + 0 * ctx.saved_tensors[0]

    made = ac2.replayable(Doubled)
    with ac2.PolicyScope("recompute_all"):
        y = made.apply(weight.sin()).cos()
    gradient = torch.autograd.grad(y.sum(), weight)[0]
    assert Doubled.calls == 2
    assert same_bits(gradient, torch.autograd.grad(Doubled.apply(weight.sin()).cos().sum(), weight)[0])


def test_a_function_that_writes_to_its_arguments_is_an_error(weight):
    class InPlace(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    with pytest.raises(RuntimeError, match="mark_dirty"):
        ac2.replayable(InPlace).apply(weight.sin())


def test_an_argument_that_it_writes_to_is_named(weight):
    @ac2.replayable
    def counts(x, buffer):
        buffer.add_(1)
        return x * buffer

    for policy in ("recompute_all", "must_save_all"):
        with ac2.PolicyScope(policy), pytest.raises(RuntimeError, match="replayable::counts has written to tensor 1 of its arguments"):
            counts(weight.detach(), torch.zeros(16))
    with pytest.raises(RuntimeError, match="replayable::counts has written to tensor 1"):
        counts(weight.detach(), torch.zeros(16))


def test_policies_and_modes_may_look_at_its_arguments(x, weight):
    seen = []

    def look(values):
        for value in values:
            seen.append((type(value).__name__, value.size() if hasattr(value, "size") else repr(value)))

    def policy(ctx, op, *args, **kwargs):
        look(args)
        return False

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            look(args)
            return func(*args, **(kwargs or {}))

    scale = ac2.replayable(lambda x: x * 2, name="scale_and_look")
    plain = torch.autograd.grad(((x * 2) * weight).cos().sum(), weight)[0]
    assert same_bits(train(scale, x, weight, policy)[0], plain)
    with Mode():
        assert same_bits(train(scale, x, weight)[0], plain)
    assert "ScriptObject" in {name for name, _ in seen} and "ProcessGroup" not in {name for name, _ in seen}


def test_a_router_is_asked_once(weight):
    calls = []

    @ac2.replayable
    def route(x):
        calls.append(1)
        values, indices = x.topk(4)
        return values, (indices + len(calls)) % 16

    @ac2.replayable
    def counted(x):
        calls.append(1)
        return x * 3, torch.tensor([3])

    for fn, times in ((route, 1), (counted, 2)):
        calls.clear()
        with ac2.PolicyScope("recompute_all"):
            first, second = fn(weight.detach().sin())
            y = (weight[second] * first.sum()).cos().sum()
            del first, second
        y.backward()
        assert len(calls) == times, fn


def test_verify_mode_finds_a_function_that_computes_other_results(x, weight):
    calls = []

    @ac2.replayable
    def counting(x):
        calls.append(1)
        return x + len(calls)

    with pytest.raises(RuntimeError, match="replayable::counting"):
        train(counting, x, weight, verify=True)


def test_its_exceptions_pass_through_and_nothing_is_left(x, weight):
    fails = [False]

    @ac2.replayable
    def failing(x):
        if fails[0]:
            raise KeyError("the kernel failed")
        return x + 1

    with ac2.PolicyScope("recompute_all"):
        y = (failing(x) * weight).cos()
    fails[0] = True
    with pytest.raises(KeyError, match="the kernel failed"):
        y.sum().backward(retain_graph=True)
    fails[0] = False
    y.sum().backward()
    assert same_bits(weight.grad, torch.autograd.grad(((x + 1) * weight).cos().sum(), weight)[0])


def test_arguments_that_are_none_are_errors(x):
    with pytest.raises(TypeError, match="the module Linear, whose parameters would get no gradient"):
        ac2.replayable(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="expected a function"):
        ac2.replayable(3)
    with pytest.raises(TypeError, match="expected a function"):
        ac2.replayable(dict)
    with pytest.raises(ValueError, match='named "a b"'):
        ac2.replayable(tripled, name="a b")
    with pytest.raises(TypeError, match="name is 3"):
        ac2.replayable(tripled, name=3)
    with pytest.raises(TypeError, match="returned no tensor"):
        ac2.replayable(lambda x: 3)(x)


def test_a_compiled_caller_runs_it_outside_of_its_graph(x, weight):
    fn = ac2.replayable(tripled)

    def step(x):
        return (fn(x + 1) * weight).cos()

    with ac2.PolicyScope("recompute_all"):
        y = torch.compile(step, backend="eager")(x)
    assert same_bits(torch.autograd.grad(y.sum(), weight)[0], torch.autograd.grad(step(x).sum(), weight)[0])


def test_a_mode_that_is_on_in_backward_does_not_see_a_replay():
    """Nor does it in forward, which runs below the modes that see the call."""

    class Sine(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result.sin() if func is torch.ops.aten.cos.default else result

    @ac2.replayable
    def by_pointer(x):
        result = x * 2
        result.numpy()[...] *= x.cos().numpy()
        return result

    def gradient(region):
        w = torch.linspace(0, 1, 8).requires_grad_()
        with Sine():
            with region:
                loss = (by_pointer(w.detach() + 1) * w).exp().sum()
            loss.backward()
        return w.grad

    assert torch.equal(gradient(ac2.PolicyScope("recompute_all", verify=True)), gradient(contextlib.nullcontext()))
