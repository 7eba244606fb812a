"""Training that moves, packs or frees tensors by itself: blocks that take turns in one buffer, hooks that bring weights, weights in
4 bits, a pipeline that frees what it has sent, an optimizer that steps inside backward. Bits are plain PyTorch's."""

import contextlib
import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from support import assert_same
from test_distributed import Adapted, InBackward, bytes_left_by
from torch import nn

import ac2

WIDTH, ROWS, BLOCKS, STEPS = 32, 24, 4, 3
SCOPES = {
    "recompute_all": lambda: ac2.PolicyScope("recompute_all"),
    "save_compute_intensive": lambda: ac2.PolicyScope("save_compute_intensive"),
    "must_save_all": lambda: ac2.PolicyScope("must_save_all"),
    "soft budget": lambda: ac2.PolicyScope(memory_budget=ac2.MemoryBudget.soft(4 << 10)),
    "whatever fits": lambda: ac2.PolicyScope(memory_budget=ac2.whatever_fits()),
}
all_scopes = pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = Adapted(nn.Linear(WIDTH, WIDTH)), Adapted(nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return x + self.second(F.gelu(F.dropout(self.first(self.norm(x)), 0.1, self.training)))

    def frozen(self):
        return [self.first.layer.weight, self.second.layer.weight]


def blocks(make=Block):
    torch.manual_seed(1)
    return nn.ModuleList(make() for _ in range(BLOCKS))


def rows(step):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step), requires_grad=True)


def train(model, forward):
    """Steps of AdamW with the parameters that are trained. What they leave, and what the last forward has left in bytes."""
    torch.manual_seed(7)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), 1e-2)
    results = {}
    for step in range(STEPS):
        x = rows(step)
        left, y = bytes_left_by(lambda x=x: forward(x))
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        results[f"loss {step}"], results[f"gradient of x {step}"] = loss.detach(), x.grad
        del y, loss
    return {**results, **{name: parameter.detach().clone() for name, parameter in trained.items()}}, left


# --- Blocks that take turns in one buffer ----------------------------------------------------------------------------


class Swapping:
    """As trainers of diffusion models do it: there is one buffer for the frozen weights of a block, into which hooks copy those of
    the block that computes next, in forward and in backward. ``rests`` is what a parameter has when it is not its block's turn."""

    def __init__(self, model, rests):
        self.slots = [torch.empty(WIDTH, WIDTH) for _ in range(2)]
        self.host = [[weight.detach().clone() for weight in block.frozen()] for block in model]
        self.model, self.rests = model, rests
        for position in range(BLOCKS):
            self.put_away(position)

    def put_away(self, position):
        for weight, host in zip(self.model[position].frozen(), self.host[position]):
            weight.data = host if self.rests == "in the host's memory" else torch.empty(0)

    def bring(self, position):
        for weight, host, slot in zip(self.model[position].frozen(), self.host[position], self.slots):
            slot.copy_(host)
            weight.data = slot

    def forward(self, x, scope_of_block):
        for position, block in enumerate(self.model):
            x = InBackward.apply(x, lambda position=position: self.put_away(position))
            self.bring(position)
            with scope_of_block():
                x = block(x)
            self.put_away(position)
            x = InBackward.apply(x, lambda position=position: self.bring(position))
        return x


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("rests", ["nowhere", "in the host's memory"])
@all_scopes
def test_blocks_that_take_turns_in_one_buffer(scope, rests, managed):
    def run(scope_of_block, managed=False):
        model = blocks()
        swapping = Swapping(model, rests)
        if managed:
            ac2.managed_elsewhere([weight for block in model for weight in block.frozen()])
        return train(model, lambda x: swapping.forward(x, scope_of_block))

    expected, plain = run(contextlib.nullcontext)
    results, left = run(scope, managed)
    assert_same(results, expected)
    if managed:
        assert left <= 1.01 * plain


