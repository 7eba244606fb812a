#!/usr/bin/env python3
"""Steps of GPTs on a GPU that has less memory than plain training takes: ac2.whatever_fits() in one region.

    python benchmarks/peers/gpu_fits.py                     another program has the rest of the device
    python benchmarks/peers/gpu_fits.py --by=fraction       the process may have a fraction of the device
    PYTORCH_ALLOC_CONF=expandable_segments:True python benchmarks/peers/gpu_fits.py

Needs ac2 as installed, and the GPT of examples/python/train_gpt.py. The memory is a part of what PyTorch's allocator reserves
for plain training. For plain training, torch.utils.checkpoint around each block, and each of these parts it prints the median
time of the last steps, its ratio to plain training, the memory that was reserved, how often the allocator had to empty its cache,
and for each step how many ops were computed again.
Ends with an error if a loss under whatever_fits() differs from that of plain training in one bit. A part in which memory runs out
is printed, and is no error.
"""

import argparse
import contextlib
import functools
import gc
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python"))

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import ac2
from train_gpt import Gpt

GIB = 1 << 30
WORDS = 50304
MODELS = {
    "24 x 1024, bfloat16, batch 16": (dict(layers=24, dim=1024, heads=16, context=1024), 16),
    "12 x 768, bfloat16, batch 16": (dict(layers=12, dim=768, heads=12, context=512), 16),
}


def trained(sizes, batch, steps, wrap=lambda model: None, around=contextlib.nullcontext):
    """The losses, seconds and replayed ops of each step, the most bytes reserved, and how often the allocator emptied its cache."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Gpt(WORDS, dropout=0.0, **sizes)
    model.to(torch.bfloat16)
    wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    tokens = torch.randint(0, WORDS, (batch, sizes["context"]), device="cuda")
    losses, seconds, replayed = [], [], []
    torch.cuda.reset_peak_memory_stats()
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with around() as scope:
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
        replayed.append(scope.trace.stats().recomputed_ops if scope is not None else 0)
        del loss, scope
    return losses, seconds, replayed, torch.cuda.max_memory_reserved(), torch.cuda.memory_stats()["num_alloc_retries"] - retries


def trained_or_error(*arguments):
    """An error's text holds no frame, and so no tensor."""
    try:
        return trained(*arguments, around=lambda: ac2.PolicyScope(memory_budget=ac2.whatever_fits()))
    except torch.OutOfMemoryError as error:
        return str(error).splitlines()[0][:160]


def emptied():
    gc.collect()
    torch.cuda.empty_cache()


@contextlib.contextmanager
def room(reserved, by):
    """Lets the process reserve so many bytes. Yields the bytes of the filler, which come on top."""
    free, total = torch.cuda.mem_get_info()
    here = torch.cuda.memory_reserved()  # cuBLAS's workspace and the like
    if by == "fraction":
        torch.cuda.set_per_process_memory_fraction(reserved / total)
        try:
            yield 0
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    else:
        taken = torch.empty(free - (reserved - here), dtype=torch.uint8, device="cuda")
        try:
            yield torch.cuda.memory_reserved() - here
        finally:
            del taken


def checkpoint_blocks(model):
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def report(name, result, plain, more=""):
    losses, seconds, replayed, reserved, retries = result
    taken = statistics.median(seconds[len(seconds) // 2:])
    beside = statistics.median(plain[1][len(plain[1]) // 2:])
    first = " ".join(f"{1e3 * one:.0f}" for one in seconds[:4])
    print(f"  {name:28} {1e3 * taken:8.1f} ms, ratio {taken / beside:.3f}, reserved {reserved / GIB:.2f} GiB{more}, "
          f"emptied {retries} times, replayed {' '.join(map(str, replayed))}; first steps {first} ms", flush=True)
    return losses == plain[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--by", choices=["filler", "fraction"], default="filler")
    parser.add_argument("--rooms", default="0.9,0.7,0.5")
    parser.add_argument("--steps", type=int, default=14)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu_fits: no GPU")
    same = True
    for name, (sizes, batch) in MODELS.items():
        print(f"{name}, by {options.by}, on {torch.cuda.get_device_name()}, torch {torch.__version__}, "
              f"{os.environ.get('PYTORCH_ALLOC_CONF', 'segments of one size')}", flush=True)
        plain = trained(sizes, batch, options.steps)
        report("plain", plain, plain)
        emptied()
        report("torch.utils.checkpoint", trained(sizes, batch, options.steps, wrap=checkpoint_blocks), plain)
        for share in map(float, options.rooms.split(",")):
            emptied()
            reserved = int(share * plain[3])
            with room(reserved, options.by) as filler:
                result = trained_or_error(sizes, batch, options.steps)
            if isinstance(result, str):
                print(f"  whatever_fits(), {share} of it: {result}", flush=True)
                continue
            result = (*result[:3], result[3] - filler, result[4])
            if not report(f"whatever_fits(), {share} of it", result, plain, f" of {reserved / GIB:.2f}"):
                print("    OTHER LOSSES THAN PLAIN TRAINING", flush=True)
                same = False
        emptied()
    sys.exit(not same)


if __name__ == "__main__":
    main()
