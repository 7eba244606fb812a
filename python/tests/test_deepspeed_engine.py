"""DeepSpeed's engine on two processes, ZeRO-1 to ZeRO-3: losses, parameters and collectives with their order are those of the
same training without regions."""

import contextlib
import gc
import importlib.util
import os
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from processes import communication_of
from support import assert_same
from test_distributed import Adapted, bytes_left_by, ranks  # noqa: F401  (a fixture)
from torch import nn

import ac2

pytestmark = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")

WIDTH, TOKENS, BATCH, WORDS, BLOCKS, STEPS = 32, 16, 2, 50, 3, 3  # the engine knows from the second step on what to prefetch
NEVER_LEFT = {"stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 0}
ONE_BY_ONE = {**NEVER_LEFT, "stage3_prefetch_bucket_size": 0}
AHEAD = {**NEVER_LEFT, "stage3_prefetch_bucket_size": 3000}  # numbers: less than a block
STAYING = {"stage3_param_persistence_threshold": 2 * WIDTH, "stage3_prefetch_bucket_size": 3000}


class Block(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.norm, self.other_norm = nn.LayerNorm(WIDTH, bias=bias), nn.LayerNorm(WIDTH, bias=bias)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias), nn.Linear(WIDTH, WIDTH, bias)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, bias), nn.Linear(2 * WIDTH, WIDTH, bias)

    def forward(self, x):
        heads = self.heads(self.norm(x)).view(*x.shape[:2], 3, 4, WIDTH // 4).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + nn.functional.dropout(self.out(attended), 0.1, self.training)
        return x + self.down(nn.functional.gelu(self.up(self.other_norm(x))))


class GPT(nn.Module):
    def __init__(self, call, lora=False, bias=True):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(bias) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if lora:
            self.requires_grad_(False)
            for block in self.blocks:
                block.up = Adapted(block.up)
        self.call = call

    def forward(self, words):
        x = self.words(words) + self.positions(torch.arange(TOKENS))
        for block in self.blocks:
            x = self.call(block, x)
        return nn.functional.cross_entropy(self.head(x)[:, :-1].reshape(-1, WORDS).float(), words[:, 1:].reshape(-1))


def by_deepspeed(block, x):
    import deepspeed

    return deepspeed.checkpointing.checkpoint(block, x)


# How a block is called, what is around the model, and what the integration is given.
WAYS = {
    "plain": (lambda block, x: block(x), contextlib.nullcontext, None),
    "PyTorch's": (lambda block, x: torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False), contextlib.nullcontext, None),
    "ac2.checkpoint": (ac2.checkpoint, contextlib.nullcontext, {}),
    "DeepSpeed's": (by_deepspeed, contextlib.nullcontext, {"policy": "save_compute_intensive"}),
    "everything saved": (lambda block, x: block(x), lambda: ac2.PolicyScope("must_save_all"), {}),
    "whole model": (lambda block, x: block(x), lambda: ac2.PolicyScope("recompute_all"), {}),
    "soft budget": (lambda block, x: block(x), lambda: ac2.PolicyScope(memory_budget=ac2.MemoryBudget.soft(64 << 10)), {}),
    "whatever fits": (lambda block, x: block(x), lambda: ac2.PolicyScope(memory_budget=ac2.whatever_fits()), {}),
}
AC2 = [way for way, (_, _, options) in WAYS.items() if options is not None]


def scope_of_ranks_that_agree():
    """One of the ranks has room for little and the other for all."""
    count = 16 << 10 if dist.get_rank() == 1 else 1 << 30
    return ac2.PolicyScope(memory_budget=ac2.MemoryBudget.soft(count, group=dist.group.WORLD))


WAYS["ranks that agree"] = (lambda block, x: block(x), scope_of_ranks_that_agree, {})
FEW = ["ac2.checkpoint", "soft budget"]


