#!/usr/bin/env python3
"""The cost of saving what ops have chosen by numbers: indices, masks and counts. Bytes on the CPU, counted exactly.

    python benchmarks/peers/choices.py

Needs ac2 as installed. For GPT with dropout, ResNet-50 and a Mixture of Experts it prints what a forward leaves in memory in three ways:

- nothing is saved for the sake of choices: the policy says MUST_RECOMPUTE of each op that chooses and that it would not save by itself;
- as ac2 does by itself: choices are saved that follow an op that may compute other bits the next time;
- all choices are saved: the policy says MUST_SAVE of each op that takes numbers and returns integers or bools.

The gradients of the three ways are compared with those of plain training, bit for bit.
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional

import ac2
import image_networks
import networks
from ac2 import CheckpointPolicy
from step_costs import changes_of_bytes

BLOCKS, DIM, HEADS, CONTEXT, BATCH = 4, 256, 4, 256, 4
EXPERTS, CHOSEN = 8, 2
IMAGES, PIXELS = 4, 224
MIB = 2**20


def weights_of(q, k):
    later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu_(1)
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill_(later, -torch.inf).softmax(-1)


@torch.library.custom_op("ac2_choices::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Stands for attention of another library, of which nobody knows whether it computes the same bits again."""
    return weights_of(q, k) @ v


@torch.library.custom_op("ac2_choices::attention_backward", mutates_args=())
def attention_backward(
    gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    weights = weights_of(q, k)
    of_weights = gradient @ v.mT
    of_products = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    return of_products @ k, of_products.mT @ q, weights.mT @ gradient


attention.register_autograd(
    lambda ctx, gradient: attention_backward(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class GptBlock(networks.GptBlock):
    attention = staticmethod(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True))

    def attend(self, x):
        batch, time, dim = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.projection(self.attention(*qkv).transpose(1, 2).reshape(batch, time, dim))

    def forward(self, x):
        y = x + functional.dropout(self.attend(self.norm1(x)), 0.1)
        return y + functional.dropout(self.mix(self.norm2(y)), 0.1)

    def mix(self, x):
        return self.contract(functional.gelu(self.expand(x)))


class ExpertsBlock(GptBlock):
    """Its second half is a Mixture of Experts: each token goes to the two experts of eight whose scores are highest."""

    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.expand = self.contract = None
        self.router = nn.Linear(dim, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)) for _ in range(EXPERTS)
        )

    def mix(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(CHOSEN)
        y = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            # One of those ops of LibTorch's that are taken for ones that may vary on the CPU too: it stands for index_add on a GPU.
            y = y.index_put((rows,), expert(tokens[rows]) * weights[rows, place].unsqueeze(1), accumulate=True)
        return y.view_as(x)


class ExpertsWithOthersAttention(ExpertsBlock):
    attention = staticmethod(attention)


class Blocks(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.blocks = nn.ModuleList(block(DIM, HEADS) for _ in range(BLOCKS))

    def input(self):
        return networks.by_formula([BATCH, CONTEXT, DIM], 0, 1)

    def forward(self, x, region):
        for block in self.blocks:
            x = region(block, x)
        return x


class ResNet50(image_networks.ResNet50):
    """With a region around the part before the blocks, in which the pooling is."""

    def __init__(self):
        super().__init__(IMAGES, PIXELS, 64)

    def forward(self, x, region):
        x = region(lambda x: functional.max_pool2d(self.stem(x).relu_(), 3, 2, 1), x)
        for block in self.blocks:
            x = region(block, x)
        return self.classify(x)


def is_choice(results, arguments):
    def tensors(values):
        for value in values if isinstance(values, (list, tuple)) else [values]:
            if isinstance(value, (list, tuple)):
                yield from tensors(value)
            elif isinstance(value, torch.Tensor):
                yield value

    def is_discrete(tensor):
        return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.uint8)

    return any(map(is_discrete, tensors(results))) and not all(map(is_discrete, tensors(arguments)))


def with_choices(ops, decision):
    """The policy that saves the results of these ops, and decides so about what chooses; None leaves choices to ac2."""
    ops = set(ops)

    def policy(ctx, op, *args, **kwargs):
        if op.name().removesuffix(".default") in ops or op._schema.name in ops:
            return CheckpointPolicy.PREFER_SAVE
        return decision if decision is not None and is_choice(ctx.op_output, args) else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def step(model, policy, whole):
    """What a forward leaves in memory, in bytes, and the gradients."""
    model.zero_grad()
    torch.manual_seed(0)
    x = model.input().requires_grad_()

    def region(fn, x):
        with contextlib.nullcontext() if policy is None else ac2.PolicyScope(policy):
            return fn(x)

    def forward():
        nonlocal y
        y = region(lambda x: model(x, lambda fn, x: fn(x)), x) if whole else model(x, region)

    y = None
    held = sum(changes_of_bytes(forward))
    y.square().mean().backward()
    return held, [x.grad] + [parameter.grad.clone() for parameter in model.parameters()]


def main():
    torch.set_num_threads(1)
    cases = [
        ("GPT with dropout", lambda: Blocks(GptBlock), False),
        ("ResNet-50", ResNet50, False),
        ("Mixture of Experts", lambda: Blocks(ExpertsBlock), False),
        ("the same, attention of another library", lambda: Blocks(ExpertsWithOthersAttention), False),
        ("Mixture of Experts, one region", lambda: Blocks(ExpertsBlock), True),
    ]
    print("| network | policy | no choice saved | as ac2 does | | all choices saved | |\n|---|---|---:|---:|---:|---:|---:|")
    for name, make, whole in cases:
        torch.manual_seed(1)
        model = make()
        plain = step(model, None, whole)[1]
        for policy, ops in {"recompute_all": [], "save_compute_intensive": ac2.policies.compute_intensive_ops()}.items():
            held = []
            for decision in (CheckpointPolicy.MUST_RECOMPUTE, None, CheckpointPolicy.MUST_SAVE):
                given = with_choices(ops, decision)
                bytes, gradients = step(model, given, whole)
                assert all(map(torch.equal, gradients, plain)), f"{name}, {policy}, {decision}: other gradients"
                held.append(bytes)
            none, default, all_ = held
            print(
                f"| {name} | `{policy}` | {none / MIB:.3f} MiB | {default / MIB:.3f} MiB | {default / none - 1:+.2%} "
                f"| {all_ / MIB:.3f} MiB | {all_ / none - 1:+.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
