"""The program behind compare_python: checkpointing for PyTorch, side by side in one process.

A ratio is one of two times of the same round. The order of the forms is another in each round. Bytes are counted by
ac2/testing/counting_allocator.h; replayed ops are what a TorchDispatchMode sees in backward and does not see in plain
backward, views left out.
"""

import argparse
import functools
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
import warnings

sys.path.insert(0, os.environ["AC2_PACKAGES"])
warnings.filterwarnings("ignore")

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

try:
    import torch_remat
except ImportError:
    torch_remat = None

import ac2
import networks
from worker import CountOps, Memory, overloads, step

MIB = 1 << 20
# Of those that save_compute_intensive saves, all that these models call.
PRODUCTS = overloads(["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution",
                      "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention",
                      "aten::_scaled_dot_product_efficient_attention"])


class Llama(torch.nn.Module):
    """The layers of transformers' Llama, with random weights."""

    def __init__(self, layers, width, length, batch):
        super().__init__()
        import transformers

        config = transformers.LlamaConfig(hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
                                          num_attention_heads=max(width // 32, 1), vocab_size=64, attn_implementation="sdpa")
        torch.manual_seed(0)
        model = transformers.LlamaModel(config).train()
        self.layers, self.rotary = model.layers, model.rotary_emb
        self.sizes = [batch, length, width]

    def input(self):
        return networks.by_formula(self.sizes, 0, 1)

    def forward(self, x, region):
        positions = torch.arange(x.shape[1])[None]
        embeddings = self.rotary(x, positions)
        for layer in self.layers:
            x = region(functools.partial(layer, position_embeddings=embeddings, attention_mask=None), x)
        return x


class Slopes(torch.nn.Module):
    """A loss with a derivative in it, in one region: of forces, which are slopes of energies, or WGAN-GP's penalty."""

    def __init__(self, of_forces, depth, width, batch):
        super().__init__()
        torch.manual_seed(0)
        sizes = [3 * 16, *[width] * depth]
        layers = [layer for pair in zip(sizes, sizes[1:]) for layer in (torch.nn.Linear(*pair), torch.nn.Tanh())]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))
        self.of_forces, self.sizes = of_forces, [batch, sizes[0]]

    def input(self):
        return networks.by_formula(self.sizes, 0, 1)

    def loss(self, x):
        values = self.layers(x)
        slopes = torch.autograd.grad(values.sum(), x, create_graph=True)[0]
        if self.of_forces:
            return values.square().mean() + (-slopes).square().mean()
        return values.mean() + 10 * (slopes.norm(2, dim=1) - 1).square().mean()

    def forward(self, x, region):
        return region(self.loss, x)


def make_network(name, tiny):
    if name in ("forces", "penalty"):
        return Slopes(name == "forces", *((2, 16, 8) if tiny else (8, 256, 1024)))
    if name == "llama":
        return Llama(2, 32, 8, 2) if tiny else Llama(4, 256, 256, 4)
    return networks.make_network(name, tiny)


# The traces of regions, which keep no tensor alive.
regions = []


def in_a_region(policy):
    def region(part, *inputs):
        with ac2.PolicyScope(policy) as scope:
            result = part(*inputs)
        regions.append(scope.trace)
        return result

    return region


def forms():
    """By name: how a part of a model is called."""
    selective = functools.partial(create_selective_checkpoint_contexts, PRODUCTS)
    made = {
        "plain": lambda part, *inputs: part(*inputs),
        "torch.utils.checkpoint": functools.partial(checkpoint, use_reentrant=False),
        "torch_remat": (lambda part, *inputs: torch_remat.checkpoint(region_name="part")(part)(*inputs)) if torch_remat else None,
        "recompute_all": in_a_region("recompute_all"),
        "selective, of torch": functools.partial(checkpoint, use_reentrant=False, context_fn=selective),
        "save_compute_intensive": in_a_region("save_compute_intensive"),
        "must_save_all": in_a_region("must_save_all"),
    }
    return {name: region for name, region in made.items() if region is not None}