class InATuple(nn.Module):
    """A block that is given its tensor by a name, in a dictionary, and returns it in a tuple of a dictionary."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, *, states):
        return {"states": (self.block(states["hidden"]),)}


class Nesting(nn.Module):
    """A block whose unit is inside of it."""

    def __init__(self):
        super().__init__()
        self.unit = InATuple()

    def forward(self, x):
        return self.unit(states={"hidden": x})["states"][0]

    def frozen(self):
        return self.unit.block.frozen()


@pytest.mark.parametrize("nested", [False, True])
@all_scopes
def test_one_region_around_all_blocks_needs_no_other_blocks_weights_if_the_blocks_are_units(scope, nested):
    def run(scope_of_model, managed=False):
        model = blocks(Nesting if nested else Block)
        swapping = Swapping(model, "nowhere")
        if managed:
            units = [block.unit for block in model] if nested else model
            ac2.managed_elsewhere([weight for block in model for weight in block.frozen()], units=units)

        def forward(x):
            with scope_of_model():
                return swapping.forward(x, contextlib.nullcontext)

        return train(model, forward)

    (plain, plain_bytes), (ours, held_bytes) = run(contextlib.nullcontext), run(scope, managed=True)
    assert_same(ours, plain)
    assert held_bytes <= plain_bytes


@all_scopes
def test_units_may_be_calls_of_a_function(scope):
    def run(scope_of_model, is_unit):
        model = blocks()
        swapping = Swapping(model, "nowhere")
        if is_unit:
            ac2.managed_elsewhere([weight for block in model for weight in block.frozen()])
            for block in model:
                block.forward = ac2.unit(block.forward)

        def forward(x):
            with scope_of_model():
                return swapping.forward(x, contextlib.nullcontext)

        return train(model, forward)

    (plain, plain_bytes), (ours, held_bytes) = run(contextlib.nullcontext, False), run(scope, True)
    assert_same(ours, plain)
    assert held_bytes <= plain_bytes


def test_a_unit_is_its_function():
    @ac2.unit
    def double(x, *, by=2):
        """Twice."""
        return x * by

    assert (double.__name__, double.__doc__, double(3, by=4)) == ("double", "Twice.", 12)
    for wrong in (2, torch.nn.Linear, torch.nn.Linear(2, 2)):
        with pytest.raises(TypeError, match="expected a function"):
            ac2.unit(wrong)


def test_without_units_a_replay_that_needs_another_blocks_weights_is_an_error_that_names_the_option():
    model = blocks()
    swapping = Swapping(model, "nowhere")
    ac2.managed_elsewhere([weight for block in model for weight in block.frozen()])
    with ac2.PolicyScope("recompute_all"):
        y = swapping.forward(rows(0), contextlib.nullcontext)
    with pytest.raises(RuntimeError, match="units=modules"):
        y.sum().backward()
    del y
    rows(1).sum().backward()  # autograd keeps the tasks that it did not come to until the next backward


def test_the_error_about_a_parameter_that_is_not_there_names_it_and_its_unit():
    model = blocks()
    frozen = [weight for block in model for weight in block.frozen()]
    Swapping(model, "nowhere").bring(0)
    ac2.managed_elsewhere(frozen, units=model)
    x = rows(0)
    with ac2.PolicyScope("recompute_all"):
        y = model[0](x).sin()
    model[0].first.layer.weight.data = torch.empty(0)
    with pytest.raises(RuntimeError, match=r"the parameter first\.layer\.weight of unit 0, a Block, of shape \(32, 32\)"):
        y.sum().backward()
    del y
    rows(1).sum().backward()


def test_units_that_are_no_modules_are_an_error():
    model = blocks()
    with pytest.raises(TypeError, match="units is one Block; expected several modules"):
        ac2.managed_elsewhere(model.parameters(), units=model[0])
    with pytest.raises(TypeError, match="units has 'first'; expected modules"):
        ac2.managed_elsewhere(model.parameters(), units=["first"])


def test_a_model_with_units_can_be_copied_and_pickled():
    model = blocks()
    ac2.managed_elsewhere(model.parameters(), units=model)
    ac2.managed_elsewhere(model.parameters(), units=model)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [len(block._forward_hooks) for block in again] == [1] * BLOCKS


# --- Hooks that bring weights ----------------------------------------------------------------------------------------


class Bringing:
    """As accelerate's AlignDevicesHook does it: a module's weights lie in a map, are new parameters of the module while it computes,
    and are on the meta device otherwise."""

    def __init__(self, model):
        self.map = {}
        for name, module in model.named_modules():
            if name.endswith(".layer"):
                for own, parameter in module.named_parameters(recurse=False):
                    self.map[module, own] = parameter.detach().clone()
                module.register_forward_pre_hook(self.bring)
                module.register_forward_hook(self.put_away)
                self.put_away(module)

    def bring(self, module, inputs):
        for own in list(module._parameters):
            module._parameters[own] = nn.Parameter(self.map[module, own].clone(), requires_grad=False)

    def put_away(self, module, *unused):
        for own, parameter in list(module._parameters.items()):
            module._parameters[own] = nn.Parameter(parameter.to("meta"), requires_grad=False)


@pytest.mark.parametrize("where", ["blocks", "model"])
@all_scopes
def test_hooks_that_bring_new_parameters(scope, where):
    def run(scope_of_block, scope_of_model):
        model = blocks()
        Bringing(model)

        def forward(x):
            with scope_of_model():
                for block in model:
                    with scope_of_block():
                        x = block(x)
            return x

        return train(model, forward)

    none = contextlib.nullcontext
    expected, plain = run(none, none)
    results, left = run(scope, none) if where == "blocks" else run(none, scope)
    assert_same(results, expected)
    assert left <= 1.01 * plain
    if scope is SCOPES["recompute_all"]:  # the copies of the weights, which are ops of the region, are made again
        assert left <= 1.01 * BLOCKS * ROWS * WIDTH * 4


# --- Weights in 4 bits -----------------------------------------------------------------------------------------------


@torch.library.custom_op("weights_elsewhere::unpack_4_bits", mutates_args=())
def unpack_4_bits(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    numbers = torch.stack([packed & 15, packed >> 4], -1).flatten(1).float() - 8
    return numbers * scale


def pack_4_bits(weight):
    scale = weight.abs().amax(1, keepdim=True) / 7
    numbers = ((weight / scale).round() + 8).to(torch.uint8)
    return numbers[:, ::2] | numbers[:, 1::2] << 4, scale


class ProductOf4Bits(torch.autograd.Function):
    """As bitsandbytes' MatMul4Bit, which unpacks again in backward and does not save the weight."""

    @staticmethod
    def forward(ctx, x, packed, scale):
        ctx.weight = packed, scale
        return x @ unpack_4_bits(packed, scale).t()

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ unpack_4_bits(*ctx.weight), None, None


