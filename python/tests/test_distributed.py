"""Several processes: losses, gradients, parameters, and collectives with their order and bytes, are those of the same run without
regions."""

import contextlib
import functools
import gc
import json
import os
import re
import time
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from processes import RankFailed, Ranks, bytes_communicated_by, collectives, communication_of
from support import assert_same, same_bits
from torch import nn
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

import ac2

WIDTH, BATCH, LAYERS, STEPS = 16, 6, 3, 2
ROWS = 64  # where bytes are counted


@pytest.fixture(scope="module")
def ranks():
    made = Ranks(2)
    yield made
    made.close()


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.region_inside = contextlib.nullcontext

    def forward(self, x):
        with self.region_inside():
            return x + nn.functional.dropout(self.down(nn.functional.gelu(self.up(self.norm(x)))), 0.1, self.training)


class Model(nn.Module):
    def __init__(self, width=WIDTH, layers=LAYERS):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, width)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Way:
    """Where the regions are, and what they are: "nowhere", "inside" the blocks, "before" and "after" the model is made
    parallel by wrapping the blocks, and around the "model"."""

    def __init__(self, where="nowhere", policy="recompute_all", **options):
        self.where, self.policy, self.options = where, policy, options

    def scope(self):
        return ac2.PolicyScope(self.policy, **self.options)

    def prepare(self, model):
        if self.where == "inside":
            for block in model.blocks:
                block.region_inside = self.scope
        elif self.where == "before":
            ac2.apply_checkpointing(model, modules="blocks.*", policy=self.policy, **self.options)

    def finish(self, model):
        if self.where == "after":
            ac2.apply_checkpointing(model, modules="blocks.*", policy=self.policy, **self.options)

    def around(self):
        return self.scope() if self.where == "model" else contextlib.nullcontext()

    def __repr__(self):
        return f"{self.where}, {self.policy}, {self.options}"


def inputs(seed, width=WIDTH):
    return torch.randn(BATCH, width, generator=torch.Generator().manual_seed(100 * seed + dist.get_rank()))


def results_of(model, losses):
    results = {f"loss {step}": loss for step, loss in enumerate(losses)}
    for name, parameter in model.named_parameters():
        results[name] = local(parameter)
        results["gradient of " + name] = torch.empty(0) if parameter.grad is None else local(parameter.grad)
    return results


def local(tensor):
    tensor = tensor.detach()
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).clone()


def same_as_plain(train, ways, *args):
    """Runs ``train(way, *args)`` for each way on this rank. Returns what each of them communicates."""

    def run(way):
        torch.manual_seed(0)
        communicated, results = communication_of(lambda: train(way, *args))
        if ac2.live_node_count():
            gc.collect()
        assert ac2.live_node_count() == 0, f"{way}: nodes were left behind"
        return results, communicated

    expected, expected_communication = run(Way())
    assert expected_communication
    for way in ways:
        results, communicated = run(way)
        try:
            assert_same(results, expected)
        except AssertionError as error:
            raise AssertionError(f"{way}: {error}") from None
        assert communicated == expected_communication, f"{way}: {communicated}, without regions {expected_communication}"
    return expected_communication


WAYS = [Way(where, policy) for where in ("inside", "before", "after", "model") for policy in ("recompute_all", "must_save_all")]
WAYS += [Way("model", "save_compute_intensive"), Way("before", verify=True), Way("model", None, memory_budget=1 << 14)]
FEW = [Way("before"), Way("model"), Way("model", "save_compute_intensive")]


# --- Data parallel ---------------------------------------------------------------------------------------------------