def quartiles(values):
    values = sorted(values)
    return values[len(values) // 4], statistics.median(values), values[(3 * len(values)) // 4 if len(values) > 3 else -1]


def print_table(header, rows):
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for line in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
    print(flush=True)


def peak(result):
    return max(result["forward_peak_bytes"], result["backward_peak_bytes"])


def compare_model(name, options, memory):
    network, ways = make_network(name, options.quick), forms()
    if isinstance(network, Slopes):  # where torch's selective form is an error: "backward an extra time"
        ways = {form: way for form, way in ways.items() if form not in ("selective, of torch", "torch_remat")}
    results, gradients, replayed = {}, {}, {}
    plain = CountOps()
    for form, region in ways.items():
        step(network, region, memory)  # what is made once
        count = plain if form == "plain" else CountOps()
        regions.clear()
        results[form] = step(network, region, memory, count)
        gradients[form] = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        # A mode does not see what ac2 replays.
        replayed[form] = count.count - plain.count + sum(trace.stats().recomputed_ops for trace in regions)
        regions.clear()
    # The mode has its own allocations.
    times = {form: [] for form in ways}
    for number in range(options.rounds):
        # No form always comes after the same other one.
        for form in random.Random(number).sample(list(ways), len(ways)):
            result = step(network, ways[form], memory)
            times[form].append(result["cpu_seconds"])
            results[form] = result
    rows = []
    for form in ways:
        low, middle, high = quartiles([a / b for a, b in zip(times[form], times["plain"])])
        same = all(torch.equal(a, b) for a, b in zip(gradients[form], gradients["plain"], strict=True))
        rows.append([form, f"{1e3 * statistics.median(times[form]):.1f} ms", f"{middle:.3f}", f"{low:.3f} to {high:.3f}",
                     f"{results[form]['held_bytes'] / MIB:.2f} MiB", f"{peak(results[form]) / MIB:.2f} MiB", f"{replayed[form]:,}",
                     "yes" if same else "NO"])
    print(f"{name}\n")
    print_table(["form", "step time", "/ plain", "middle half", "held after forward", "peak", "replayed ops", "same bits"], rows)
    return all(row[-1] == "yes" for row in rows)


def by_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


@ac2.by_operator
def by_operator(ctx, op):
    return by_products(ctx, op)


def time_chain(region, length):
    def chain(x):
        for _ in range(length):
            x = x.cos()
        return x

    x, gradient = torch.ones(8, requires_grad=True), torch.ones(8)
    gc.disable()
    start = time.process_time()
    y = region(chain, x)
    turn = time.process_time()
    y.backward(gradient)
    del y
    end = time.process_time()
    gc.enable()
    gc.collect()
    return turn - start, end - turn


def row(form, forward, backward):
    return [form, f"{forward:.2f}", f"{backward:.2f}", f"{forward + backward:.2f}"]


def times_in_cpp(options):
    benchmark = subprocess.run(
        [options.record_benchmark, "--benchmark_filter=^cos/recompute_all/1000/", "--benchmark_format=json",
         "--benchmark_min_time=" + ("0.01" if options.quick else "1")],
        stdout=subprocess.PIPE, check=True, text=True)
    counters = json.loads(benchmark.stdout)["benchmarks"][0]
    return counters["forward+"] / 1e3, counters["backward+"] / 1e3


def compare_ops(options):
    """Microseconds an op of a chain of cos() on 8 numbers, over the plain chain."""
    selective = functools.partial(create_selective_checkpoint_contexts, by_products)
    ways = {
        "ac2, a named policy": in_a_region("recompute_all"),
        "ac2, @by_operator": in_a_region(by_operator),
        "ac2, a plain callable": in_a_region(by_products),
        "torch.utils.checkpoint": functools.partial(checkpoint, use_reentrant=False),
        "selective, of torch": functools.partial(checkpoint, use_reentrant=False, context_fn=selective),
    }
    if torch_remat:
        ways["torch_remat"] = lambda part, x: torch_remat.checkpoint(region_name="part")(part)(x)
    length, pairs = (20, 1) if options.quick else (1000, 6)
    over = {form: ([], []) for form in [*ways, "C++, recompute_all"]}
    # time_chain() collects garbage. Looking through all that is imported would leave nothing of the chain in the caches.
    gc.freeze()
    for _ in range(options.rounds):
        for form, region in ways.items():
            for number in range(pairs):
                plain, times = time_chain(lambda part, x: part(x), length), time_chain(region, length)
                # As in record_benchmark the plain chain comes after the form that it is compared with: the heap is as
                # that leaves it. Of the first pair it comes after another.
                if number > 0 or pairs == 1:
                    for place in (0, 1):
                        over[form][place].append(1e6 * (times[place] - plain[place]) / length)
            regions.clear()
        for place, times in enumerate(times_in_cpp(options)):
            over["C++, recompute_all"][place].append(times)
    gc.unfreeze()
    rows = [row(form, *(statistics.median(times) for times in both)) for form, both in over.items()]
    print("us an op of a chain, over the plain chain\n")
    print_table(["form", "forward", "backward", "both"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="gpt,resnet18,llama,forces,penalty")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="tiny models, one round")
    parser.add_argument("--counter", required=True)
    parser.add_argument("--record_benchmark", required=True)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}; it must be at least 1")
    options.rounds = 1 if options.quick else options.rounds
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, " + (f"torch_remat {version()}" if torch_remat else "without torch_remat") + "\n")
    compare_ops(options)
    memory = Memory(options.counter)
    same = [compare_model(name, options, memory) for name in options.models.split(",") if name]
    return 0 if all(same) else 1


def version():
    import importlib.metadata

    return importlib.metadata.version("torch_remat")


if __name__ == "__main__":
    sys.exit(main())
