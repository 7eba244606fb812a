"""The functions of torch.utils.checkpoint under their names."""

import contextlib
import functools
import inspect
import sys
import types
import warnings

import pytest
import torch
import torch.distributed.algorithms._checkpoint.checkpoint_wrapper as wrapper_of_torch
import torch.utils.checkpoint as torch_checkpoint
from support import assert_same, mlp, run, same_bits

import ac2


def test_the_signatures_take_what_pytorchs_take():
    def names(function):
        return [name for name, p in inspect.signature(function).parameters.items() if p.kind != p.VAR_KEYWORD]

    for name in ("checkpoint", "checkpoint_sequential", "create_selective_checkpoint_contexts"):
        ours, theirs = names(getattr(ac2, name)), names(getattr(torch_checkpoint, name))
        assert set(theirs) <= set(ours), name


def test_checkpoint_runs_the_function_once():
    calls = []
    model = mlp()

    def block(x):
        calls.append(x)
        return model(x)

    x = torch.randn(4, 16, requires_grad=True)
    ac2.checkpoint(block, x, use_reentrant=False).sum().backward()
    assert len(calls) == 1


@pytest.mark.parametrize("options", [
    {},
    {"use_reentrant": False, "preserve_rng_state": False, "determinism_check": "none", "debug": False, "early_stop": False},
    {"policy": "speed"},
    {"memory_budget": 4096},
    {"context_fn": None},
    {"context_fn": torch_checkpoint.noop_context_fn},
    {"context_fn": functools.partial(ac2.create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])},
    {"context_fn": functools.partial(torch_checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])},
    {"context_fn": lambda: (contextlib.nullcontext(), contextlib.nullcontext())},
], ids=str)
def test_checkpoint_gives_the_gradients_of_plain_pytorch(options):
    model, x = mlp(), torch.randn(4, 16)
    actual = run(model, lambda model: ac2.checkpoint(model, x, **options).square().mean())
    assert_same(actual, run(model, lambda model: model(x).square().mean()))


def test_checkpoint_passes_keywords_on():
    def fn(a, *, b, policy_of_mine=None):
        return a * b, policy_of_mine

    x = torch.randn(4, requires_grad=True)
    result, other = ac2.checkpoint(fn, x, b=3, policy_of_mine="mine")
    assert other == "mine" and same_bits(result, x * 3)


def test_contexts_say_what_is_saved():
    x = torch.randn(16, 16, requires_grad=True)

    def replayed(context_fn):
        with ac2.PolicyScope("recompute_all") as scope:
            y = ac2.checkpoint(lambda x: (x.mm(x)).sin().sum(), x, context_fn=context_fn)
        y.backward()
        return scope.trace.stats().recomputed_ops

    ops = [torch.ops.aten.mm.default]
    assert replayed(torch_checkpoint.noop_context_fn) == 1  # mm, for the gradient of sin
    for create in (ac2.create_selective_checkpoint_contexts, torch_checkpoint.create_selective_checkpoint_contexts):
        assert replayed(functools.partial(create, ops)) == 0
        assert replayed(functools.partial(create, lambda ctx, op, *args, **kwargs: op in ops)) == 0


def test_contexts_of_ours_serve_pytorchs_own_checkpoint():
    model, x = mlp(), torch.randn(4, 16)
    context_fn = functools.partial(ac2.create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])

    def step(model):
        return torch_checkpoint.checkpoint(model, x, use_reentrant=False, context_fn=context_fn).square().mean()

    assert_same(run(model, step), run(model, lambda model: model(x).square().mean()))


def test_the_reentrant_variant_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="use_reentrant=False"):
        ac2.checkpoint(torch.sin, torch.ones(1), use_reentrant=True)
    with pytest.raises(ValueError, match="use_reentrant=False"):
        ac2.checkpoint_sequential([torch.sin, torch.cos], 2, torch.ones(1), use_reentrant=True)


