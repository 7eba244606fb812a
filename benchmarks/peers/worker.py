"""The Python side of compare_peers: answers the requests that peer_models.cc describes.

    python worker.py [--tiny] --counter=libcounting_allocator.so --saved_ops=aten::mm,aten::addmm,...

Its forms are "plain", "checkpoint" (torch.utils.checkpoint, use_reentrant=False) and "selective" (the same, saving
--saved_ops).
"""

import argparse
import ctypes
import functools
import gc
import json
import sys
import time
import warnings

# NumPy is not needed, and not there; LibTorch says so once.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import networks


class Memory:
    """ac2::testing::CountingAllocator, in this process."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ac2_current_bytes.restype = ctypes.c_int64
        self.library.ac2_peak_bytes.restype = ctypes.c_int64
        self.library.ac2_count_from_here()
        self.current, self.peak = self.library.ac2_current_bytes, self.library.ac2_peak_bytes
        self.reset_peak = self.library.ac2_reset_peak
        before = self.current()
        probe = torch.empty(1000, dtype=torch.uint8)
        if self.current() - before != 1000:
            raise RuntimeError(f"{path} does not count the bytes of this torch: it is linked to another LibTorch")
        del probe


def overloads(names):
    found = []
    for name in names:
        namespace, _, op = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), op, None)
        found += [getattr(packet, overload) for overload in packet.overloads()] if packet else []
    return found


class CountOps(TorchDispatchMode):
    """How many ops run that are no views: those make no node in ac2 either."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        returns = op._schema.returns
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        self.count += not is_view
        return op(*args, **(kwargs or {}))


def step(network, region, memory, in_backward=None):
    """As run_step() of peer_models.cc; backward runs inside `in_backward` if there is one."""
    network.zero_grad(set_to_none=True)
    x = network.input()
    gc.collect()  # cycles of an earlier step are not this one's
    before = memory.current()
    memory.reset_peak()
    wall, cpu = time.perf_counter(), time.process_time()

    loss = network(x.clone().requires_grad_(), region).sum()
    held, forward_peak = memory.current() - before, memory.peak() - before
    memory.reset_peak()
    if in_backward is None:
        loss.backward()
    else:
        with in_backward:
            loss.backward()
    del loss

    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "held_bytes": held,
        "forward_peak_bytes": forward_peak,
        "backward_peak_bytes": memory.peak() - before,
    }


class Worker:
    def __init__(self, tiny, memory, saved_ops):
        self.tiny, self.memory = tiny, memory
        self.networks = {}
        # A list, not a policy of our own: what its documentation recommends.
        selective = functools.partial(create_selective_checkpoint_contexts, overloads(saved_ops))
        self.forms = {
            "plain": lambda part, *inputs: part(*inputs),
            "checkpoint": functools.partial(checkpoint, use_reentrant=False),
            "selective": functools.partial(checkpoint, use_reentrant=False, context_fn=selective),
        }

    def network(self, name):
        if name not in self.networks:
            self.networks[name] = networks.make_network(name, self.tiny)
        return self.networks[name]

    def count(self, network, region):
        """The number of ops that backward runs more than backward without checkpointing."""
        plain, counted = CountOps(), CountOps()
        step(network, self.forms["plain"], self.memory, plain)
        step(network, region, self.memory, counted)
        return {"replayed_ops": counted.count - plain.count}

    def write_gradients(self, network, region, path):
        step(network, region, self.memory)
        size = 0
        with open(path, "wb") as file:
            for name, parameter in network.named_parameters():
                if parameter.grad is None:
                    raise RuntimeError(f"Parameter {name} got no gradient.")
                gradient = parameter.grad.contiguous()
                file.write(ctypes.string_at(gradient.data_ptr(), gradient.nbytes))
                size += gradient.nbytes
        return {"bytes": size}

    def describe(self, names):
        return {
            "models": {name: [list(p.shape) for p in self.network(name).parameters()] for name in names},
            "forms": list(self.forms),
            "libtorch": torch.__version__,
            "threads": torch.get_num_threads(),
        }

    def answer(self, request):
        what = request["do"]
        if what == "describe":
            return self.describe(request["models"])
        network, region = self.network(request["model"]), self.forms[request["form"]]
        if what == "step":
            return step(network, region, self.memory)
        if what == "count":
            return self.count(network, region)
        if what == "gradients":
            return self.write_gradients(network, region, request["file"])
        raise ValueError(f'Unknown request "{what}". It is one of: describe, step, count, gradients.')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--counter", required=True)
    parser.add_argument("--saved_ops", required=True, type=lambda text: text.split(","))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    worker = Worker(options.tiny, Memory(options.counter), options.saved_ops)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # the other side gets it, and says for which request
            answer = {"error": f"{type(error).__name__}: {error}"}
            # A backward that threw leaves its tasks, and the tensors in them, in the engine until the next one.
            torch.ones(1, requires_grad=True).sum().backward()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