@contextlib.contextmanager
def engine(way, stage, precision="fp32", lora=False, leaves=False, managed=True, bias=True, **zero):
    """DeepSpeed's engine with the model."""
    rank = str(dist.get_rank())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    import ac2.integrations.deepspeed as integration

    deepspeed.utils.logger.setLevel("ERROR")
    # The kernel for processes of one machine, which takes half a minute to compile.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.init_distributed("gloo", verbose=False)
    call, _, options = WAYS[way]
    if options is not None and managed:
        integration.install(**options)
    torch.manual_seed(0)
    model = GPT(call, lora, bias)
    if leaves:
        deepspeed.utils.set_z3_leaf_modules(model, [Block])
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_optimization": {"stage": stage, "overlap_comm": False, **zero},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": precision == "bf16"},
    }
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], 1e-2)
    made, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if options is not None and not managed:
        ac2.managed_elsewhere(made.module.parameters())
    try:
        yield made
    finally:
        integration.uninstall()
        made.destroy()


def words(step):
    return torch.randint(WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))


def train(way, *args, **kwargs):
    import deepspeed

    with engine(way, *args, **kwargs) as made:
        results = {}
        for step in range(STEPS):
            with WAYS[way][1]():
                loss = made(words(step))
            made.backward(loss)
            made.step()
            results[f"loss {step}"] = loss.detach().clone()
            assert all(p.ds_persist or not p.numel() for p in made.module.parameters() if hasattr(p, "ds_persist"))
        for name, parameter in made.module.named_parameters():
            with deepspeed.zero.GatheredParameters([parameter]) if hasattr(parameter, "ds_id") else contextlib.nullcontext():
                results[name] = parameter.detach().clone()
        return results


def compare(ways, *args, **kwargs):
    """What each of the ways communicates on this rank. All train as plain PyTorch does."""
    communicated, expected = {}, {}
    for way in ("plain", *ways):
        communicated[way], results = communication_of(lambda way=way: train(way, *args, **kwargs))
        expected = expected or results
        try:
            assert_same(results, expected)
        except AssertionError as error:
            raise AssertionError(f"{way}: {error}") from None
        gc.collect()
        assert ac2.live_node_count() == 0, way
    return communicated


def keywords(function, ways, kwargs):
    return function(ways, **kwargs)


def compared(ranks, ways, **kwargs):
    return ranks.run(keywords, compare, ways, kwargs)


@pytest.mark.parametrize(("stage", "precision", "ways"), [(1, "fp32", AC2), (1, "bf16", FEW), (2, "fp32", FEW), (2, "bf16", AC2)])
def test_zero_1_and_2_train_and_communicate_as_without_regions(ranks, stage, precision, ways):
    for communicated in compared(ranks, ways, stage=stage, precision=precision):
        assert all(communicated[way] == communicated["plain"] for way in ways)


@pytest.mark.parametrize(
    ("precision", "zero", "ways"),
    [("fp32", {}, FEW), ("fp32", ONE_BY_ONE, AC2), ("fp32", AHEAD, FEW), ("bf16", AHEAD, AC2), ("fp32", STAYING, FEW)],
)
def test_zero_3_trains_and_communicates_as_without_regions(ranks, precision, zero, ways):
    for communicated in compared(ranks, ways, stage=3, precision=precision, **zero):
        assert all(communicated[way] == communicated["plain"] for way in ways)


@pytest.mark.parametrize("elsewhere", [{}, {"offload_param": {"device": "cpu"}}])
def test_zero_3_with_a_frozen_base_gathers_once_more_what_has_no_backward_without_regions(ranks, elsewhere):
    # In the first block the norms, `heads`, `out` and the frozen `up` have no backward. Before the blocks the embeddings have none.
    most = {"everything saved": 0, "ac2.checkpoint": 5, "whole model": 7}
    for communicated in compared(ranks, [*most, "PyTorch's"], stage=3, lora=True, **ONE_BY_ONE, **elsewhere):
        plain = Counter(communicated["plain"])
        for way, gathered_more in most.items():
            more = Counter(communicated[way]) - plain
            assert more == Counter({"c10d::_allgather_base_": gathered_more * STEPS}), way
            assert len(communicated[way]) < len(communicated["PyTorch's"])


