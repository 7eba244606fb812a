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


@pytest.mark.parametrize("name", ["llama3", "deepseek_v3"])
def test_torchtitans_own_models_train_as_without_checkpointing(name):
    torchtitan = integration("torchtitan")
    models = pytest.importorskip(f"torchtitan.models.{name}", reason="torchtitan's models need more packages", exc_type=ImportError)
    from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
    from torchtitan.models.common.attention import ScaledDotProductAttention

    config = models._debugmodel("flex", **({} if name == "llama3" else {"moe_comm_backend": "standard"}))
    config.layers = config.layers[:3]
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # flex_attention has no backward on a CPU
    ids = torch.arange(64).view(2, 32) * 31 % config.vocab_size

    def make():
        torch.manual_seed(1)
        model = config.build()
        model.init_states()
        return model.train()

    def loss(model):
        logits = model(ids, torch.arange(32).expand(2, 32))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.roll(-1, 1).flatten())

    def trained(activation_checkpoint):
        model = make()
        names = list(model.state_dict())
        activation_checkpoint.build().apply(model)
        return train(model, loss), list(model.state_dict()) != names

    plain = train(make(), loss)
    if name == "deepseek_v3":  # torchtitan's own counts each expert's tokens in forward, and once more in backward
        counted = [tensor for tensor in plain.tensors if "tokens_per_expert" in tensor]
        theirs = trained(FullAC.Config())[0].tensors
        twice = {tensor.replace("_checkpoint_wrapped_module.", ""): value for tensor, value in theirs.items()}
        assert counted and all(torch.equal(twice[tensor], 2 * plain.tensors[tensor]) for tensor in counted)
    full, selective = FullAC.Config(), SelectiveAC.Config(force_recompute_mm_shapes_by_fqns=[])
    needs_no_install = [torchtitan.PolicyAC.Config(policy="save_compute_intensive"), torchtitan.RematAC.Config(save_regions=["attention.wo"])]
    runs = [trained(each) for each in needs_no_install]
    torchtitan.install()
    runs += [trained(full), trained(selective)]
    for run, names_changed in runs:
        assert_as_plain(run, plain)
        assert not names_changed
    assert runs[2][0].held < runs[1][0].held < runs[0][0].held
    assert runs[2][0].held < runs[3][0].held


def test_torchtitans_config_refuses_wrong_arguments_where_it_is_made():
    config = integration("torchtitan").PolicyAC.Config
    with pytest.raises(ValueError, match='"speeed" is no policy: did you mean "speed"'):
        config(policy="speeed")
    with pytest.raises(ValueError, match='memory_budget is "?.?64MB.*such as "64MiB"'):
        config(memory_budget="64MB")