class Of4Bits(nn.Module):
    """A frozen layer in 4 bits with an adapter."""

    def __init__(self, as_function):
        super().__init__()
        self.as_function = as_function
        packed, scale = pack_4_bits(torch.randn(WIDTH, WIDTH) / 6)
        self.packed, self.scale = nn.Parameter(packed, requires_grad=False), nn.Buffer(scale)
        self.down, self.up = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)

    def forward(self, x):
        if self.as_function:
            y = ProductOf4Bits.apply(x, self.packed, self.scale)
        else:
            y = x @ unpack_4_bits(self.packed, self.scale).t()
        return x + torch.tanh(y + self.up(self.down(x)))


@pytest.mark.parametrize("as_function", [False, True], ids=["as an op", "as a function"])
@all_scopes
def test_weights_in_4_bits_are_unpacked_again_and_not_held(scope, as_function):
    def run(scope_of_block):
        model = blocks(lambda: Of4Bits(as_function))

        def forward(x):
            for block in model:
                with scope_of_block():
                    x = block(x)
            return x

        return train(model, forward)

    expected, plain = run(contextlib.nullcontext)
    results, left = run(scope)
    assert_same(results, expected)
    # The function saves nothing, and the policy saves the product in it.
    saved = BLOCKS * ROWS * WIDTH * 4 if as_function and scope is SCOPES["save_compute_intensive"] else 0
    assert left <= 1.01 * plain + saved
    if scope is SCOPES["recompute_all"]:
        assert left == BLOCKS * ROWS * WIDTH * 4  # what each block returns


