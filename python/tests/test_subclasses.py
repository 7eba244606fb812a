"""Tensor subclasses: those that PyTorch ships, and a user's own."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from support import same_bits
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

import ac2


def recompute_each(ctx, op, *args, **kwargs):
    return ac2.CheckpointPolicy.PREFER_RECOMPUTE


def values():
    return torch.linspace(-1, 1, 8 * 4).view(8, 4)


def offsets():
    return torch.tensor([0, 2, 5, 8])


def jagged(region):
    v = values().requires_grad_()
    nt = torch.nested.nested_tensor_from_jagged(v, offsets())
    with region:
        loss = nt.sin().cos().values().sum()
    loss.backward()
    return [v.grad]


def jagged_leaf(region):
    nt = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4) / 3], layout=torch.jagged, requires_grad=True)
    with region:
        loss = (nt.sin().cos() * nt).exp().values().sum()
    loss.backward()
    return [nt.grad.values()]


def jagged_made_inside(region):
    v = values().requires_grad_()
    with region:
        nt = torch.nested.nested_tensor_from_jagged(v.sin(), offsets(), min_seqlen=2, max_seqlen=3)
        loss = (nt.sin().cos() * nt.exp()).values().sum()
    loss.backward()
    return [v.grad]


def jagged_with_holes(region):
    v = values().requires_grad_()
    nt = torch.nested.nested_tensor_from_jagged(v, torch.tensor([0, 3, 6]), lengths=torch.tensor([2, 3]))
    with region:
        loss = sum(row.sin().sum() for row in (nt.sin().cos() * 2).unbind())
    loss.backward()
    return [v.grad]


def jagged_block(region):
    torch.manual_seed(0)
    norm, first, second = torch.nn.LayerNorm(4), torch.nn.Linear(4, 16), torch.nn.Linear(16, 4)
    v = values().requires_grad_()
    nt = torch.nested.nested_tensor_from_jagged(v, offsets())
    with region:
        loss = F.dropout(second(F.gelu(first(norm(nt)))) + nt, 0.2).values().square().mean()
    loss.backward()
    return [v.grad, *(p.grad for module in (norm, first, second) for p in module.parameters())]


def strided_nested(region):
    a, b = torch.ones(2, 4, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    with region:
        loss = torch.nested.to_padded_tensor(torch.nested.as_nested_tensor([a, b]).sin().cos(), 0.0).sum()
    loss.backward()
    return [a.grad, b.grad]


def masked(region):
    v = values().requires_grad_()
    with region:
        x = torch.masked.as_masked_tensor(v.sin(), v > 0)
        loss = (x.cos() * x.exp()).sum(-1).to_tensor(0.0).sin().sum()
    loss.backward()
    return [v.grad.to_tensor(0.0)]


def distributed(region):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    x = distribute_tensor(values(), mesh, [Shard(0)]).requires_grad_()
    w = distribute_tensor(torch.eye(4) / 2, mesh, [Replicate()]).requires_grad_()
    with region:
        loss = (x.sin() @ w).cos().redistribute(mesh, [Replicate()]).exp().sum()
    loss.backward()
    return [x.grad.full_tensor(), w.grad.full_tensor()]


def tensor_parallel(region):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    parallelize_module(model, dist.device_mesh.init_device_mesh("cpu", (1,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = values().requires_grad_()
    with region:
        loss = model(x.sin()).square().sum()
    loss.backward()
    return [x.grad, *(p.grad.full_tensor() for p in model.parameters())]


def fully_sharded(region):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
    x = values().requires_grad_()
    with region:
        loss = model(x.sin()).square().sum()
    loss.backward()
    return [x.grad, *(p.grad.full_tensor() for p in model.parameters())]


def torchao_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))


def train(model, region):
    x = torch.linspace(-1, 1, 8 * 32).view(8, 32).requires_grad_()
    with region:
        loss = model(x.sin()).square().sum()
    loss.backward()
    return [x.grad, *(p.grad for p in model.parameters() if p.requires_grad)]


def int8_weights(region):
    quantization = pytest.importorskip("torchao.quantization")
    model = torchao_model()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return train(model.requires_grad_(False), region)


def float8_training(region):
    float8 = pytest.importorskip("torchao.float8")
    model = torchao_model()
    float8.convert_to_float8_training(model, config=float8.Float8LinearConfig(emulate=True))
    return train(model, region)


@pytest.fixture(scope="module", autouse=True)
def a_group_of_one():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()


SHIPPED = [
    jagged,
    jagged_leaf,
    jagged_made_inside,
    jagged_with_holes,
    jagged_block,
    strided_nested,
    masked,
    distributed,
    tensor_parallel,
    fully_sharded,
    int8_weights,
    float8_training,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", SHIPPED, ids=lambda step: step.__name__)
def test_a_subclass_that_pytorch_ships_trains_as_without_a_region(step):
    expected = step(ac2.DisableCheckpointing())
    for policy in ("recompute_all", "must_save_all", "save_compute_intensive", "speed", recompute_each):
        assert all(map(same_bits, step(ac2.PolicyScope(policy)), expected)), policy
    for options in ({"memory_budget": 30000}, {"verify": True}, {"timeline": True}):
        assert all(map(same_bits, step(ac2.PolicyScope(**options)), expected)), options


@pytest.mark.filterwarnings("ignore")
def test_jagged_tensors_are_recomputed_by_their_values():
    v = values().requires_grad_()
    nt = torch.nested.nested_tensor_from_jagged(v, offsets())
    with ac2.PolicyScope("recompute_all") as region:
        loss = nt.sin().cos().values().sum()
    held = region.trace.stats().saved_bytes
    loss.backward()
    assert held == 8 * 4 * 4  # the values of nt
    assert region.trace.stats().recomputed_ops == 2


class Negated(TorchDispatchMode):
    """Gives sin the other sign, whatever it is called with."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.neg() if func is torch.ops.aten.sin.default else result


