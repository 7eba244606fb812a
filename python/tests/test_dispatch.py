"""Dispatch modes, ops defined in Python, saved-tensor hooks, functorch, scripted and compiled code."""

import contextlib
import gc
import itertools
import multiprocessing
import os
import signal
import threading
import traceback
from typing import Optional

import pytest
import torch
from support import assert_same, gradients, mlp, run, same_bits
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import ac2

# Autograd has a thread for each kind of device, after whose start PyTorch refuses to run a backward in a forked child.
needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or torch.cuda.is_available(), reason="a forked child cannot run a backward here")

# Operators go with their library, and torch 2.11 cannot import Inductor after one has gone.
LIBRARIES = []

class CountingMode(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.ops += 1
        return func(*args, **(kwargs or {}))


def stats_of(region, step):
    with region:
        loss = step()
    before = region.trace.stats()
    loss.backward()
    return before.saved_bytes, region.trace.stats().recomputed_ops


@pytest.mark.parametrize("where", ["inside", "around"])
def test_a_dispatch_mode_changes_nothing(where):
    x = torch.randn(8, 8, requires_grad=True)

    def step():
        if where == "around":
            return x.sin().cos().exp().sum()
        with CountingMode():
            return x.sin().cos().exp().sum()

    expected = stats_of(ac2.PolicyScope("recompute_all"), lambda: x.sin().cos().exp().sum())
    if where == "inside":
        assert stats_of(ac2.PolicyScope("recompute_all"), step) == expected
    else:
        with CountingMode():
            assert stats_of(ac2.PolicyScope("recompute_all"), step) == expected


class Doubled(TorchDispatchMode):
    """Runs another op behind some."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func in (torch.ops.aten.sin.default, torch.ops.aten.mm.default) else result


class Replaced(TorchDispatchMode):
    """Returns what other ops have made of the arguments."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sin.default:
            return args[0].cos().mul_(3)
        if func is torch.ops.aten.exp.default:
            return torch.full_like(args[0], 0.5)
        if func is torch.ops.aten.mul_.Tensor:
            return func(args[0], args[1] + 1)
        return func(*args, **(kwargs or {}))


class Noisy(TorchDispatchMode):
    """Draws random numbers behind every op that returns a number of ours."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        is_ours = isinstance(result, torch.Tensor) and result.dtype == torch.float32 and not func.is_view
        return result + torch.rand_like(result) / 8 if is_ours and not func._schema.is_mutable else result


def recompute_each(ctx, op, *args, **kwargs):
    return ac2.CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("where", ["inside", "around", "around backward too"])
@pytest.mark.parametrize("mode", [Doubled, Replaced, Noisy])
def test_a_mode_that_changes_results_changes_them_once(mode, where):
    def forward(x, w):
        y = (x.sin().mm(w) / 8).exp() + 1
        y.mul_(x)
        y = torch.nn.functional.dropout(torch.nn.functional.layer_norm(y, (8,)).sin().view(4, 16), 0.3)
        return (y.sigmoid().cos() * y).view(8, 8).mm(w).sum()

    def step(region):
        torch.manual_seed(0)
        x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
        if where == "inside":
            with region, mode():
                loss = forward(x, w)
            loss.backward()
        else:
            with mode():
                with region:
                    loss = forward(x, w)
                if where == "around backward too":
                    loss.backward()
            if where == "around":
                loss.backward()
        return loss.detach(), x.grad, w.grad, torch.get_rng_state()

    expected = step(ac2.DisableCheckpointing())
    for policy in ("recompute_all", "save_compute_intensive", "speed", "memory", recompute_each, "must_save_all"):
        for options in ({}, {"memory_budget": 2500 if policy == "recompute_all" else 1 << 20}, {"verify": True}):
            region = ac2.PolicyScope(policy, **options)
            assert all(map(same_bits, step(region), expected)), (policy, options)


def test_two_modes_that_change_results_inside_and_around():
    def step(region):
        x = torch.arange(8.0).requires_grad_()
        with Doubled(), region:
            y = x.sin()
            with Replaced():
                loss = (y.sin().exp() * x).sin().sum()
        loss.backward()
        return x.grad

    region = ac2.PolicyScope("recompute_all")
    assert same_bits(step(region), step(ac2.DisableCheckpointing()))
    assert region.trace.stats().recomputed_ops > 0


def test_verify_mode_and_a_mode_that_only_passes_on():
    x = torch.randn(8, 8, requires_grad=True)
    with CountingMode(), ac2.PolicyScope("recompute_all", verify=True):
        y = torch.nn.functional.layer_norm(x, (8,)).sin().sum(1, keepdim=True).expand(8, 8)
        loss = (torch.cat([y, x], 1) / 2).softmax(1).log().sum()
    loss.backward()
    x.grad = None


def test_a_mode_does_not_see_what_is_replayed():
    model, x = mlp(), torch.randn(4, 16)
    with FlopCounterMode(display=False) as plain:
        model(x).sum().backward()
    with FlopCounterMode(display=False) as recomputed:
        with ac2.PolicyScope("recompute_all"):
            loss = model(x).sum()
        loss.backward()
    assert recomputed.get_total_flops() == plain.get_total_flops()


def test_an_op_defined_in_python_is_replayed():
    calls = []

    @torch.library.custom_op("ac2_tests::double_sine", mutates_args=())
    def double_sine(x: torch.Tensor) -> torch.Tensor:
        calls.append(ac2.is_recomputing())
        return torch.sin(x) * 2

    double_sine.register_autograd(
        lambda ctx, gradient: gradient * 2 * torch.cos(ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    expected = gradients(lambda x: double_sine(double_sine(x)).cos(), (8,))
    calls.clear()
    region = ac2.PolicyScope("recompute_all")

    def step(x):
        with region:
            return double_sine(double_sine(x)).cos()

    assert same_bits(gradients(step, (8,))[0], expected[0])
    assert calls == [False, False, True, True]


@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all", ["aten::sin"], "speed"])
@pytest.mark.parametrize("writes", ["one", "two views of one", "a list"])
def test_what_an_op_defined_in_python_writes_to_is_copied_first(policy, writes):
    @torch.library.custom_op("ac2_tests::add_to", mutates_args=("x", "y"))
    def add_to(x: torch.Tensor, y: Optional[torch.Tensor], k: float) -> None:
        x.add_(k)
        if y is not None:
            y.mul_(k)

    @torch.library.custom_op("ac2_tests::add_to_all", mutates_args=("xs",))
    def add_to_all(xs: list[torch.Tensor], k: float) -> None:
        for x in xs:
            x.add_(k)

    def step(w):
        m = w.detach().sin()
        a = m.exp() * w
        if writes == "one":
            add_to(m, None, 2.0)
        elif writes == "a list":
            add_to_all([m[:4], m[4:]], 2.0)
        else:
            add_to(m[:4], m[4:], 2.0)
        return (a * a).sum() + (m.cos() * w).sum()

    w = torch.arange(8.0).requires_grad_()
    expected = torch.autograd.grad(step(w), w)
    with ac2.PolicyScope(policy):
        loss = step(w)
    assert same_bits(torch.autograd.grad(loss, w)[0], expected[0])


@torch.library.custom_op("ac2_tests::increment", mutates_args=("x",))
def increment(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("ac2_tests::increment_by_numpy", mutates_args=("x",))
def increment_by_numpy(x: torch.Tensor) -> None:
    x.numpy()[:] += 1


def in_no_region(write, x):
    write(x)


def in_a_later_region(write, x):
    with ac2.PolicyScope("recompute_all"):
        write(x)


def while_checkpointing_is_off(write, x):
    with ac2.PolicyScope("recompute_all"), ac2.DisableCheckpointing():
        write(x)


def by_an_op_of_its_own(write, x):
    @torch.library.custom_op("ac2_tests::young", mutates_args=("x",))
    def young(x: torch.Tensor) -> None:
        write(x)

    young(x)


USES = {
    "taken": lambda x, state: (x * state.cos()).sin(),
    "saved": lambda x, state: (x * state).sin(),
    "taken and saved": lambda x, state: (x * state.cos() * state).sin(),
}
REACHED_BY = {"itself": lambda x: x, "a view": lambda x: x[2:], "detach": torch.Tensor.detach, "data": lambda x: x.data}


@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all", "speed"])
@pytest.mark.parametrize("where", [in_no_region, in_a_later_region, while_checkpointing_is_off, by_an_op_of_its_own])
@pytest.mark.parametrize("write", [increment, increment_by_numpy], ids=["by an op", "by numpy"])
@pytest.mark.parametrize("reach", REACHED_BY.values(), ids=REACHED_BY.keys())
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_an_op_defined_in_python_writes_between_a_region_and_its_backward(policy, where, write, reach, use):
    """Where plain PyTorch has a gradient, it is the same one, and where plain PyTorch has an error, there is one."""

    def gradient(region, where):
        x, state = torch.arange(8.0).requires_grad_(), torch.arange(8.0)
        with region:
            loss = use(x, state).sum()
        where(write, reach(state))
        try:
            loss.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return None
        return x.grad

    expected, found = gradient(contextlib.nullcontext(), in_no_region), gradient(ac2.PolicyScope(policy), where)
    assert (found is None) == (expected is None)
    assert expected is None or same_bits(found, expected)


def batch_norm_into(k):
    torch.nn.functional.batch_norm(torch.arange(8.0).view(4, 2), k[:2], torch.ones(2), training=True)


def noise_into(k):
    torch.ops.aten.rrelu_with_noise(torch.arange(-4.0, 4.0), k, 0.1, 0.3, True, torch.Generator().manual_seed(1))


def halve(x):
    x.detach().numpy()[:] /= 2


def an_op_of_a_library(k):
    library = torch.library.Library("ac2_tests_uncounted", "FRAGMENT")  # noqa: TOR901
    LIBRARIES.append(library)
    if not hasattr(torch.ops.ac2_tests_uncounted, "halve"):
        library.define("halve(Tensor(a!) x) -> ()")
        library.impl("halve", halve, "CPU")
    torch.ops.ac2_tests_uncounted.halve(k)


@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all", "speed"])
@pytest.mark.parametrize("write", [batch_norm_into, noise_into, an_op_of_a_library])
@pytest.mark.parametrize("is_result", [False, True])
def test_what_nobody_counts_is_read_by_backward_where_autograd_has_saved_the_tensor(policy, write, is_result):
    def gradient(region):
        p, x = torch.ones(8, requires_grad=True), torch.arange(1.0, 9.0)
        with region:
            k = x * 2 if is_result else x
            loss = (p * k).sum()
        write(k.detach())
        loss.backward()
        return p.grad

    assert same_bits(gradient(ac2.PolicyScope(policy)), gradient(contextlib.nullcontext()))


def test_a_python_kernel_of_a_library_is_replayed():
    library = torch.library.Library("ac2_tests_2", "DEF")  # noqa: TOR901
    LIBRARIES.append(library)
    library.define("half(Tensor x) -> Tensor")
    library.impl("half", lambda x: x / 2, "CPU")
    x = torch.randn(8, requires_grad=True)
    region = ac2.PolicyScope("recompute_all")
    with region:
        loss = torch.ops.ac2_tests_2.half(x.detach()).mul(x).cos().sum()
    held = region.trace.stats().saved_bytes
    loss.backward()
    assert held == 8 * 4 and region.trace.stats().recomputed_ops == 2
    expected = torch.autograd.grad((x.detach() / 2 * x).cos().sum(), x)[0]
    assert same_bits(x.grad, expected)


@torch.library.custom_op("ac2_tests::noisy", mutates_args=())
def noisy(x: torch.Tensor, p: float) -> torch.Tensor:
    return x * torch.randn_like(x) if p > 0 else x.clone()


noisy.register_autograd(
    lambda ctx, gradient: (gradient * ctx.saved_tensors[0] / ctx.saved_tensors[1], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output, inputs[0]),
)


LIBRARIES.append(torch.library.Library("ac2_tests_3", "DEF"))  # noqa: TOR901
LIBRARIES[-1].define("noise_from(Tensor x, Generator? rng) -> Tensor")
LIBRARIES[-1].impl("noise_from", lambda x, rng: x * torch.rand(x.shape, generator=rng), "CPU")


@pytest.mark.parametrize("options", [{}, {"memory_budget": 4096}, {"verify": True}])
@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all", recompute_each])
def test_an_op_that_draws_and_does_not_say_so_is_replayed_on_what_it_drew(policy, options):
    noise_from = torch.ops.ac2_tests_3.noise_from

    def step(region):
        torch.manual_seed(0)
        own = torch.Generator().manual_seed(3)
        x = torch.randn(64, requires_grad=True)
        losses = []
        for _ in range(3):  # a generator that has moved on shows in the next round
            with region():
                y = noisy(x.sin(), 0.5) + noisy(x.cos(), 0.0)
                y = y * noise_from(x.detach(), own) * noise_from(x.detach(), None)
                loss = torch.nn.functional.dropout(y, 0.5).square().sum()
            loss.backward()
            losses.append(loss.detach())
        return *losses, x.grad, torch.get_rng_state(), own.get_state()

    expected = step(ac2.DisableCheckpointing)
    found = step(lambda: ac2.PolicyScope(policy, **options))
    assert all(map(same_bits, found, expected))


def test_the_innermost_of_hooks_and_regions_gets_what_is_saved():
    log = []

    def hooks(name):
        return torch.autograd.graph.saved_tensors_hooks(lambda t: (log.append(name), t)[1], lambda t: t)

    x = torch.randn(4, requires_grad=True)
    with hooks("outer"), ac2.PolicyScope("recompute_all") as outer:
        x.sin().cos()
        assert log == []
        with hooks("inner"):
            x.sin()
            assert log == ["inner"]
            with ac2.PolicyScope("recompute_all"):
                x.sin()
                assert log == ["inner"]
            x.sin()
            assert log == ["inner", "inner"]
        x.sin()
        assert log == ["inner", "inner"]
    del outer


def test_mutation_of_what_is_saved_is_allowed_inside_a_region_and_explained_around_it():
    allowed = torch.autograd.graph.allow_mutation_on_saved_tensors

    def step(region, inner):
        x = torch.arange(4.0, requires_grad=True)
        y = x.clone()
        with region, inner:
            z = y.sin()
            y.mul_(2)
            loss = (y.cos() * z).sum()
            y.mul_(3)
            if not isinstance(inner, contextlib.nullcontext):
                loss.backward()
        return loss, x

    expected = step(ac2.DisableCheckpointing(), allowed())[1].grad
    assert same_bits(step(ac2.PolicyScope("recompute_all"), allowed())[1].grad, expected)

    with allowed():
        x = torch.arange(4.0, requires_grad=True)
        y = x.clone()
        with pytest.warns(RuntimeWarning, match="Enter it inside the region"), ac2.PolicyScope("recompute_all"):
            loss = y.sin().sum()
        y.mul_(2)
        with pytest.raises(RuntimeError, match=r"modified by an inplace.*allow_mutation_on_saved_tensors\(\).*enter them inside"):
            loss.backward()
    del loss


def test_the_error_about_a_write_names_the_parameter_the_op_and_the_reader():
    model, x = mlp(), torch.randn(4, 16)
    with ac2.PolicyScope("recompute_all"):
        loss = model(x).square().mean()
    with torch.no_grad():
        model[3].weight.mul_(2)
    name = r"The op that wrote to it last is aten::mul_(.|\n)*The tensor is 3\.weight(.|\n)*AddmmBackward0 reads it, a tensor of sizes"
    with pytest.raises(RuntimeError, match=name):
        loss.backward()
    del loss


def test_functorch_transforms_inside_and_around_a_region():
    model, x = mlp().eval(), torch.randn(4, 16)
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).square().mean()

    expected = torch.func.grad(loss)(parameters, x)
    with ac2.PolicyScope("recompute_all"):
        inside = torch.func.grad(loss)(parameters, x)
    around = torch.func.grad(lambda p, x: ac2.apply_ac_policy_fn(loss, p, x))(parameters, x)
    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    with ac2.PolicyScope("recompute_all"):
        per_sample_inside = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for name in parameters:
        assert same_bits(inside[name], expected[name]) and same_bits(around[name], expected[name])
        assert same_bits(per_sample_inside[name], per_sample[name])


@pytest.mark.filterwarnings("ignore")
def test_scripted_and_traced_code_is_recorded():
    model, x = mlp().eval(), torch.randn(4, 16)
    for compiled in (torch.jit.script(model), torch.jit.trace(model, x)):
        for _ in range(3):  # the profiling executor's graphs differ
            with ac2.PolicyScope("recompute_all"):
                ours = compiled(x).square().mean()
            ours = torch.autograd.grad(ours, list(model.parameters()))
            plain = torch.autograd.grad(compiled(x).square().mean(), list(model.parameters()))
            assert all(same_bits(a, b) for a, b in zip(ours, plain))


def test_fake_tensors_in_a_region():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model, x = mlp(), torch.randn(4, 16)
        with ac2.PolicyScope("recompute_all"):
            loss = model(x).sum()
        loss.backward()
        assert all(p.grad.shape == p.shape for p in model.parameters())
    del model, loss


@pytest.mark.filterwarnings("ignore")
def test_compiled_code_in_a_region_and_a_region_in_compiled_code():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
    compiled = torch.compile(model)
    x = torch.randn(4, 8, requires_grad=True)

    def step(region):
        with region:
            loss = compiled(x.sin().cos()).sin().cos().sum()
        return torch.autograd.grad(loss, [x, *model.parameters()])

    region = ac2.PolicyScope("recompute_all")
    first = step(region)  # compiles inside of it
    expected = step(ac2.DisableCheckpointing())
    again = ac2.PolicyScope("recompute_all")
    second = step(again)
    for a, b, c in zip(first, second, expected):
        assert same_bits(a, c) and same_bits(b, c)
    assert again.trace.stats().recomputed_ops == 4  # the compiled code, sin before it, and sin and what that takes after it

    def inside(x):
        with ac2.PolicyScope("recompute_all"):
            return model(x).sin().sum()

    eager = torch.autograd.grad(inside(x), [x])
    ours = torch.autograd.grad(torch.compile(inside)(x), [x])
    torch.testing.assert_close(ours, eager)
    torch._dynamo.reset()
    gc.collect()


@pytest.mark.filterwarnings("ignore")
def test_nothing_of_what_a_compiler_traces_is_recorded_or_asked_about():
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.proxy_tensor import make_fx

    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.extend(op for t in args if isinstance(t, FakeTensor) or (isinstance(t, torch.Tensor) and t.is_meta))
        return ac2.CheckpointPolicy.PREFER_RECOMPUTE

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).requires_grad_(False)
    compiled = torch.compile(model, backend="aot_eager")
    calls = []

    def compiler(graph, inputs):
        calls.append(graph)
        return graph

    seen = torch.compile(lambda x: x.sin() * 2, backend=compiler)
    counts = []
    for _ in range(3):
        x = torch.ones(4, 8, requires_grad=True)
        with ac2.PolicyScope(policy, memory_budget=1 << 20) as region:
            loss = (compiled(x) + seen(x)).sum()
        counts.append(region.trace.stats().recorded_ops)
        loss.backward()
    assert counts[0] == counts[1] == counts[2], counts
    assert len(calls) == 1, "compiled again in each region"
    with ac2.PolicyScope(policy) as region:
        torch.export.export(model, (torch.ones(4, 8),))
        make_fx(lambda x: x.sin() * 2, tracing_mode="fake")(torch.ones(4, 8))
    assert asked == []
    torch._dynamo.reset()
    gc.collect()


def train_in_child(queue):
    x = torch.ones(4, requires_grad=True)
    with ac2.PolicyScope("recompute_all") as scope:
        y = x.sin().cos().sum()
    y.backward()
    queue.put((scope.trace.stats().recomputed_ops, ac2.live_node_count()))


@needs_fork
@pytest.mark.filterwarnings("ignore")
def test_a_forked_child_has_regions_of_its_own():
    with ac2.PolicyScope("recompute_all"):
        y = torch.ones(4, requires_grad=True).sin()
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
    del y
    child = context.Process(target=train_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == (1, 0)
    child.join()


@needs_fork
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["soft", "peak"])
def test_a_child_finds_the_locks_of_other_threads_free(kind):
    budget = ac2.MemoryBudget.soft(30000) if kind == "soft" else ac2.MemoryBudget.peak(300000)
    stop = threading.Event()
    started = threading.Barrier(3)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's threads are not in the child
    # LibTorch's engine takes a lock of RecordFunction's, which no fork() takes: PyTorch alone hangs, too, in a child that
    # was forked while another thread had it.
    backward = threading.Lock()

    def train():
        layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(4)))
        for step in itertools.count():
            with ac2.PolicyScope(memory_budget=budget):
                first = layers[0](torch.ones(32, 64))
                loss = (layers[1:](first) * first).square().mean()  # what was dropped is replayed in forward, too
            with backward:
                loss.backward()
            if step == 0:
                started.wait()  # LibTorch has locks of its own, which a thread takes in its first ops
            if stop.is_set():
                return

    def in_child():
        with ac2.PolicyScope(memory_budget=budget):
            z = (torch.ones(64, 64, requires_grad=True) * 2).tanh().exp()
        torch.autograd.grad(z.sum(), [z])

    in_child()
    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    try:
        for _ in range(40):
            with backward:
                child = os.fork()
            if child == 0:
                signal.alarm(60)  # ends a child that waits for ever
                try:
                    in_child()
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(1)  # else the child would go on with the tests
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        torch.set_num_threads(torch_threads)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index))


@pytest.mark.filterwarnings("ignore")
def test_data_loader_workers_in_a_region():
    x = torch.ones(4, requires_grad=True)
    with ac2.PolicyScope("recompute_all"):
        loss = sum((batch * x).sin().sum() for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2))
    loss.backward()
    expected = torch.autograd.grad(sum((torch.full((4,), float(i)) * x).sin().sum() for i in range(8)), x)[0]
    torch.testing.assert_close(x.grad, expected)


def test_backward_of_a_user_function_that_calls_backward():
    class Reentrant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                with ac2.PolicyScope("recompute_all"):
                    z = y.sin()
                return torch.autograd.grad(z, y, gradient)

    def step(region):
        x = torch.arange(4.0).requires_grad_()
        with region:
            loss = Reentrant.apply(x.cos()).exp().sum()
        loss.backward()
        return x.grad

    assert same_bits(step(ac2.PolicyScope("recompute_all")), step(ac2.DisableCheckpointing()))


@pytest.mark.skipif(not hasattr(torch.Tensor, "refine_names"), reason="tensors have no names in this torch")
@pytest.mark.filterwarnings("ignore")
def test_a_policy_is_asked_about_tensors_with_names():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append((str(op), args[0].names if isinstance(args[0], torch.Tensor) else [t.names for t in args[0]]))
        return ac2.CheckpointPolicy.PREFER_RECOMPUTE

    x = torch.randn(3, 4, names=("rows", "columns"), requires_grad=True)
    with ac2.PolicyScope(policy):
        loss = torch.cat([x.sin(), x.cos()], "rows").sum("columns").rename(None).sum()
    loss.backward()
    assert {op for op, names in asked if "rows" in str(names)} >= {"aten.sin.default", "aten.cos.default", "aten.cat.default"}
    plain = x.detach().rename(None).requires_grad_()
    torch.cat([plain.sin(), plain.cos()]).sum().backward()
    assert same_bits(x.grad.rename(None), plain.grad)


def test_whole_model_with_everything_at_once():
    model, x = mlp(), torch.randn(4, 16)

    def step(model):
        with CountingMode(), ac2.PolicyScope(ac2.by_operator(lambda ctx, op: op is torch.ops.aten.gelu.default), timeline=True):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                x1 = model[:3](x)
            return ac2.checkpoint(model[3:], x1, memory_budget=1 << 16).square().mean()

    assert_same(run(model, step), run(model, lambda model: model(x).square().mean()))
