"""ac2.integrations: each library trains by its own switch with the bits of plain training. (Models of transformers:
test_transformers.py.)

A library that is not installed is skipped. Of torchtitan, DeepSpeed and Megatron there are stand-ins
(library_stand_ins.py).
"""

import gc
import importlib
import re
import sys
import tempfile
import types
import warnings
from typing import Any, Callable, Dict, NamedTuple

import pytest
import torch
import torch.distributed as dist

import ac2
import library_stand_ins
from support import assert_same

# What install() cannot do without.
REPLACED = {
    "accelerate": ("accelerate", "Accelerator", "prepare_model"),
    "deepspeed": ("deepspeed.runtime.activation_checkpointing.checkpointing", None, "non_reentrant_checkpoint"),
    "diffusers": ("diffusers.models.modeling_utils", "ModelMixin", "enable_gradient_checkpointing"),
    "lightning": ("lightning.fabric.strategies.fsdp", None, "_setup_activation_checkpointing"),
    "megatron": ("megatron.core.tensor_parallel.random", None, "checkpoint"),
    "timm": ("timm.models._manipulate", None, "checkpoint_seq"),
    "torchtitan": ("torchtitan.distributed.activation_checkpoint", None, "ptd_checkpoint_wrapper"),
    "torchtune": ("torchtune.training.memory", None, "apply_activation_checkpointing"),
    "transformers": ("transformers.modeling_utils", "PreTrainedModel", "_set_gradient_checkpointing"),
    "trl": ("trl.models.activation_offloading", None, "get_act_offloading_ctx_manager"),
}
PACKAGES = {"lightning": ("lightning", "pytorch_lightning", "lightning_fabric")}


def integration(library: str) -> Any:
    if library in ("deepspeed", "megatron", "torchtitan"):
        library_stand_ins.provide(library)
    else:
        pytest.importorskip(REPLACED[library][0], reason=f"{library} is not installed", exc_type=ImportError)
    return importlib.import_module(f"ac2.integrations.{library}")


@pytest.fixture(autouse=True)
def uninstalls():
    torch.set_num_threads(1)
    gc.freeze()  # libraries' classes, which the collections around each test need not visit
    yield
    for library in REPLACED:
        module = sys.modules.get(f"ac2.integrations.{library}")
        if module is not None:
            module.uninstall()