def train_ddp(way, find_unused, accumulate):
    model = Model()
    model.not_used = nn.Linear(2, 2) if find_unused else None
    way.prepare(model)
    parallel = nn.parallel.DistributedDataParallel(model, find_unused_parameters=find_unused)
    way.finish(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(accumulate):
            with parallel.no_sync() if part + 1 < accumulate else contextlib.nullcontext():
                with way.around():
                    loss = parallel(inputs(10 * step + part)).square().mean()
                loss.backward()
                losses.append(loss.detach())
        optimizer.step()
    return results_of(model, losses)


def test_ddp(ranks):
    ranks.run(same_as_plain, train_ddp, WAYS, False, 1)


@pytest.mark.parametrize(("find_unused", "accumulate"), [(True, 1), (False, 3), (True, 2)])
def test_ddp_that_finds_unused_parameters_or_accumulates(ranks, find_unused, accumulate):
    ranks.run(same_as_plain, train_ddp, FEW, find_unused, accumulate)


# --- Fully sharded ---------------------------------------------------------------------------------------------------


def shard(model, way, **options):
    from torch.distributed.fsdp import fully_shard

    way.prepare(model)
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    way.finish(model)
    return model


class Adapted(nn.Module):
    """A layer that is frozen, and what is trained beside it."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def train_fsdp(way, kind="plain"):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    options = {
        "mixed precision": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
        "stays": {"reshard_after_forward": False},
        "offloaded": {"offload_policy": CPUOffloadPolicy(pin_memory=False)},
    }.get(kind, {})
    model = Model()
    if kind == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("down" in name or "head" in name)
    if kind == "adapters":  # of the first block and the last; the units between and around them are frozen as a whole
        model.requires_grad_(False)
        for block in (model.blocks[0], model.blocks[-1]):
            block.up, block.down = Adapted(block.up), Adapted(block.down)
    if kind == "tied":
        model.head.weight = model.first.weight
    shard(model, way, **options)
    if kind == "out of date":  # gathered before the optimizer's step, and once more between forward and backward
        model.set_reshard_after_backward(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = 2 if kind in ("accumulated", "two forwards") else 1
        open_losses = []
        for part in range(parts):
            if kind == "accumulated":
                model.set_requires_gradient_sync(part + 1 == parts)
            with way.around():
                open_losses.append(model(inputs(10 * step + part)).float().square().mean())
            losses.append(open_losses[-1].detach())
            if kind != "two forwards":
                open_losses.pop().backward()
        if open_losses:
            sum(open_losses).backward()
        optimizer.step()
    if kind == "out of date":
        for module in model.modules():
            if hasattr(module, "reshard"):
                module.reshard()
    return results_of(model, losses)


def test_fsdp(ranks):
    # Where no replay crosses into another unit, none is gathered for it.
    gathering = [Way("model", gather_units=True), Way("before", gather_units=True)]
    ranks.run(same_as_plain, train_fsdp, [*WAYS, *gathering])


KINDS = ["mixed precision", "stays", "offloaded", "frozen", "adapters", "tied", "accumulated", "two forwards", "out of date"]


@pytest.mark.parametrize("kind", KINDS)
def test_fsdp_of_this_kind(ranks, kind):
    ranks.run(same_as_plain, train_fsdp, FEW, kind)


def ops_with_mixed_precision(sharded):
    """The ops of a forward in a region, of a model that FSDP casts and of one that is cast itself."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    model, x = Model(), inputs(0)
    if sharded:
        shard(model, Way(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    else:
        model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)
    with ac2.PolicyScope("recompute_all", timeline=True) as scope:
        y = model(x)
    assert y.dtype == torch.bfloat16
    recorded = events_of(scope.trace, "forward", "not recorded")
    assert sum(recorded.values()) == scope.trace.stats().recorded_ops
    return recorded


@pytest.mark.skipif(not hasattr(FSDPState, "_cast_forward_inputs"), reason="this version casts inputs in the midst of other things")
def test_the_work_of_fsdp_with_mixed_precision_is_not_recorded(ranks):
    for plain, sharded in zip(ranks.run(ops_with_mixed_precision, False), ranks.run(ops_with_mixed_precision, True)):
        # Each unit marks two intervals for profilers. And FSDP puts a function of autograd before each unit whose input has a
        # gradient, that is each block: it returns what it is given, of which autograd makes a view.
        plain["profiler::_record_function_enter_new"] = plain["profiler::_record_function_exit._RecordFunction"] = 2 * (LAYERS + 1)
        plain["aten::view"] += LAYERS
        assert sharded == plain


def bytes_left_by(forward):
    """What a call leaves allocated, as PyTorch's allocator tells."""
    gc.collect()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        result = forward()
    return sum(event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]"), result


@contextlib.contextmanager
def mesh_without_threads():
    """Gloo's thread lets go of what it has gathered, now before and now after the profiler looks. This mesh has no thread."""
    import torch.testing._internal.distributed.fake_pg  # noqa: F401
    from torch.distributed.device_mesh import DeviceMesh

    group = dist.new_group(backend="fake")
    try:  # The name is its own: DTensor keeps what it has found out for a mesh for others that are equal, of a group that has ended.
        yield DeviceMesh.from_group(group, "cpu", mesh=torch.arange(2), mesh_dim_names=(f"of group {group.group_name}",))
    finally:
        dist.destroy_process_group(group)


def measure_fsdp(ways):
    """What a forward leaves on this rank, by way, and what one activation takes."""
    width, batch = 128, 32

    def left_by(mesh, way):
        torch.manual_seed(0)
        model = shard(Model(width), way, mesh=mesh)
        x = torch.randn(batch, width)

        def forward():
            with way.around():
                return model(x)

        left = []
        for _ in range(2):  # in the first one FSDP makes what it keeps
            left_now, y = bytes_left_by(forward)
            left.append(left_now)
            y.sum().backward()
        return left[-1]

    with mesh_without_threads() as mesh:
        return [left_by(mesh, way) for way in ways], batch * width * 4


def test_what_fsdp_holds_is_what_plain_training_holds_and_what_the_policy_saves(ranks):
    ways = [Way(), Way("model", "must_save_all"), Way("model"), Way("before"), Way("inside")]
    for (plain, saved, *recomputed), activation in ranks.run(measure_fsdp, ways):
        assert saved == pytest.approx(plain, rel=0.01)
        # The root's parameters stay after forward, in plain training too: those of `first` and `head`. Of each block its input
        # is held, of the model what `head` takes, and what it returns.
        root = 2 * (128 * 128 + 128) * 4
        expected = root + (LAYERS + 2) * activation
        for held in recomputed:
            assert held == pytest.approx(expected, rel=0.01)


def crossing(scope, gathers):
    """A replay that is made to cross into a unit whose parameters are not there, unless they are gathered for it."""
    torch.manual_seed(0)
    model = shard(Model(), Way())
    kept = []

    def keep(module, args, output):
        kept.append(module.up.weight.sum())  # of the unsharded weight, and not what the unit returns

    model.blocks[0].register_forward_hook(keep, prepend=True)
    with scope:
        loss = model(inputs(0)).sum() * kept.pop().exp().exp()
    before = collectives()
    if gathers:
        model.blocks[0].unshard()
    loss.backward()
    return {name: local(parameter.grad) for name, parameter in model.named_parameters()}, collectives() - before


def error_of_crossing():
    try:
        crossing(ac2.PolicyScope("recompute_all"), False)
    except RuntimeError as error:
        return str(error)
    return "no error"


def crossing_into_a_unit_that_was_gathered():
    expected, communicated = crossing(contextlib.nullcontext(), False)
    gradients, count = crossing(ac2.PolicyScope("recompute_all"), True)
    assert_same(gradients, expected)
    assert count == communicated


def test_a_replay_that_needs_parameters_which_are_not_there_names_them(ranks):
    for error in ranks.run(error_of_crossing):
        assert "blocks.0.up.weight (of the FSDP unit blocks.0)" in error
        assert "gather_units=True" in error


def test_a_replay_reads_the_parameters_of_a_unit_that_was_gathered_before_backward(ranks):
    ranks.run(crossing_into_a_unit_that_was_gathered)


def bytes_gathered(model):
    """Of the parameters that FSDP has gathered and not let go of."""
    states = [module._get_fsdp_state() for module in model.modules() if hasattr(module, "unshard")]
    groups = [group for state in states for group in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]]
    tensors = [tensor for group in groups for parameter in group.fsdp_params for tensor in parameter.all_gather_outputs]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def crossing_before_the_backward_of_the_unit(model, scope):
    kept = []

    def keep(module, args, output):
        kept.append(module.up.weight.sum() + module.down.weight.sum())

    handle = model.blocks[0].register_forward_hook(keep, prepend=True)
    with scope:
        loss = model(inputs(0)).sum() * kept.pop().exp().exp()
    handle.remove()
    loss.backward()


def crossing_after_the_backward_of_the_unit(model, scope):
    x = inputs(0).requires_grad_()
    with scope:
        model.blocks[0].unshard()
        scale = model.blocks[0].up.weight.detach().sum().exp()
        loss = model(x * scale.sin()).sum()  # the backward of this product is the last
    loss.backward()
    return x.grad


def crossing_without_a_backward_of_the_unit(model, scope):
    x = inputs(0).requires_grad_()
    with scope:
        model.blocks[0].unshard()
        scale = model.blocks[0].up.weight.detach().sum().exp()
        loss = (x * scale.sin()).sum()
        model.blocks[0].reshard()
    loss.backward()
    return x.grad


CROSSINGS = {  # and how many collectives each takes more than without a region
    crossing_before_the_backward_of_the_unit: 0,
    crossing_after_the_backward_of_the_unit: 1,
    crossing_without_a_backward_of_the_unit: 1,
}


def gather_in_crossing(crossing, reshards, budget=None):
    def step(scope):
        torch.manual_seed(0)
        model = shard(Model(), Way())
        model(inputs(1)).sum().backward()  # FSDP makes what it keeps
        if not reshards:
            model.set_reshard_after_backward(False)
        before = bytes_gathered(model)
        communicated, of_input = communication_of(lambda: crossing(model, scope))
        left = bytes_gathered(model) - before
        for module in model.modules():
            if hasattr(module, "reshard"):
                module.reshard()
        gradients = {name: local(parameter.grad) for name, parameter in model.named_parameters()}
        gradients["input"] = torch.empty(0) if of_input is None else of_input
        return gradients, communicated, left

    gradients, communicated, left = step(contextlib.nullcontext())
    scope = ac2.PolicyScope("recompute_all", gather_units=True, memory_budget=ac2.MemoryBudget.soft(budget) if budget else None)
    in_region, communicated_in_region, left_in_region = step(scope)
    assert scope.trace.stats().recomputed_ops > 0
    assert_same(in_region, gradients)
    assert left_in_region == left
    assert ac2.live_node_count() == 0
    return Counter(communicated_in_region) - Counter(communicated), communicated_in_region


@pytest.mark.parametrize("reshards", [True, False])
@pytest.mark.parametrize("crossing", CROSSINGS)
def test_a_unit_is_gathered_for_a_replay_that_needs_its_parameters(ranks, crossing, reshards):
    (more, first), (_, second) = ranks.run(gather_in_crossing, crossing, reshards)
    stays = crossing is crossing_after_the_backward_of_the_unit and not reshards
    assert sum(more.values()) == (0 if stays else CROSSINGS[crossing])
    assert all("allgather" in name for name in more)
    assert first == second


@pytest.mark.parametrize("crossing", CROSSINGS)
def test_ranks_gather_units_in_one_order_under_a_budget(ranks, crossing):
    (more, first), (_, second) = ranks.run(gather_in_crossing, crossing, True, 1)
    assert sum(more.values()) == CROSSINGS[crossing]
    assert first == second


# --- Tensor parallel, pipelines, experts -----------------------------------------------------------------------------


def split_over_tensor_axis(model, mesh, sequence):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    for block in model.blocks:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if sequence:
            plan = {
                "norm": SequenceParallel(sequence_dim=0),
                "up": ColwiseParallel(input_layouts=Shard(0)),
                "down": RowwiseParallel(output_layouts=Shard(0)),
            }
        parallelize_module(block, mesh, plan)


def train_tensor_parallel(way, sequence):
    from torch.distributed.device_mesh import init_device_mesh

    model = Model().eval()  # without dropout, whose masks are of the local shards
    way.prepare(model)
    split_over_tensor_axis(model, init_device_mesh("cpu", (2,)), sequence)
    way.finish(model)
    losses = []
    x = inputs(3) if sequence else torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(3))
    for _ in range(STEPS):
        with way.around():
            loss = model(x).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return results_of(model, losses)


