"""A convolutional autoencoder by Lightning's Trainer: BatchNorm, a worker of DataLoader, validation, clipping, averages of weights."""

import logging
import sys
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning.*")


class AutoEncoder(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 32, 3, stride=2, padding=1)
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Dropout2d(0.1), nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1)
        )

    def training_step(self, batch, _):
        (images,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(images)), images)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        (images,) = batch
        self.log("val_loss", nn.functional.mse_loss(self.decoder(self.encoder(images)), images), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    lightning.seed_everything(0, verbose=False)
    images = TensorDataset(torch.rand(48 * times, 1, 28, 28))
    train, valid = torch.utils.data.random_split(images, [32 * times, 16 * times])
    model = AutoEncoder()
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        gradient_clip_val=1.0,
        accumulate_grad_batches=2,
        callbacks=[StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=1)],
    )
    batch = 8 * times
    trainer.fit(model, DataLoader(train, batch_size=batch, shuffle=True, num_workers=1), DataLoader(valid, batch_size=batch))
    print({name: value.item() for name, value in trainer.callback_metrics.items()})
    torch.save(model.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