@pytest.mark.parametrize("where", ["inside", "around"])
def test_a_subclass_under_a_mode_that_changes_results(where):
    def step(region):
        a = TwoTensor(torch.arange(4.0), torch.ones(4)).requires_grad_()
        with (region if where == "around" else Negated()), (Negated() if where == "around" else region):
            loss = a.sin().exp().sin().sum()
        loss.backward()
        return a.grad

    ours, plain = step(ac2.PolicyScope("recompute_all")), step(ac2.DisableCheckpointing())
    assert same_bits(ours.a, plain.a) and same_bits(ours.b, plain.b)


@pytest.mark.parametrize("timeline", [False, True])
def test_a_wrapper_subclass_is_recomputed_by_its_parts(timeline):
    def step(a, region):
        with region:
            loss = a.sin().cos().exp().sum()
        held = region.trace.stats().saved_bytes if isinstance(region, ac2.PolicyScope) else None
        loss.backward()
        return held

    torch.manual_seed(0)
    parts = torch.randn(8, 8), torch.randn(8, 8)
    ours, plain = (TwoTensor(*(part.clone() for part in parts)).requires_grad_() for _ in range(2))
    region = ac2.PolicyScope("recompute_all", timeline=timeline)
    held = step(ours, region)
    step(plain, ac2.DisableCheckpointing())
    assert isinstance(ours.grad, TwoTensor)
    assert same_bits(ours.grad.a, plain.grad.a) and same_bits(ours.grad.b, plain.grad.b)
    assert held == 2 * 8 * 8 * 4  # the parts of a
    assert region.trace.stats().recomputed_ops == 2 * 3  # sin, cos and exp of both
    assert region.trace.stats().saved_bytes == 0


