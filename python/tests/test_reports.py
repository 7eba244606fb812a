"""Programs after public reports about PyTorch's selective checkpointing: what it does, and what ac2 does (docs/reports.md)."""

import functools
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import ac2
from ac2 import CheckpointPolicy

aten = torch.ops.aten
SAVE, RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE


def selective(fn, policy, *args):
    """PyTorch's selective checkpointing."""
    return checkpoint(fn, *args, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy))


def ops_in_backward(loss):
    """How often PyTorch runs each operator in the backward of ``loss``, what checkpoint() computes again included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loss.backward()
    return {event.key: event.count for event in profile.key_averages()}


def replayed(run_in_region, policy):
    """How many ops ac2 computes again in the backward of ``run_in_region()``."""
    with ac2.PolicyScope(policy) as scope:
        loss = run_in_region().sum()
    loss.backward()
    return scope.trace.stats().recomputed_ops


# --- pytorch 176065: the lists of PyTorch's own blog name packets -----------------------------------------------------


def save_products(ctx, op, *args, **kwargs):
    return SAVE if op in {aten.mm} else RECOMPUTE


def test_a_policy_with_packets_saves_nothing_in_silence_in_pytorch_and_ac2_says_so():
    x = torch.randn(8, 8, requires_grad=True)

    def products_in_backward(policy):
        return ops_in_backward(selective(lambda y: (y @ y).sin(), policy, x).sum())["aten::mm"]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert products_in_backward(save_products) == products_in_backward(lambda *_, **__: RECOMPUTE)
    assert products_in_backward(save_products) > products_in_backward([aten.mm.default])
    with ac2.PolicyScope(save_products):
        loss = (x @ x).sin().sum()
    with pytest.warns(UserWarning, match="torch.ops.aten.mm, which is a packet of overloads"):
        loss.backward()
    assert replayed(lambda: (x @ x).sin(), "recompute_all") == 1
    assert replayed(lambda: (x @ x).sin(), [aten.mm]) == 0  # a list takes packets


# --- pytorch 153334: an autograd.Function is no op -------------------------------------------------------------------


def scan_function():
    class Scan(torch.autograd.Function):
        runs = 0

        @staticmethod
        def forward(ctx, x):
            Scan.runs += 1
            states = x.cumsum(0).tanh()
            ctx.save_for_backward(states)
            return states

        @staticmethod
        def backward(ctx, gradient):
            (states,) = ctx.saved_tensors
            return (gradient * (1 - states * states)).flip(0).cumsum(0).flip(0)

    return Scan


def test_a_function_of_ones_own_cannot_be_saved_by_pytorchs_policy_and_is_an_op_for_ac2():
    x = torch.randn(16, 4, requires_grad=True)
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(str(op))
        return SAVE if "Scan" in str(op) else RECOMPUTE

    plain = scan_function()
    selective(lambda y: plain.apply(y.sin()).exp(), policy, x).sum().backward()
    assert plain.runs == 2 and not any("Scan" in op for op in asked)

    ours = scan_function()
    asked.clear()
    scan = ac2.replayable(ours)
    with ac2.PolicyScope(policy):
        loss = scan.apply(x.sin()).exp().sum()
    loss.backward()
    assert ours.runs == 1 and any("Scan" in op for op in asked)


# --- NeMo Automodel 3247, OLMo-core 720: forward changes something, and runs twice -------------------------------------


class Gate(torch.nn.Module):
    """A router that counts its tokens, as Mixtures of Experts do."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(4, 3)
        self.load = None
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        scores = self.project(x).softmax(-1)
        chosen = torch.bincount(scores.argmax(-1), minlength=3)
        self.load = chosen if self.load is None else self.load + chosen
        return (scores * x.sum(-1, keepdim=True)).sin()


def test_what_forward_counts_is_counted_twice_by_pytorch_and_once_by_ac2():
    torch.manual_seed(0)
    gate = Gate()
    x = torch.randn(10, 4)
    checkpoint(gate, x, use_reentrant=False).sum().backward()
    assert gate.calls == 2 and gate.load.sum() == 20  # of 10 tokens

    gate = Gate()
    ac2.checkpoint(gate, x).sum().backward()
    assert gate.calls == 1 and gate.load.sum() == 10


