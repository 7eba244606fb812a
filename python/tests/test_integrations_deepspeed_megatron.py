"""ac2.integrations of DeepSpeed and Megatron: each trains by its own switch with the bits of plain training."""

import contextlib
import importlib
import sys
import types

import pytest
import torch

import ac2
import library_stand_ins
from integrations_support import INPUT, ROWS, Model, assert_as_plain, integration, square, train
from integrations_support import only_rank, process_group, uninstalls  # noqa: F401: fixtures
from support import assert_same

# DeepSpeed


@pytest.fixture
def deepspeed(only_rank):
    module = integration("deepspeed")
    importlib.import_module("deepspeed").init_distributed("gloo")
    return module


def test_deepspeeds_pipelines_train_as_without_checkpointing(deepspeed):
    from deepspeed.runtime.activation_checkpointing import checkpointing
    from deepspeed.runtime.pipe.module import PipelineModule

    def make(interval=0):
        module = PipelineModule(list(Model().layers), num_stages=1)
        module.set_checkpoint_interval(interval)
        return module

    plain = train(make(), square)
    deepspeed.install()
    module = make(1)
    assert module.activation_checkpoint_func is checkpointing.non_reentrant_checkpoint  # which the engine asks
    assert_as_plain(train(module, square), plain)
    own = PipelineModule(list(Model().layers), num_stages=1, activation_checkpoint_func=ac2.checkpoint)
    assert own.activation_checkpoint_func is ac2.checkpoint


@pytest.mark.parametrize("name", ["checkpoint", "non_reentrant_checkpoint"])
def test_deepspeeds_functions_run_in_a_region(deepspeed, name, monkeypatch):
    from deepspeed.runtime.activation_checkpointing import checkpointing

    def loss(model):
        x = INPUT
        for layer in model.layers:
            x = getattr(checkpointing, name)(layer, x)
        return x.square().mean()

    plain = train(Model(), square)
    deepspeed.install()
    assert_as_plain(train(Model(), loss), plain)
    assert getattr(checkpointing, name)(lambda x: [x], INPUT) is INPUT  # as DeepSpeed returns a single result
    assert getattr(checkpointing, name)(lambda x: [x, x], INPUT) == (INPUT, INPUT)
    monkeypatch.setattr(checkpointing, "CPU_CHECKPOINT", True)
    assert_same(train(Model(), loss).tensors, plain.tensors)
    monkeypatch.setattr(checkpointing, "PARTITION_ACTIVATIONS", True)
    with pytest.warns(UserWarning, match='"partition_activations" has no effect under ac2.*Set it to false'):
        assert_same(train(Model(), loss).tensors, plain.tensors)


# Megatron


def test_megatrons_function_runs_in_a_region():
    megatron = integration("megatron")
    from megatron.core import tensor_parallel

    def loss(model, distribute=False):
        x = INPUT
        for layer in model.layers:
            x = tensor_parallel.checkpoint(layer, distribute, x)
        return x.square().mean()

    plain = train(Model(), square)
    megatron.install()
    assert_as_plain(train(Model(), loss), plain)
    with pytest.warns(UserWarning, match="distribute_saved_activations has no effect under ac2.*Set it to False"):
        assert_same(train(Model(), lambda model: loss(model, True)).tensors, plain.tensors)


def test_megatrons_parts_without_output_are_recorded_in_a_region():
    megatron = integration("megatron")
    from megatron.core import tensor_parallel

    def block(x, model):
        for layer in model.layers:
            part = tensor_parallel.CheckpointWithoutOutput()
            x = part.checkpoint(layer, x)
            y = x.sin()
            part.discard_output_and_register_recompute(y)
            x = y
        return x

    megatron.install()
    plain = train(
        Model(),
        lambda model: model.layers[2](model.layers[1](model.layers[0](INPUT).sin()).sin()).sin().square().mean(),
    )
    run = train(
        Model(), lambda model: tensor_parallel.checkpoint(lambda x: block(x, model), False, INPUT).square().mean()
    )
    assert_as_plain(run, plain)


@pytest.fixture
def megatrons_gpt(process_group, monkeypatch):
    """A function that makes Megatron's own GPT, and its loss."""
    if not library_stand_ins.provide("megatron"):
        pytest.skip("megatron is not installed")
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    # It asks for a GPU to place a buffer, and for a generator of tensor parallelism's.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    tensor_parallel.random.initialize_rng_tracker(inference_rng_tracker=True)
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()

    def make(modules=None, **kwargs):
        torch.manual_seed(1)
        if modules is not None:
            kwargs.update(recompute_granularity="selective", recompute_modules=modules)
        config = TransformerConfig(
            num_layers=2,
            hidden_size=32,
            num_attention_heads=2,
            use_cpu_initialization=True,
            hidden_dropout=0.1,
            attention_dropout=0.0,
            **kwargs,
        )
        return GPTModel(config, get_gpt_layer_local_spec(), vocab_size=64, max_sequence_length=12).train()

    ids = torch.tensor([row["input_ids"] for row in ROWS])

    def loss(model):
        return model(ids, torch.arange(12).expand(4, 12), torch.ones(1, 1, 12, 12).triu(1) > 0, labels=ids).mean()

    return make, loss


@pytest.mark.parametrize("modules", [None, ["core_attn"], ["mlp"]])
def test_megatrons_gpt_trains_as_without_checkpointing(megatrons_gpt, modules):
    make, loss = megatrons_gpt
    plain = train(make(), loss)
    integration("megatron").install()
    full = dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    assert_as_plain(train(make(modules) if modules else make(**full), loss), plain)


def test_megatrons_own_parts_without_output_train_in_regions_and_outside(megatrons_gpt, monkeypatch):
    make, loss = megatrons_gpt
    random = sys.modules["megatron.core.tensor_parallel.random"]

    @contextlib.contextmanager
    def fork():
        state = torch.get_rng_state()
        yield
        torch.set_rng_state(state)

    # Megatron's parts ask a GPU's generators, for which the CPU's stands here, and TransformerEngine whether fp8 is on.
    monkeypatch.setattr(random, "_get_all_rng_states", lambda: (torch.get_rng_state(),))
    monkeypatch.setattr(random, "_set_all_rng_states", torch.set_rng_state)
    monkeypatch.setattr(random, "_fork_rng", fork)
    without_fp8 = types.SimpleNamespace(is_fp8_enabled=lambda: False, get_fp8_recipe=lambda: None)
    monkeypatch.setattr(random, "FP8GlobalStateManager", without_fp8, raising=False)
    for name in ("activation_recompute_forward", "fp8_autocast"):
        monkeypatch.setattr(random, name, lambda **kwargs: contextlib.nullcontext(), raising=False)

    def in_a_region(model):
        with ac2.PolicyScope("save_compute_intensive"):
            return loss(model)

    plain = train(make(), loss)
    own_in_a_region = train(make(["layernorm"]), in_a_region)
    integration("megatron").install()
    outside = train(make(["layernorm"]), loss)
    assert_same(outside.tensors, plain.tensors)
    assert outside.nodes == 0 and outside.held < plain.held  # by its own means
    for run in (own_in_a_region, train(make(["layernorm"]), in_a_region)):
        assert_as_plain(run, plain)
    assert run.held < own_in_a_region.held