def test_wrong_arguments_are_errors():
    with pytest.raises(ValueError, match="determinism_check"):
        ac2.checkpoint(torch.sin, torch.ones(1), determinism_check="sometimes")
    with pytest.raises(ValueError, match="policy twice"):
        ac2.checkpoint(torch.sin, torch.ones(1), policy="speed",
                       context_fn=lambda: ac2.create_selective_checkpoint_contexts([torch.ops.aten.mm.default]))
    with pytest.raises(ValueError, match="OpOverload"):
        ac2.create_selective_checkpoint_contexts([torch.ops.aten.mm])
    with pytest.raises(ValueError, match="segments"):
        ac2.checkpoint_sequential([torch.sin], 2, torch.ones(1))
    with pytest.raises(TypeError, match="Unexpected keyword"):
        ac2.checkpoint_sequential([torch.sin], 1, torch.ones(1), other=3)


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_checkpoint_sequential_gives_the_gradients_of_plain_pytorch(segments):
    model, x = mlp(), torch.randn(4, 16)
    expected = run(model, lambda model: model(x).square().mean())
    assert_same(run(model, lambda m: ac2.checkpoint_sequential(m, segments, x, use_reentrant=False).square().mean()), expected)
    as_list = run(model, lambda m: ac2.checkpoint_sequential(list(m), segments, x).square().mean())
    assert_same(as_list, expected)


def test_checkpoint_sequential_checkpoints_all_segments_but_the_last():
    seen = []

    def step(value):
        seen.append(ac2.is_checkpoint_enabled())
        return value.sin()

    ac2.checkpoint_sequential([step] * 5, 2, torch.ones(4, requires_grad=True))
    assert seen == [True, True, False, False, False]


def test_patch_torch_checkpoint_is_undone():
    before = torch_checkpoint.checkpoint
    with ac2.patch_torch_checkpoint():
        patched = torch_checkpoint.checkpoint
        assert patched is not before and torch_checkpoint.checkpoint_sequential.__wrapped__ is not ac2.checkpoint_sequential
        with ac2.patch_torch_checkpoint():
            assert torch_checkpoint.checkpoint(torch.sin, torch.zeros(1), use_reentrant=False) == 0
        assert torch_checkpoint.checkpoint is patched
        with pytest.raises(ValueError, match="use_reentrant=True"):
            torch_checkpoint.checkpoint(torch.sin, torch.zeros(1), use_reentrant=True)
    assert torch.utils.checkpoint.checkpoint is before
    with pytest.raises(ZeroDivisionError):
        with ac2.patch_torch_checkpoint():
            1 / 0
    assert torch.utils.checkpoint.checkpoint is before


def test_contexts_are_made_of_ops_policies_or_functions():
    for wrong in ([2], ["aten::no_such_op"], 3, "sped"):
        with pytest.raises((TypeError, ValueError)):
            ac2.create_selective_checkpoint_contexts(wrong)


@pytest.mark.parametrize("wrong", [2, torch.ops.aten.sin])
def test_what_is_no_op_in_a_list_is_the_error_that_pytorch_raises(wrong):
    for create in (torch_checkpoint.create_selective_checkpoint_contexts, ac2.create_selective_checkpoint_contexts):
        with pytest.raises(ValueError, match="Expected op in `op_list` to be an OpOverload but got: .* of type"):
            create([wrong])


def test_what_is_neither_a_function_nor_a_list_is_the_error_that_pytorch_raises():
    for create in (torch_checkpoint.create_selective_checkpoint_contexts, ac2.create_selective_checkpoint_contexts):
        with pytest.raises(TypeError, match="either a function or a list of ops."):
            create(2)


def opens_regions(step):
    before = ac2.live_node_count()
    result = step()
    return ac2.live_node_count() > before and result is not None


def test_patch_torch_checkpoint_reaches_functions_that_were_imported_by_name():
    library = types.ModuleType("a_library")
    exec("from torch.utils.checkpoint import checkpoint as theirs\ndef call(f, x): return theirs(f, x, use_reentrant=False)", vars(library))
    original, x = torch_checkpoint.checkpoint, torch.randn(4, requires_grad=True)

    def called():
        return opens_regions(lambda: library.call(lambda x: x.sin().cos(), x))

    def wrapped(module):
        return opens_regions(lambda: module(x))

    sys.modules["a_library"] = library
    try:
        with ac2.patch_torch_checkpoint():
            assert called() and library.theirs is not original
            inside = types.ModuleType("imported_inside")
            exec("from torch.utils.checkpoint import checkpoint", vars(inside))
            kept = inside.checkpoint  # in a module that nobody knows
            with ac2.patch_torch_checkpoint():
                assert opens_regions(lambda: kept(lambda x: x.sin().cos(), x, use_reentrant=False))
            assert called()
            module = wrapper_of_torch.checkpoint_wrapper(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Tanh()))
            assert wrapped(module)
        assert library.theirs is torch_checkpoint.checkpoint is wrapper_of_torch.torch_utils_checkpoint is original
        assert not called() and not wrapped(module)
        assert not opens_regions(lambda: kept(lambda x: x.sin().cos(), x, use_reentrant=False))
        assert inspect.signature(kept) == inspect.signature(original)
    finally:
        del sys.modules["a_library"]


