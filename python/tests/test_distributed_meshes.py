"""Four processes: shardings over two axes, norms over the ranks, and pipelines whose backward is in two halves, train as they do
without regions."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from processes import Ranks
from support import assert_same
from test_distributed import FEW, STEPS, WIDTH, Block, Model, Way, bytes_left_by, inputs, results_of, same_as_plain, shard
from torch import nn

import ac2


@pytest.fixture(scope="module")
def ranks():
    made = Ranks(4)
    yield made
    made.close()


# --- Fully sharded ---------------------------------------------------------------------------------------------------


def train_fsdp_on_mesh(way, kind):
    from torch.distributed.device_mesh import init_device_mesh

    if kind == "replicated and sharded":
        options = {"mesh": init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))}
    else:  # after forward each two ranks have all parameters between them
        options = {"mesh": init_device_mesh("cpu", (4,)), "reshard_after_forward": 2}
    model = shard(Model(), way, **options)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        with way.around():
            losses.append(model(inputs(step)).square().mean())
        losses[-1].backward()
        optimizer.step()
    return results_of(model, [loss.detach() for loss in losses])


@pytest.mark.parametrize("kind", ["replicated and sharded", "resharded to a number"])
def test_fsdp_on_a_mesh(ranks, kind):
    ranks.run(same_as_plain, train_fsdp_on_mesh, FEW, kind)


# --- Batch norm over the ranks ---------------------------------------------------------------------------------------


class NormOverRanks(torch.autograd.Function):
    """What torch.nn.SyncBatchNorm does on accelerators, the only devices for which it has kernels."""

    @staticmethod
    def forward(ctx, x, weight, mean_so_far):
        sums = torch.stack([x.sum(0), x.square().sum(0), torch.full_like(x[0], len(x))])
        dist.all_reduce(sums)
        mean = sums[0] / sums[2]
        scale = (sums[1] / sums[2] - mean.square() + 1e-5).rsqrt()
        mean_so_far.lerp_(mean, 0.1)
        normed = (x - mean) * scale
        ctx.save_for_backward(normed, weight, scale)
        ctx.count = sums[2]
        return normed * weight

    @staticmethod
    def backward(ctx, gradient):
        normed, weight, scale = ctx.saved_tensors
        inner = gradient * weight
        sums = torch.stack([inner.sum(0), (inner * normed).sum(0)])
        dist.all_reduce(sums)
        sums = sums / ctx.count
        return (inner - sums[0] - normed * sums[1]) * scale, (gradient * normed).sum(0), None


class NormedBlock(Block):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        with self.region_inside():
            return x + self.down(nn.functional.gelu(self.up(NormOverRanks.apply(x, self.weight, self.mean))))


def train_norms(way):
    model = Model()
    model.blocks = nn.ModuleList(NormedBlock() for _ in model.blocks)
    way.prepare(model)
    parallel = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False, find_unused_parameters=True)
    way.finish(model)
    losses = []
    for step in range(STEPS):
        with way.around():
            losses.append(parallel(inputs(step)).square().mean())
        losses[-1].backward()
    return {**results_of(model, [loss.detach() for loss in losses]), **{name: b.clone() for name, b in model.named_buffers()}}


def test_a_batch_norm_over_the_ranks_counts_each_batch_once(ranks):
    ranks.run(same_as_plain, train_norms, [*FEW, Way("inside"), Way("inside", "must_save_all")])


# --- A backward in two halves ----------------------------------------------------------------------------------------


def train_zero_bubble(way):
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble

    rank, count = dist.get_rank(), dist.get_world_size()
    model = Model(layers=count).eval()
    way.prepare(model)
    way.finish(model)
    parts = [model.blocks[rank]]
    if rank == 0:
        parts.insert(0, model.first)
    if rank == count - 1:
        parts.append(model.head)
    stage_of = nn.Sequential(*parts)
    if way.where == "model":  # a region for each micro-batch
        ac2.checkpoint_wrapper(stage_of, way.policy, **way.options)
    taken, returned = torch.randn(2, WIDTH, requires_grad=rank > 0), torch.randn(2, WIDTH, requires_grad=True)
    stage = PipelineStage(stage_of, rank, count, torch.device("cpu"), input_args=(taken,), output_args=returned)
    schedule = ScheduleInterleavedZeroBubble([stage], 4, loss_fn=lambda output, target: (output - target).square().mean())
    whole = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(5))
    losses = []
    for _ in range(STEPS):
        if rank == 0:
            schedule.step(whole)
        elif rank == count - 1:
            schedule.step(target=whole, losses=losses)
        else:
            schedule.step()
    return results_of(stage_of, [loss.detach() for loss in losses])


def test_a_zero_bubble_pipeline(ranks):
    keeping = [Way(where, keep_for_next_backward=True) for where in ("before", "model")]
    ranks.run(same_as_plain, train_zero_bubble, [*FEW, *keeping, Way("inside"), Way("model", "must_save_all")])


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("policy", ["recompute_all", "save_compute_intensive", "must_save_all"])
def test_gradients_of_inputs_and_then_of_weights_are_those_of_one_backward(policy, keeps):
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

    def halves(scope):
        torch.manual_seed(0)
        block, x = Block().eval(), torch.randn(4, WIDTH, requires_grad=True)
        with scope:
            y = block(x)
        _, groups = stage_backward_input([y], [torch.ones_like(y)], [x], iter(block.parameters()))
        del y
        stage_backward_weight(iter(block.parameters()), groups)
        del groups
        return {"input": x.grad, **{name: parameter.grad for name, parameter in block.named_parameters()}}

    expected = halves(contextlib.nullcontext())
    scope = ac2.PolicyScope(policy, keep_for_next_backward=keeps)
    assert_same(halves(scope), expected)
    assert ac2.live_node_count() == 0


ROWS = 64
_UNIT = ROWS * WIDTH * 4  # bytes of a block's input
# Of what the second half needs, and plain training holds for it, a region may have: norm's results, up's, gelu's.
_NORM, _UP, _GELU = _UNIT + 2 * ROWS * 4, 4 * _UNIT, 4 * _UNIT
_NOT_HELD = {"recompute_all": _NORM + _UP + _GELU, "save_compute_intensive": _NORM + _GELU, "must_save_all": 0}
# With keep_for_next_backward. The second half runs gelu's derivative no more, which reads up's.
_NOT_KEPT = {"recompute_all": _UP, "save_compute_intensive": 0, "must_save_all": 0}
# Ops that each half replays. By itself the second computes norm's results for the weights of norm and of up, and gelu's for down's.
_REPLAYED = {"recompute_all": (6, 5), "save_compute_intensive": (4, 3), "must_save_all": (0, 0)}


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("policy", _NOT_HELD)
def test_between_the_halves_of_a_backward_a_region_holds_what_its_policy_saves_of_what_the_second_needs(policy, keeps):
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

    def left_by_each_part(scope):
        torch.manual_seed(0)
        block, x = Block().eval(), torch.randn(ROWS, WIDTH, requires_grad=True)

        def forward():
            with scope:
                return [block(x).sigmoid().tanh()]  # of which the second half needs nothing

        def first_half():
            y = ys.pop()
            return stage_backward_input([y], [torch.ones_like(y)], [x], iter(block.parameters()))[1]

        by_forward, ys = bytes_left_by(forward)
        by_first, groups = bytes_left_by(first_half)
        if isinstance(scope, ac2.PolicyScope):
            assert scope.trace.stats().recomputed_bytes == 0  # what was replayed has gone, or is held
            replayed_by_first = scope.trace.stats().recomputed_ops
        by_second, _ = bytes_left_by(lambda: stage_backward_weight(iter(block.parameters()), groups))
        if isinstance(scope, ac2.PolicyScope):
            first, second = _REPLAYED[policy]
            replayed = (replayed_by_first, scope.trace.stats().recomputed_ops - replayed_by_first)
            assert replayed == (first, 0 if keeps else second)
        return by_forward, by_forward + by_first, by_forward + by_first + by_second

    (_, plain_between, plain_after), (_, between, after) = map(left_by_each_part, (contextlib.nullcontext(), ac2.PolicyScope(policy, keep_for_next_backward=keeps)))
    gradients = _UNIT + _UNIT + 4 * _UNIT + _UNIT  # of x, and of the results of down, up and norm, for the second half
    assert plain_between == gradients + _NORM + _UP + _GELU
    assert between == plain_between - (_NOT_KEPT if keeps else _NOT_HELD)[policy]
    assert after == plain_after