def test_a_branch_on_such_state_stops_pytorchs_selective_checkpointing_and_not_ac2s():
    def run(run_gate):
        gate = Gate()
        run_gate(gate, torch.randn(10, 4)).sum().backward()
        return gate.load.sum()

    def policy(ctx, op, *args, **kwargs):
        return SAVE if op in (aten.addmm.default, aten.bincount.default, aten.add.Tensor) else RECOMPUTE

    with pytest.raises(RuntimeError, match="aten.add.Tensor encountered during backward"):
        run(lambda gate, x: selective(gate, policy, x))

    def in_region(gate, x):
        with ac2.PolicyScope(policy):
            return gate(x)

    assert run(in_region) == 10


# --- pytorch 136433: an inner part with a plan of its own ---------------------------------------------------------------


def test_a_part_with_a_policy_of_its_own_is_nested():
    w = torch.randn(6, 6, requires_grad=True)

    def products(ctx, op, *args, **kwargs):
        return SAVE if op is aten.mm.default else RECOMPUTE

    def scales(ctx, op, *args, **kwargs):
        return SAVE if op is aten.max.default else RECOMPUTE

    def scaled(run_inner, x):
        scale = run_inner(lambda y: y.abs().max(), x)
        return (x / scale) @ w

    x = torch.randn(6, 6, requires_grad=True)

    def with_pytorch(y):
        return scaled(lambda fn, z: selective(fn, scales, z), y.sin()).cos()

    # The outer plan runs the inner part again, and asks the inner plan as if for the first time.
    assert "aten::max" in ops_in_backward(selective(with_pytorch, products, x).sum())

    def with_ac2(inner_policy):
        def inner(fn, y):
            with ac2.PolicyScope(inner_policy):
                return fn(y)

        x.grad = w.grad = None
        return replayed(lambda: scaled(inner, x.sin()).cos(), products)

    # Of sin, abs, max and div, max is saved, and abs is then computed again for the gradient of max alone.
    assert with_ac2(scales) == with_ac2(products) - 1
    expected = torch.autograd.grad(scaled(lambda fn, y: fn(y), x.sin()).cos().sum(), (x, w))
    assert torch.equal(x.grad, expected[0]) and torch.equal(w.grad, expected[1])


# --- torchtitan 1380, OLMo-core 37: people think in modules ----------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wo = torch.nn.Linear(8, 8, bias=False)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(8, 16, bias=False), torch.nn.GELU(), torch.nn.Linear(16, 8, bias=False))

    def forward(self, x):
        return x + self.mlp(self.wo(x).tanh())


def test_one_projection_of_each_block_is_saved_by_its_path():
    model = torch.nn.Sequential(Block(), Block())
    x = torch.randn(4, 8)

    by_path = ac2.policies.by_module([("*.wo", SAVE)], model=model)
    # PyTorch's policy is asked about aten.mm six times, and by nothing can it tell the projections from the others.
    assert replayed(lambda: model(x), by_path) == replayed(lambda: model(x), "recompute_all") - 2


# --- torchtitan 4153: selectors of paths and ops for what is saved ----------------------------------------------------------


@pytest.mark.parametrize("op", ["aten.mm.default", "aten.mm", "aten::mm"])
def test_selectors_are_those_of_torchtitans_graph_trainer(op):
    model = torch.nn.Module()
    model.layers = torch.nn.Sequential(Block(), Block())
    x = torch.randn(4, 8)
    by_selector = ac2.policies.by_module({f"layers.*.wo :: {op}": SAVE}, model=model)
    assert replayed(lambda: model.layers(x), by_selector) == replayed(lambda: model.layers(x), "recompute_all") - 2


# --- OLMo-core 713: a kernel saves another tensor when it runs again -----------------------------------------------------------


