"""ac2.integrations.transformers.install(chunked_loss=...): causal language models whose logits are never there whole."""

import copy
import warnings

import pytest
import torch
from support import assert_same, run, same_bits
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers_support import enable

transformers = pytest.importorskip("transformers")
pytest.importorskip("transformers.loss.loss_utils")

import ac2  # noqa: E402
import ac2.integrations.transformers as integration  # noqa: E402
from ac2.integrations import _chunked_loss as losses  # noqa: E402
from ac2.integrations._chunked_loss import DeferredLogits  # noqa: E402

WORDS, ROWS, COLUMNS, HIDDEN = 512, 3, 20, 32
ALL_LOGITS = ROWS * COLUMNS * WORDS

SIZES = dict(
    vocab_size=WORDS, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def gemma2():  # a soft cap of the logits
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=3.0))


def cohere():  # logits times a number, and tied weights
    return transformers.CohereForCausalLM(transformers.CohereConfig(**SIZES))


def granite():  # logits by a number
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(**SIZES, logits_scaling=4.0))


def mixtral():  # a loss of its own is added
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SIZES, num_local_experts=2, output_router_logits=True)
    )


def gpt2():  # tied weights
    config = transformers.GPT2Config(n_embd=HIDDEN, n_layer=2, n_head=4, vocab_size=WORDS, n_positions=64)
    return transformers.GPT2LMHeadModel(config)


MODELS = [llama, gemma2, cohere, granite, mixtral, gpt2]


@pytest.fixture(autouse=True)
def uninstalls():
    yield
    integration.uninstall()


def made(make):
    torch.manual_seed(1)
    return make().train()


def chunked(model, chunked_loss="auto"):
    integration.install(chunked_loss=chunked_loss)
    return model


def batch():
    ids = torch.randint(1, WORDS, (ROWS, COLUMNS), generator=torch.Generator().manual_seed(2))
    labels = ids.clone()
    labels[:, :5] = -100
    return {"input_ids": ids, "labels": labels}


def loss(model, **kwargs):
    return model(**batch(), **kwargs).loss


class Largest(TorchDispatchMode):
    """The most elements of the result of an op, and the most tokens whose logits one made."""

    elements = tokens = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        for x in tree_leaves(results):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
                if x.dim() == 2 and x.shape[1] == WORDS and func is not torch.ops.aten.t.default:
                    self.tokens = max(self.tokens, x.shape[0])
        return results


def assert_close(actual, expected, relative):
    """By the largest number of each tensor."""
    assert actual.keys() == expected.keys()
    for name in expected:
        if expected[name].is_floating_point() and expected[name].numel():
            error = (actual[name] - expected[name]).abs().max()
            assert error <= relative * expected[name].abs().max(), f"{name}: {error}"


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("checkpoints", [False, True])
def test_loss_and_gradients_are_plain_ones_but_for_the_order_of_additions(make, checkpoints):
    model = made(make)
    expected = run(model, loss)
    chunked(model)
    if checkpoints:
        enable(model)
    assert_close(run(model, loss), expected, 2e-6)


@pytest.mark.parametrize("make", MODELS)
def test_no_op_of_forward_makes_all_logits(make):
    model = made(make)
    with Largest() as plain:
        loss(model)
    with Largest() as largest:
        loss(chunked(model))
    assert plain.elements == ALL_LOGITS
    assert largest.elements <= max(ROWS * COLUMNS * HIDDEN * 2, WORDS * HIDDEN)


def test_a_chunk_takes_the_bytes_that_were_given():
    rows = 8
    model = chunked(made(llama), chunked_loss=3 * rows * WORDS * 4)  # two results of a row are as long as its logits
    with Largest() as largest:
        loss(model)
    assert rows <= largest.tokens <= 2 * rows


def test_the_mean_is_over_the_number_that_a_trainer_gives():
    model = made(llama)
    for count in (17, torch.tensor(17)):
        expected = run(model, lambda model: loss(model, num_items_in_batch=count))
        copied = chunked(copy.deepcopy(model))
        assert_close(run(copied, lambda model: loss(model, num_items_in_batch=count)), expected, 2e-6)


@pytest.mark.parametrize("make", [llama, gemma2])
def test_under_autocast_gradients_are_no_further_from_those_of_float(make):
    model = made(make)

    def in_bfloat16(model):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model)

    name = "gradient of model.embed_tokens.weight" if make is gemma2 else "gradient of lm_head.weight"
    exact, plain = run(model, loss)[name], run(model, in_bfloat16)[name]
    ours = run(chunked(model), in_bfloat16)[name]
    assert (ours - exact).norm() <= 1.1 * (plain - exact).norm()


