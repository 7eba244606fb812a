"""What the tests of ac2.integrations share: libraries or their stand-ins, a process group of one, a small model, and
training that leaves what is compared.

A library that is not installed is skipped. Of torchtitan, torch_remat, TransformerEngine, DeepSpeed and Megatron there are
stand-ins (library_stand_ins.py). A test file imports the fixtures that it needs, and ``uninstalls`` always.
"""

import gc
import importlib
import sys
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
    "torch_remat": ("torch_remat", None, "region"),
    "torchtitan": ("torchtitan.distributed.activation_checkpoint", None, "ptd_checkpoint_wrapper"),
    "torchtune": ("torchtune.training.memory", None, "apply_activation_checkpointing"),
    "transformer_engine": ("transformer_engine.pytorch.distributed", None, "checkpoint"),
    "transformers": ("transformers.modeling_utils", "PreTrainedModel", "_set_gradient_checkpointing"),
    "trl": ("trl.models.activation_offloading", None, "get_act_offloading_ctx_manager"),
}
PACKAGES = {"lightning": ("lightning", "pytorch_lightning", "lightning_fabric")}


def integration(library: str) -> Any:
    if library in library_stand_ins.LIBRARIES:
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


# Of tokens, for language models.
ROWS = [{"input_ids": [(i + j) % 60 for j in range(12)], "labels": [(i + j) % 60 for j in range(12)]} for i in range(4)]
