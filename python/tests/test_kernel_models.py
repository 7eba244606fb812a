"""Blocks of models whose work is done by kernels of their own: as operators, and as functions made operators.

The kernels stand for those that such models bring: a selective scan (Mamba), attention without a softmax in chunks (linear
attention), a product for each expert (grouped GEMM), and a fused norm. On the CPU they are plain loops and LibTorch's ops, behind
the same kinds of interfaces.
"""

import ctypes

import pytest
import torch

import ac2
from support import same_bits

NAMESPACE = "ac2_kernel_models"
runs = {}


def count(name):
    runs[name] = runs.get(name, 0) + 1


# --- a selective scan, as torch.library.custom_op -------------------------------------------------------------------------


@torch.library.custom_op(f"{NAMESPACE}::selective_scan", mutates_args=())
def selective_scan(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    count("selective_scan")
    state = torch.zeros_like(x[:, 0])
    states = torch.empty_like(x)
    for t in range(x.shape[1]):
        state = decay[:, t] * state + x[:, t]
        states[:, t] = state
    return states


@torch.library.custom_op(f"{NAMESPACE}::selective_scan_backward", mutates_args=())
def selective_scan_backward(gradient: torch.Tensor, decay: torch.Tensor, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    of_x, of_decay = torch.empty_like(gradient), torch.zeros_like(gradient)
    carried = torch.zeros_like(gradient[:, 0])
    for t in reversed(range(gradient.shape[1])):
        carried = carried + gradient[:, t]
        of_x[:, t] = carried
        if t > 0:
            of_decay[:, t] = carried * states[:, t - 1]
        carried = carried * decay[:, t]
    return of_x, of_decay


def _keep_for_scan(ctx, inputs, output):
    ctx.save_for_backward(inputs[1], output)


selective_scan.register_autograd(
    lambda ctx, gradient: selective_scan_backward(gradient.contiguous(), *ctx.saved_tensors), setup_context=_keep_for_scan
)


# --- a product for each expert, as an operator of a torch.library.Library -------------------------------------------------

_library = torch.library.Library(NAMESPACE, "DEF")
_library.define("grouped_mm(Tensor rows, Tensor weights, Tensor ends) -> Tensor")


def _grouped_mm(rows, weights, ends):
    count("grouped_mm")
    results, begin = [], 0
    for expert, end in enumerate(ends.tolist()):
        results.append(rows[begin:end] @ weights[expert])
        begin = end
    return torch.cat(results)


_library.impl("grouped_mm", _grouped_mm, "CompositeExplicitAutograd")


class GroupedMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, weights, ends):
        ctx.save_for_backward(rows, weights, ends)
        return torch.ops.ac2_kernel_models.grouped_mm(rows, weights, ends)

    @staticmethod
    def backward(ctx, gradient):
        rows, weights, ends = ctx.saved_tensors
        of_weights, begin = torch.zeros_like(weights), 0
        for expert, end in enumerate(ends.tolist()):
            of_weights[expert] = rows[begin:end].t() @ gradient[begin:end]
            begin = end
        return torch.ops.ac2_kernel_models.grouped_mm(gradient, weights.transpose(1, 2), ends), of_weights, None


# --- linear attention in chunks, as torch.library.triton_op ---------------------------------------------------------------


@torch.library.triton_op(f"{NAMESPACE}::linear_attention", mutates_args=())
def linear_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The results, and the state before each chunk: the sum of all earlier products of keys and values."""
    count("linear_attention")
    state, results, states = torch.zeros_like(k[0].t() @ v[0]).expand(len(q), -1, -1), [], []
    for q, k, v in zip(q.split(chunk, 1), k.split(chunk, 1), v.split(chunk, 1)):
        states.append(state)
        results.append(q @ state + (q @ k.mT).tril() @ v)
        state = state + k.mT @ v
    return torch.cat(results, 1), torch.stack(states)


@torch.library.custom_op(f"{NAMESPACE}::linear_attention_backward", mutates_args=())
def linear_attention_backward(
    gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, states: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    of_q, of_k, of_v, of_state = [], [], [], torch.zeros_like(states[0])
    parts = zip(gradient.split(chunk, 1), q.split(chunk, 1), k.split(chunk, 1), v.split(chunk, 1), states)
    for gradient, q, k, v, state in reversed(list(parts)):
        of_scores = (gradient @ v.mT).tril()
        of_q.append(gradient @ state.mT + of_scores @ k)
        of_k.append(of_scores.mT @ q + v @ of_state.mT)
        of_v.append((q @ k.mT).tril().mT @ gradient + k @ of_state)
        of_state = of_state + q.mT @ gradient
    return torch.cat(of_q[::-1], 1), torch.cat(of_k[::-1], 1), torch.cat(of_v[::-1], 1)


def _keep_for_attention(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.chunk = inputs[3]


linear_attention.register_autograd(
    lambda ctx, gradient, _: (*linear_attention_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.chunk), None),
    setup_context=_keep_for_attention,
)


# --- a fused norm behind a pointer, as ctypes, pybind and Triton call it -------------------------------------------------


def _norm_by_pointer(x, scale):
    count("norm")
    result = torch.empty_like(x)
    read = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
    write = (ctypes.c_float * x.numel()).from_address(result.data_ptr())
    rows = x.shape[-1]
    factors = scale.tolist()
    for begin in range(0, x.numel(), rows):
        mean = sum(value * value for value in read[begin : begin + rows]) / rows
        inverse = (mean + 1e-6) ** -0.5
        for i in range(rows):
            write[begin + i] = read[begin + i] * inverse * factors[i]
    return result


class FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        x = x.contiguous()
        ctx.save_for_backward(x, scale)
        return _norm_by_pointer(x, scale)

    @staticmethod
    def backward(ctx, gradient):
        x, scale = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            y = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * scale
        return torch.autograd.grad(y, (x, scale), gradient)


class MambaLike(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.scale = norm, torch.nn.Parameter(torch.ones(6))
        self.inputs, self.decays, self.out = (torch.nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        y = self.norm(x, self.scale)
        return x + self.out(torch.nn.functional.silu(selective_scan(self.inputs(y), self.decays(y).sigmoid())))


class LinearAttentionLike(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.scale = norm, torch.nn.Parameter(torch.ones(6))
        self.qkv, self.out = torch.nn.Linear(6, 18), torch.nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x, self.scale)).chunk(3, -1)
        return x + self.out(linear_attention(q.sigmoid(), k.sigmoid(), v, 2)[0])


class ExpertsLike(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm, self.scale = norm, torch.nn.Parameter(torch.ones(6))
        self.router = torch.nn.Linear(6, 3)
        self.up, self.down = torch.nn.Parameter(torch.randn(3, 6, 8)), torch.nn.Parameter(torch.randn(3, 8, 6))

    def forward(self, x):
        rows = self.norm(x, self.scale).flatten(0, 1)
        scores, experts = self.router(rows).softmax(-1).max(-1)
        order = experts.argsort(stable=True)
        ends = torch.bincount(experts, minlength=3).cumsum(0)
        y = GroupedMM.apply(torch.nn.functional.silu(GroupedMM.apply(rows[order], self.up, ends)), self.down, ends)
        return x + (y * scores[order, None])[order.argsort()].view_as(x)


def model(norm):
    torch.manual_seed(2)
    return torch.nn.Sequential(MambaLike(norm), ExpertsLike(norm), LinearAttentionLike(norm), MambaLike(norm))


def step(policy=None, norm=FusedNorm.apply):
    """The gradients of a step, the bytes that a region around the model saves, and how often each kernel has run."""
    net = model(norm)
    x = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(4))
    runs.clear()
    saved = None
    if policy is None:
        loss = net(x).square().sum()
    else:
        with ac2.PolicyScope(policy) as scope:
            loss = net(x).square().sum()
        saved = scope.trace.stats().saved_bytes
    loss.backward()
    return [parameter.grad for parameter in net.parameters()], saved, dict(runs)


KERNELS = ["selective_scan", "linear_attention", "grouped_mm"]
POLICIES = ["recompute_all", "must_save_all", "speed", "memory", *([f"{NAMESPACE}::{kernel}"] for kernel in KERNELS)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("norm", [FusedNorm.apply, ac2.replayable(FusedNorm).apply], ids=["pointers", "replayable"])
def test_blocks_of_kernels_have_plain_gradients(policy, norm):
    expected, _, _ = step()
    found, _, _ = step(policy, norm)
    assert all(same_bits(a, b) for a, b in zip(found, expected))


def test_the_derivative_of_linear_attention_in_chunks_is_that_of_attention_without_a_softmax():
    q, k, v = (torch.randn(2, 5, 6, dtype=torch.double, requires_grad=True) for _ in range(3))
    expected = torch.autograd.grad(((q @ k.mT).tril() @ v).sin().sum(), (q, k, v))
    found = torch.autograd.grad(linear_attention(q, k, v, 2)[0].sin().sum(), (q, k, v))
    assert all(map(torch.allclose, found, expected))


def test_a_kernel_is_an_op_that_a_policy_saves_or_computes_again():
    norm = ac2.replayable(FusedNorm).apply
    _, _, plain = step()
    _, nothing, again = step("recompute_all", norm)
    _, scans, saved = step([f"{NAMESPACE}::selective_scan"], norm)
    assert again["selective_scan"] == 2 * plain["selective_scan"] == 4
    assert saved["selective_scan"] == plain["selective_scan"]
    assert scans - nothing == 2 * 2 * 5 * 6 * 4  # the states of two scans
    _, _, attention = step([f"{NAMESPACE}::linear_attention"], norm)
    assert again["linear_attention"] == 2 and attention["linear_attention"] == 1
    _, _, grouped = step([f"{NAMESPACE}::grouped_mm"], norm)
    assert grouped["grouped_mm"] < again["grouped_mm"]


@pytest.mark.filterwarnings("ignore")
def test_what_a_pointer_wrote_is_held_and_computed_again_once_the_kernel_is_an_op():
    _, held, by_pointer = step("recompute_all")
    _, nothing, again = step("recompute_all", ac2.replayable(FusedNorm).apply)
    assert by_pointer["norm"] == 4 and again["norm"] > 4
    assert held - nothing >= 4 * 2 * 5 * 6 * 4  # the results of four norms