def test_with_weights_in_bfloat16_chunks_add_less_than_half_of_plain_rounding():
    def head_of(model):
        return run(model, loss)["gradient of lm_head.weight"].float()

    model = made(llama)
    exact, plain = head_of(model), head_of(copy.deepcopy(model).bfloat16())
    ours = head_of(chunked(model.bfloat16(), chunked_loss=3 * 8 * WORDS * 4))
    assert (ours - exact).norm() <= 1.5 * (plain - exact).norm()


def test_whoever_reads_the_logits_gets_them_whole_and_is_told_of_once():
    model = made(llama)
    expected = model(**batch()).logits
    outputs = chunked(model)(**batch())
    assert type(outputs.logits) is DeferredLogits and outputs.logits.shape == expected.shape
    assert outputs.logits.dtype == expected.dtype and outputs.logits.device == expected.device
    with pytest.warns(UserWarning, match="argmax reads all logits") as warned:
        assert torch.equal(outputs.logits.argmax(-1), expected.argmax(-1))
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same_bits(outputs.logits + 0, expected + 0)
        outputs.logits.sum().backward()
    head = model.lm_head.weight.grad.clone()
    model.zero_grad()
    expected.sum().backward()
    assert same_bits(head, model.lm_head.weight.grad)


class Scaled(torch.autograd.Function):
    """Is given the deferred logits themselves."""

    @staticmethod
    def forward(ctx, logits):
        return logits * 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


@pytest.mark.parametrize("make", [llama, gemma2])
def test_a_function_that_takes_the_logits_sends_its_gradient_to_the_head(make):
    def step(model):
        logits = model(**batch()).logits
        return Scaled.apply(logits).sin().sum() + logits.cos().sum()

    model = made(make)
    expected = run(model, step)
    assert_close(run(chunked(model), step), expected, 2e-6)


def test_logits_that_are_read_after_the_optimizers_step_are_an_error():
    model = chunked(made(llama))
    outputs = model(**batch())
    outputs.loss.backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    with pytest.raises(RuntimeError, match="argmax reads logits that chunked_loss has not computed.*written to"):
        outputs.logits.argmax(-1)


def test_logits_are_plain_without_labels_in_eval_and_without_gradients():
    model = made(llama)
    expected = model(**batch()).logits
    chunked(model)
    assert same_bits(model(batch()["input_ids"]).logits, expected)
    with torch.no_grad():
        assert type(model(**batch()).logits) is torch.Tensor
    assert type(model.eval()(**batch()).logits) is torch.Tensor


def test_labels_may_be_given_without_their_name():
    chunked(made(llama))
    model, given = made(llama), batch()
    with Largest() as largest:
        model(given["input_ids"], None, None, None, None, given["labels"])
    assert largest.elements < ALL_LOGITS


def test_uninstall_puts_plain_losses_back():
    model = made(llama)
    before = {**vars(transformers.PreTrainedModel)}, {**vars(model)}, {**vars(model.lm_head)}
    expected = run(model, loss)
    integration.uninstall()
    chunked(model, "1MiB")
    loss(chunked(model))
    integration.uninstall()
    assert_same(run(model, loss), expected)
    assert (vars(transformers.PreTrainedModel), vars(model), vars(model.lm_head)) == before
    loss(chunked(model))
    integration.install()
    assert_same(run(model, loss), expected)


def test_a_model_is_saved_whole_and_loaded(tmp_path):
    model = chunked(made(llama))
    expected = run(model, loss)
    torch.save(model, tmp_path / "model")
    loaded = torch.load(tmp_path / "model", weights_only=False)
    with Largest() as largest:
        loss(loaded)
    assert largest.elements < ALL_LOGITS
    assert_same(run(loaded, loss), expected)


def test_an_error_in_forward_leaves_nothing_behind():
    model = made(llama)
    expected = model(**batch()).logits
    chunked(model)
    with pytest.raises(Exception):
        model(batch()["input_ids"], labels=batch()["labels"][:, :3])
    assert same_bits(model(batch()["input_ids"]).logits, expected)


def test_a_copy_of_the_model_computes_in_chunks_with_its_own_weights():
    model = chunked(made(llama))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    with Largest() as largest:
        of_copy = loss(copied)
    assert largest.elements < ALL_LOGITS
    integration.uninstall()
    assert (of_copy - loss(made(llama))).abs() < 1e-5


@pytest.mark.parametrize("where", ["head", "loss"])
def test_what_others_put_in_the_place_of_a_part_is_used_and_named(where):
    model = made(llama)
    if where == "head":
        plain = model.lm_head.forward
        model.lm_head.forward = lambda hidden: plain(hidden) * 2
    else:
        model.loss_function = lambda logits, labels, vocab_size, **kwargs: logits.sum()
    expected = loss(model)
    reason = "the forward of its head has been replaced" if where == "head" else "its loss is not that of transformers"
    with pytest.warns(UserWarning, match="chunked_loss leaves LlamaForCausalLM as it is: " + reason):
        assert same_bits(loss(chunked(model)), expected)


