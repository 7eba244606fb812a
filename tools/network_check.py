"""Trains in regions on four hosts that a network connects, and compares with plain training.

    sudo python tools/network_check.py                    all cases, over links of 1 Gbit/s
    sudo python tools/network_check.py lost unplugged     these
    sudo python tools/network_check.py --mbit 100 alike

Each host is a network namespace of Linux with a link of its own to a bridge, and runs one process of a group of gloo. The model is sharded
by FSDP2. Each case trains plain and in regions, and holds losses and gradients against each other bit by bit:

    alike       all hosts are alike; a region is around the model, and its replays may gather (gather_units)
    slow        the last host's link has a tenth of the speed, and its backward waits before each block
    memory      the second host has a memory budget of little, the others keep what fits
    out         the second host's budget cannot be met in the middle of training: an error there, and one on the others
    lost        the last host's process is killed in backward: an error on the others
    unplugged   the last host's link goes down in backward: an error on all

After an error the surviving processes must have let go of the region's graph, and train alone in a region to plain's bits.

Prints the bytes that the hosts have sent and the time, of regions by plain. Exits with 1 if anything differs. Needs root, iproute2, and
torch and ac2 on PYTHONPATH.
"""

import argparse
import contextlib
import datetime
import gc
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import ac2

HOSTS = 4
STEPS = 3
# Gloo gives up on a host that it does not hear of.
PATIENCE = 20
CASES = ("alike", "slow", "memory", "out", "lost", "unplugged")
ENDING = ("out", "lost", "unplugged")


# --- the network -------------------------------------------------------------------------------------------------------


def ip(*words):
    subprocess.run(("ip", *words), check=True)


class Network:
    """Network namespaces on one bridge, which is in a namespace too: nothing of the machine's own network is touched."""

    def __init__(self, mbit):
        self.mbit = mbit
        self.name = f"ac2-{os.getpid()}"
        self.namespaces = []

    def __enter__(self):
        try:
            self._add(self.name)
            self._in(self.name, "ip", "link", "add", "bridge", "type", "bridge")
            self._in(self.name, "ip", "link", "set", "bridge", "up")
            for host in range(HOSTS):
                self._add(self.host(host))
                port = f"port{host}"
                ip("link", "add", port, "netns", self.name, "type", "veth", "peer", "name", "eth0", "netns", self.host(host))
                self._in(self.name, "ip", "link", "set", port, "master", "bridge", "up")
                self._in(self.host(host), "ip", "address", "add", f"10.77.0.{host + 1}/24", "dev", "eth0")
                self._in(self.host(host), "ip", "link", "set", "eth0", "up")
                self._in(self.host(host), "ip", "link", "set", "lo", "up")
                self.set_speed(host, self.mbit, "add")
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for namespace in self.namespaces:
            subprocess.run(("ip", "netns", "delete", namespace), check=False)

    def host(self, number):
        return f"{self.name}-{number}"

    def set_speed(self, host, mbit, verb="change"):
        for namespace, link in ((self.host(host), "eth0"), (self.name, f"port{host}")):
            burst = f"{max(mbit, 100)}kbit"  # some milliseconds
            self._in(namespace, "tc", "qdisc", verb, "dev", link, "root", "tbf", "rate", f"{mbit}mbit", "burst", burst, "latency", "100ms")

    def command(self, host, *words):
        return ("ip", "netns", "exec", self.host(host), *words)

    def _add(self, namespace):
        ip("netns", "add", namespace)
        self.namespaces.append(namespace)

    def _in(self, namespace, *words):
        subprocess.run(("ip", "netns", "exec", namespace, *words), check=True)


def bytes_sent():
    return int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


# --- on a host ---------------------------------------------------------------------------------------------------------


def digest(tensors):
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().view(-1).numpy().tobytes())
    return total.hexdigest()


class Model(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.before_backward_of_block = lambda position: None
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))
            for _ in range(4)
        )

    def forward(self, x):
        for position, block in enumerate(self.blocks):
            x = x + block(x)
            x.register_hook(lambda gradient, position=position: self.before_backward_of_block(position))
        return x


class Training:
    """FSDP2 over all hosts, or, without a group, the same model alone."""

    def __init__(self, shards=True):
        torch.manual_seed(1)
        self.model = Model()
        if shards:
            for block in self.model.blocks:
                fully_shard(block)
            fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-2)

    def step(self, step, rank, scope):
        torch.manual_seed(1000 * step + rank)
        x = torch.randn(32, 256, requires_grad=True)
        with scope:
            loss = self.model(x).square().mean()
        loss.backward()
        gradients = [getattr(p.grad, "_local_tensor", p.grad) for p in self.model.parameters()]
        result = digest([loss, x.grad, *gradients])
        self.optimizer.step()
        self.optimizer.zero_grad()
        return result


def scope_of(case, way, rank, step):
    if way == "plain":
        return contextlib.nullcontext()
    if case == "memory":
        return ac2.PolicyScope(memory_budget=ac2.MemoryBudget.soft("64KiB") if rank == 1 else ac2.whatever_fits())
    if case == "out" and rank == 1 and step == 1:
        return ac2.PolicyScope("must_save_all", memory_budget="64KiB")
    return ac2.PolicyScope("recompute_all", gather_units=True)


