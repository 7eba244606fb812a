"""The program behind compare_reserved: what memory takes that is more than was asked for.

Trains the same models with ac2 and with torch.utils.checkpoint. A table has the bytes that tensors requested at most, and
those that LibTorch's caching allocator for CUDA would have reserved, simulated from the allocations and frees of the very
steps on the CPU (../caching). With --resident each form trains in a process of its own, and the table has the most bytes that
were resident, over those before the first step, with settings of the C library's malloc.
"""

import argparse
import ctypes
import functools
import gc
import os
import subprocess
import sys
import warnings

sys.path.insert(0, os.environ["AC2_PACKAGES"])
warnings.filterwarnings("ignore")

import torch
from torch.utils.checkpoint import checkpoint

import ac2
import image_networks
import networks

MIB = 1 << 20
MALLOC_SETTINGS = {
    "as it is": {},
    "MALLOC_MMAP_THRESHOLD_=65536": {"MALLOC_MMAP_THRESHOLD_": "65536"},
    "MALLOC_MMAP_THRESHOLD_=4194304": {"MALLOC_MMAP_THRESHOLD_": "4194304"},
    "MALLOC_TRIM_THRESHOLD_=65536": {"MALLOC_TRIM_THRESHOLD_": "65536"},
}


class Recorder:
    """AllocationRecorder and CachingAllocator, in this process."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ac2_stop_recording.restype = ctypes.c_int64
        self.library.ac2_simulate.argtypes = [ctypes.c_int, ctypes.c_int64] + 3 * [ctypes.POINTER(ctypes.c_int64)]
        self.library.ac2_install_recorder()

    def start(self):
        self.library.ac2_start_recording()

    def stop(self):
        if self.library.ac2_stop_recording() == 0:
            raise RuntimeError("Nothing was recorded: the library is linked to another LibTorch than this torch")

    def simulate(self, expandable_segments=False):
        """Requested, in use and reserved, at most."""
        at_most = [ctypes.c_int64() for _ in range(3)]
        if not self.library.ac2_simulate(expandable_segments, 0, *map(ctypes.byref, at_most)):
            raise RuntimeError("The simulation failed; see above")
        return [number.value for number in at_most]


def make_network(name, tiny):
    if name == "gpt12":
        network = networks.GptBlocks(2, 16, 2, 8, 2) if tiny else networks.GptBlocks(12, 256, 8, 256, 16)
        networks.fill(network)
        return network
    return image_networks.make_network(name, tiny)


def loss_of(network, x, form):
    """The loss of a step in which parts, or with "@step" the step, are checkpointed as `form` says."""
    name, _, span = form.partition("@")
    if name == "plain":
        return network(x, lambda part, *inputs: part(*inputs)).sum()
    if name == "torch.utils.checkpoint":
        return network(x, functools.partial(checkpoint, use_reentrant=False)).sum()
    scope = functools.partial(ac2.PolicyScope, name)
    if name[0].isdigit():
        budget = ac2.MemoryBudget(name)
        scope = functools.partial(ac2.PolicyScope, memory_budget=budget)
    if span:
        with scope():
            return network(x, lambda part, *inputs: part(*inputs)).sum()

    def region(part, *inputs):
        with scope():
            return part(*inputs)

    return network(x, region).sum()


def train(network, form, steps):
    x = network.input()
    for _ in range(steps):
        network.zero_grad(set_to_none=True)
        loss_of(network, x.clone().requires_grad_(), form).backward()


def simulate(model, options, recorder):
    network = make_network(model, options.quick)
    train(network, "plain", 1)  # what is made once
    rows = []
    for form in options.forms.split(","):
        network.zero_grad(set_to_none=True)
        gc.collect()
        recorder.start()
        train(network, form, options.steps)
        recorder.stop()
        requested, used, reserved = recorder.simulate()
        rows.append([model, form] + [f"{number / MIB:.1f}" for number in
                                     (requested, used, reserved, recorder.simulate(expandable_segments=True)[2])])
        print(*rows[-1], file=sys.stderr, flush=True)  # it takes minutes
    return rows


def status(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(what + ":"))


def measure_resident(model, form, options):
    """The most resident bytes of this process over those before the first step."""
    train(make_network(model, True), form, 1)  # code and what is made once
    network = make_network(model, options.quick)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # VmHWM begins anew
    before = status("VmRSS")
    train(network, form, options.steps)
    return status("VmHWM") - before


def print_resident(options):
    """A line for each model and form, each in a process of its own, under the settings of malloc that are in force."""
    for model in options.models.split(","):
        for form in options.forms.split(","):
            child = os.fork()
            if child == 0:
                print(model, form, measure_resident(model, form, options), flush=True)
                os._exit(0)
            if os.waitpid(child, 0)[1] != 0:
                raise RuntimeError(f"{model} under {form} failed; see above")


def resident_rows(options):
    rows = {}
    for name in options.malloc.split(",") if options.malloc else MALLOC_SETTINGS:
        command = [sys.executable, "-B", *sys.argv, "--one"]
        ran = subprocess.run(command, env={**os.environ, **MALLOC_SETTINGS[name]}, stdout=subprocess.PIPE, check=True, text=True)
        for line in ran.stdout.splitlines():
            model, form, resident = line.split(" ")
            rows.setdefault((model, form), [model, form]).append(f"{int(resident) / MIB:.0f}")
        print(name, ran.stdout, sep="\n", file=sys.stderr, flush=True)  # it takes minutes
    return list(rows.values())


def print_table(header, rows):
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for line in [header, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="gpt,resnet50,mobilenet_v2,densenet121,lstm")
    parser.add_argument("--forms", default="plain,torch.utils.checkpoint,recompute_all,save_compute_intensive,recompute_all@step,"
                                           "100MiB@step")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="tiny models")
    parser.add_argument("--resident", action="store_true", help="resident bytes of processes")
    parser.add_argument("--malloc", default="", help="for --resident: some of " + ", ".join(MALLOC_SETTINGS))
    parser.add_argument("--one", action="store_true", help="for --resident: with malloc as it is set")
    parser.add_argument("--recorder", required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = options.models.split(",")
    if options.one:
        print_resident(options)
    elif options.resident:
        settings = options.malloc.split(",") if options.malloc else list(MALLOC_SETTINGS)
        print_table(["model", "form", *settings], resident_rows(options))
    else:
        recorder = Recorder(options.recorder)
        print_table(["model", "form", "requested", "in use", "reserved", "expandable"],
                    [row for model in models for row in simulate(model, options, recorder)])


if __name__ == "__main__":
    main()