def test_a_model_inside_of_a_model_computes_its_own_loss_in_chunks():
    class Teacher(transformers.LlamaForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            self.student = transformers.LlamaForCausalLM(config)

        def forward(self, input_ids, labels=None):
            return self.student(input_ids, labels=labels).loss + super().forward(input_ids, labels=labels).loss

    model = made(lambda: Teacher(transformers.LlamaConfig(**SIZES)))
    expected = run(model, lambda model: model(**batch()))
    chunked(model)
    with Largest() as largest:
        model(**batch())
    assert largest.elements < ALL_LOGITS
    assert_close(run(model, lambda model: model(**batch())), expected, 2e-6)


def test_lora_trains_with_the_losses_of_all_logits_at_once():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "lm_head"], lora_dropout=0.0, init_lora_weights=False)
    torch.manual_seed(3)
    model = peft.get_peft_model(made(llama), config)
    expected = run(model, loss)
    chunked(model.get_base_model())
    with Largest() as largest:
        loss(model)
    assert largest.elements < ALL_LOGITS
    assert_close(run(model, loss), expected, 2e-6)


@pytest.fixture
def process_group():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"static_graph": True}])
def test_distributed_data_parallel_finds_nothing_to_read_in_the_logits(process_group, options):
    wrappers = []  # which backward needs

    def step(model):
        wrappers.append(torch.nn.parallel.DistributedDataParallel(model, **options))
        return loss(wrappers[-1])

    model = made(llama)
    expected = run(model, step)
    assert_close(run(chunked(model), step), expected, 2e-6)
    with Largest() as largest:
        step(model)
    assert 0 < largest.tokens < ROWS * COLUMNS


@pytest.mark.parametrize("head_by_itself", [False, True])
def test_a_head_that_fully_shard_gathers_for_its_own_call_computes_all_logits(process_group, head_by_itself):
    fully_shard = pytest.importorskip("torch.distributed.fsdp", reason="since 2.6").fully_shard
    mesh = torch.distributed.init_device_mesh("cpu", (1,))

    def step(model):
        if head_by_itself:
            fully_shard(model.lm_head, mesh=mesh)
        return loss(fully_shard(model, mesh=mesh))

    expected = step(made(llama))
    model = chunked(made(llama))
    with warnings.catch_warnings(record=True) as warned, Largest() as largest:
        warnings.simplefilter("always")
        actual = step(model)
    actual.backward()
    assert (actual - expected).abs() < 1e-5
    assert (largest.elements < ALL_LOGITS) != head_by_itself
    assert any("sharded, or are no plain tensors" in str(warning.message) for warning in warned) == head_by_itself


@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all"])
def test_in_a_region_around_the_step_losses_are_the_same(policy):
    def step(model):
        with ac2.PolicyScope(policy):
            return loss(model)

    model = made(llama)
    expected = run(model, loss)
    assert_close(run(chunked(model), step), expected, 2e-6)


def test_a_model_without_such_a_loss_is_left_as_it_is_and_named():
    config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                    image_size=16, patch_size=8, num_labels=4)  # fmt: skip
    model = chunked(transformers.ViTForImageClassification(config).train())
    given = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([1, 2])}
    with pytest.warns(UserWarning, match="chunked_loss leaves ViTForImageClassification as it is") as warned:
        model(**given)
        model(**given)
    assert len(warned) == 1


def test_a_model_that_a_transform_of_torch_func_calls_computes_all_logits_and_says_so():
    model = made(llama)

    def of(parameters):
        return torch.func.functional_call(model, parameters, (), batch()).loss

    expected = torch.func.grad(of)(dict(model.named_parameters()))
    chunked(model)
    with pytest.warns(UserWarning, match="chunked_loss leaves LlamaForCausalLM as it is: it is called under a transform"):
        assert_same(torch.func.grad(of)(dict(model.named_parameters())), expected)


def test_a_model_of_which_nothing_is_trained_has_its_loss():
    model = made(llama).requires_grad_(False)
    expected = loss(model)
    assert (loss(chunked(model)) - expected).abs() < 1e-5


# --- torch.compile ----------------------------------------------------------------------------------------------------


def compiled_by_function(model):
    return torch.compile(model, backend="eager")


def compiled_by_method(model):
    model.compile(backend="eager")
    return model


def compiled_with_the_step(model):
    return torch.compile(lambda **batch: model(**batch), backend="eager")


def compiled_by_its_forward(model):
    model.forward = torch.compile(model.forward, backend="eager")
    return model