@pytest.mark.parametrize("sequence", [False, True])
def test_tensor_parallel(ranks, sequence):
    ranks.run(same_as_plain, train_tensor_parallel, FEW if sequence else WAYS, sequence)


def measure_tensor_parallel(ways, sequence):
    """What a forward leaves on this rank, by way, and what a region around a block says of all the values that it holds."""

    def left_by(mesh, way):
        torch.manual_seed(0)
        model, x = Model(layers=4).eval(), torch.randn(ROWS, WIDTH)
        way.prepare(model)
        split_over_tensor_axis(model, mesh, sequence)
        way.finish(model)

        def forward():
            with way.around():
                return model(x)

        forward().sum().backward()  # in the first one DTensor finds out how to shard
        left, y = bytes_left_by(forward)
        block = ac2.last_trace(model.blocks[1]) if way.where == "before" else None
        explained = ac2.explain(block) if block else ""
        y.sum().backward()
        return left, explained

    with mesh_without_threads() as mesh:
        return [left_by(mesh, way) for way in ways]


@pytest.mark.parametrize("sequence", [False, True])
def test_a_tensor_parallel_model_holds_the_inputs_of_its_blocks_and_what_collectives_return(ranks, sequence):
    unit = ROWS * WIDTH * 4  # of a hidden state
    ways = [Way(), Way("before", "must_save_all"), Way("inside"), Way("before"), Way("model")]
    # By norm and by gelu with its input; with the sequence split, what is gathered in between has the rows of both ranks.
    norm, gathered, gelu = 2 * ROWS * 4, 2 * unit if sequence else 0, 8 * unit if sequence else 4 * unit
    up_takes = gathered or unit
    ends = 2 * unit  # what head takes, and what it returns
    by_block = ends + 4 * (unit + gathered)
    # The region around the model has the sums of the rows' products, which collectives return, in place of the blocks' inputs.
    expected = [*[ends + 4 * (unit + norm + up_takes + gelu)] * 2, by_block, by_block, by_block - unit]
    for measured in ranks.run(measure_tensor_parallel, ways, sequence):
        assert [left for left, _ in measured] == expected
        shapes = re.findall(r"(\[[0-9, ]+\]) float", measured[3][1])
        parameters = [[WIDTH, 2 * WIDTH], [2 * WIDTH, WIDTH], [2 * WIDTH], [WIDTH], [WIDTH]]  # up's, down's, up's bias, norm's
        assert list(map(json.loads, shapes)) == [*([[2 * ROWS, WIDTH]] if sequence else []), [ROWS, WIDTH], *parameters]
        assert "Saved whole" not in measured[3][1]


