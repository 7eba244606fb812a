"""torchvision's reference of classification in form: epochs with meters, workers, label smoothing, an average of weights, evaluation."""

import argparse
import collections

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision.transforms import v2


class Meter:
    def __init__(self):
        self.values = collections.deque(maxlen=20)

    def update(self, value):
        self.values.append(value)

    def __str__(self):
        values = torch.tensor(list(self.values))
        return f"{values.median().item():.6f} ({values.mean().item():.6f})"


def train_one_epoch(model, criterion, optimizer, loader, epoch, average):
    model.train()
    meters = collections.defaultdict(Meter)
    for i, (image, target) in enumerate(loader):
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if i % 2 == 0:
            average.update_parameters(model)
        meters["loss"].update(loss.item())
        meters["acc1"].update((output.argmax(1) == target).float().mean().item())
        print(f"Epoch: [{epoch}] " + "  ".join(f"{name}: {meter}" for name, meter in meters.items()))


def evaluate(model, criterion, loader):
    model.eval()
    with torch.inference_mode():
        print("Test: " + " ".join(f"{criterion(model(image), target).item():.6f}" for image, target in loader))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("times", type=int, nargs="?", default=1)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    transform = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    dataset = torchvision.datasets.FakeData(24 * arguments.times, (3, 64, 64), 10, transform)
    loader = DataLoader(dataset, batch_size=8 * arguments.times, shuffle=True, num_workers=2)
    model = torchvision.models.mobilenet_v3_small(weights=None, num_classes=10)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    parameters = torchvision.ops._utils.split_normalization_params(model)
    groups = [{"params": params, "weight_decay": decay} for params, decay in zip(parameters, [0.0, 2e-5])]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=1), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1)],
        milestones=[1],
    )
    for epoch in range(arguments.epochs):
        train_one_epoch(model, criterion, optimizer, loader, epoch, average)
        scheduler.step()
        evaluate(average, criterion, loader)
    torch.save({"model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict()}, arguments.output)


if __name__ == "__main__":
    main()
