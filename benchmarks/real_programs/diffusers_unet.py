"""diffusers' example of unconditional generation in form: a UNet, its averages (EMAModel, and one through `.data`), and sampling."""

import copy
import sys

import torch
import torch.nn.functional as F
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel


def main():
    larger = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=16,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        dropout=0.1,
    )
    average = EMAModel(model.parameters(), decay=0.99, use_ema_warmup=True, model_cls=UNet2DModel, model_config=model.config)
    by_hand = copy.deepcopy(model)
    scheduler = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rates = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=6)
    for step in range(6):
        images = torch.rand(4 * larger, 3, 16, 16) * 2 - 1
        noise = torch.randn_like(images)
        times = torch.randint(0, 100, (4 * larger,)).long()
        loss = F.mse_loss(model(scheduler.add_noise(images, noise, times), times).sample, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        for mine, new in zip(by_hand.parameters(), model.parameters()):
            mine.data.mul_(0.9).add_(new.data, alpha=0.1)
        print(f"step {step}: loss {loss.detach().item()!r}, lr {rates.get_last_lr()[0]!r}")
    average.store(model.parameters())
    average.copy_to(model.parameters())
    pipeline = DDPMPipeline(unet=model, scheduler=scheduler)
    pipeline.set_progress_bar_config(disable=True)
    print(pipeline(batch_size=1, generator=torch.Generator().manual_seed(0), num_inference_steps=3, output_type="np").images.sum())
    average.restore(model.parameters())
    torch.save([model.state_dict(), average.state_dict(), by_hand.state_dict()], sys.argv[1])


if __name__ == "__main__":
    main()
