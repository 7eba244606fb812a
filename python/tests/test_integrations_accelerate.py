"""ac2.integrations of accelerate and of what trains by it: transformers' Trainer, peft, trl. Each trains by its own
switch with the bits of plain training. (Models of transformers: test_transformers.py.)
"""

import importlib
import tempfile
import warnings
from typing import Any

import pytest
import torch

import ac2
from integrations_support import ROWS, Meter, Model, Run, assert_as_plain, integration, square, train
from integrations_support import accelerate, only_rank, process_group, uninstalls  # noqa: F401: fixtures
from support import assert_same

# accelerate


def accelerated(version: int, **plugin: Any) -> Any:
    """Accelerator and prepared model and optimizer. accelerate itself takes FSDP for a GPU's alone."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    model = Model()
    layers = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]}
    fsdp = FullyShardedDataParallelPlugin(fsdp_version=version, **{**layers, **plugin})
    accelerator = Accelerator(cpu=True, fsdp_plugin=fsdp)
    accelerator.state.distributed_type, accelerator.state.fsdp_plugin = DistributedType.FSDP, fsdp
    accelerator.state.device = torch.device("cpu")
    return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("version", [1, 2])
def test_accelerates_fsdp_plugin_trains_as_without_checkpointing(accelerate, version):
    def trained(**plugin):
        accelerator, model, optimizer = accelerated(version, **plugin)
        return model, train(model, square, optimizer, accelerator.backward)

    plain, plain_run = trained()
    accelerate.install()
    model, run = trained(activation_checkpointing=True)
    assert_as_plain(run, plain_run)
    assert list(model.state_dict()) == list(plain.state_dict())  # no name has _checkpoint_wrapped_module in it
    assert "3 of 3 wrapped modules have had a region" in ac2.report()
    accelerate.uninstall()
    model, run = trained(activation_checkpointing=True)
    assert run.nodes == 0


def test_accelerates_activation_checkpointing_offload_offloads_the_inputs_of_regions(accelerate):
    fields = importlib.import_module("accelerate").FullyShardedDataParallelPlugin.__dataclass_fields__
    if "activation_checkpointing_offload" not in fields:
        pytest.skip("this release of accelerate has no such option")
    plain = train(accelerated(2)[1], square)
    accelerate.install()
    model = accelerated(2, activation_checkpointing=True, activation_checkpointing_offload=True)[1]
    assert [layer._ac2_checkpointing.options["offload"].inputs for layer in model.layers] == [True] * 3
    assert_same(train(model, square).tensors, plain.tensors)


def test_a_policy_of_accelerates_plugin_that_picks_nothing_is_told(accelerate):
    accelerate.install()
    with pytest.warns(UserWarning, match="accelerate's FullyShardedDataParallelPlugin.* has picked no module"):
        accelerated(2, activation_checkpointing=True, auto_wrap_policy="size_based_wrap", min_num_params=10**9)


# transformers' Trainer, trl


def llama() -> Any:
    import transformers

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        attention_dropout=0.1,
        attn_implementation="sdpa",
        eos_token_id=62,
        bos_token_id=None,
        pad_token_id=63,
    )
    return transformers.LlamaForCausalLM(config)


def trained_by(trainer: type, arguments: type, rows: Any, model: Any = None, **kwargs: Any) -> Run:
    meter = Meter()

    class Measured(trainer):
        def compute_loss(self, *args, **kwargs):
            return meter(lambda: super(Measured, self).compute_loss(*args, **kwargs))

    extra = kwargs.pop("extra", {})
    model = model or llama()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = arguments(
            output_dir=folder,
            max_steps=2,
            per_device_train_batch_size=2,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            bf16=False,
            logging_strategy="no",
            **kwargs,
        )
        Measured(model=model, args=given, train_dataset=rows, **extra).train()
    return meter.run(model)


def test_transformers_trainer_trains_as_without_checkpointing(accelerate):
    from transformers import Trainer, TrainingArguments

    plain = trained_by(Trainer, TrainingArguments, ROWS)
    integration("transformers").install()
    assert_as_plain(trained_by(Trainer, TrainingArguments, ROWS, gradient_checkpointing=True), plain)


def test_peft_models_train_as_without_checkpointing(accelerate):
    peft = pytest.importorskip("peft")
    from transformers import Trainer, TrainingArguments

    def adapted():
        config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
        try:
            return peft.get_peft_model(llama(), config)
        except ImportError as error:  # it refuses the torchao that torchtune needs
            pytest.skip(str(error))

    plain = trained_by(Trainer, TrainingArguments, ROWS, adapted())
    integration("transformers").install()
    assert_as_plain(trained_by(Trainer, TrainingArguments, ROWS, adapted(), gradient_checkpointing=True), plain)


def trained_by_trl(**kwargs: Any) -> Run:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    import pyarrow
    import tokenizers
    import transformers
    import trl

    words = {**{f"w{i}": i for i in range(62)}, "<eos>": 62, "<pad>": 63}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>")),
        eos_token="<eos>",
        pad_token="<pad>",
    )
    rows = datasets.Dataset(datasets.table.InMemoryTable(pyarrow.Table.from_pylist(ROWS)), fingerprint="rows")
    return trained_by(
        trl.SFTTrainer,
        trl.SFTConfig,
        rows,
        extra={"processing_class": tokenizer},
        dataset_kwargs={"skip_prepare_dataset": True},
        **kwargs,
    )


@pytest.mark.parametrize("kwargs", [{}, {"gradient_checkpointing_kwargs": {"selective": True}}])
def test_trls_trainer_trains_as_without_checkpointing(accelerate, kwargs):
    trl = integration("trl")
    plain = trained_by_trl(gradient_checkpointing=False)
    trl.install("must_save_all" if kwargs else None)  # a selective model decides by itself
    assert_as_plain(trained_by_trl(gradient_checkpointing=True, **kwargs), plain)


def test_trls_activation_offloading_offloads_the_inputs_of_regions():
    trl = integration("trl")
    model = llama().train()
    trl.install()
    from trl.models import get_act_offloading_ctx_manager

    context = get_act_offloading_ctx_manager(model, use_pin_memory=False, use_streams=False)
    model.gradient_checkpointing_enable()
    ids = torch.tensor([ROWS[0]["input_ids"]])

    def loss(model):
        with context:
            return model(ids, labels=ids).loss

    run = train(model, loss)
    assert [layer._ac2_checkpointing.options["offload"].inputs for layer in model.model.layers] == [True] * 3
    trl.uninstall()
    assert_same(run.tensors, train(llama().train(), lambda model: model(ids, labels=ids).loss).tensors)