@pytest.fixture(scope="module")
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def only_rank(process_group, monkeypatch):
    """The variables that torchrun sets, for the only process of a group."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def accelerate(only_rank):
    """accelerate, in the only process of a group."""
    module = integration("accelerate")
    state = importlib.import_module("accelerate.state").AcceleratorState
    state._reset_state(True)
    yield module
    state._reset_state(True)


class Run(NamedTuple):
    """What some steps of training leave."""

    tensors: Dict[str, torch.Tensor]  # losses, parameters, buffers
    held: int  # bytes, by the last forward
    nodes: int  # recorded in the last forward


class Meter:
    """Counts in a forward what it leaves in memory, and what is recorded."""

    def __init__(self) -> None:
        self.losses = []

    def __call__(self, forward: Callable[[], Any]) -> Any:
        before = ac2.live_node_count()
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            loss = forward()
        self.held = sum(event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]")
        self.nodes = ac2.live_node_count() - before
        self.losses.append(loss.detach().clone())
        return loss

    def run(self, model: torch.nn.Module) -> Run:
        tensors = {f"loss {step}": loss for step, loss in enumerate(self.losses)}
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensors[name] = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.detach()
        return Run(tensors, self.held, self.nodes)


def train(
    model: torch.nn.Module,
    loss_of: Callable[..., torch.Tensor],
    optimizer: Any = None,
    backward: Any = torch.Tensor.backward,
) -> Run:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Meter()
    for step in range(2):
        torch.manual_seed(step)
        backward(meter(lambda: loss_of(model)))
        optimizer.step()
        optimizer.zero_grad()
    return meter.run(model)


def assert_as_plain(run: Run, plain: Run) -> None:
    assert_same(run.tensors, plain.tensors)
    assert plain.nodes == 0
    assert run.nodes > 0, "no region was there"
    assert run.held < plain.held


def regions_of_functions() -> int:
    _, _, functions = ac2.report().partition("Run by ac2.checkpoint:")
    return sum(map(int, re.findall(r": (\d+) regions?$", functions, re.MULTILINE)))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.nn.Linear(32, 64, bias=False)
        self.narrow = torch.nn.Linear(64, 32, bias=False)
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.narrow(torch.nn.functional.gelu(self.wide(x))))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


INPUT = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))


def square(model: torch.nn.Module) -> torch.Tensor:
    return model(INPUT).float().square().mean()


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


# Lightning


def lightning_module(late: bool) -> Any:
    import lightning.pytorch

    class Module(lightning.pytorch.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.meter = Meter()
            if not late:
                self.model = Model()

        def training_step(self, batch, index):
            return self.meter(lambda: self.model(batch).square().mean())

        def validation_step(self, batch, index):
            before = ac2.live_node_count()
            self.model(batch)
            assert ac2.live_node_count() == before  # no region

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class LateModule(Module):
        def configure_model(self) -> None:
            self.model = Model()

    return LateModule() if late else Module()


@pytest.mark.filterwarnings("ignore")  # about numbers of workers
@pytest.mark.parametrize("late", [False, True])
def test_lightnings_trainer_trains_with_the_callback_as_without(late):
    Checkpointing = integration("lightning").Checkpointing
    import lightning.pytorch

    def fitted(*callbacks):
        module = lightning_module(late)
        torch.manual_seed(3)
        trainer = lightning.pytorch.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=list(callbacks),
        )
        data = torch.utils.data.DataLoader([INPUT, INPUT + 1], batch_size=None)
        trainer.fit(module, data, data)
        return module

    plain, module = fitted(), fitted(Checkpointing("model.layers.*"))
    assert_as_plain(module.meter.run(module), plain.meter.run(plain))
    assert ac2.last_trace(module.model.layers[2]).stats().recomputed_ops > 0
    with pytest.raises(ValueError, match="'layers.x' picks no module"):
        fitted(Checkpointing("layers.x"))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_lightnings_fabric_trains_with_the_callback_as_without(precision):
    Checkpointing = integration("lightning").Checkpointing
    from lightning.fabric import Fabric

    def trained(*callbacks):
        fabric = Fabric(accelerator="cpu", precision=precision, callbacks=list(callbacks))
        model = Model()
        model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        return train(model, square, optimizer, fabric.backward)

    assert_as_plain(trained(Checkpointing("layers.*", policy="save_compute_intensive")), trained())


def test_lightnings_callback_refuses_wrong_arguments_where_it_is_made():
    Checkpointing = integration("lightning").Checkpointing
    for arguments in ({}, {"modules": "layers.*", "check_fn": lambda module: True}):
        with pytest.raises(ValueError, match="Checkpointing needs either modules= .* or check_fn=, and not both"):
            Checkpointing(**arguments)
    with pytest.raises(ValueError, match='"speeed" is no policy: did you mean "speed"'):
        Checkpointing("layers.*", policy="speeed")


def test_lightnings_fsdp_strategies_wrap_with_ac2():
    """Lightning takes FSDP for a GPU's alone, so that its function for the option is called with the strategy's own
    arguments."""
    lightning = integration("lightning")
    from lightning.fabric.strategies import fsdp
    from lightning.pytorch.strategies import fsdp as trainers

    plain = train(Model(), square)
    for strategies in (fsdp, trainers):

        def set_up(cls, strategies=strategies):
            model = Model()
            strategy = strategies.FSDPStrategy(activation_checkpointing_policy={cls})
            strategies._setup_activation_checkpointing(model, strategy._activation_checkpointing_kwargs)
            return model

        lightning.install()
        assert_as_plain(train(set_up(Block), square), plain)
        with pytest.warns(UserWarning, match="Lightning's FSDPStrategy.* has picked no module"):
            set_up(torch.nn.Conv2d)
        lightning.uninstall()
        assert type(set_up(Block).layers[0]).__name__ == "CheckpointWrapper"


# diffusers


def unet() -> Any:
    import diffusers

    torch.manual_seed(1)
    return diffusers.UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(8, 16),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        norm_num_groups=4,
        cross_attention_dim=8,
        attention_head_dim=2,
        dropout=0.1,
    ).train()


def denoise(model: Any) -> torch.Tensor:
    return model(INPUT.reshape(1, 4, 16, 16), torch.tensor([3]), torch.ones(1, 5, 8)).sample.square().mean()


@pytest.mark.parametrize("policy", [None, "save_compute_intensive"])
def test_diffusers_trains_by_its_own_switch_as_without_checkpointing(policy):
    diffusers = integration("diffusers")
    plain = train(unet(), denoise)
    diffusers.install(policy)
    model = unet()
    model.enable_gradient_checkpointing()
    assert model.is_gradient_checkpointing
    assert_as_plain(train(model, denoise), plain)
    assert "diffusers.models.resnet.ResnetBlock2D: " in ac2.report()
    model.disable_gradient_checkpointing()
    assert train(model, denoise).nodes == 0


def test_a_function_of_a_diffusers_models_own_is_called():
    called = []

    def own(function, *args):
        called.append(function)
        return function(*args)

    integration("diffusers").install()
    model = unet()
    model.enable_gradient_checkpointing(own)
    assert train(model, denoise).nodes == 0
    assert called


# timm


TIMM = {
    "vit_tiny_patch16_224": dict(
        img_size=16, patch_size=4, depth=3, embed_dim=24, num_heads=2, drop_path_rate=0.1
    ),  # checkpoint
    "convnext_atto": dict(depths=(1, 1, 2, 1), dims=(8, 8, 16, 16)),  # checkpoint_seq
    "resnet10t": {},  # checkpoint_seq of nested parts; batch norms
}


def timm_model(name: str) -> torch.nn.Module:
    import timm

    torch.manual_seed(1)
    return timm.create_model(name, num_classes=5, **TIMM[name]).train()


def classify(model: torch.nn.Module) -> torch.Tensor:
    size = 16 if hasattr(model, "patch_embed") else 32
    return model(torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))).square().mean()


@pytest.mark.parametrize("name", TIMM)
def test_timm_trains_by_its_own_switch_as_without_checkpointing(name):
    timm = integration("timm")
    plain = train(timm_model(name), classify)
    timm.install()
    model = timm_model(name)
    model.set_grad_checkpointing(True)
    assert_as_plain(train(model, classify), plain)
    timm.uninstall()
    assert train(model, classify).nodes == 0


@pytest.mark.parametrize(
    "options", [{}, {"every": 2}, {"every": 4, "skip_last": True}, {"skip_last": True, "flatten": True}]
)
def test_timms_checkpoint_seq_makes_a_region_of_each_of_its_parts(options, monkeypatch):
    timm = integration("timm")
    import timm.models as timm_models

    parts = [torch.nn.Sequential(Block(), Block()) for _ in range(5)]
    x = INPUT.clone().requires_grad_()
    calls = []
    original = torch.utils.checkpoint.checkpoint
    monkeypatch.setattr(
        torch.utils.checkpoint, "checkpoint", lambda *args, **kwargs: calls.append(args) or original(*args, **kwargs)
    )
    torch.manual_seed(0)
    expected = timm_models.checkpoint_seq(parts, x, **options)
    monkeypatch.undo()
    before = regions_of_functions()
    timm.install()
    torch.manual_seed(0)
    assert torch.equal(timm_models.checkpoint_seq(parts, x, **options), expected)
    assert regions_of_functions() - before == len(calls) > 0


def test_no_region_is_opened_in_eval_and_under_no_grad():
    integration("timm").install()
    for name in TIMM:
        model = timm_model(name)
        model.set_grad_checkpointing()
        before = ac2.live_node_count()
        loss = classify(model.eval())
        with torch.no_grad():
            classify(model.train())
        assert ac2.live_node_count() == before
        del loss


def test_timms_models_compile_in_one_graph():
    integration("timm").install("save_compute_intensive")
    model = timm_model("vit_tiny_patch16_224").eval()  # no dropped paths
    model.set_grad_checkpointing()
    ac2.integrations.timm.install("save_compute_intensive", off_in_eval=False)
    classify(model).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    classify(torch.compile(model, backend="aot_eager", fullgraph=True)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])


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


ROWS = [{"input_ids": [(i + j) % 60 for j in range(12)], "labels": [(i + j) % 60 for j in range(12)]} for i in range(4)]


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


# torchtune


def test_torchtune_trains_by_its_own_switch_as_without_checkpointing():
    torchtune = integration("torchtune")
    from torchtune import modules, training
    from torchtune.models.llama3 import llama3

    def make():
        torch.manual_seed(1)
        return llama3(vocab_size=64, num_layers=3, num_heads=2, num_kv_heads=2, embed_dim=32, max_seq_len=16).train()

    ids = torch.tensor([row["input_ids"] for row in ROWS])

    def loss(model):
        return torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    plain = train(make(), loss)
    torchtune.install()
    model = make()
    training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
    run = train(model, loss)
    assert_as_plain(run, plain)
    selective = make()
    importlib.import_module("torchtune.training.activations").apply_selective_activation_checkpointing(
        selective, "selective", 3
    )
    selective_run = train(selective, loss)
    assert_as_plain(selective_run, plain)
    assert run.held < selective_run.held
    with pytest.warns(UserWarning, match="torchtune's set_activation_checkpointing.* has picked no module"):
        training.set_activation_checkpointing(make(), auto_wrap_policy={torch.nn.Conv2d})


# torchtitan


class TitanModel(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleDict({str(i): layer for i, layer in enumerate(self.layers)})

    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return x


def test_torchtitan_trains_by_its_own_switch_as_without_checkpointing():
    torchtitan = integration("torchtitan")
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC

    def trained(config):
        model = TitanModel()
        config.build().apply(model)
        assert list(model.state_dict()) == list(TitanModel().state_dict())
        return train(model, square)

    plain = train(TitanModel(), square)
    saves_some = trained(torchtitan.PolicyAC.Config(policy="save_compute_intensive"))  # needs no install()
    assert_as_plain(saves_some, plain)
    torchtitan.install()
    full = trained(FullAC.Config())
    selective = trained(SelectiveAC.Config(force_recompute_mm_shapes_by_fqns=[]))
    for run in (full, selective, trained(torchtitan.PolicyAC.Config(memory_budget="16KiB"))):
        assert_as_plain(run, plain)
    assert full.held < selective.held <= saves_some.held


def test_torchtitans_config_refuses_wrong_arguments_where_it_is_made():
    config = integration("torchtitan").PolicyAC.Config
    with pytest.raises(ValueError, match='"speeed" is no policy: did you mean "speed"'):
        config(policy="speeed")
    with pytest.raises(ValueError, match='memory_budget is "?.?64MB.*such as "64MiB"'):
        config(memory_budget="64MB")


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


@pytest.mark.parametrize("modules", [None, ["core_attn"], ["mlp"]])
def test_megatrons_gpt_trains_as_without_checkpointing(process_group, modules, monkeypatch):
    if not library_stand_ins.provide("megatron"):
        pytest.skip("megatron is not installed")
    megatron = integration("megatron")
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    # It asks for a GPU to place a buffer, and for a generator of tensor parallelism's.
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    tensor_parallel.random.initialize_rng_tracker(inference_rng_tracker=True)
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()

    def make(**kwargs):
        torch.manual_seed(1)
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

    plain = train(make(), loss)
    megatron.install()
    full = dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    selective = dict(recompute_granularity="selective", recompute_modules=modules)
    assert_as_plain(train(make(**(selective if modules else full)), loss), plain)


# All of them


def members(library: str) -> Dict[Any, Any]:
    """Functions of the library's modules and members of its classes, and torch.distributed's wrappers."""
    found = {}
    prefixes = PACKAGES.get(library, (library, "transformers") if library == "trl" else (library,))
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in prefixes or name.endswith("_checkpoint.checkpoint_wrapper"):
            for member, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, types.FunctionType):
                    found[name, member] = value
                elif isinstance(value, type) and value.__module__ == name:
                    for inner, attribute in vars(value).items():
                        if isinstance(attribute, (types.FunctionType, property)):
                            found[name, member, inner] = attribute
    return found


def same(before: Dict[Any, Any], library: str) -> bool:
    after = members(library)
    return all(after[name] is value for name, value in before.items())


@pytest.mark.parametrize("library", REPLACED)
def test_uninstall_puts_all_back_and_does_nothing_if_it_is_off(library):
    module = integration(library)
    before = members(library)
    module.uninstall()
    assert same(before, library)
    module.install()
    module.install("must_save_all", memory_budget="1MiB")
    assert not same(before, library)
    module.uninstall()
    assert same(before, library)
    module.uninstall()
    assert same(before, library)


@pytest.mark.parametrize("library", REPLACED)
def test_wrong_arguments_are_errors_that_name_them_and_change_nothing(library):
    module = integration(library)
    before = members(library)
    with pytest.raises(ValueError, match='"speeed" is no policy: did you mean "speed"'):
        module.install("speeed")
    with pytest.raises(
        TypeError, match="install was given 'budget', which is no option. Options are policy, memory_budget"
    ):
        module.install(budget=3)
    with pytest.raises(ValueError, match='such as "64MiB"'):
        module.install(memory_budget="64MB")
    assert same(before, library)


@pytest.mark.parametrize("library", REPLACED)
def test_a_library_without_what_is_replaced_is_an_error(library, monkeypatch):
    module = integration(library)
    path, cls, name = REPLACED[library]
    owner = importlib.import_module(path)
    monkeypatch.delattr(getattr(owner, cls) if cls else owner, name)
    before = members(library)
    with pytest.raises(
        RuntimeError,
        match=rf"integrations.{library}.install\(\) reaches nothing: .* has no .*{name}, which .*Install one of",
    ):
        module.install()
    assert same(before, library)


@pytest.mark.parametrize("library", REPLACED)
def test_a_library_that_is_not_installed_is_an_error_that_says_what_to_do(library, monkeypatch):
    for package in PACKAGES.get(library, (library,)):
        monkeypatch.setitem(sys.modules, package, None)
        for name in list(sys.modules):
            if name.startswith(package + "."):
                monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"ac2.integrations.{library}", raising=False)
    with pytest.raises(
        ImportError,
        match=rf"ac2.integrations.{library} needs {library}, which cannot be imported here: .*\(pip install ",
    ):
        importlib.import_module(f"ac2.integrations.{library}")
