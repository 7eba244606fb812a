"""torchvision's reference of detection in form: a Faster R-CNN, boxes that differ from image to image, losses that are summed."""

import sys

import torch
import torchvision


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    torch.manual_seed(0)
    model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=4, min_size=96, max_size=128, trainable_backbone_layers=6
    )
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.01, momentum=0.9)
    model.train()
    for step in range(3):
        images = [torch.rand(3, 96 + 8 * step, 128) for _ in range(2 * times)]
        targets = []
        for _ in images:
            corners = torch.rand(step + 1, 2) * 40
            targets.append({"boxes": torch.cat([corners, corners + 30], 1), "labels": torch.randint(1, 4, (step + 1,))})
        losses = model(images, targets)
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, {name: value.item() for name, value in losses.items()})
    model.eval()
    with torch.no_grad():
        print([len(found["boxes"]) for found in model([torch.rand(3, 96, 128)])])
    torch.save(model.state_dict(), sys.argv[1])


if __name__ == "__main__":
    main()
