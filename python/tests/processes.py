"""Several processes for a test, in one process group over gloo.

    ranks = Ranks(2)
    ranks.run(train, "recompute_all")     # train("recompute_all") on each rank; what it returned, by rank
    ranks.close()

``train`` is a function of a module that can be imported. The processes stay, and are used again. If one of them fails, or does
not answer in time, all are ended, and run() raises with its traceback; the next run() starts new ones.
"""

import datetime
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, Callable, Iterator, List, Optional, Tuple, TypeVar

import torch
import torch.distributed as dist
from torch.profiler import ExecutionTraceObserver

# The observer of bytes_communicated_by() says on stderr that it begins and that it ends. Read when a process imports torch.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

# Of a collective, after which it is an error; and of all that one run() does.
_SECONDS_FOR_A_COLLECTIVE = 60
_SECONDS_FOR_A_RUN = 120

_R = TypeVar("_R")


class RankFailed(AssertionError):
    pass


class Ranks:
    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: List[Any] = []
        self._connections: List[Connection] = []
        self._directory: Optional[str] = None

    def run(self, function: Callable[..., Any], *args: Any) -> List[Any]:
        if not self._processes:
            self._start()
        for connection in self._connections:
            connection.send((function, args))
        deadline = time.monotonic() + _SECONDS_FOR_A_RUN
        answers: List[Any] = [None] * self._count
        waiting = set(range(self._count))
        while waiting:
            ready = multiprocessing.connection.wait([self._connections[rank] for rank in waiting], max(0, deadline - time.monotonic()))
            if not ready:
                self._fail(f"ranks {sorted(waiting)} did not answer in {_SECONDS_FOR_A_RUN} s")
            for rank in [rank for rank in waiting if self._connections[rank] in ready]:
                failure, answers[rank] = self._answer_of(rank)
                if failure is not None:
                    self._fail(f"rank {rank} failed:\n{failure}")
                waiting.discard(rank)
        return answers

    def close(self) -> None:
        for connection in self._connections:
            try:
                connection.send(None)
            except OSError:
                pass  # it has ended already
        for process in self._processes:
            process.join(10)
        self._end()

    def _answer_of(self, rank: int) -> Tuple[Optional[str], Any]:
        try:
            return self._connections[rank].recv()
        except EOFError:
            self._processes[rank].join(10)
            return f"it ended with exit code {self._processes[rank].exitcode}", None

    def _start(self) -> None:
        # Forked from a process that has imported torch and computed nothing: a fork of one that has computed may hang.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.pipelining", "ac2"])
        self._directory = tempfile.mkdtemp()
        for rank in range(self._count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self._count, self._directory, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(ours)

    def _fail(self, text: str) -> None:
        self._end()
        raise RankFailed(text)

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        for connection in self._connections:
            connection.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._processes, self._connections, self._directory = [], [], None


def _serve(rank: int, count: int, directory: str, connection: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(os.path.join(directory, "store"), count),
        rank=rank,
        world_size=count,
        timeout=datetime.timedelta(seconds=_SECONDS_FOR_A_COLLECTIVE),
    )
    while True:
        task = connection.recv()
        if task is None:
            break
        function, args = task
        try:
            answer = (None, function(*args))
        except BaseException:  # whatever it is, the test is to see it
            answer = (traceback.format_exc(), None)
        connection.send(answer)
    dist.destroy_process_group()


def collectives() -> int:
    """How many collectives this process has taken part in, in all process groups, since these were made."""
    groups = dist.distributed_c10d._world.pg_map
    return sum(group._get_backend(torch.device("cpu"))._get_sequence_number_for_group() for group in groups)


def communication_of(function: Callable[[], _R]) -> Tuple[List[str], _R]:
    """What a call communicates, in the order in which it does: the names of the ops of c10d, to which all collectives come, with
    those that send and receive. And what it returns."""
    with torch.autograd.profiler.profile() as profile:
        result = function()
    events = [event for event in profile.kineto_results.events() if event.name().startswith("c10d::")]
    return [event.name() for event in sorted(events, key=lambda event: event.start_ns())], result


def bytes_communicated_by(function: Callable[[], Any]) -> List[Tuple[str, int]]:
    """As communication_of(), with the bytes of all tensors that each op takes: those that it sends, and those that it writes. It takes
    several times as long."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        observer = ExecutionTraceObserver().register_callback(path)
        observer.start()
        try:
            function()
        finally:
            observer.stop()
            observer.unregister_callback()
        with open(path, encoding="utf-8") as file:
            nodes = json.load(file)["nodes"]
    ops = sorted((node for node in nodes if node["name"].startswith("c10d::")), key=lambda node: node["id"])
    return [(node["name"], _nbytes_of(node["inputs"])) for node in ops]


_ITEM_SIZES = {"float": 4, "double": 8, "c10::BFloat16": 2, "long int": 8, "int": 4, "unsigned char": 1, "bool": 1}


def _nbytes_of(inputs: Any) -> int:
    total = 0
    for shapes, kind in zip(inputs["shapes"], inputs["types"]):
        types = re.findall(r"Tensor\((.*?)\)", kind)
        if types:
            total += sum(torch.Size(shape).numel() * _ITEM_SIZES[name] for shape, name in zip(_shapes_in(shapes), types, strict=True))
    return total


def _shapes_in(shapes: Any) -> Iterator[List[int]]:
    """Of a tensor, or of all tensors in lists of lists."""
    if all(isinstance(size, int) for size in shapes):
        yield shapes
    else:
        for shape in shapes:
            yield from _shapes_in(shape)
