#!/usr/bin/env python3
"""Steps of GPTs on a GPU: plain, with torch.utils.checkpoint, and with ac2, in turns.

    python benchmarks/peers/gpu_steps.py

Needs ac2 as installed, and the GPT of examples/python/train_gpt.py. Prints the median time of a step with AdamW, the median
and the quartiles of its ratios to the plain step of the same round, and the most memory beyond parameters, gradients and the
optimizer.
"""

import contextlib
import functools
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python"))

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import ac2
from train_gpt import Gpt

GIB = 1 << 30
WORDS = 50304
SAVED = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
         torch.ops.aten._scaled_dot_product_flash_attention.default,
         torch.ops.aten._scaled_dot_product_efficient_attention.default,
         torch.ops.aten._scaled_dot_product_cudnn_attention.default]
MODELS = {
    "24 x 1024, bfloat16, batch 16": (dict(layers=24, dim=1024, heads=16, context=1024), torch.bfloat16, 16, 10),
    "12 x 768, TF32, batch 16": (dict(layers=12, dim=768, heads=12, context=512), torch.float32, 16, 8),
    "12 x 256, bfloat16, batch 4": (dict(layers=12, dim=256, heads=8, context=128), torch.bfloat16, 4, 20),
}


def checkpoint_blocks(model, **arguments):
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, **arguments)


def selective(model):
    checkpoint_blocks(model, context_fn=functools.partial(create_selective_checkpoint_contexts, SAVED))


def in_ac2(model, policy):
    ac2.apply_checkpointing(model, modules="blocks.*", policy=policy)


# Each form wraps the model, and opens a context around each forward.
FORMS = {
    "plain": (lambda model: None, contextlib.nullcontext),
    "torch.utils.checkpoint": (checkpoint_blocks, contextlib.nullcontext),
    "the same, selective": (selective, contextlib.nullcontext),
    "ac2 recompute_all": (functools.partial(in_ac2, policy="recompute_all"), contextlib.nullcontext),
    "ac2 save_compute_intensive": (functools.partial(in_ac2, policy="save_compute_intensive"), contextlib.nullcontext),
    "ac2 whatever_fits()": (lambda model: None, lambda: ac2.PolicyScope(memory_budget=ac2.whatever_fits())),
}


class Trainer:
    def __init__(self, sizes, dtype, form):
        wrap, self.around = FORMS[form]
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = Gpt(WORDS, dropout=0.0, **sizes)
        self.model.to(dtype)
        wrap(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4, fused=True)
        self.seconds, self.peak = [], 0

    def step(self, tokens, timed):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with self.around():
            loss = F.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        self.optimizer.step()
        torch.cuda.synchronize()
        if timed:
            self.seconds.append(time.perf_counter() - start)
            self.peak = max(self.peak, torch.cuda.max_memory_allocated() - before)


def main():
    if not torch.cuda.is_available():
        sys.exit("gpu_steps: no GPU")
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, (sizes, dtype, batch, rounds) in MODELS.items():
        trainers = {form: Trainer(sizes, dtype, form) for form in FORMS}
        tokens = torch.randint(0, WORDS, (batch, sizes["context"]), device="cuda")
        for number in range(rounds + 3):
            for turn in range(len(trainers)):
                list(trainers.values())[(turn + number) % len(trainers)].step(tokens, timed=number >= 3)
        print(f"{name}, on {torch.cuda.get_device_name()}, torch {torch.__version__}")
        for form, trainer in trainers.items():
            ratios = sorted(a / b for a, b in zip(trainer.seconds, trainers["plain"].seconds))
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            print(f"  {form:28} {1e3 * statistics.median(trainer.seconds):8.2f} ms, ratio {statistics.median(ratios):.3f} "
                  f"({low:.3f} to {high:.3f}), peak {trainer.peak / GIB:.3f} GiB", flush=True)
        trainers.clear()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
