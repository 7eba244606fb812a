"""ac2.integrations.transformers."""

import functools
import inspect

import pytest
import torch

import ac2
from support import assert_same, run
from transformers_support import disable, enable

transformers = pytest.importorskip("transformers")

import ac2.integrations.transformers as integration  # noqa: E402


@pytest.fixture(autouse=True)
def uninstalls():
    yield
    integration.uninstall()


def is_checkpointing(model):
    return getattr(model, "is_activation_checkpointing", None) or model.is_gradient_checkpointing


def llama(layers=3):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, attention_dropout=0.1, attn_implementation="eager",
    )
    return transformers.LlamaForCausalLM(config).train()


def gpt2():
    torch.manual_seed(1)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32)
    return transformers.GPT2LMHeadModel(config).train()


def t5():
    torch.manual_seed(1)
    config = transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=64, decoder_start_token_id=0)
    return transformers.T5ForConditionalGeneration(config).train()


def vit():
    torch.manual_seed(1)
    config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                    image_size=16, patch_size=8, num_labels=4)
    return transformers.ViTForImageClassification(config).train()


def loss(model):
    generator = torch.Generator().manual_seed(5)
    if isinstance(model, transformers.ViTForImageClassification):
        images = torch.randn(2, 3, 16, 16, generator=generator)
        return model(images, labels=torch.tensor([1, 3])).loss
    ids = torch.randint(0, 64, (2, 12), generator=generator)
    return model(ids, labels=ids).loss


@pytest.mark.parametrize("make", [llama, gpt2, t5, vit])
@pytest.mark.parametrize("policy", [None, "save_compute_intensive", [torch.ops.aten.mm.default]])
def test_a_model_trains_with_the_bits_of_plain_pytorch(make, policy):
    model = make()
    expected = run(model, loss)
    integration.install(policy)
    enable(model)
    replayed = ac2.live_node_count()
    result = loss(model)
    assert ac2.live_node_count() > replayed  # regions have recorded
    del result
    assert_same(run(model, loss), expected)


def test_use_cache_is_left_alone():
    model = llama()
    ids = torch.arange(8).reshape(1, 8)
    plain = model.eval()(ids, use_cache=True).past_key_values
    model.train()
    model.config.attention_dropout = 0.0
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.0
    integration.install()
    enable(model)
    output = model(ids, labels=ids, use_cache=True)
    assert output.past_key_values is not None
    assert output.past_key_values.get_seq_length() == 8 == plain.get_seq_length()
    output.loss.backward()
    assert output.past_key_values.get_seq_length() == 8
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_model_says_that_it_checkpoints_until_it_is_disabled():
    model = llama()
    integration.install()
    assert not is_checkpointing(model)
    enable(model)
    assert is_checkpointing(model)
    names = list(model.state_dict())
    disable(model)
    assert not is_checkpointing(model)
    assert names == list(model.state_dict()) == list(llama().state_dict())
    before = ac2.live_node_count()
    output = loss(model)
    assert ac2.live_node_count() == before
    del output


def test_the_kwargs_of_a_model_override_what_was_installed():
    model = llama()
    asked = []

    @ac2.by_operator
    def policy(ctx, op, *args, **kwargs):
        asked.append(op)
        return True

    integration.install("recompute_all")
    enable(model, use_reentrant=False, policy=policy)
    loss(model).backward()
    assert asked


def test_uninstall_gives_transformers_own_checkpointing_back():
    members = dict(transformers.PreTrainedModel.__dict__)
    integration.install()
    integration.install("must_save_all")
    integration.uninstall()
    assert {name: transformers.PreTrainedModel.__dict__[name] for name in members} == members
    model = llama()
    enable(model)
    before = ac2.live_node_count()
    output = loss(model)
    assert ac2.live_node_count() == before
    del output


def opens_regions(model):
    before = ac2.live_node_count()
    output = loss(model)
    return ac2.live_node_count() > before and output is not None


def test_uninstall_gives_transformers_own_to_models_that_have_it_enabled_and_their_switch_works():
    model, other = llama(), llama()
    integration.install()
    enable(model, use_reentrant=False, policy="must_save_all")
    enable(other)
    disable(other)
    assert opens_regions(model)
    integration.install("save_compute_intensive")  # for models from then on
    assert opens_regions(model)
    integration.uninstall()
    assert is_checkpointing(model) and not is_checkpointing(other)
    runs = []
    model.model.layers[0].self_attn.register_forward_hook(lambda *_: runs.append(None))
    assert not opens_regions(model)
    loss(model).backward()
    assert len(runs) == 3, "the second time, it ran once more in backward"
    disable(model)
    assert not is_checkpointing(model) and type(model.model.layers[0]) is type(llama().model.layers[0])
    runs.clear()
    loss(model).backward()
    assert len(runs) == 1


def test_a_layer_that_is_switched_off_and_on_again_within_a_step_keeps_its_regions():
    model = llama(layers=2)
    integration.install()
    enable(model)
    for _ in range(2):
        output = loss(model)
        disable(model)  # as trl does around a reference model
        enable(model)
        output.backward()
    assert "2 of 2 wrapped modules have had a region" in ac2.report()
    assert ac2.last_trace(model.model.layers[0]).stats().recomputed_ops > 0


def test_a_wrong_policy_is_an_error_when_it_is_installed():
    with pytest.raises(ValueError, match="no_such_policy"):
        integration.install("no_such_policy")


def test_offload_of_transformers_offloads_the_inputs_of_layers():
    model = llama()
    if "offload" not in inspect.signature(getattr(model, "activation_checkpointing_enable", lambda: None)).parameters:
        pytest.skip("this release of transformers has no offload")
    expected = run(model, loss)
    integration.install()
    model.activation_checkpointing_enable(offload=True)
    options = [module.__dict__["_ac2_checkpointing"].options for module in model.model.layers]
    assert [option["offload"].inputs for option in options] == [True] * len(model.model.layers)
    assert_same(run(model, loss), expected)
    model.activation_checkpointing_enable()
    assert "offload" not in model.model.layers[0].__dict__["_ac2_checkpointing"].options


def test_a_models_own_context_fn_wins():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(op)
        return torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE

    model = llama()
    integration.install("recompute_all")
    for contexts in (ac2.create_selective_checkpoint_contexts, torch.utils.checkpoint.create_selective_checkpoint_contexts):
        enable(model, use_reentrant=False, context_fn=functools.partial(contexts, policy))
        loss(model).backward()
        assert asked
        asked.clear()


def test_no_region_is_opened_in_eval_and_under_no_grad():
    model = llama()
    integration.install()
    enable(model)
    model.eval()
    loss(model)
    with torch.no_grad():
        loss(model.train())
    assert [ac2.last_trace(layer) for layer in model.model.layers] == [None] * 3
    loss(model)
    assert None not in [ac2.last_trace(layer) for layer in model.model.layers]
    integration.install(off_in_eval=False)
    enable(model)
    loss(model.eval())
    assert None not in [ac2.last_trace(layer) for layer in model.model.layers]


def test_an_unknown_key_is_an_error_that_names_it():
    model = llama()
    integration.install()
    with pytest.raises(TypeError, match="gradient_checkpointing_kwargs was given 'budget'"):
        enable(model, budget=3)
    with pytest.raises(TypeError, match="install was given 'budget'"):
        integration.install(budget=3)