def gather_again(ctx, op, *args, **kwargs):
    gathers = "all_gather_into_tensor" in str(op)
    return ac2.CheckpointPolicy.MUST_RECOMPUTE if gathers else ac2.CheckpointPolicy.PREFER_RECOMPUTE


def same_with_gathers_again():
    def run(way):
        torch.manual_seed(0)
        before = collectives()
        return train_tensor_parallel(way, True), collectives() - before

    expected, communicated = run(Way())
    for where in ("inside", "before", "model"):
        results, count = run(Way(where, gather_again))
        assert_same(results, expected)
        assert count == communicated + STEPS * LAYERS, f"{where}: {count} collectives, {communicated} without regions"


def test_tensor_parallel_that_gathers_the_sequence_again_in_backward(ranks):
    ranks.run(same_with_gathers_again)


def train_pipeline(way):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Model(layers=4).eval()
    way.prepare(model)
    way.finish(model)
    stage_of = nn.Sequential(model.first, *model.blocks[:2]) if rank == 0 else nn.Sequential(*model.blocks[2:], model.head)
    if way.where == "model":  # a region for each micro-batch
        ac2.checkpoint_wrapper(stage_of, way.policy, **way.options)
    taken, returned = torch.randn(2, WIDTH, requires_grad=rank > 0), torch.randn(2, WIDTH, requires_grad=True)
    stage = PipelineStage(stage_of, rank, 2, torch.device("cpu"), input_args=(taken,), output_args=returned)
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda output, target: (output - target).square().mean())
    whole = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(5))
    losses = []
    for _ in range(STEPS):
        if rank == 0:
            schedule.step(whole)
        else:
            schedule.step(target=whole, losses=losses)
    return results_of(stage_of, [loss.detach() for loss in losses])


def test_a_pipeline_with_several_micro_batches_in_flight(ranks):
    ways = [*FEW, Way("inside"), Way("model", memory_budget=1 << 14, policy=None)]
    for communicated in ranks.run(same_as_plain, train_pipeline, ways):
        assert communicated.count("c10d::send") >= 4 * STEPS and communicated.count("c10d::recv_") >= 4 * STEPS


