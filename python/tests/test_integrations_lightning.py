"""ac2.integrations.lightning: Trainer, Fabric and FSDPStrategy train with the bits of plain training."""

from typing import Any

import pytest
import torch

import ac2
from integrations_support import INPUT, Block, Meter, Model, assert_as_plain, integration, square, train
from integrations_support import uninstalls  # noqa: F401: fixtures


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
