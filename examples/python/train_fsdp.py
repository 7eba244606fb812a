#!/usr/bin/env python3
"""Trains the GPT of train_gpt.py on several processes with FSDP2, as torchtitan does: a region for each block, then fully_shard().

    torchrun --nproc-per-node=2 train_fsdp.py                               NCCL where each process has a GPU, else gloo on the CPU
    torchrun --nproc-per-node=2 train_fsdp.py --policy save_compute_intensive
    torchrun --nproc-per-node=2 train_fsdp.py --policy none                 without regions: the losses are the same
    torchrun --nproc-per-node=2 train_fsdp.py --regions after               fully_shard() first, then a region for each block
    torchrun --nproc-per-node=2 train_fsdp.py --region model                one region around the whole forward, hooks included

Several machines are torchrun's affair: `--nnodes`, `--rdzv-endpoint`. Each of them must have enough GPUs, or none of them.
Needs torch, ac2 and tqdm.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import ac2
from train_gpt import Gpt


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="recompute_all", help="a policy of ac2's, or none")
    parser.add_argument("--region", choices=("block", "model"), default="block", help="around each block, or the whole forward")
    parser.add_argument("--regions", choices=("before", "after"), default="before", help="before fully_shard() or after it, for blocks")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4, help="sequences for each process")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--param-dtype", choices=("float32", "bfloat16"), default="float32", help="FSDP's mixed precision")
    parser.add_argument("--reshard-after-forward", type=int, choices=(0, 1), default=1)
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(torch.nn.modules.activation.__file__))
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps: expected a positive number")
    if options.regions == "after" and (options.region != "block" or options.policy == "none"):
        parser.error("--regions after is of regions around blocks")
    return options


def shard(model, mesh, options):
    """Regions first, then FSDP, as torchtitan does it; or the other order."""
    in_blocks = options.policy != "none" and options.region == "block"
    if in_blocks and options.regions == "before":
        ac2.apply_checkpointing(model, modules="blocks.*", policy=options.policy)
    settings = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=getattr(torch, options.param_dtype), reduce_dtype=torch.float32),
        "reshard_after_forward": bool(options.reshard_after_forward),
    }
    for block in model.blocks:
        fully_shard(block, **settings)
    fully_shard(model, **settings)
    if in_blocks and options.regions == "after":
        ac2.apply_checkpointing(model, modules="blocks.*", policy=options.policy)


def main(arguments=None):
    options = parse(arguments)
    if "RANK" not in os.environ:
        sys.exit("train_fsdp is started by torchrun: torchrun --nproc-per-node=2 train_fsdp.py")
    rank, local_rank, processes = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    gpus, processes_here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    device = torch.device("cuda", local_rank) if gpus >= processes_here else torch.device("cpu")
    if 0 < gpus < processes_here and local_rank == 0:
        print(f"{processes_here} processes and {gpus} GPUs on this machine: training on the CPU", file=sys.stderr)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=datetime.timedelta(minutes=5))

    text = options.text.read_text()
    characters = sorted(set(text))
    tokens = torch.tensor([characters.index(c) for c in text])
    torch.manual_seed(0)  # all processes begin with the same parameters, of which each keeps its part
    model = Gpt(len(characters), options.context, options.layers, options.dim, options.heads, options.dropout).to(device)
    shard(model, init_device_mesh(device.type, (processes,)), options)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)

    torch.manual_seed(1 + rank)  # from here on each draws its own batches and masks
    for step in range(options.steps):
        starts = torch.randint(len(tokens) - options.context - 1, (options.batch,))
        batch = torch.stack([tokens[start : start + options.context + 1] for start in starts.tolist()]).to(device)
        around = ac2.PolicyScope(options.policy) if options.policy != "none" and options.region == "model" else None
        with around or contextlib.nullcontext():
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        if rank == 0:
            print(f"step {step}: loss {mean.item() / processes:.8f}", flush=True)
    dist.barrier()  # gloo may abort a process that leaves while the last collective is being put away
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # At once: caches of DTensor's keep the process group, and gloo's threads in it may abort a process while Python ends.
    os._exit(status)
