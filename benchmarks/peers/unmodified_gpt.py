"""A GPT that trains, written as if there were no ac2: what `python -m ac2` is measured with (docs/launcher.md).

    python benchmarks/peers/unmodified_gpt.py 3                                       # as many steps
    (ulimit -v $((3550 * 1024)); python -m ac2 benchmarks/peers/unmodified_gpt.py 3)  # in 3,550 MiB of address space

Prints the loss of each step, all of its bits, and on stderr the time that the step took.
"""

import sys
import time

import torch
from torch import nn

VOCABULARY, CHANNELS, TOKENS, BLOCKS, HEADS, SEQUENCES = 1024, 256, 256, 6, 8, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.qkv, self.projection = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.mlp = nn.Sequential(
            nn.Linear(CHANNELS, 4 * CHANNELS), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * CHANNELS, CHANNELS)
        )

    def forward(self, x):
        shape = (SEQUENCES, TOKENS, 3, HEADS, CHANNELS // HEADS)
        q, k, v = self.qkv(self.norm_1(x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(SEQUENCES, TOKENS, CHANNELS))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, CHANNELS), nn.Embedding(TOKENS, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(TOKENS))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(int(sys.argv[1])):
        start = time.time()
        text = torch.randint(VOCABULARY, (SEQUENCES, TOKENS + 1))
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex(), flush=True)
        print(f"{time.time() - start:.2f} s", file=sys.stderr, flush=True)


main()
