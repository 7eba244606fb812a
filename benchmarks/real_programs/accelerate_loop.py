"""accelerate's loop: a ResNet of torchvision, accumulation, clipping, metrics that are gathered. `accelerate launch` starts it too."""

import sys

import torch
import torchvision
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    set_seed(0)
    model = torchvision.models.resnet18(weights=None, num_classes=10)
    data = TensorDataset(torch.randn(24 * times, 3, 48, 48), torch.randint(10, (24 * times,)))
    loader = DataLoader(data, batch_size=4 * times, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, epochs=1, steps_per_epoch=len(loader))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    total = 0.0
    for images, labels in loader:
        with accelerator.accumulate(model):
            logits = model(images)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            total += loss.detach().float()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        predictions, references = accelerator.gather_for_metrics((logits.argmax(dim=-1), labels))
        accelerator.print(f"loss {loss.item()!r}, right {(predictions == references).sum().item()}")
    accelerator.print(f"total {total.item()!r}")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(model).state_dict(), sys.argv[1])
    accelerator.end_training()


if __name__ == "__main__":
    main()
