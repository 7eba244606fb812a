#!/usr/bin/env python3
"""Trains a small GPT, character by character, on a text, with activation checkpointing: examples/train_gpt in Python.

    python train_gpt.py                                  on the Python files of torch.nn
    python train_gpt.py --text book.txt --layers 8       on your own text
    python train_gpt.py --policy save_compute_intensive  saves matrix products and attention, recomputes the rest
    python train_gpt.py --memory-budget 2MiB             keeps what fits into so many bytes, recomputes the rest
    python train_gpt.py --memory-budget auto             keeps what fits into the machine's memory
    python train_gpt.py --compare --steps 40             every policy side by side: time, memory, the same losses
    python train_gpt.py --region step                    one region around each forward instead of each block
    python train_gpt.py --report out.html                a page that shows what a step held and recomputed

Needs torch, ac2 and tqdm. Bytes on a CPU are counted by PyTorch's profiler, in a step of their own that is not timed.
"""

import argparse
import contextlib
import math
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells of each of its beginnings and ends

import torch
import torch.nn.functional as F
from tqdm import tqdm

import ac2

MIB = 1 << 20
COMPARED = ("none", "recompute_all", "save_compute_intensive", "must_save_all")


class Block(torch.nn.Module):
    """x + dropout(attention(norm(x))), then x + dropout(mlp(norm(x)))."""

    def __init__(self, dim, heads, layers, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.projection = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.expand, self.contract = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)
        std = 0.55 / math.sqrt(dim)
        for linear in (self.qkv, self.projection, self.expand, self.contract):
            torch.nn.init.normal_(linear.weight, 0, std)
            torch.nn.init.zeros_(linear.bias)
        # As GPT-2: the sum over the residual branches keeps its variance whatever the depth.
        for linear in (self.projection, self.contract):
            torch.nn.init.normal_(linear.weight, 0, std / math.sqrt(2 * layers))

    def attend(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, dim))

    def forward(self, x):
        x = x + F.dropout(self.attend(self.norm1(x)), self.dropout, self.training)
        return x + F.dropout(self.contract(F.gelu(self.expand(self.norm2(x)))), self.dropout, self.training)


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary, context, layers, dim, heads, dropout):
        super().__init__()
        self.dropout = dropout
        self.tokens, self.positions = torch.nn.Embedding(vocabulary, dim), torch.nn.Embedding(context, dim)
        self.blocks = torch.nn.ModuleList(Block(dim, heads, layers, dropout) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(dim)
        for embedding in (self.tokens, self.positions):
            torch.nn.init.normal_(embedding.weight, 0, 0.55 / math.sqrt(dim))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


class Text:
    """Characters as numbers, and batches of excerpts."""

    def __init__(self, path):
        path = pathlib.Path(path)
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        self.text = "".join(file.read_text(errors="replace") for file in files)[: 4 * MIB]
        self.characters = sorted(set(self.text))
        numbers = {character: number for number, character in enumerate(self.characters)}
        self.data = torch.tensor([numbers[character] for character in self.text])

    def batch(self, size, context, generator):
        starts = torch.randint(len(self.data) - context, (size, 1), generator=generator)
        excerpts = self.data[starts + torch.arange(context + 1)]
        return excerpts[:, :-1], excerpts[:, 1:]


class Trainer:
    """A model, its optimizer and its own streams of random numbers, so that several can train in turns."""

    def __init__(self, text, options, policy):
        torch.manual_seed(options.seed)
        self.text, self.options = text, options
        self.batches = torch.Generator().manual_seed(options.seed)
        self.model = Gpt(len(text.characters), options.context, options.layers, options.dim, options.heads, options.dropout)
        self.model.to(options.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), options.lr, betas=(0.9, 0.99))
        self.generator = torch.get_rng_state()
        self.region = None  # arguments of the PolicyScope around a forward
        if policy != "none":
            budget = as_budget(policy)
            arguments = {"policy": policy} if budget is None else {"memory_budget": budget}
            # Under a budget all blocks are in one region: what passes between them may then be dropped as well.
            if options.region == "step" or budget is not None:
                self.region = arguments
            else:
                ac2.apply_checkpointing(self.model, modules="blocks.*", **arguments)

    def loss(self, batch):
        tokens, expected = (part.to(self.options.device) for part in batch)
        with ac2.PolicyScope(**self.region) if self.region else contextlib.nullcontext():
            logits = self.model(tokens)
        return F.cross_entropy(logits.flatten(0, 1), expected.flatten())

    @contextlib.contextmanager
    def own_random_numbers(self):
        torch.set_rng_state(self.generator)
        yield
        self.generator = torch.get_rng_state()

    def step(self):
        """Returns the loss and the seconds that it took."""
        batch = self.text.batch(self.options.batch, self.options.context, self.batches)
        with self.own_random_numbers():
            synchronize(self.options.device)
            start = time.perf_counter()
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss(batch)
            loss.backward()
            self.optimizer.step()
            synchronize(self.options.device)
            return loss.item(), time.perf_counter() - start

    def measure(self):
        """Bytes held after a forward, and the peak of a forward and backward, beyond what was there before."""
        batch = self.text.batch(self.options.batch, self.options.context, torch.Generator().manual_seed(0))
        self.optimizer.zero_grad(set_to_none=False)
        self.loss(batch).backward()  # whatever is made once
        kept = []
        held, _ = count_bytes(lambda: kept.append(self.loss(batch)), self.options.device)
        kept.clear()
        _, peak = count_bytes(lambda: self.loss(batch).backward(), self.options.device)
        return held, peak


