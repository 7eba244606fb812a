"""ac2.integrations of torchtune and torchtitan: each trains by its own switch with the bits of plain training."""

import importlib

import pytest
import torch

from integrations_support import ROWS, Model, assert_as_plain, integration, square, train
from integrations_support import uninstalls  # noqa: F401: fixtures

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
