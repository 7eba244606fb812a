"""Images in bfloat16 autocast: workers of a DataLoader, BatchNorm, accumulation, an average of weights, a checkpoint that is resumed."""

import copy
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(1, 16, 16, generator=generator) + index % 4, index % 4


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Dropout2d(0.1))

    def forward(self, x):
        x = x + self.body(x)
        return nn.functional.relu_(x)


def build():
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), Block(16), nn.MaxPool2d(2), Block(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)


def main():
    torch.manual_seed(0)
    model, optimizer, scheduler = build()
    average = copy.deepcopy(model)
    loader = DataLoader(Images(), batch_size=8, shuffle=True, num_workers=2)
    history = []
    for epoch in range(2):
        model.train()
        for step, (images, labels) in enumerate(loader):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(images)
                loss = nn.functional.cross_entropy(logits, labels) / 2
            loss.backward()
            history.append(loss)  # with its graph, as programs do
            if step % 2:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
                for mine, new in zip(average.parameters(), model.parameters()):
                    mine.data.mul_(0.9).add_(new.data, alpha=0.1)
        scheduler.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, sys.argv[1])
        model, optimizer, scheduler = build()
        stored = torch.load(sys.argv[1])
        for part, name in ((model, "model"), (optimizer, "optimizer"), (scheduler, "scheduler")):
            part.load_state_dict(stored[name])
        model.eval()
        with torch.inference_mode():
            right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
        print(f"epoch {epoch}: loss {sum(history).item()!r}, right {right} of {len(loader.dataset)}")
    torch.save([model.state_dict(), average.state_dict(), optimizer.state_dict()], sys.argv[1])
    print(os.path.getsize(sys.argv[1]) > 0, file=sys.stderr)
    sys.exit(3)


if __name__ == "__main__":
    main()