def test_patch_torch_checkpoint_reaches_modules_of_the_composable_checkpoint():
    from torch.distributed._composable import checkpoint as composable

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.runs, self.in_a_region, self.fails = 0, [], False

        def forward(self, x, *, factor=2):
            self.runs += 1
            self.in_a_region.append(ac2.is_checkpoint_enabled())
            if self.fails:
                raise KeyError("of the program")
            return self.inner(x).sin() * factor

    torch.manual_seed(0)
    before, inside = Block(), Block()
    plain = torch.nn.ModuleList([Block(), Block()])
    plain.load_state_dict({f"{i}.{name}": value for i, block in enumerate((before, inside))
                           for name, value in block.state_dict().items()})
    saved = []

    def policy(ctx, op, *args, **kwargs):
        saved.append(op)
        return torch_checkpoint.CheckpointPolicy.MUST_SAVE

    composable(before)
    x = torch.randn(2, 4)
    plain[1](plain[0](x), factor=3).sum().backward()
    with ac2.patch_torch_checkpoint():
        composable(inside, context_fn=lambda: torch_checkpoint.create_selective_checkpoint_contexts(policy))
        inside(before(x), factor=3).sum().backward()
        before.fails = True
        with pytest.raises(KeyError, match="of the program"):
            before(x)
        assert not ac2.is_checkpoint_enabled()
        before.fails = False
    assert (before.runs, inside.runs) == (2, 1)  # one of them failed
    assert before.in_a_region == [True, True] and inside.in_a_region == [True]
    assert torch.ops.aten.sin.default in saved
    for ours, theirs in zip([*before.parameters(), *inside.parameters()], plain.parameters()):
        assert same_bits(ours.grad, theirs.grad)
    before(x).sum().backward()
    assert before.runs == 4 and before.in_a_region[2:] == [False, False], "PyTorch's own, which runs it twice"


@pytest.mark.parametrize("given", [{"memory_budget": 3}, {"policy": torch.nn.Softmax(-1)}, {"policy": "speed", "memory_budget": 2}])
def test_patch_torch_checkpoint_passes_on_keywords_of_the_function(given):
    x = torch.randn(4, 8, requires_grad=True)

    def attend(x, *, memory_budget=8, policy=None):
        return (policy(x) if callable(policy) else x.sin())[:, :memory_budget].sum()

    plain = torch.autograd.grad(attend(x, **given), x)
    with ac2.patch_torch_checkpoint():
        patched = torch.autograd.grad(torch.utils.checkpoint.checkpoint(attend, x, use_reentrant=False, **given), x)
    assert torch.equal(patched[0], plain[0])


def test_patch_torch_checkpoint_says_if_it_reached_nothing():
    x = torch.randn(4, requires_grad=True)
    early = functools.partial(torch_checkpoint.checkpoint, use_reentrant=False)
    with pytest.warns(UserWarning, match="has checkpointed nothing") as caught:
        with ac2.patch_torch_checkpoint():
            early(torch.sin, x)
    assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ac2.patch_torch_checkpoint():
            with pytest.warns(UserWarning, match="has checkpointed nothing"):
                with ac2.patch_torch_checkpoint():
                    pass
            torch_checkpoint.checkpoint(torch.sin, x, use_reentrant=False)


def test_nested_checkpoints_of_both_kinds():
    model, x = mlp(), torch.randn(4, 16)

    def theirs(fn):
        return lambda x: torch_checkpoint.checkpoint(fn, x, use_reentrant=False)

    def ours(fn):
        return lambda x: ac2.checkpoint(fn, x)

    expected = run(model, lambda model: model(x).square().mean())
    for outer, inner in ((ours, ours), (ours, theirs), (theirs, ours)):
        actual = run(model, lambda model: outer(lambda x: model[3:](inner(model[:3])(x)))(x).square().mean())
        assert_same(actual, expected)