def synchronize(device):
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def count_bytes(function, device):
    """The bytes that ``function`` leaves allocated, and the most that it had at once."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        function()
        return torch.cuda.memory_allocated(device) - before, torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    changes = [(event.start_ns(), event.nbytes()) for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for _, change in sorted(changes, key=lambda change: change[0]):
        now += change
        most = max(most, now)
    return now, most


def as_budget(text):
    """2MiB -> 2097152, auto -> whatever fits; None for what is neither."""
    return ac2.whatever_fits() if text == "auto" else parse_bytes(text)


def parse_bytes(text):
    """2MiB -> 2097152; None for what is no number of bytes."""
    for unit, factor in (("KiB", 1 << 10), ("MiB", MIB), ("GiB", 1 << 30), ("B", 1)):
        number = text[: -len(unit)] if text.endswith(unit) else ""
        if number.replace(".", "", 1).isdigit():
            return int(float(number) * factor)
    return int(text) if text.isdigit() else None


def print_table(header, rows):
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")


def compare(text, options):
    """Trains the same steps under every policy, in turns, and prints one table. False if they differ."""
    names = [*COMPARED, *options.memory_budget]
    trainers = [Trainer(text, options, name) for name in names]
    steps = [[] for _ in names]
    for number in tqdm(range(options.steps), desc="steps", file=sys.stderr):
        for turn in range(len(names)):
            index = (turn + number) % len(names)
            steps[index].append(trainers[index].step())
    rows, different = [], []
    untimed = min(3, options.steps - 1)
    for name, trainer, taken in zip(names, trainers, steps):
        losses = [loss for loss, _ in taken]
        same = losses == [loss for loss, _ in steps[0]] and all(
            torch.equal(a, b) for a, b in zip(trainer.model.parameters(), trainers[0].model.parameters()))
        if not same:
            different.append(name)
        seconds = statistics.median(second for _, second in taken[untimed:])
        ratio = statistics.median(a / b for (_, a), (_, b) in zip(taken[untimed:], steps[0][untimed:]))
        held, peak = trainer.measure()
        rows.append([name, f"{1e3 * seconds:.1f} ms", f"{ratio:.3f}", f"{held / MIB:.2f} MiB", f"{peak / MIB:.2f} MiB", f"{losses[-1]:.8f}"])
    print_table(["policy", "step time", "/ none", "held after forward", "peak", "final loss"], rows)
    if different:
        print("\nDIFFERENT from none: " + ", ".join(different))
        return False
    print("\nAll policies trained equally: every loss of every step and every final parameter has the same bits.")
    return True


def train(text, options):
    policy = options.memory_budget[0] if options.memory_budget else options.policy
    trainer = Trainer(text, options, policy)
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    print(f"Model: {options.layers} layers, {options.dim} channels, {parameters} parameters; policy {policy}")
    progress = tqdm(range(options.steps), desc="steps", file=sys.stderr)
    for _ in progress:
        loss, seconds = trainer.step()
        progress.set_postfix_str(f"loss {loss:.3f}, {options.batch * options.context / seconds:.0f} tokens/s")
    held, peak = trainer.measure()
    print(f"Last loss {loss:.8f}. A step like these holds {held / MIB:.2f} MiB for backward, peak {peak / MIB:.2f} MiB.")
    if options.report:
        batch = text.batch(options.batch, options.context, trainer.batches)
        arguments = trainer.region or {"policy": policy}
        with ac2.PolicyScope(**arguments, timeline=True) as scope:
            loss = trainer.loss(batch)
        loss.backward()
        ac2.write_report(scope.trace, options.report)
        print(f"What a step held and recomputed: {options.report}")


def parse_options(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=str(pathlib.Path(torch.nn.__file__).parent), help="a file, or a directory with .py files")
    parser.add_argument("--policy", default="recompute_all", help="none, or the name of a policy without parameters")
    parser.add_argument("--memory-budget", default=[], type=lambda text: text.split(","),
                        help="bytes that may be held for backward, such as 2MiB, or auto for whatever fits, in place of a policy; "
                        "with --compare, a list")
    parser.add_argument("--region", default="block", choices=["block", "step"], help="what one region lies around")
    parser.add_argument("--compare", action="store_true", help="train the same steps under every policy and print one table")
    parser.add_argument("--report", default="", help="write a page about a step to this file")
    parser.add_argument("--steps", type=int, default=None, help="default: 120, or 30 with --compare")
    for name, default, help in (("layers", 4, "Transformer blocks"), ("dim", 128, "channels"), ("heads", 4, "must divide dim"),
                                ("context", 128, "characters seen at once"), ("batch", 8, "excerpts per step"),
                                ("seed", 1, "of weights, batches and dropout"), ("threads", 0, "0: torch's own choice")):
        parser.add_argument("--" + name, type=int, default=default, help=help)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    options.steps = options.steps if options.steps is not None else 30 if options.compare else 120
    for name in ("steps", "layers", "dim", "heads", "context", "batch"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least 1")
    if options.dim % options.heads:
        parser.error(f"--dim {options.dim} is not divisible by --heads {options.heads}")
    if options.report and options.compare:
        parser.error("--report is about the steps of one policy; leave out --compare")
    if options.report and options.policy == "none" and not options.memory_budget:
        parser.error("--report is about what a region holds, and --policy none opens none")
    for budget in options.memory_budget:
        if budget != "auto" and parse_bytes(budget) is None:
            parser.error(f"--memory-budget has {budget!r}; expected bytes, such as 2MiB, or auto")
    return options


def main(arguments=None):
    options = parse_options(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    text = Text(options.text)
    print(f"Text: {options.text}, {len(text.text)} characters, {len(text.characters)} different")
    if options.compare:
        return 0 if compare(text, options) else 1
    train(text, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