@pytest.fixture
def dynamo():
    torch._dynamo.reset()
    losses._compiled.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "compiles", [compiled_by_function, compiled_by_method, compiled_with_the_step, compiled_by_its_forward]
)
def test_a_model_that_is_compiled_as_a_whole_computes_all_logits_and_says_so_once(dynamo, compiles):
    plain = loss(compiles(made(llama)))
    torch._dynamo.reset()
    model = compiles(chunked(made(llama)))
    with pytest.warns(UserWarning, match="LlamaForCausalLM, which torch.compile compiles as a whole.*by model.model.comp") as warned:
        assert same_bits(loss(model), plain)
        loss(model)
    assert len([warning for warning in warned if "chunked_loss" in str(warning.message)]) == 1


def test_a_compiled_model_says_nothing_without_labels_and_in_eval(dynamo):
    model = compiled_by_function(chunked(made(llama)))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model(batch()["input_ids"])
        loss(model.eval())
    assert not [warning for warning in warned if "chunked_loss" in str(warning.message)]


@pytest.mark.parametrize("part", ["body", "layers"])
def test_a_model_of_which_a_part_below_the_head_is_compiled_computes_in_chunks(dynamo, part):
    model = made(llama)
    expected = run(model, loss)
    for module in [model.model] if part == "body" else model.model.layers:
        module.compile(backend="eager")
    with warnings.catch_warnings(record=True) as warned, Largest() as largest:
        warnings.simplefilter("always")
        loss(chunked(model))
    assert not [warning for warning in warned if "chunked_loss" in str(warning.message)]
    assert largest.elements < ALL_LOGITS
    assert_close(run(model, loss), expected, 2e-6)


@pytest.mark.parametrize("by_method", [False, True])
def test_a_head_that_is_compiled_computes_all_logits_and_says_so(dynamo, by_method):
    model = made(llama)
    if by_method:
        model.lm_head.compile(backend="eager")
    else:
        model.lm_head = torch.compile(model.lm_head, backend="eager")
    with pytest.warns(UserWarning, match="chunked_loss leaves LlamaForCausalLM as it is: its head is compiled"):
        loss(chunked(model))


# --- heads ------------------------------------------------------------------------------------------------------------


def test_a_head_of_which_the_weights_are_no_plain_tensors_computes_all_logits_and_says_so():
    class Sharded(torch.nn.Parameter):
        pass

    model = chunked(made(llama))
    model.lm_head.weight = Sharded(model.lm_head.weight.detach())
    with pytest.warns(UserWarning, match="sharded, or are no plain tensors"), Largest() as largest:
        loss(model)
    assert largest.elements == ALL_LOGITS


def test_trls_switch_takes_it_too():
    pytest.importorskip("trl")
    trl = pytest.importorskip("ac2.integrations.trl", reason="a trl without what is replaced")
    trl.install(chunked_loss="auto")
    with Largest() as largest:
        loss(made(llama))
    trl.uninstall()
    assert largest.elements < ALL_LOGITS


def test_a_head_that_was_exchanged_computes_in_chunks():
    model = chunked(made(llama))
    loss(model)
    model.set_output_embeddings(torch.nn.Linear(HIDDEN, WORDS, bias=False))
    with Largest() as largest:
        loss(model)
    assert largest.elements < ALL_LOGITS


def test_logits_that_are_not_those_of_the_named_head_are_computed_whole_and_told_of():
    model = chunked(made(llama))
    other = torch.nn.Linear(HIDDEN, WORDS, bias=False)
    model.get_output_embeddings = lambda: other
    with pytest.warns(UserWarning, match="its logits are not what its output head"), Largest() as largest:
        loss(model)
    assert largest.elements == ALL_LOGITS


@pytest.mark.parametrize("given, error", [("1 elephant", ValueError), (0, ValueError), (True, TypeError), (1.5, TypeError)])
def test_a_wrong_setting_is_an_error_before_anything_changes(given, error):
    with pytest.raises(error, match="chunked_loss"):
        integration.install(chunked_loss=given)


def test_a_trainer_trains_to_plain_losses(tmp_path):
    def train(model, **options):
        arguments = transformers.TrainingArguments(
            str(tmp_path), max_steps=3, per_device_train_batch_size=ROWS, report_to=[], logging_steps=1, save_strategy="no",
            use_cpu=True, disable_tqdm=True, gradient_accumulation_steps=2, **options,
        )  # fmt: skip
        rows = [{name: values[i % ROWS] for name, values in batch().items()} for i in range(6 * ROWS)]
        trainer = transformers.Trainer(model, arguments, train_dataset=rows)
        trainer.train()
        return torch.tensor([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])

    expected = train(made(llama))
    integration.install(chunked_loss="auto")
    for options in ({}, {"gradient_checkpointing": True}):
        assert torch.allclose(train(made(llama), **options), expected, rtol=0, atol=2e-4)
