"""Programs drawn at random: Python source, the same for the same seed everywhere, that runs with regions and without.

Every step is a statement over the same few names, each of them always a tensor of 4 x 4, so that a program from which
steps are taken out is still a program.
"""

import dataclasses
import random
import textwrap
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._python_dispatch import TorchDispatchMode

import ac2
from device import DEVICE, there
from random_subclasses import WRAPPERS, Closed, Loud, One, Scaled, Square, quiet, set_data, stored, unwrapped, wrapped  # which the programs call

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
aten = torch.ops.aten
BOX: List[torch.Tensor] = []  # the program's only references to some tensors, which policies and pack functions drop


class Passes(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Sine(TorchDispatchMode):
    """Returns the sine of what one op returns."""

    def __init__(self, op: torch._ops.OpOverload):
        super().__init__()
        self.op = op

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result.sin() if func is self.op and result.is_floating_point() else result


class Doubled(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is aten.sin.default else result


class RandomPolicy:
    """Decides op by op, and drops what the program has in BOX wherever it is called."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        # It is an error that an outer and an inner region say different MUSTs.
        self.decisions = DECISIONS[:2] if ac2.is_checkpoint_enabled() else DECISIONS

    def __call__(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        BOX.clear()
        return self.dice.choice(self.decisions)


def pack(tensor: torch.Tensor) -> Any:
    BOX.clear()
    return tensor.tolist(), tensor.dtype, tensor.device


def unpack(packed: Any) -> torch.Tensor:
    values, dtype, device = packed
    return torch.tensor(values, dtype=dtype, device=device)


# Lists of Python hold doubles, which hold all smaller numbers exactly.
DECISIONS = [
    ac2.CheckpointPolicy.PREFER_SAVE,
    ac2.CheckpointPolicy.PREFER_RECOMPUTE,
    ac2.CheckpointPolicy.MUST_SAVE,
    ac2.CheckpointPolicy.MUST_RECOMPUTE,
    ac2.SaveWithHooks(pack, unpack),
]


# At the top of a module, so that torch.compile keeps what it has compiled of them.
def positive(t):
    return t.cos() * t


def negative(t):
    return t.exp() + t.sin()


def goes_on(i, t):
    return i < 2


def round_of(i, t):
    return i + 1, t.sin() * 1.5


def scanned(carry, row):
    return carry + row.sin(), carry * row


def kernel(tensor):
    """Halves it past every dispatcher."""
    tensor = stored(tensor).detach()
    if tensor.device.type == "cpu":
        with torch._C.DisableTorchFunctionSubclass():
            tensor.apply_(lambda number: number / 2)


@torch.library.custom_op("random_programs::noisy", mutates_args=())
def noisy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + torch.rand_like(tensor)


@torch.library.custom_op("random_programs::halve", mutates_args=("tensor",))
def halve(tensor: torch.Tensor) -> None:
    kernel(tensor)


@noisy.register_fake
def _(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor)


def mapped(row, other):
    return row.sin() * other


# Functions that are ops by ac2.replayable. They write past every dispatcher, to what they have made; one of them draws.
@ac2.replayable
def fused(tensor, other, scale=1.0):
    result = tensor * scale
    if tensor.device.type == "cpu":
        result.numpy()[...] *= other.cos().numpy()
    else:
        result.mul_(other.cos())
    return result


@ac2.replayable
def split(tensors):
    return [tensor.exp() / 9 for tensor in tensors], {"noise": torch.rand_like(tensors[0])}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, other):
        result = tensor.sin()
        ctx.save_for_backward(tensor, other, result)
        return result * other

    @staticmethod
    def backward(ctx, grad):
        tensor, other, sine = ctx.saved_tensors
        return grad * other * tensor.cos(), grad * sine


ReplayableProduct = ac2.replayable(Product)


# Modules, by whose calls by_module decides.
class Leaf(torch.nn.Module):
    def forward(self, tensor, other):
        return tensor.sin() * other


class Branch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = Leaf(), torch.nn.Softmax(1)

    def forward(self, tensor, other):
        return self.norm(self.inner(tensor, other).cos()) + other.tanh()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Branch(), Branch()

    def forward(self, tensor, other):
        return self.second(self.first(tensor, other) * tensor, other)


NET = Net()
PATTERNS = [
    "first", "second", "**.inner", "first.inner :: aten.sin", "** :: aten.mul", "Leaf", "Softmax", "second.*", "** :: aten.exp", "**",
]  # fmt: skip


def module_rules(seed: int) -> List[Tuple[str, Any]]:
    dice = random.Random(seed)
    decisions = DECISIONS[:2] if ac2.is_checkpoint_enabled() else DECISIONS
    return [(pattern, dice.choice(decisions)) for pattern in dice.sample(PATTERNS, dice.randint(1, 5))]


# Compiled once a process, of numbers in one type and layout, so that few of their calls compile them again.
def _activation(tensor, other):
    return (tensor.sin() * other).softmax(1).mm(other)


def _noise(tensor, other):
    return torch.nn.functional.dropout(tensor, 0.3) * other.cos()


def _pair(tensor, other):
    return tensor.exp() / 9, (tensor * other).tanh()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    while isinstance(tensor, WRAPPERS):
        tensor = unwrapped(tensor)
    return tensor.as_subclass(torch.Tensor).float().clone(memory_format=torch.contiguous_format)


activation, noise, pair = (torch.compile(function, dynamic=False) for function in (_activation, _noise, _pair))


HEAD = """\
def program(region):
    p, q = (torch.randn(4, 4, device=DEVICE).requires_grad_() for _ in range(2))
    x, y, z = (torch.randn(4, 4, device=DEVICE) for _ in range(3))
    a, b, c, d = p, q, x, y
    numbers = torch.arange(16, device=DEVICE).view(4, 4) + 1
    array = numpy.linspace(0, 1, 16, dtype=numpy.float32).reshape(4, 4)
    memory, shared = torch.from_numpy(array), torch.from_dlpack(array)
    octets = bytearray(range(16))
    image = torch.frombuffer(octets, dtype=torch.uint8).view(4, 4)
"""

Step = Tuple[int, str]  # of which part: before the region, in it, before the first backward, between that and the second


@dataclasses.dataclass
class Program:
    steps: List[Step]
    around: Optional[str]  # a mode around all of it
    backwards: int

    def source(self) -> Tuple[str, Dict[int, int]]:
        """And which step each line of it belongs to."""
        lines = HEAD.splitlines()
        step_of_line: Dict[int, int] = {}

        def put(text: str, depth: int, step: Optional[int] = None) -> None:
            for line in textwrap.indent(text, "    " * depth).splitlines():
                lines.append(line)
                if step is not None:
                    step_of_line[len(lines)] = step

        def put_part(part: int, depth: int) -> None:
            for i, (part_of_step, text) in enumerate(self.steps):
                if part_of_step == part:
                    put(text, depth, i)

        put_part(0, 1)
        depth = 1
        if self.around:
            put(f"with {self.around}:", 1)
            depth = 2
        put("with region(), contextlib.ExitStack() as modes:", depth)
        put_part(1, depth + 1)
        put("modes.close()", depth + 1)
        put("loss = quiet((a * c + b + d + p.cos() * q).sum())", depth + 1)
        put_part(2, depth)
        for i in range(self.backwards):
            put(f"loss.backward(retain_graph={i + 1 < self.backwards})", depth)
            if i == 0 and self.backwards == 2:
                put_part(3, depth)
        put("return [loss, a, b, c, d, p, q, x, y, z, memory, image, p.grad, q.grad]", 1)
        return "\n".join(lines) + "\n", step_of_line

    def without(self, begin: int, end: int) -> "Program":
        return dataclasses.replace(self, steps=self.steps[:begin] + self.steps[end:])


CHANGED_OPS = ["mul.Tensor", "add.Tensor", "div.Tensor", "cos.default", "mm.default", "rand.default"]
MODES = ["Passes()", "Doubled()"] + [f"Sine(aten.{op})" for op in CHANGED_OPS]
SLOTS, INPUTS = "abcd", "pqxy"

# {t} and {o} are slots that are assigned, {u}, {v}, {w} and {s} slots or inputs, {i} an input, {m} and {n} modes. Drawn
# are programs of which docs/reliability.md says that they are exact: leaves get other data after the region only.
PURE = [
    "{t} = {u}.sin()", "{t} = {u}.cos() * {v}", "{t} = {u}.exp() / 9", "{t} = {u} + {v}", "{t} = {u} * {v}",
    "{t} = {u}.tanh() - {v}", "{t} = {u}.to({v}.dtype).mm({v}) / 4", "{t} = {u}.softmax(1)",
    "{t} = torch.where({u} > {v}, {u}, {w}.sigmoid())", "{t} = {u}.sum(0) * {v}",
    "{t} = torch.cat([{u}[:2], {v}[2:].exp()])", "{t} = {u} / ({v} * {v} + 1)", "{t} = {u}.detach().sin() * {v}",
    "{t} = {u}.cumsum(1)", "{t} = torch.nn.functional.dropout({u}, 0.3)", "{t} = torch.nn.functional.gelu({u})",
    "{t}, {o} = {u}.sort(1)[0], {v}.relu()",
]  # fmt: skip
WRITES = [
    "{t} = {u}.clone()\n{t}.mul_({s})", "{t} = {u} + 1\n{t}[1:3].add_({s}[:2])", "{t} = {u} * 2\n{t}.t().copy_({s})",
    "{t}.add_({s})", "{t}.mul_(0.5)", "{t}.sin_()", "{t}[0].zero_()", "{t}.clamp_(-2, 2)", "x.add_(1)",
    "y[:, 1].mul_(0.5)", "{t} = torch.sin({u}.detach(), out=y)", "{t} = torch.nn.functional.relu_({u} - 0.1)",
    "{t}.uniform_()",
]  # fmt: skip
VIEWS = [
    "{t} = {u}.t()", "{t} = {u}.reshape(2, 8).view(4, 4)", "{t} = {u}.detach()", "{t} = torch.cat([{u}[2:], {u}[:2]])",
    "{t} = {u}[0].expand(4, 4)", "{t} = torch.stack({u}.unbind(0)[::-1])",
    "{t}, {o} = torch.stack([{u}, {v}]).unbind(0)", "{t} = {u}.view(torch.int32).view(torch.float32)",
]  # fmt: skip
HIGHER = [
    "{t} = torch.cond({u}.sum() > 0, positive, negative, ({v},))",
    "{t} = map_over(mapped, {u}.sin(), {v}[0].cos())",
]
if VERSION >= (2, 11):  # before, there is no derivative
    HIGHER += [
        "{t} = while_loop(goes_on, round_of, (torch.tensor(0, device=DEVICE), {u}.cos()))[1]",
        "{t} = scan(scanned, {u}[0].sin(), {v}.cos(), dim=0)[1]",
    ]
# Derivatives in the middle of forward, of which the region's own are taken.
INNER = [
    "{t} = torch.autograd.grad(({u} * p.sin()).tanh().sum(), p, create_graph=True)[0]",
    "{t} = torch.autograd.grad(({u}.exp() * q).cos().sum(), q, create_graph=True)[0] * {v}",
    "{t} = torch.autograd.grad(({u} * {v}).sin().square().sum(), p, create_graph=True, materialize_grads=True)[0]",
]
MODAL = [
    "modes.enter_context({m})", "modes.close()", "modes.enter_context(torch.no_grad())",
    "modes.enter_context(region())",
    "with {m}:\n    {t} = {u}.sin() * {v}", "with {m}, {n}:\n    {t} = ({u} / 3 + {v}.sin()).cos()",
    "with {m}:\n    {t} = {u}.exp().mul_({v})", "with {m}:\n    {t} = torch.rand(4, 4, device=DEVICE) * {u}",
]  # fmt: skip
# Autograd keeps nothing of what lies in this memory itself, so that plain PyTorch sees no write to it.
FOREIGN = [
    "{t} = {u} + there(memory)", "{t} = {u} * there(memory).cos()", "{t} = {u} * (there(image).float() / 255)",
    "{t} = there(image) / numbers * {u}", "{t} = {u} * (there(shared) - 1)", "array[:] = 2", "array *= 0.5",
    "octets[4:8] = b'ABCD'", "memory.mul_(0.5)", "memory.copy_({u}.detach())", "shared[0] = 3", "image.add_(1)",
    "array[1] = memory[0].sin().numpy()",
    "{t} = there(torch.from_numpy({u}.detach().clone().cpu().numpy())) * {v}",
    "{t} = torch.from_dlpack(stored({u}).exp()).sin() * {v}",
]  # fmt: skip
# A kernel that no dispatcher sees, on what an op has made.
KERNELS = [
    "{t} = {u}.detach() * 2\nkernel({t})\n{t} = {t}.exp() * {v}", "{t} = {u}.sin()\n{o} = {t}.cos() * {v}\nkernel({t}.detach())",
    "{t} = {u}.detach().cos() + 1\n{o} = {t}.exp() * {v}\nkernel({t})\n{t} = {t}.sin() * {w}",
    "{t} = {u} + 1\nkernel({t}.detach()[1:])",
]  # fmt: skip
TYPES = [
    "torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)", "{t} = numbers / 3 * {u}",
    "{t} = numbers.sqrt() * {u}", "{t} = torch.rand(4, 4, device=DEVICE) * {u}",
    "{t} = {u} * torch.full((4, 4), 0.3, device=DEVICE)", "{t} = {u} + (numbers / numbers.sum()).exp()",
]  # fmt: skip
DROPPED = [
    "BOX[:] = [{u}.sin(), {v}.cos()]\n{t} = torch.stack(BOX).sum(0)\nBOX.clear()",
    "BOX[:] = [{u} * {v}]\n{t} = BOX[0].exp() / 9\nBOX.clear()",
    "BOX[:] = [{u} + 1]\n{t} = BOX[0].mul_({s})\nBOX.clear()",
    "BOX[:] = [numbers / 7]\n{t} = torch.cat(BOX) * {u}\nBOX.clear()",
    "BOX[:] = [{u}.exp()]\n{t} = BOX[0].t()\nBOX.clear()",
    "BOX[:] = [{u}.cos(), {v}.sin()]\n{t} = torch._foreach_mul(BOX, BOX[::-1])[0]\nBOX.clear()",
]  # fmt: skip
# Autograd holds a leaf itself, so that plain PyTorch reads in backward what the leaf has then. A write may have made
# something else of an input.
DATA = [
    "if {i}.is_leaf:\n    set_data({i}, torch.rand(4, 4, device=DEVICE))",
    "if {i}.is_leaf:\n    set_data({i}, {i}.detach() * 2)",
    "set_data(p, q.data)",
    "set_data(q, p.detach().exp())",
]
# `z` is an input that lies elsewhere now and then, with the same version counter, and is written to there.
READS_Z = [
    "{t} = {u} + z", "{t} = {u} * z.sin()", "{t} = {u} * z.t().exp()", "{t} = z[0].cos() - {u}",
    "{t} = torch.addmm(z, x, x) * {u}",
]  # fmt: skip
MOVES = [
    "z.set_(torch.ones(4, 4, device=DEVICE))", "z.set_(stored(x).sin())",
    "z.set_(torch.rand(4, 4, device=DEVICE))\nz.add_(1)", "z.add_(1)",
    "with torch.no_grad():\n    z.set_(stored({u}).float())", "set_data(z, torch.rand(4, 4, device=DEVICE))\nz.mul_(2)", "z.t_()",
    "with torch.no_grad():\n    {t} = {u}.detach().exp()\n    {t}.set_(torch.ones(4, 4, device=DEVICE))\n    {t}.add_(1)",
]  # fmt: skip
SUBCLASS_INPUTS = [
    "p = a = {k}.of(p.detach()).requires_grad_()", "q = b = {k}.of(q.detach()).requires_grad_()", "x = c = {k}.of(x)",
    "y = d = {k}.of(y)", "p = a = torch.nn.Parameter({k}.of(p.detach()))", "z = {k}.of(z)",
]  # fmt: skip
SUBCLASSES = [
    "{t} = wrapped({u}, {k})", "{t} = wrapped({u}.sin(), {k}).exp() * {v}", "{t} = unwrapped({u})", "{t} = unwrapped({u}) * {v}",
    "{t} = {k}.of(x.detach() + 1) * {u}", "{t} = wrapped({u}, {k}).add_({s})", "{t} = wrapped(unwrapped({u}).cos(), {k})",
    "{t} = Square.apply({u})", "{t} = Square.apply(wrapped({u}, {k})).sin()",
    "{t} = torch.nn.functional.layer_norm(wrapped({u}, {k}), (4,)) + {v}",
    "{t} = torch.nn.functional.linear({u}, wrapped({v}, {k}), {w}[0])",
    "{t} = torch.nn.functional.scaled_dot_product_attention(*(s.unsqueeze(0) for s in (wrapped({u}, {k}), {v}, {w})))[0]",
    "{t} = torch.stack([wrapped({u}, {k}), {v}]).max(0)[0]", "{t} = torch.where(wrapped({u}, {k}) > {v}, {w}, {u})",
    "{t} = torch.einsum('ij,jk->ik', wrapped({u}, {k}).to({v}.dtype), {v}).tanh()",
]  # fmt: skip
# To what the region took, between the region and backward. Most programs with one that plain autograd forbids are left out.
LATE_WRITES = [
    "x.add_(1)", "y[:, 1].mul_(0.5)", "z.mul_(2)", "{t}.detach().mul_(0.5)", "torch.sin({u}.detach(), out=z)",
    "with torch.no_grad():\n    torch._foreach_add_([z, x], 1)", "memory.mul_(0.5)", "image.add_(1)",
    "with ac2.PolicyScope('recompute_all'):\n    z.neg_()", "stored(z).numpy()[:] = 0.25", "torch.nn.functional.relu_(z)", "z.set_(z.clone())\nz.add_(1)",
    "kernel(z)", "kernel(memory)", "halve(stored(z))", "halve(stored(x).detach())", "with ac2.PolicyScope('recompute_all'):\n    halve(stored(z))",
]  # fmt: skip
# By an op that does not say that it draws.
DRAWS = ["{t} = torch.ops.random_programs.noisy(stored({u}).detach().float()) * {v}", "{t} = torch.ops.random_programs.noisy(z) + {u}"]
REPLAYABLE = [
    "{t} = fused(stored({u}).detach().float(), stored({v}).detach().float()) * {w}", "{t} = fused(z.detach(), stored({u}).detach().float(), scale=0.5) + {v}",
    "({t}, {o}), found = split([stored({u}).detach(), stored({v}).detach()])\n{t} = {t} * {u} + found['noise']",
    "{t} = ReplayableProduct.apply({u}, {v})", "{t} = ReplayableProduct.apply({u}.cos(), {v}.sin()).exp()",
]  # fmt: skip
MODULES = ["{t} = NET({u}, {v})", "{t} = NET.first({u}, {v})", "{t} = NET.second.inner({u}, {v}).exp() / 9", "{t} = NET.first.norm({u}) * {v}"]
COMPILED = ["{t} = activation(plain({u}), plain({v}))", "{t} = noise(plain({u}), plain({v})) * {w}", "{t}, {o} = pair(plain({u}), plain({v}))"]
KINDS = ["One", "Scaled", "Closed", "Loud"]
REGION = [
    (PURE, 8), (WRITES, 4), (VIEWS, 3), (MODAL, 4), (FOREIGN, 4), (TYPES, 3), (DROPPED, 3),
    (READS_Z, 2), (MOVES, 2), (DATA, 1), (KERNELS, 2), (REPLAYABLE, 3), (MODULES, 3),
]  # fmt: skip
AFTER = [
    (DATA, 4), (TYPES[:2], 2),
    (["array[:] = 7", "octets[:8] = b'12345678'", "a = b = c = d = x", "{t} = {u}.detach() * 2"], 4),
]  # fmt: skip


def draw_step(dice: random.Random, kinds: List[Tuple[List[str], int]]) -> str:
    texts = dice.choices([texts for texts, _ in kinds], [weight for _, weight in kinds])[0]
    t, o = dice.sample(SLOTS, 2)
    u, v, w, s = dice.choices(SLOTS * 3 + INPUTS, k=4)
    i = dice.choice(INPUTS)
    m, n = dice.choices(MODES, k=2)
    k = dice.choice(KINDS)
    return dice.choice(texts).format(t=t, o=o, u=u, v=v, w=w, s=s, i=i, m=m, n=n, k=k)


def draw(seed: int) -> Program:
    """Some steps of it may be refused by PyTorch."""
    dice = random.Random(seed)
    region = REGION + [(HIGHER, 6)] * (dice.random() < 0.08)  # each of them takes as long as a hundred other steps
    inputs, after = 0, AFTER
    if seed % 16 == 6:  # as for the next ones
        region = region + [(COMPILED, 6)]
    if seed % 4 == 0:  # not drawn, so that the others stay what they were
        region = region + [(INNER, 5)]
    if seed % 4 == 1:
        after = AFTER + [(LATE_WRITES, 6)]
        # A write after the region to a tensor that lies over another one: docs/wrong_results.md.
        region = [kinds for kinds in region if kinds[0] is not MOVES] + [(DRAWS, 3)]
    if dice.random() < 0.4:
        region, inputs = region + [(SUBCLASSES, 6)], dice.randint(0, 2)
    parts = [
        (0, [(SUBCLASS_INPUTS, 1)], inputs), (1, region, dice.randint(4, 18)),
        (2, after, dice.randint(0, 3)), (3, after, dice.randint(0, 2)),
    ]  # fmt: skip
    steps = [(part, draw_step(dice, kinds)) for part, kinds, count in parts for _ in range(count)]
    around = dice.choice(MODES) if dice.random() < 0.25 else None
    return Program(steps, around, dice.randint(1, 2))