# --- A pipeline that frees its output --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["blocks", "model"])
@all_scopes
def test_an_output_that_is_freed_once_it_was_sent(scope, where):
    """As Megatron's deallocate_output_tensor() and custom_backward() do it."""

    def run(scope_of_block, scope_of_model, frees):
        torch.manual_seed(7)
        stages, results = blocks(), {}
        sent, kept = rows(0).detach(), []

        def forward(x, stage):
            x.requires_grad_()
            with scope_of_model(), scope_of_block():
                y = stage(x)
            sent = y.detach().clone()
            if frees:
                y.data = torch.empty(1)
            return sent, x, y

        def all_stages():
            x = sent
            for stage in stages:
                x, taken, returned = forward(x, stage)
                kept.append((taken, returned))
            return x

        left, last = bytes_left_by(all_stages)
        results["output"], gradient = last, last.cos()
        for taken, returned in reversed(kept):
            torch.autograd.Variable._execution_engine.run_backward(
                tensors=(returned,),
                grad_tensors=(gradient,),
                keep_graph=False,
                create_graph=False,
                inputs=(),
                allow_unreachable=True,
                accumulate_grad=True,
            )
            gradient = taken.grad
        results["gradient"] = gradient
        for name, parameter in stages.named_parameters():
            if parameter.requires_grad:
                results[name] = parameter.grad
        return results, left

    none = contextlib.nullcontext
    scopes = (scope, none) if where == "blocks" else (none, scope)
    expected, plain = run(none, none, True)
    results, left = run(*scopes, True)
    assert_same(results, expected)
    assert left <= 1.01 * plain
    assert_same(results, run(*scopes, False)[0])


# --- An optimizer that steps inside backward -------------------------------------------------------------------------


def gate(weight):
    """How much of its gradient a weight takes, from its numbers, through which no gradient goes."""
    return torch.sigmoid(weight.detach().abs().mean())


@pytest.mark.parametrize("written", ["data", "no_grad"])
@pytest.mark.parametrize("where", ["blocks", "model"])
@all_scopes
def test_an_optimizer_that_steps_inside_backward(scope, where, written):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(x))) * gate(self.up.weight)

    def run(scope_of_block, scope_of_model):
        torch.manual_seed(1)
        model, results = nn.ModuleList(Gated() for _ in range(BLOCKS)), {}

        def step(weight):
            if written == "data":
                weight.data.add_(weight.grad * gate(weight), alpha=-0.1)
            else:
                with torch.no_grad():
                    weight.sub_(weight.grad * gate(weight), alpha=0.1)
            weight.grad = None

        handles = [parameter.register_post_accumulate_grad_hook(step) for parameter in model.parameters()]
        for number in range(STEPS):
            x = rows(number)

            def forward(x=x):
                y = x
                with scope_of_model():
                    for block in model:
                        with scope_of_block():
                            y = block(y)
                return y

            left, y = bytes_left_by(forward)
            y.square().mean().backward()
            results[f"gradient {number}"] = x.grad
            del y
        for handle in handles:
            handle.remove()
        return {**results, **{name: parameter.detach().clone() for name, parameter in model.named_parameters()}}, left

    none = contextlib.nullcontext
    expected, plain = run(none, none)
    results, left = run(scope, none) if where == "blocks" else run(none, scope)
    assert_same(results, expected)
    assert left <= 1.01 * plain