def test_a_kernel_whose_workspace_differs_ends_in_an_error_of_pytorchs_and_runs_once_in_ac2():
    def kernel():
        class Kernel(torch.autograd.Function):
            runs = 0

            @staticmethod
            def forward(ctx, x):
                Kernel.runs += 1
                workspace = x.new_empty(4 if Kernel.runs == 1 else 2)  # as after a search for the best of its forms
                ctx.save_for_backward(x, workspace)
                return x.sin()

            @staticmethod
            def backward(ctx, gradient):
                x, _ = ctx.saved_tensors
                return gradient * x.cos()

        return Kernel

    x = torch.randn(8, requires_grad=True)
    theirs, ours = kernel(), kernel()
    with pytest.raises(torch.utils.checkpoint.CheckpointError, match="different metadata"):
        checkpoint(lambda y: theirs.apply(y.exp()), x, use_reentrant=False).sum().backward()
    (gradient,) = torch.autograd.grad(ac2.checkpoint(lambda y: ours.apply(y.exp()), x).sum(), x)
    (expected,) = torch.autograd.grad(kernel().apply(x.exp()).sum(), x)
    assert torch.equal(gradient, expected) and ours.runs == 1


# --- pytorch 161889: a compiled function inside of selective checkpointing ------------------------------------------------


def test_a_policy_is_asked_about_a_compiled_function_and_saves_it():
    import torch._inductor.compile_fx  # noqa: F401

    compiled = torch.compile(lambda x, w: (x @ w).sin().cos())
    x, w = torch.randn(16, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(str(op))
        return SAVE if op is aten.mm.default or "inductor_compiled_code" in str(op) else RECOMPUTE

    def run(y):
        return compiled(y.exp(), w).sin()

    def runs_in_backward(loss):
        """Of the compiled forward and the compiled derivative."""
        return sum(count for name, count in ops_in_backward(loss).items() if name.startswith("## Call CompiledFxGraph"))

    run(x).sum().backward()
    assert runs_in_backward(run(x).sum()) == 1
    in_pytorch = runs_in_backward(selective(run, policy, x).sum())
    assert in_pytorch == 2 and "aten.mm.default" not in asked and not any("compiled" in op for op in asked)
    asked.clear()
    with ac2.PolicyScope(policy):
        loss = run(x).sum()
    assert runs_in_backward(loss) == 1 and "replayable.inductor_compiled_code.default" in asked


# --- open-instruct 1813: wrappers change names ------------------------------------------------------------------------------


def test_modules_keep_their_names():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    def names(wrap):
        model = torch.nn.Sequential(Block())
        wrap(model)
        return [name for name, _ in model.named_modules()]

    before = names(lambda model: None)
    theirs = names(lambda model: apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block)))
    assert "0._checkpoint_wrapped_module.wo" in theirs
    assert names(lambda model: ac2.apply_checkpointing(model, check_fn=lambda module: isinstance(module, Block))) == before


# --- Automodel 3140, torchtitan 3146: a router that chooses again -----------------------------------------------------


def test_a_router_after_a_kernel_that_varies_chooses_again_in_pytorch_and_once_in_ac2():
    calls = []

    @torch.library.custom_op("reports::add_up", mutates_args=())
    def add_up(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x.flip(1) if len(calls) > 1 else x.clone()  # a kernel that differs the second time

    x = torch.linspace(-1, 1, 16).view(4, 4).requires_grad_()
    weights = torch.linspace(2, 0.5, 16).view(4, 4)

    def experts(x):
        scores = torch.ops.reports.add_up(x.detach())
        chosen = scores.topk(2).indices
        return (x.gather(1, chosen) * weights.gather(1, chosen)).sin()

    def gradient(run):
        calls.clear()
        (result,) = torch.autograd.grad(run().sum(), x)
        return result

    plain = gradient(lambda: experts(x))
    assert not torch.equal(gradient(lambda: checkpoint(experts, x, use_reentrant=False)), plain)
    for policy in ("recompute_all", "save_compute_intensive", [aten.mm]):

        def in_region(policy=policy):
            with ac2.PolicyScope(policy):
                return experts(x)

        assert torch.equal(gradient(in_region), plain)