@pytest.mark.parametrize(("lora", "gathered_more"), [(False, 0), (True, 7)])
def test_zero_3_ranks_of_which_one_has_little_memory_gather_alike(ranks, lora, gathered_more):
    communicated = compared(ranks, ["ranks that agree"], stage=3, lora=lora, **ONE_BY_ONE)
    assert communicated[0]["ranks that agree"] == communicated[1]["ranks that agree"]
    for each in communicated:
        more = Counter(each["ranks that agree"]) - Counter(each["plain"])
        assert more.pop("c10d::allreduce_") == 2 * STEPS  # they meet twice a backward
        # The rank that has room for all gathers with the other one.
        assert more == Counter({"c10d::_allgather_base_": gathered_more * STEPS})


def test_zero_3_needs_no_gathering_where_a_block_is_gathered_as_one(ranks):
    for communicated in compared(ranks, ["ac2.checkpoint"], stage=3, leaves=True, managed=False, **AHEAD):
        assert communicated["ac2.checkpoint"] == communicated["plain"]


def error_without_gathering():
    with engine("ac2.checkpoint", 3, managed=False, **ONE_BY_ONE) as made:
        with pytest.raises(RuntimeError, match=r"of shape \(\d+.*\) \(ac2.integrations.deepspeed has DeepSpeed gather it"):
            made.backward(made(words(0)))


def test_a_replay_that_needs_what_zero_3_has_not_gathered_names_the_integration(ranks):
    ranks.run(error_without_gathering)


@contextlib.contextmanager
def gathering_by(make):
    """Makes DeepSpeed gather parameters by ``make(own)``, where ``own`` is its own function for that."""
    from deepspeed.runtime.zero import partition_parameters

    own = partition_parameters._dist_allgather_fn
    partition_parameters._dist_allgather_fn = make(own)
    try:
        yield
    finally:
        partition_parameters._dist_allgather_fn = own


def train_where_bytes_arrive_late(ways):
    """Each gathering is done where it is waited for, as if the network were slow."""
    waited_for = []

    class Late:
        def __init__(self, gather, whole):
            self.gather = gather
            whole.fill_(float("nan"))

        def wait(self):
            waited_for.append(self)
            self.gather().wait()

    def late(own):
        return lambda part, whole, group: Late(lambda: own(part, whole, group), whole)

    with gathering_by(late):
        compare(ways, 3, bias=False, **{**NEVER_LEFT, "stage3_prefetch_bucket_size": 1})  # one parameter ahead
    return len(waited_for)


def test_a_replay_waits_for_what_zero_3_prefetches(ranks):
    assert all(count > 0 for count in ranks.run(train_where_bytes_arrive_late, ["ac2.checkpoint", "whole model"]))


def from_memory_of_their_own(own):
    """Gloo's thread lets go of what it has gathered, now before and now after the profiler looks. Here it has these buffers."""
    buffers = {}

    def gather(part, whole, group):
        sent, got = buffers.setdefault((whole.shape, whole.dtype), (torch.empty_like(part), torch.empty_like(whole)))
        sent.copy_(part)
        work = own(sent, got, group)
        work.wait()
        whole.copy_(got)
        return work

    return gather


def bytes_of_forwards(ways, zero):
    left = {}
    for way in ways:
        with gathering_by(from_memory_of_their_own), engine(way, **zero) as made:
            for step in range(STEPS):
                with WAYS[way][1]():
                    left[way], loss = bytes_left_by(lambda step=step: made(words(step)))
                made.backward(loss)
                made.step()
    return left


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_forward_leaves_what_plain_training_leaves_and_less_what_is_not_saved(ranks, stage):
    zero = {"stage": stage, **(ONE_BY_ONE if stage == 3 else {})}
    ways = ["plain", "PyTorch's", "everything saved", "ac2.checkpoint", "whole model"]
    for left in ranks.run(bytes_of_forwards, ways, zero):
        assert left["everything saved"] <= 1.01 * left["plain"], left
        assert left["ac2.checkpoint"] <= 1.01 * left["PyTorch's"], left
        assert left["ac2.checkpoint"] < 0.2 * left["plain"], left
        assert left["whole model"] < 0.01 * left["plain"], left