def misfortune(case, rank, step):
    """What happens on this host before the backward of a block."""

    def slow(position):
        time.sleep(0.05)

    def lost(position):
        if step == 1 and position == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def unplugged(position):
        if step == 1 and position == 2:
            ip("link", "set", "eth0", "down")

    happens = {"slow": slow, "lost": lost, "unplugged": unplugged}.get(case) if rank == HOSTS - 1 else None
    return happens or (lambda position: None)


def alone_in_a_region_as_plain():
    digests = [Training(shards=False).step(0, 0, scope) for scope in (contextlib.nullcontext(), ac2.PolicyScope("recompute_all"))]
    return digests[0] == digests[1]


def run_host(case, rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://10.77.0.1:{29500 + CASES.index(case)}", rank=rank, world_size=HOSTS,
        timeout=datetime.timedelta(seconds=PATIENCE),
    )
    result = {}

    def end():
        """As a program that ends: gloo's threads may wait for a host that is gone."""
        pathlib.Path(folder, f"{rank}.json").write_text(json.dumps(result))
        os._exit(0)

    def train(way):
        training = Training()
        digests = []
        dist.barrier()
        sent, started = bytes_sent(), time.monotonic()
        for step in range(STEPS):
            if way == "regions" or case == "slow":
                training.model.before_backward_of_block = misfortune(case, rank, step)
            digests.append(training.step(step, rank, scope_of(case, way, rank, step)))
        return {"digests": digests, "seconds": time.monotonic() - started, "bytes": bytes_sent() - sent}

    for way in ("plain", "regions"):
        started = time.monotonic()
        try:
            result[way] = train(way)
        except RuntimeError as error:
            result[way] = {"error": str(error).splitlines()[0][:200], "seconds": time.monotonic() - started}
            if rank == 1 and case == "out":
                end()
    gc.collect()
    result["nodes"] = ac2.live_node_count()
    result["alone"] = alone_in_a_region_as_plain()
    end()


# --- what must hold ----------------------------------------------------------------------------------------------------


def run_case(network, case):
    for host in range(HOSTS):
        network.set_speed(host, network.mbit // 10 if case == "slow" and host == HOSTS - 1 else network.mbit)
        subprocess.run(network.command(host, "ip", "link", "set", "eth0", "up"), check=True)
    with tempfile.TemporaryDirectory() as folder:
        # At the level of errors: each host without a name is a warning of c10d's.
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        processes = [
            subprocess.Popen(
                network.command(host, sys.executable, __file__, "--case", case, "--rank", str(host), "--folder", folder), env=environment
            )
            for host in range(HOSTS)
        ]
        deadline = time.monotonic() + 300
        for process in processes:
            try:
                process.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        results = [json.loads(p.read_text()) if (p := pathlib.Path(folder, f"{host}.json")).exists() else None for host in range(HOSTS)]
    return results


def problems_of(case, results):
    gone = HOSTS - 1 if case == "lost" else None
    for host, result in enumerate(results):
        if host == gone:
            continue
        if result is None:
            yield f"host {host} has not ended by itself"
            continue
        plain, regions = result["plain"], result["regions"]
        if "error" in plain:
            yield f"host {host}: plain training has failed: {plain['error']}"
        elif case in ENDING:
            if "error" not in regions:
                yield f"host {host} has trained on where another host was gone"
        elif "error" in regions:
            yield f"host {host}: {regions['error']}"
        elif regions["digests"] != plain["digests"]:
            yield f"host {host}: losses or gradients differ from plain training's"
        if "nodes" in result and result["nodes"]:
            yield f"host {host}: {result['nodes']} recorded calls are still alive"
        if not result.get("alone", True):
            yield f"host {host}: alone, a region does not compute what plain training does any more"


def said_of(case, results):
    if case in ENDING:
        ended = [result["regions"] for result in results if result is not None and "error" in result["regions"]]
        slowest = max((regions["seconds"] for regions in ended), default=0)
        return f"an error on {len(ended)} hosts, the last after {slowest:.1f} s"
    sums = {way: [sum(result[way][of] for result in results) for of in ("bytes", "seconds")] for way in ("plain", "regions")}
    sent, seconds = (regions / plain for regions, plain in zip(sums["regions"], sums["plain"]))
    return f"bits of plain; {sums['plain'][0] / 2**20:.1f} MiB sent, in regions {sent:.4f} of it; time {seconds:.2f} of plain's"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES) + "; all of them if none is named")
    parser.add_argument("--mbit", type=int, default=1000, help="speed of a link, both ways")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        run_host(options.case, options.rank, options.folder)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if os.geteuid() != 0:
        sys.exit("network_check makes network namespaces, for which it must run as root.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no namespace stays
    failed = False
    with Network(options.mbit) as network:
        for case in options.cases or CASES:
            results = run_case(network, case)
            problems = list(problems_of(case, results))
            failed |= bool(problems)
            print(f"{case}: {'; '.join(problems) if problems else said_of(case, results)}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
