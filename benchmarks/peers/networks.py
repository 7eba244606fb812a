"""The models of ../networks/networks.h, op for op the same. Comments there are not repeated here."""

import math

import torch
from torch import nn
from torch.nn import functional


def by_formula(sizes, seed, scale, offset=0.0):
    i = torch.arange(math.prod(sizes), dtype=torch.float64)
    return (i * i).mul_(0.37).add_(seed).sin_().mul_(scale).add_(offset).to(torch.float32).reshape(sizes)


class Chain(nn.Module):
    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs
        self.weight = nn.Parameter(torch.ones(8))

    def input(self):
        return by_formula([8], 0, 0.1, 1)

    def part(self, x):
        for _ in range(self.pairs):
            x = (x * self.weight) / self.weight
        return x

    def forward(self, x, region):
        return region(self.part, x)


class GptBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.projection = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, 4 * dim)
        self.contract = nn.Linear(4 * dim, dim)

    def attend(self, x):
        batch, time, dim = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(*qkv, is_causal=True)
        return self.projection(mixed.transpose(1, 2).reshape(batch, time, dim))

    def forward(self, x):
        y = x + self.attend(self.norm1(x))
        return y + self.contract(functional.gelu(self.expand(self.norm2(y))))


class GptBlocks(nn.Module):
    def __init__(self, layers, dim, heads, context, batch):
        super().__init__()
        self.sizes = [batch, context, dim]
        self.blocks = nn.ModuleList(GptBlock(dim, heads) for _ in range(layers))

    def input(self):
        return by_formula(self.sizes, 0, 1)

    def forward(self, x, region):
        for block in self.blocks:
            x = region(block, x)
        return x


def conv(features, out, kernel, stride):
    return nn.Conv2d(features, out, kernel, stride, kernel // 2, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, features, out, stride):
        super().__init__()
        self.conv1 = conv(features, out, 3, stride)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = conv(out, out, 3, 1)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut = None
        if stride != 1 or features != out:
            self.shortcut = nn.Sequential(conv(features, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu_()
        y = self.bn2(self.conv2(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return y.relu_()


class ResNet18(nn.Module):
    def __init__(self, batch, pixels, width):
        super().__init__()
        self.sizes = [batch, 3, pixels, pixels]
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList()
        features = width
        for layer in range(4):
            for i in range(2):
                self.blocks.append(BasicBlock(features, width << layer, 2 if i == 0 and layer > 0 else 1))
                features = width << layer
        self.head = nn.Linear(features, 1000)

    def input(self):
        return by_formula(self.sizes, 0, 1)

    def forward(self, x, region):
        x = functional.max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, 2, 1)
        for block in self.blocks:
            x = region(block, x)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, chunks, steps, batch, features, hidden):
        super().__init__()
        self.chunks, self.steps = chunks, steps
        self.sizes = [chunks * steps, batch, features]

    def input(self):
        return by_formula(self.sizes, 0, 1)

    def forward(self, x, region):
        h = c = self.zeros
        outputs = []
        for i in range(self.chunks):
            y, h, c = region(self.part, x.narrow(0, i * self.steps, self.steps), h, c)
            outputs.append(y)
        return torch.cat(outputs)


class FusedLstm(Recurrent):
    def __init__(self, chunks, steps, batch, features, hidden):
        super().__init__(chunks, steps, batch, features, hidden)
        self.zeros = torch.zeros(2, batch, hidden)
        self.lstm = nn.LSTM(features, hidden, 2)

    def part(self, chunk, h, c):
        y, (h, c) = self.lstm(chunk, (h, c))
        return y, h, c


class LstmCells(Recurrent):
    def __init__(self, chunks, steps, batch, features, hidden):
        super().__init__(chunks, steps, batch, features, hidden)
        self.zeros = torch.zeros(batch, hidden)
        self.cell = nn.LSTMCell(features, hidden)

    def part(self, chunk, h, c):
        steps = []
        for t in range(self.steps):
            h, c = self.cell(chunk.select(0, t), (h, c))
            steps.append(h)
        return torch.stack(steps), h, c


class Tree(nn.Module):
    def __init__(self, depth, batch, features):
        super().__init__()
        self.sizes = [batch, features]
        self.linears = nn.ModuleList(nn.Linear(features, features) for _ in range(depth))

    def input(self):
        return by_formula(self.sizes, 0, 1)

    # Comprehensions: no name of a loop keeps a tensor longer than C++ would.
    def part(self, x):
        level = [x]
        for linear in self.linears:
            level = [y for t in level for y in (functional.gelu(t), torch.tanh(linear(t)))]
        while len(level) > 1:
            level = [torch.sigmoid(level[i] * level[i + 1]) for i in range(0, len(level), 2)]
        return level[0]

    def forward(self, x, region):
        return region(self.part, x)


def fill(network):
    with torch.no_grad():
        for seed, (name, value) in enumerate(network.named_parameters(), start=1):
            if value.dim() > 1:
                fan_in = value.numel() // value.size(0)
                value.copy_(by_formula(value.shape, seed, 1 / math.sqrt(fan_in)))
            else:
                value.copy_(by_formula(value.shape, seed, 0.1, 1 if name.endswith("weight") else 0))


def make_network(name, tiny):
    if name == "chain":
        network = Chain(10 if tiny else 1000)
    elif name == "gpt":
        network = GptBlocks(2, 16, 2, 8, 2) if tiny else GptBlocks(8, 256, 8, 256, 4)
    elif name == "resnet18":
        network = ResNet18(2, 32, 4) if tiny else ResNet18(16, 64, 64)
    elif name in ("lstm", "lstm_cells"):
        kind = FusedLstm if name == "lstm" else LstmCells
        network = kind(2, 3, 2, 4, 4) if tiny else kind(8, 16, 16, 128, 256)
    elif name == "tree":
        network = Tree(3, 4, 8) if tiny else Tree(6, 256, 256)
    else:
        raise ValueError(f'Unknown model "{name}"')
    fill(network)
    return network
