"""The networks of ../networks/image_networks.h. Comments there are not repeated here."""

import torch
from torch import nn
from torch.nn import functional

import networks


def conv(features, out, kernel, stride=1, groups=1):
    return nn.Conv2d(features, out, kernel, stride, kernel // 2, groups=groups, bias=False)


class ImageNetwork(nn.Module):
    def __init__(self, batch, pixels):
        super().__init__()
        self.sizes = [batch, 3, pixels, pixels]

    def input(self):
        return networks.by_formula(self.sizes, 0, 1)

    def classify(self, x):
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Bottleneck(nn.Module):
    def __init__(self, features, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(conv(features, width, 1), nn.BatchNorm2d(width), nn.ReLU(True),
                                  conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(True),
                                  conv(width, out, 1), nn.BatchNorm2d(out))
        self.shortcut = None
        if stride != 1 or features != out:
            self.shortcut = nn.Sequential(conv(features, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.body(x)
        y += x if self.shortcut is None else self.shortcut(x)
        return y.relu_()


class ResNet50(ImageNetwork):
    def __init__(self, batch, pixels, width):
        super().__init__(batch, pixels)
        self.stem = nn.Sequential(conv(3, width, 7, 2), nn.BatchNorm2d(width))
        self.blocks = nn.ModuleList()
        features = width
        for layer, count in enumerate([3, 4, 6, 3]):
            inner = width << layer
            for i in range(count):
                self.blocks.append(Bottleneck(features, inner, 2 if i == 0 and layer > 0 else 1))
                features = 4 * inner
        self.head = nn.Linear(features, 1000)

    def forward(self, x, region):
        x = functional.max_pool2d(self.stem(x).relu_(), 3, 2, 1)
        for block in self.blocks:
            x = region(block, x)
        return self.classify(x)


class InvertedResidual(nn.Module):
    def __init__(self, features, out, stride, expand):
        super().__init__()
        inner = expand * features
        body = [conv(features, inner, 1), nn.BatchNorm2d(inner), nn.ReLU6(True)] if expand != 1 else []
        body += [conv(inner, inner, 3, stride, inner), nn.BatchNorm2d(inner), nn.ReLU6(True),
                 conv(inner, out, 1), nn.BatchNorm2d(out)]
        self.body = nn.Sequential(*body)
        self.adds = stride == 1 and features == out

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


class MobileNetV2(ImageNetwork):
    def __init__(self, batch, pixels, share):
        super().__init__(batch, pixels)
        features = 32 // share
        self.stem = nn.Sequential(conv(3, features, 3, 2), nn.BatchNorm2d(features), nn.ReLU6(True))
        self.blocks = nn.ModuleList()
        for expand, channels, count, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                                (6, 160, 3, 2), (6, 320, 1, 1)]:
            for i in range(count):
                self.blocks.append(InvertedResidual(features, channels // share, stride if i == 0 else 1, expand))
                features = channels // share
        self.tail = nn.Sequential(conv(features, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6(True))
        self.head = nn.Linear(1280, 1000)

    def forward(self, x, region):
        x = self.stem(x)
        for block in self.blocks:
            x = region(block, x)
        return self.classify(self.tail(x))


class DenseLayer(nn.Module):
    def __init__(self, features, growth):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(features)
        self.conv1 = conv(features, 4 * growth, 1)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = conv(4 * growth, growth, 3)

    def forward(self, *features):
        y = self.conv1(self.norm1(torch.cat(features, 1)).relu_())
        return self.conv2(self.norm2(y).relu_())


class DenseNet121(ImageNetwork):
    def __init__(self, batch, pixels, growth):
        super().__init__(batch, pixels)
        channels = 2 * growth
        self.stem = nn.Sequential(conv(3, channels, 7, 2), nn.BatchNorm2d(channels))
        self.dense, self.transitions = nn.ModuleList(), nn.ModuleList()
        for i, count in enumerate([6, 12, 24, 16]):
            self.dense.append(nn.ModuleList(DenseLayer(channels + j * growth, growth) for j in range(count)))
            channels += count * growth
            transition = [nn.BatchNorm2d(channels), nn.ReLU(True)]
            if i < 3:
                transition += [conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
                channels //= 2
            self.transitions.append(nn.Sequential(*transition))
        self.head = nn.Linear(channels, 1000)

    def forward(self, x, region):
        x = functional.max_pool2d(self.stem(x).relu_(), 3, 2, 1)
        for layers, transition in zip(self.dense, self.transitions):
            features = [x]
            for layer in layers:
                features.append(region(layer, *features))
            x = transition(torch.cat(features, 1))
        return self.classify(x)


def make_network(name, tiny):
    torch.manual_seed(0)
    batch, pixels = (2, 32) if tiny else (16, 96)
    if name == "resnet50":
        return ResNet50(batch, pixels, 4 if tiny else 64)
    if name == "mobilenet_v2":
        return MobileNetV2(batch, pixels, 4 if tiny else 1)
    if name == "densenet121":
        return DenseNet121(2 if tiny else 8, pixels, 4 if tiny else 32)
    return networks.make_network(name, tiny)