class Placed(torch.Tensor):
    """A wrapper subclass of whose parts one is no tensor, as the mesh of a DTensor is none."""

    @staticmethod
    def __new__(cls, inner, place):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, place):
        self.inner, self.place = inner, place

    def __tensor_flatten__(self):
        return ["inner", "place"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, outer_size, outer_stride):
        return Placed(parts["inner"], parts["place"])

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        places = {id(x.place): x.place for x in args if isinstance(x, Placed)}
        unwrapped = torch.utils._pytree.tree_map(lambda x: x.inner if isinstance(x, Placed) else x, (args, kwargs or {}))
        (place,) = places.values()  # of all arguments, and the very same object
        return Placed(op(*unwrapped[0], **unwrapped[1]), place)


def test_a_wrapper_subclass_of_whose_parts_one_is_no_tensor_is_recomputed_by_its_tensors():
    inner = torch.randn(8, 8)
    x = Placed(inner.clone(), object()).requires_grad_()
    with ac2.PolicyScope("recompute_all") as scope:
        loss = x.sin().cos().exp().sum()
    assert scope.trace.stats().saved_bytes == 8 * 8 * 4
    assert "Saved whole" not in ac2.explain(scope.trace)
    loss.backward()
    plain = inner.clone().requires_grad_()
    plain.sin().cos().exp().sum().backward()
    assert same_bits(x.grad.inner, plain.grad)


class Closed(torch.Tensor):
    """A wrapper subclass that does not say of what parts it is made."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        unwrapped = torch.utils._pytree.tree_map(lambda x: x.inner if isinstance(x, Closed) else x, (args, kwargs or {}))
        result = op(*unwrapped[0], **unwrapped[1])
        return Closed(result) if isinstance(result, torch.Tensor) else result


@pytest.fixture
def nothing_said():
    """As in a process that has warned of no class yet."""
    from ac2 import _subclasses

    _subclasses._warn_once.cache_clear()


def closed():
    return Closed(torch.linspace(-1, 1, 4)).requires_grad_()


@pytest.mark.parametrize("timeline", [False, True])
def test_a_subclass_that_cannot_be_taken_apart_is_saved_whole_and_a_warning_and_explain_say_so(nothing_said, timeline):
    x = closed()
    with pytest.warns(UserWarning, match=r"class .*test_subclasses\.Closed are saved whole .* Give the class __tensor_flatten__") as warned:
        for _ in range(2):
            with ac2.PolicyScope("recompute_all", timeline=timeline) as scope:
                loss = x.sin().cos().sum()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    text = ac2.explain(scope.trace)
    assert f"Saved whole, whatever policies say of it, and not counted in bytes:\n   2 tensors  subclass {__name__}.Closed" in text, text
    loss.backward()
    plain = x.inner.clone().requires_grad_()
    plain.sin().cos().sum().backward()
    assert same_bits(x.grad.inner, plain.grad)


def test_a_function_finds_a_torch_tensor_in_what_it_saved_of_a_class_with_torch_function_alone_as_with_hooks_of_pytorch():
    class Named(torch.Tensor):
        pass

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            ctx.save_for_backward(tensor)
            return tensor * 2

        @staticmethod
        def backward(ctx, grad):
            kinds.append(type(ctx.saved_tensors[0]))
            return grad * 2

    kinds = []
    for block in (ac2.PolicyScope("recompute_all"), torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), ac2.DisableCheckpointing()):
        x = torch.ones(2, requires_grad=True)
        with block:
            loss = Saves.apply(x.sin().as_subclass(Named)).sum()
        loss.backward()
    assert kinds == [torch.Tensor, torch.Tensor, Named]


@pytest.mark.filterwarnings("error")
def test_nothing_is_said_of_subclasses_saved_whole_where_policies_save_or_the_program_has_them(nothing_said):
    with ac2.PolicyScope("must_save_all"):
        closed().sin().cos().sum().backward()
    with ac2.PolicyScope("recompute_all"):
        closed().sin().sum().backward()  # sin saves the parameter alone


def test_a_wrapper_subclass_that_is_written_in_place_after_it_was_saved_is_an_error():
    a = TwoTensor(torch.randn(4), torch.randn(4)).requires_grad_()
    with ac2.PolicyScope("recompute_all"):
        b = a * 1
        loss = b.sin().sum()
    with torch.no_grad():
        b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
