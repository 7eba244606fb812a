"""Wrapped modules."""

import copy
import io
import pickle

import pytest
import torch
import torch.utils.checkpoint as torch_checkpoint
from support import assert_same, mlp, run, same_bits

import ac2


class Block(torch.nn.Module):
    """At the top of the module, so that it can be pickled."""

    def __init__(self, width=16):
        super().__init__()
        self.lin = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)

    def forward(self, x, scale: float = 1.0):
        """Says whether it ran in a region."""
        self.enabled = ac2.is_checkpoint_enabled()
        return torch.nn.functional.gelu(self.norm(self.lin(x))) * scale


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(x):
    return lambda model: model(x).square().mean()


def test_a_wrapped_module_stays_what_it_is():
    block = Block()
    before = dict(block.named_parameters()), list(block.state_dict()), [n for n, _ in block.named_modules()], repr(block)
    wrapped = ac2.checkpoint_wrapper(block)
    assert wrapped is block and isinstance(wrapped, Block) and type(wrapped).__name__ == "Block"
    after = dict(wrapped.named_parameters()), list(wrapped.state_dict()), [n for n, _ in wrapped.named_modules()], repr(wrapped)
    assert after == before
    wrapped.load_state_dict(Block().state_dict())
    import inspect

    assert list(inspect.signature(wrapped.forward).parameters) == ["x", "scale"]
    assert "ran in a region" in wrapped.forward.__doc__


@pytest.mark.parametrize("policy", [None, "save_compute_intensive", ["aten::addmm"]])
def test_gradients_and_buffers_are_those_of_the_module(policy):
    model, x = Model(), torch.randn(5, 16)
    expected = run(model, loss_of(x))
    for layer in model.layers:
        ac2.checkpoint_wrapper(layer, policy)
    assert_same(run(model, loss_of(x)), expected)


def test_copies_and_archives_are_checkpointed_too():
    x = torch.randn(5, 16)
    block = ac2.checkpoint_wrapper(Block(), "save_compute_intensive", memory_budget=1 << 20)
    archive = io.BytesIO()
    torch.save(block, archive)
    archive.seek(0)
    others = [copy.deepcopy(block), pickle.loads(pickle.dumps(block)), torch.load(archive, weights_only=False), copy.copy(block)]
    for other in others:
        assert isinstance(other, Block)
        assert_same(run(other, loss_of(x)), run(block, loss_of(x)))
    for other in others:
        other(x)
        assert other.enabled
    assert type(others[1]) is type(block)


def test_wrapping_again_exchanges_the_policy():
    block = Block()
    kind = type(ac2.checkpoint_wrapper(block, "must_save_all"))
    assert type(ac2.checkpoint_wrapper(block, "recompute_all")) is kind
    with ac2.PolicyScope(timeline=True) as scope:
        y = block(torch.randn(5, 16))
    y.sum().backward()
    assert scope.trace.stats().recomputed_ops > 0


def test_wrong_arguments_are_errors_and_change_nothing():
    block = Block()
    for error, arguments, options in [
        (ValueError, ("sped",), {}),
        (TypeError, (), {"budget": 3}),
        (ValueError, (), {"use_reentrant": True}),
        (ValueError, (), {"checkpoint_fn": print}),
    ]:
        with pytest.raises(error):
            ac2.checkpoint_wrapper(block, *arguments, **options)
        assert type(block) is Block
    with pytest.raises(TypeError, match="expected a torch.nn.Module"):
        ac2.checkpoint_wrapper(print)
    with pytest.raises(TypeError, match="scripted"):
        ac2.checkpoint_wrapper(torch.jit.script(torch.nn.Linear(2, 2)))


def test_it_takes_what_pytorchs_wrapper_takes():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl

    block = ac2.checkpoint_wrapper(Block(), checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False,
                                   determinism_check="none", debug=False, early_stop=True, respect_saved_tensors_hooks=True,
                                   context_fn=torch_checkpoint.noop_context_fn)
    block(torch.randn(5, 16))
    assert block.enabled
    with pytest.raises(ValueError, match="reentrant"):
        ac2.checkpoint_wrapper(Block(), checkpoint_impl=CheckpointImpl.REENTRANT)


def test_apply_checkpointing_picks_by_name_class_or_function():
    for selection, expected in [
        ({"modules": "layers.*"}, ["layers.0", "layers.1", "layers.2"]),
        ({"modules": ["layers.[02]", "head"]}, ["layers.0", "layers.2", "head"]),
        ({"modules": "**.lin"}, ["layers.0.lin", "layers.1.lin", "layers.2.lin"]),
        ({"modules": Block}, ["layers.0", "layers.1", "layers.2"]),
        ({"modules": "*"}, ["layers", "head"]),
        ({"check_fn": lambda module: isinstance(module, torch.nn.BatchNorm1d)}, [f"layers.{i}.norm" for i in range(3)]),
    ]:
        model, x = Model(), torch.randn(5, 16)
        before = run(model, loss_of(x))
        assert ac2.apply_checkpointing(model, **selection, policy="speed") == expected
        assert_same(run(model, loss_of(x)), before)


def test_apply_checkpointing_names_what_picks_nothing():
    model = Model()
    for modules in ("blocks.*", torch.nn.Conv2d, ["layers.*", "blocks.*"]):
        with pytest.raises(ValueError, match="picks no module of Model"):
            ac2.apply_checkpointing(model, modules=modules)
    with pytest.raises(ValueError, match="needs either"):
        ac2.apply_checkpointing(model)
    with pytest.raises(ValueError, match="needs either"):
        ac2.apply_checkpointing(model, modules="*", check_fn=bool)
    assert not any(hasattr(type(module), "_ac2_is_checkpointed") for module in model.modules())


def test_modules_share_a_budget():
    budget = ac2.MemoryBudget(1 << 20)
    model = Model()
    ac2.apply_checkpointing(model, modules="layers.*", memory_budget=budget)
    y = model(torch.randn(5, 16))
    assert budget.held_bytes() > 0
    y.sum().backward()
    assert budget.held_bytes() == 0


def test_functional_call_reaches_a_wrapped_module():
    block, x = ac2.checkpoint_wrapper(Block().eval()), torch.randn(5, 16)
    parameters = {name: (p * 2).detach().requires_grad_() for name, p in block.named_parameters()}
    actual = torch.func.functional_call(block, parameters, (x,))
    plain = Block().eval()
    plain.load_state_dict(block.state_dict())
    assert same_bits(actual, torch.func.functional_call(plain, parameters, (x,)))
    assert block.enabled
    actual.sum().backward()