class Experts(nn.Module):
    """Two experts on each rank. A router sends each token to two of them, and counts the tokens that it sends."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 4), nn.ModuleList(Block() for _ in range(2))
        self.register_buffer("load", torch.zeros(4))
        self.region_inside = contextlib.nullcontext

    def forward(self, x):
        from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd

        with self.region_inside():
            weight, to = self.router(x).softmax(-1).topk(2)
            order = to.flatten().argsort(stable=True)
            sent = torch.bincount(to.flatten(), minlength=4)
            self.load += sent
            received = all_to_all_single(sent, None, None, dist.group.WORLD)
            to_send, to_receive = sent.view(2, 2).sum(1).tolist(), received.view(2, 2).sum(1).tolist()
            there = all_to_all_single_autograd(x[order // 2], to_receive, to_send, dist.group.WORLD)
            expert_of = torch.arange(2).repeat(2).repeat_interleave(received)
            done = torch.zeros_like(there)
            for number, expert in enumerate(self.experts):
                of_this = (expert_of == number).nonzero().squeeze(1)
                done = done.index_copy(0, of_this, expert(there[of_this]))
            back = all_to_all_single_autograd(done, to_send, to_receive, dist.group.WORLD)
            back = torch.zeros_like(back).index_copy(0, order, back).view(*to.shape, WIDTH)
            return x + (back * weight.unsqueeze(-1)).sum(1)


class MixtureOfExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Experts() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def train_experts(way):
    model = MixtureOfExperts()
    way.prepare(model)
    way.finish(model)
    losses = []
    for step in range(STEPS):
        with way.around():
            loss = model(inputs(step)).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return {**results_of(model, losses), **{name: buffer.clone() for name, buffer in model.named_buffers()}}


def decide_of_experts(ctx, op, *args, **kwargs):
    name = str(op)
    saved = "all_to_all" in name or "topk" in name
    return ac2.CheckpointPolicy.MUST_SAVE if saved else ac2.CheckpointPolicy.PREFER_RECOMPUTE


def test_a_mixture_of_experts_is_routed_once(ranks):
    ranks.run(same_as_plain, train_experts, [*WAYS, Way("model", decide_of_experts), Way("before", decide_of_experts)])


def events_of(trace, *categories):
    """The names of ops in the time line of a region, of one that has a ``timeline``."""
    events = json.loads(ac2.to_chrome_trace(trace))["traceEvents"]
    return Counter(event["name"] for event in events if event.get("cat") in categories)


def replays_of_experts(policy, budget=None):
    """What a rank runs in forward and what it replays, what a budget has dropped, and how often each expert was asked."""
    torch.manual_seed(0)
    model = MixtureOfExperts()
    with ac2.PolicyScope(policy, memory_budget=budget, timeline=True) as scope:
        loss = model(inputs(0)).square().mean()
    loss.backward()
    trace = scope.trace
    ran, replayed = events_of(trace, "forward", "not recorded"), events_of(trace, "replay")
    return ran, replayed, trace.stats().evicted_values, [b.load.tolist() for b in model.blocks]


def test_what_a_policy_saves_of_a_mixture_of_experts_is_not_replayed_and_the_rest_is(ranks):
    for policy, top_k_again in ((decide_of_experts, 0), ("recompute_all", 2)):
        for ran, replayed, _, loads in ranks.run(replays_of_experts, policy):
            assert ran["aten::topk"] == 2 and replayed["aten::topk"] == top_k_again
            assert ran["_c10d_functional::all_to_all_single"] == 6 and replayed["_c10d_functional::all_to_all_single"] == 0
            assert ran["aten::gelu"] == replayed["aten::gelu"] == 4  # of the experts
            assert replayed["aten::_softmax"] == 2  # of the routers
            assert [sum(load) for load in loads] == [2 * BATCH, 2 * BATCH]


def test_ranks_with_other_loads_communicate_in_one_order_under_a_budget(ranks):
    sizes = (12 << 10, 16 << 10)
    for size in sizes:
        (_, first_replayed, first_dropped, first_loads), (_, replayed, dropped, loads) = ranks.run(replays_of_experts, None, size)
        assert first_loads != loads and first_replayed != replayed and min(first_dropped, dropped) > 0
    ways = [Way("model", None, memory_budget=size, modelled_costs=modelled) for size in sizes for modelled in (True, False)]
    first, second = ranks.run(same_as_plain, train_experts, ways)
    assert first == second


# --- A sequence that is split over the ranks --------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention of a rank's part of the sequence to all of it. The keys and values of the others are gathered, or come one
    rank after the other in a ring: the two ways of PyTorch's context_parallel(), whose attention has no kernel for CPUs."""

    def __init__(self, ring):
        super().__init__()
        self.ring, self.heads = ring, 2
        self.norm, self.projection, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.region_inside = contextlib.nullcontext

    def forward(self, x):
        with self.region_inside():
            q, k, v = self.projection(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            attended = (self.by_ring if self.ring else self.by_gathering)(q, k, v)
            return x + self.out(attended.transpose(1, 2).flatten(2))

    def by_gathering(self, q, k, v):
        from torch.distributed._functional_collectives import all_gather_tensor_autograd

        k, v = (all_gather_tensor_autograd(part.contiguous(), 2, dist.group.WORLD) for part in (k, v))
        return nn.functional.scaled_dot_product_attention(q, k, v, sees(q.size(2), k.size(2), dist.get_rank(), 0))

    def by_ring(self, q, k, v):
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        rank, count, rows = dist.get_rank(), dist.get_world_size(), q.size(2)
        parts, weights, both = [], [], torch.stack([k, v])
        for turn in range(count):
            source = (rank - turn) % count
            scores = (q @ both[0].mT) * q.size(-1) ** -0.5
            scores = scores.masked_fill(~sees(rows, rows, rank, source), -1e9)
            weights.append(scores.logsumexp(-1, keepdim=True))
            parts.append(scores.softmax(-1) @ both[1])
            if turn + 1 < count:
                to, of = ([int(other == (rank + step) % count) * both.numel() for other in range(count)] for step in (1, -1))
                both = all_to_all_single_autograd(both.flatten(), of, to, dist.group.WORLD).view_as(both)
        return (torch.stack(parts) * torch.stack(weights).softmax(0)).sum(0)


def sees(queries, keys, rank, source):
    """The keys that each query of a rank sees, of those that begin with the part of another rank."""
    return torch.arange(queries).unsqueeze(1) + queries * rank >= torch.arange(keys) + queries * source


def train_context_parallel(way, ring):
    model = nn.Module()
    model.blocks = nn.ModuleList(Attention(ring) for _ in range(2))
    way.prepare(model)
    way.finish(model)
    rank, rows = dist.get_rank(), 4
    losses = []
    for step in range(STEPS):
        whole = torch.randn(2, rows * dist.get_world_size(), WIDTH, generator=torch.Generator().manual_seed(step))
        with way.around():
            x = whole[:, rows * rank : rows * (rank + 1)]
            for block in model.blocks:
                x = block(x)
            loss = x.square().mean()
        loss.backward()
        losses.append(loss.detach())
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    return results_of(model, losses)


@pytest.mark.parametrize("ring", [False, True], ids=["gathered", "ring"])
def test_context_parallel(ranks, ring):
    ranks.run(same_as_plain, train_context_parallel, WAYS, ring)


def compare_the_two_ways_of_context_parallel():
    def run(ring):
        torch.manual_seed(0)
        return train_context_parallel(Way("before"), ring)

    gathered, ring = run(False), run(True)
    assert gathered.keys() == ring.keys()
    for name, expected in gathered.items():
        torch.testing.assert_close(ring[name], expected)


def test_the_two_ways_of_context_parallel_compute_the_same(ranks):
    ranks.run(compare_the_two_ways_of_context_parallel)


# --- Bytes that are communicated --------------------------------------------------------------------------------------


def bytes_with_and_without_regions(train, *args):
    def run(way):
        torch.manual_seed(0)
        return bytes_communicated_by(lambda: train(way, *args))

    expected = run(Way())
    for way in (Way("before"), Way("model")):
        assert run(way) == expected, way
    totals = Counter()
    for op, nbytes in expected:
        totals[op] += nbytes
    return totals


def test_the_bytes_of_each_collective_are_those_without_regions(ranks):
    model = Model()
    parameters, of_blocks = (sum(p.nbytes for p in module.parameters()) for module in (model, model.blocks))
    for of_ddp in ranks.run(bytes_with_and_without_regions, train_ddp, False, 1):
        assert of_ddp["c10d::allreduce_"] == STEPS * parameters
    for of_fsdp in ranks.run(bytes_with_and_without_regions, train_fsdp):
        # Whole and as one of two shards: the root's once a step, those of blocks once more in backward. Gradients once.
        assert of_fsdp["c10d::_allgather_base_"] == STEPS * (parameters + of_blocks) * 3 // 2
        assert of_fsdp["c10d::_reduce_scatter_base_"] == STEPS * parameters * 3 // 2
    for of_tensors in ranks.run(bytes_with_and_without_regions, train_tensor_parallel, False):
        # Sums of the products of rows in forward, and of the gradients of what columns take in backward.
        assert of_tensors["c10d::allreduce_"] == STEPS * LAYERS * 2 * BATCH * WIDTH * 4
    for of_pipeline in ranks.run(bytes_with_and_without_regions, train_pipeline):
        micro_batches = STEPS * 4 * 2 * WIDTH * 4  # in each step four of two rows, and before the first step what is to come
        for op in ("c10d::send", "c10d::recv_"):
            assert micro_batches <= of_pipeline[op] < micro_batches + 2 * WIDTH * 4


# --- Decisions -------------------------------------------------------------------------------------------------------


def decisions(directory):
    """What a rank drops under a budget and replays, and the file of its plan."""
    torch.manual_seed(0)
    model, x = Model(), inputs(0)
    with ac2.PolicyScope(None, memory_budget=1 << 13, timeline=True) as scope:
        loss = model(x).square().mean()
    loss.backward()
    events = [event["name"] for event in json.loads(ac2.to_chrome_trace(scope.trace))["traceEvents"]]
    path = os.path.join(directory, f"plan{dist.get_rank()}.json")
    ac2.plan(lambda: model(x).square().mean().backward(), 1 << 14).save(path)
    budgets = [ac2.MemoryBudget(100), ac2.MemoryBudget.soft(100), ac2.MemoryBudget.peak(1 << 40), ac2.whatever_fits()]
    for budget in budgets:
        ac2.PolicyScope(memory_budget=budget, modelled_costs=True).__enter__().__exit__(None, None, None)
    with pytest.raises(ValueError, match="modelled_costs is set with a MemoryBudget that times ops"):
        ac2.PolicyScope(memory_budget=ac2.MemoryBudget(100, modelled_costs=False), modelled_costs=True).__enter__()
    return scope.trace.stats().evicted_values, events, open(path, encoding="utf-8").read()


def test_ranks_decide_alike(ranks, tmp_path):
    first, second = ranks.run(decisions, str(tmp_path))
    assert first[0] > 0
    assert first == second


# --- Collectives themselves ------------------------------------------------------------------------------------------


def train_by_hand(way):
    """c10d's own ops, which write without their schemas saying so, waited for at once and later."""
    rank = dist.get_rank()
    x = inputs(1).requires_grad_()
    with way.around():
        y = x.sin()
        with torch.no_grad():
            total = y.detach().clone()
            work = dist.all_reduce(total, async_op=True)
            parts = [torch.empty_like(total) for _ in range(2)]
            dist.all_gather(parts, y.detach())
            flat = torch.empty(2 * BATCH, WIDTH)
            later = dist.all_gather_into_tensor(flat, y.detach(), async_op=True)
            gathered = [torch.empty_like(total) for _ in range(2)] if rank == 0 else None
            dist.gather(y.detach(), gathered)
            mine = torch.empty(BATCH // 2, WIDTH)
            dist.reduce_scatter_tensor(mine, y.detach().clone())
            work.wait()
            later.wait()
            # Over what the region would have to compute again, and once more over what came.
            scratch = y.detach() * 3
            kept = scratch.exp()
            dist.broadcast(scratch, 0)
        z = (y * total).exp() * parts[1 - rank] * flat[BATCH:] * scratch
        loss = z.cos().sum() + (y[: BATCH // 2] * mine).sin().sum() + (kept * y).sum()
    loss.backward()
    return {"loss": loss.detach(), "gradient": x.grad, "total": total, "other": parts[1 - rank], "flat": flat, "scratch": scratch}


def test_collectives_that_write_into_their_arguments(ranks):
    ways = [Way("model", policy) for policy in ("recompute_all", "must_save_all", "save_compute_intensive", decide_of_experts)]
    ranks.run(same_as_plain, train_by_hand, [*ways, Way("model", verify=True), Way("model", memory_budget=1 << 13, policy=None)])


class Exchange(torch.autograd.Function):
    """As DTensor exchanges: by ops of _c10d_functional, in a function of autograd."""

    @staticmethod
    def forward(ctx, x, kind, after):
        ctx.after = after
        ops, group = torch.ops._c10d_functional, dist.group.WORLD.group_name
        if kind == "all_to_all":
            sizes = [x.size(0) // 2] * 2
            return ops.wait_tensor(ops.all_to_all_single(x, sizes, sizes, group))
        if kind.startswith("all_gather"):
            gathered = ops.all_gather_into_tensor(x, 2, group)
            if "looked at" in kind:  # before it has come
                ac2.name_tensor(gathered, "gathered")
            return ops.wait_tensor(gathered)
        return ops.wait_tensor(ops.reduce_scatter_tensor(x, "sum", 2, group))

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.apply(gradient, ctx.after, None), None, None


def exchange(kind, x):
    after = {"all_to_all": "all_to_all", "reduce_scatter": "all_gather"}.get(kind, "reduce_scatter")
    return Exchange.apply(x, kind, after)


def rank_is_late(rank, seconds=0.2):
    if dist.get_rank() == rank:
        time.sleep(seconds)


def exchange_again(recompute, kind):
    """The user has said MUST_RECOMPUTE of an exchange. On the rank that comes to it first, its result comes after it returns."""

    def step(scope, inner):
        x = inputs(2).requires_grad_()
        before = collectives()
        rank_is_late(1)
        with scope:
            with inner:
                y = exchange(kind, x.sin()).sin().exp()
            loss = y.sum()
        loss.backward()
        return x.grad, collectives() - before

    expected, communicated = step(contextlib.nullcontext(), contextlib.nullcontext())
    if recompute == "scope":
        gradient, count = step(ac2.PolicyScope("recompute_all"), ac2.RecomputeScope())
    else:
        gradient, count = step(ac2.PolicyScope(recompute_whatever_it_is), contextlib.nullcontext())
    assert same_bits(gradient, expected)
    assert count == communicated + 1


def recompute_whatever_it_is(ctx, op, *args, **kwargs):
    return ac2.CheckpointPolicy.MUST_RECOMPUTE


@pytest.mark.parametrize("kind", ["all_to_all", "all_gather", "all_gather that is looked at", "reduce_scatter"])
@pytest.mark.parametrize("recompute", ["scope", "policy"])
def test_a_collective_of_which_the_user_says_must_recompute_is_replayed_and_waited_for(ranks, recompute, kind):
    ranks.run(exchange_again, recompute, kind)


def exchange_again_for_what_is_being_sent(others):
    """What is computed from an exchange that is repeated is sent on, and not waited for. The rank that comes to it first begins
    its backward while it is on its way, the other one when it has arrived."""

    def step(scope):
        x = inputs(3).requires_grad_()
        before = collectives()
        with scope:
            y = exchange("all_to_all", x.sin()).exp()
            loss = (y.exp() if others else y).sin().sum()
        there = torch.empty(2 * BATCH, WIDTH)
        rank_is_late(1)
        work = dist.all_gather_into_tensor(there, y.detach(), async_op=True)
        del y
        rank_is_late(1)
        loss.backward()
        work.wait()
        return x.grad, collectives() - before

    expected, communicated = step(contextlib.nullcontext())
    gradient, count = step(ac2.PolicyScope(recompute_whatever_it_is))
    assert same_bits(gradient, expected)
    assert count == communicated + 1


@pytest.mark.parametrize("others", [False, True])
def test_a_collective_is_replayed_whatever_is_left_of_what_was_computed_from_it(ranks, others):
    ranks.run(exchange_again_for_what_is_being_sent, others)


def exchange_again_for_each_backward():
    """Beside the region nobody has what is exchanged but a thread of the collective's, for a while."""

    def step(scope):
        factor = inputs(4).requires_grad_()
        before = collectives()
        with scope:
            y = exchange("all_to_all", inputs(5).sin())
            losses = [(y * factor).sum(), (y * factor).sin().sum()]
        del y
        for loss in losses:
            loss.backward()
        return factor.grad, collectives() - before

    expected, communicated = step(contextlib.nullcontext())
    for _ in range(20):
        gradient, count = step(ac2.PolicyScope(exchange_again_alone))
        assert same_bits(gradient, expected)
        assert count == communicated + 2


def exchange_again_alone(ctx, op, *args, **kwargs):
    return ac2.CheckpointPolicy.MUST_RECOMPUTE if "all_to_all" in str(op) else ac2.CheckpointPolicy.MUST_SAVE


def test_a_collective_is_replayed_in_each_backward(ranks):
    ranks.run(exchange_again_for_each_backward)


def fails_on_one(rank):
    if dist.get_rank() == rank:
        raise ValueError("so that the others wait for it")
    dist.all_reduce(torch.ones(1))


def test_a_rank_that_fails_ends_the_others_with_its_traceback(ranks):
    began = time.monotonic()
    with pytest.raises(RankFailed, match="(?s)rank 1 failed.*fails_on_one.*so that the others wait for it"):
        ranks.run(fails_on_one, 1)
    assert time.monotonic() - began < 60
    assert ranks.run(dist.get_rank) == [0, 1]


# --- Parameters that another library moves ---------------------------------------------------------------------------


class InBackward(torch.autograd.Function):
    """Calls a function before the backward of what it was applied to, after that of what takes its result. So DeepSpeed's hooks give
    parameters their data, and take it away."""

    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        ctx.function()
        return gradient, None


def gather(parameters, shards):
    for parameter, data in zip(parameters, shards):
        parameter.data = data.clone()


def let_go_of(parameters):
    for parameter in parameters:
        parameter.data = torch.empty(0)


def test_parameters_that_lose_their_data_between_forward_and_backward():
    class Layer(torch.autograd.Function):  # as DeepSpeed's, which saves the weight and not a view of it
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            return gradient @ weight.t(), x.t() @ gradient

    def step(scope, managed):
        torch.manual_seed(1)
        layer = nn.ParameterList(torch.randn(256, 256) / 16 for _ in range(2))
        if managed:
            ac2.managed_elsewhere(layer.parameters())
        shards = [parameter.detach().clone() for parameter in layer]
        x = torch.randn(4, 256, requires_grad=True)

        def forward():
            with scope:
                y = Layer.apply(Layer.apply(x.sin(), layer[0]).sin(), layer[1]).cos()
            let_go_of(layer)
            return InBackward.apply(y, functools.partial(gather, layer, shards))

        held, y = bytes_left_by(forward)
        y.sum().backward()
        return held, [x.grad, *(parameter.grad for parameter in layer)]

    plain, expected = step(contextlib.nullcontext(), False)
    for policy in ("recompute_all", "must_save_all"):
        scope = ac2.PolicyScope(policy)
        held, gradients = step(scope, True)
        assert all(same_bits(a, b) for a, b in zip(gradients, expected))
        assert held <= plain, (policy, held, plain)


@pytest.mark.parametrize("policy", ["recompute_all", "save_compute_intensive", "must_save_all"])
def test_frozen_weights_that_lose_their_data_after_each_unit(policy):
    """Adapters are trained, and stay. What is frozen is there in the forward of its unit and in its backward alone."""

    def step(scope_of, managed):
        torch.manual_seed(2)
        units = [nn.Sequential(nn.LayerNorm(WIDTH), Adapted(nn.Linear(WIDTH, WIDTH)), nn.GELU()) for _ in range(LAYERS)]
        frozen = [list(unit[1].layer.parameters()) for unit in units]
        shards = [[parameter.detach().clone() for parameter in of_unit] for of_unit in frozen]
        for of_unit in frozen:
            if managed:
                ac2.managed_elsewhere(of_unit)
            let_go_of(of_unit)
        x = torch.randn(BATCH, WIDTH, requires_grad=True)

        def forward():
            y = x
            for unit, of_unit, shards_of_unit in zip(units, frozen, shards):
                y = InBackward.apply(y, functools.partial(let_go_of, of_unit))
                gather(of_unit, shards_of_unit)
                with scope_of():
                    y = unit(y)
                let_go_of(of_unit)
                y = InBackward.apply(y, functools.partial(gather, of_unit, shards_of_unit))
            return y

        held, y = bytes_left_by(forward)
        y.square().sum().backward()
        assert all(parameter.numel() == 0 and parameter.grad is None for of_unit in frozen for parameter in of_unit)
        trained = {f"{n}.{name}": p for n, unit in enumerate(units) for name, p in unit.named_parameters() if p.requires_grad}
        assert len(trained) == 4 * LAYERS
        return held, {"x": x.grad, **{name: parameter.grad for name, parameter in trained.items()}}

    plain, expected = step(contextlib.nullcontext, False)
    held, gradients = step(lambda: ac2.PolicyScope(policy), True)
    assert_same(gradients, expected)
    assert held <= plain - LAYERS * WIDTH * WIDTH * 4  # the frozen weights, which plain training holds
    assert ac2.live_node_count() == 0


# --- Chunks ----------------------------------------------------------------------------------------------------------


class ChunkedHead(nn.Module):
    """The loss of a vocabulary that all chunks share."""

    def __init__(self, chunks):
        super().__init__()
        self.words, self.chunks = nn.Linear(WIDTH, 32), chunks

    def forward(self, x, target):
        def loss_of(x, target):
            return nn.functional.cross_entropy(self.words(x), target, reduction="sum")

        return ac2.in_chunks(loss_of, x, target, chunks=self.chunks, reduce="sum")


def train_in_chunks(kind, chunks):
    torch.manual_seed(0)
    model = ChunkedHead(chunks)
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    target = torch.arange(BATCH) % 32

    def step():
        model(inputs(0), target).backward()

    step()  # the first one makes buffers
    model.zero_grad()
    communicated = communication_of(step)[0]
    return communicated, {name: local(parameter.grad) for name, parameter in model.named_parameters()}


def chunks_communicate_as_one_call(kind):
    expected_communication, expected = train_in_chunks(kind, 1)
    assert expected_communication
    for chunks in (2, 4):
        communicated, gradients = train_in_chunks(kind, chunks)
        assert communicated == expected_communication
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[name])
    assert ac2.live_node_count() == 0


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_weight_that_chunks_share_is_gathered_and_reduced_once(ranks, kind):
    ranks.run(chunks_communicate_as_one_call, kind)
