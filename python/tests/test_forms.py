"""Forms: those of ac2.forms, and forms of a program's own, wherever one is taken."""

import copy
import gc
import pickle
import threading
import weakref
import zlib

import pytest
import torch

import ac2
from support import same_bits

SIDE = 512


class Sparse(ac2.Form):
    """Exact: where a tensor has bits that are not zero, and these numbers alone."""

    name = "sparse"
    is_exact = True

    def __init__(self):
        self.packed = self.unpacked = 0

    def takes(self, bytes, dtype, device):
        return dtype is torch.float32 and device.type == "cpu"

    def pack(self, tensor):
        there = tensor.view(torch.int32) != 0
        numbers = tensor[there]
        if there.nbytes + numbers.nbytes > 0.75 * tensor.nbytes:
            return None
        self.packed += 1
        return there, numbers

    def unpack(self, packed):
        self.unpacked += 1
        there, numbers = packed
        return torch.zeros(there.shape).masked_scatter_(there, numbers)


class Halves(ac2.Form):
    name = "halves"
    is_exact = False

    def pack(self, tensor):
        return tensor.half() if tensor.dtype is torch.float32 else None

    def unpack(self, packed):
        return packed.float()


def layer(x, w):
    """Most numbers of its result are zero."""
    return torch.mm(x, w).sub(1).relu()


def sparse_step(x, w):
    y = x
    for _ in range(8):
        y = layer(y, w)
    return y.sum()


def inputs():
    torch.manual_seed(0)
    return torch.randn(SIDE, SIDE, requires_grad=True), (torch.randn(SIDE, SIDE) * 2.5 / SIDE**0.5).requires_grad_()


def gradients(run, *options, **keywords):
    x, w = inputs()
    with ac2.PolicyScope(*options, **keywords) as scope:
        loss = run(x, w)
    found = torch.autograd.grad(loss, (x, w))
    assert all(same_bits(a, b) for a, b in zip(found, torch.autograd.grad(run(x, w), (x, w))))
    return scope


def soft(values):
    return ac2.MemoryBudget.soft(values * SIDE * SIDE * 4, modelled_costs=True)


def test_a_policy_decides_for_a_form_of_the_programs_own():
    form = Sparse()
    for policy in (
        form,
        lambda ctx, op, *args, **kwargs: form,
        ac2.by_operator(lambda ctx, op: form if op is torch.ops.aten.relu.default else True),
        ac2.policies.per_op_override("must_save_all", {"aten::relu": form}),
    ):
        form.packed = form.unpacked = 0
        scope = gradients(sparse_step, policy)
        assert form.packed > 0 and form.unpacked >= form.packed
        assert scope.trace.stats().recomputed_ops == 0
    assert ac2.live_node_count() == 0


def test_a_budget_uses_a_form_of_the_programs_own():
    form = Sparse()
    scope = gradients(sparse_step, memory_budget=soft(5), forms=[form])
    stats = scope.trace.stats()
    assert stats.packed_values == form.packed > 0
    assert f"{form.packed} values packed" in ac2.report(scope)
    form.packed = 0
    module = torch.nn.Sequential(*[torch.nn.Linear(SIDE, SIDE), torch.nn.ReLU()] * 6)
    with torch.no_grad():
        module[0].weight.mul_(4)
        module[0].bias.fill_(-1)
    ac2.checkpoint_wrapper(module, memory_budget=soft(4), forms=[form])
    module(torch.randn(SIDE, SIDE)).sum().backward()
    assert form.packed > 0 and ac2.last_trace(module).stats().packed_values == form.packed
    assert ac2.live_node_count() == 0


def test_a_plan_and_its_file_use_a_form_of_the_programs_own(tmp_path):
    form = Sparse()
    x, w = inputs()

    def step():
        sparse_step(x, w).backward()

    made = ac2.StepPlanner(step, modelled_costs=True, forms=[form]).smallest()
    (use,) = made.summary.uses
    assert use.form == "sparse" and use.values > 0 and use.bytes == use.values * SIDE * SIDE * 4 and use.cost > 0
    made.save(tmp_path / "plan.json")
    assert '"form":"sparse"' in (tmp_path / "plan.json").read_text()
    with pytest.raises(RuntimeError, match='packs results in the form "sparse", which this process does not have'):
        ac2.load_plan(tmp_path / "plan.json")
    loaded = ac2.load_plan(tmp_path / "plan.json", forms=[ac2.forms.one_bit(), form])
    for planned in (made, loaded):
        form.packed = 0
        scope = gradients(sparse_step, planned)
        assert form.packed == use.values
        assert scope.trace.stats().recomputed_ops == made.summary.replayed_ops
    policy = ac2.plan(step, made.summary.peak_bytes + SIDE * SIDE, modelled_costs=True, forms=[form])
    form.packed = 0
    gradients(sparse_step, policy)
    assert form.packed > 0


def test_a_form_may_read_a_tensor_through_a_pointer():
    class OfBytes(ac2.Form):
        name, is_exact, packed = "of bytes", True, 0

        def pack(self, tensor):
            numbers = zlib.compress(tensor.numpy().tobytes(), 1)
            self.packed += 1
            return torch.frombuffer(bytearray(numbers), dtype=torch.uint8), tensor.shape

        def unpack(self, packed):
            numbers, shape = packed
            return torch.frombuffer(bytearray(zlib.decompress(numbers.numpy())), dtype=torch.float32).view(shape)

    form = OfBytes()
    assert gradients(sparse_step, memory_budget=soft(5), forms=[form]).trace.stats().packed_values == form.packed > 0


def test_a_tag_takes_a_form():
    form = Sparse()
    x, w = inputs()
    with ac2.PolicyScope("recompute_all"):
        hidden = layer(x, w)
        ac2.tag_with_policy(hidden, form)
        loss = (hidden @ w).sum()
    del hidden
    loss.backward()
    assert (form.packed, form.unpacked) == (1, 1)


def test_forms_that_are_given_together_are_each_used():
    x, w = inputs()
    form, halves = Sparse(), Halves()
    forms = (ac2.forms.host_memory(), ac2.forms.one_bit(), form, halves)

    def step(x, w):
        return layer(layer(layer(torch.mm(torch.mm(x, w).tanh(), w).tanh(), w), w), w).sum()

    with ac2.PolicyScope(memory_budget=soft(3), forms=forms) as scope:
        loss = step(x, w)
    found = torch.autograd.grad(loss, x)[0]
    plain = torch.autograd.grad(step(x, w), x)[0]
    assert scope.trace.stats().packed_values > 0
    assert (found - plain).norm() < 0.05 * plain.norm()


def test_a_form_of_an_inner_scope_holds_for_its_ops():
    outer, inner = Sparse(), Sparse()
    inner.name = "sparse, inside"
    x, w = inputs()
    with ac2.PolicyScope(memory_budget=soft(4), forms=[outer]):
        with ac2.PolicyScope(ac2.CheckpointPolicy.PREFER_SAVE, forms=[inner]):
            loss = sparse_step(x, w)
    loss.backward()
    assert inner.packed > 0 and outer.packed == 0


@pytest.mark.parametrize("where", ["takes", "pack", "unpack", "estimate"])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError])
def test_what_a_form_raises_reaches_the_program_as_itself(where, error):
    raised = error("of the form")

    def fail(*args):
        raise raised

    form = type("Failing", (Sparse,), {where: fail})()
    x, w = inputs()
    with pytest.raises(error) as caught:
        with ac2.PolicyScope(memory_budget=soft(4), forms=[form]):
            loss = sparse_step(x, w)
        loss.backward()
    assert caught.value is raised
    assert not ac2.is_checkpoint_enabled()
    if where != "estimate":  # which no policy asks for
        with pytest.raises(error) as caught:
            with ac2.PolicyScope(form):
                loss = sparse_step(x, w)
            loss.backward()
        assert caught.value is raised
    del caught, raised
    loss = None
    gc.collect()
    assert ac2.live_node_count() == 0


def test_a_form_that_returns_none_takes_nothing():
    class TakesNothing(Sparse):
        name = "takes nothing"

        def pack(self, tensor):
            self.packed += 1

    form = TakesNothing()
    assert gradients(sparse_step, form).trace.stats().recomputed_ops == 0 and form.packed > 0
    stats = gradients(sparse_step, memory_budget=soft(4), forms=[form]).trace.stats()
    assert stats.packed_values == 0 and stats.evicted_values > 0
    x, w = inputs()
    made = ac2.StepPlanner(lambda: sparse_step(x, w).backward(), modelled_costs=True, forms=[form]).smallest()
    assert made.summary.uses == [] and made.summary.replayed_ops > 0
    assert form.unpacked == 0


def test_an_estimate_is_asked_for_where_costs_are_modelled():
    class Estimating(Sparse):
        name = "estimating"
        asked = []

        def estimate(self, bytes, dtype, device):
            self.asked.append((bytes, dtype, device))
            return bytes // 8, 1.5, 2

    form = Estimating()
    x, w = inputs()
    made = ac2.StepPlanner(lambda: sparse_step(x, w).backward(), modelled_costs=True, forms=[form]).smallest()
    (use,) = made.summary.uses
    assert form.packed == 0 and use.cost == use.values * 3.5
    assert (SIDE * SIDE * 4, torch.float32, torch.device("cpu")) in form.asked
    Estimating.estimate = lambda self, bytes, dtype, device: 8
    with pytest.raises(TypeError, match=r'^The estimate of the form "estimating" is 8; expected a tuple \(bytes, pack_cost'):
        ac2.StepPlanner(lambda: sparse_step(x, w).backward(), modelled_costs=True, forms=[Estimating()])


@pytest.mark.parametrize("members, text", [
    ({"name": 3}, r"^The name of the form .* is 3; expected a text"),
    ({"name": ""}, r"^The name of the form .* is ''; expected a text"),
    ({"name": lambda self: "halves"}, r"^The name of the form .* is <bound method"),
    ({"is_exact": lambda self: True}, r"^is_exact of the form .* is <bound method.*; expected True"),
    ({"unpack": lambda self, packed: packed.tolist()}, r'^unpack of the form "halves" returned <class \'list\'>; expected the tensor'),
])
def test_a_form_that_is_none_is_an_error_that_says_why(members, text):
    form = type("Wrong", (Halves,), members)()
    for options in ({"policy": form}, {"memory_budget": soft(4), "forms": [form]}):
        x, w = inputs()
        with pytest.raises(TypeError, match=text):
            with ac2.PolicyScope(**options):
                loss = sparse_step(x, w)
            loss.backward()


def test_a_form_without_its_parts_is_an_error():
    class WithoutAName(ac2.Form):
        def pack(self, tensor):
            return tensor

        def unpack(self, packed):
            return packed

    class WithoutUnpack(ac2.Form):
        name, is_exact, pack = "x", True, WithoutAName.pack

    with pytest.raises(TypeError, match="^The name of the form .* is None"), ac2.PolicyScope(WithoutAName()):
        pass
    with pytest.raises(TypeError, match="abstract.*unpack"):
        WithoutUnpack()
    with pytest.raises(RuntimeError, match="returned a tensor of sizes"):
        form = type("Wrong", (Halves,), {"name": "wrong", "unpack": lambda self, packed: packed[0]})()
        x, w = inputs()
        with ac2.PolicyScope(form):
            loss = sparse_step(x, w)
        loss.backward()


def test_forms_say_what_they_are_and_can_be_stored(tmp_path):
    calls = [
        "host_memory()",
        "host_memory(min_bytes=0, inputs=True)",
        "quantized(8)",
        "quantized(4, seed=3)",
        "narrow(torch.bfloat16)",
        "one_bit()",
        f"file({str(tmp_path)!r})",
    ]
    made = [eval("ac2.forms." + call, {"ac2": ac2, "torch": torch}) for call in calls]
    assert [repr(form) for form in made] == ["ac2.forms." + call for call in calls]
    assert [form.is_exact for form in made] == [True, True, False, False, False, True, True]
    assert [form.name for form in made[2:]] == [
        "quantized 8 bits, seed 0", "quantized 4 bits, seed 3", "narrow BFloat16", "one bit", f"file {tmp_path}"]
    assert len(set(made)) == len(made) and made[0] != made[1]
    for form in made:
        stored = pickle.loads(pickle.dumps(form))
        assert stored == form and hash(stored) == hash(form) and repr(stored) == repr(form)
        assert copy.copy(form) is copy.deepcopy(form) is form and isinstance(form, ac2.Form)
    functions = [ac2.forms.functions(torch.clone, torch.clone, exact=exact) for exact in (False, True)]
    assert functions[0] != functions[1] and functions[0].name != functions[1].name
    assert [form.is_exact for form in functions] == [False, True]
    assert repr(functions[1]).startswith("ac2.forms.functions(<built-in method clone") and repr(functions[1]).endswith(", exact=True)")
    module = ac2.checkpoint_wrapper(torch.nn.Linear(4, 4), memory_budget=4096, forms=[made[3], Halves()])
    pickle.loads(pickle.dumps(module))(torch.ones(2, 4)).sum().backward()
    copy.deepcopy(module)(torch.ones(2, 4)).sum().backward()


def test_a_ready_made_form_may_be_called(tmp_path):
    numbers = torch.randn(64, 1024)
    mask = numbers > 0
    for form, tensor in ((ac2.forms.quantized(8), numbers), (ac2.forms.narrow(torch.bfloat16), numbers),
                         (ac2.forms.one_bit(), mask), (ac2.forms.file(tmp_path), numbers)):
        assert form.takes(tensor.nbytes, tensor.dtype, tensor.device)
        again = form.unpack(form.pack(tensor))
        assert torch.equal(again, tensor) if form.is_exact else (again - tensor).abs().max() < 0.05
    assert not ac2.forms.quantized(8).takes(8, torch.int64, torch.device("cpu"))
    assert ac2.forms.one_bit().pack(numbers) is None
    bytes, pack_cost, unpack_cost = ac2.forms.quantized(8).estimate(8000, torch.float32, torch.device("cpu"))
    assert 0 < bytes < 8000 and pack_cost > 0 and unpack_cost > 0


def test_exact_ready_made_forms_keep_all_bits(tmp_path):
    def step(x, w):
        y = x
        for _ in range(6):
            y = torch.where(y > 0, y @ w, y.sin())
        return y.sum()

    forms = [ac2.forms.host_memory(), ac2.forms.one_bit(), ac2.forms.file(tmp_path)]
    assert gradients(step, memory_budget=soft(3), forms=forms).trace.stats().packed_values > 0
    assert gradients(step, ac2.forms.file(tmp_path)).trace.stats().recomputed_ops == 0


def test_host_memory_as_a_decision_is_an_offload():
    assert gradients(sparse_step, ac2.forms.host_memory()).trace.stats().recomputed_ops == 0
    with ac2.PolicyScope(ac2.forms.host_memory()):
        assert ac2.current_decision("aten::mm") == ac2.CheckpointPolicy.MUST_CPU_OFFLOAD
    for form, text in ((Halves(), "halves"), (ac2.forms.one_bit(), "one bit"),
                       (ac2.forms.functions(torch.clone, torch.clone), "SaveWithHooks")):
        with ac2.PolicyScope(form):
            assert ac2.current_decision("aten::mm") == text


def test_two_scopes_may_decide_for_one_form():
    form = Sparse()
    x, w = inputs()
    with ac2.PolicyScope(form), ac2.PolicyScope(lambda ctx, op, *args, **kwargs: form):
        loss = sparse_step(x, w)
    loss.backward()
    with pytest.raises(RuntimeError, match="Conflicting policies"), ac2.PolicyScope(form), ac2.PolicyScope(Halves()):
        sparse_step(x, w)


def test_backward_may_unpack_on_another_thread():
    form = Sparse()
    x, w = inputs()
    with ac2.PolicyScope(form):
        loss = sparse_step(x, w)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert form.unpacked >= form.packed > 0 and x.grad is not None


def test_a_form_is_let_go_of_with_what_uses_it():
    form = Sparse()
    gone = weakref.ref(form)
    x, w = inputs()
    with ac2.PolicyScope(form):
        loss = sparse_step(x, w)
    del form
    gc.collect()
    assert gone() is not None  # backward unpacks with it
    loss.backward()
    del loss
    gc.collect()
    assert gone() is None


def test_a_scope_that_cannot_open_leaves_nothing():
    many = [ac2.forms.quantized(8, seed=seed) for seed in range(33)]
    with pytest.raises(RuntimeError, match="beside 32 others"):
        with ac2.PolicyScope(memory_budget=10_000, forms=many):
            pass
    assert not ac2.is_checkpoint_enabled()
    x = torch.randn(64, 64, requires_grad=True)
    with ac2.PolicyScope("must_save_all"):
        loss = x.sin().tanh().sum()
    loss.backward()


class Held:
    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize(
    "pack, unpack",
    [
        (lambda t: t, lambda p: p),
        (lambda t: t.cpu(), lambda p: p),
        (lambda t: t.view(-1), lambda p: p.view(64, 64)),
        (lambda t: (t, 1.0), lambda p: p[0]),
        (lambda t: [t], lambda p: p[0]),
        (lambda t: {"t": t.detach()}, lambda p: p["t"]),
        (Held, lambda p: p.tensor),
        (lambda t: torch.from_numpy(t.numpy()), lambda p: p),
    ],
)
@pytest.mark.parametrize("kind", ["policy", "exact", "budget", "tag"])
def test_what_pack_returns_of_the_tensor_itself_is_not_changed_by_writes_to_it(pack, unpack, kind):
    def gradient(scope, tag=lambda y: None):
        torch.manual_seed(0)
        x = torch.randn(64, 64, requires_grad=True)
        with scope:
            y = x * 2
            tag(y)
            z = (y + 1).sigmoid()
            loss = (z * z).sum()
            y.mul_(-3)  # plain autograd needs no y
        y.zero_()
        del z
        loss.backward()
        return x.grad

    hooks = ac2.SaveWithHooks(pack, unpack)
    plain = gradient(ac2.DisableCheckpointing())
    if kind == "policy":
        got = gradient(ac2.PolicyScope(lambda ctx, op, *a, **k: hooks if op is torch.ops.aten.mul.Tensor else ac2.CheckpointPolicy.PREFER_RECOMPUTE))
    elif kind == "exact":
        got = gradient(ac2.PolicyScope(ac2.forms.functions(pack, unpack, exact=True)))
    elif kind == "budget":
        budget = ac2.MemoryBudget.soft(3 * 64 * 64 * 4)
        got = gradient(ac2.PolicyScope(memory_budget=budget, forms=[ac2.forms.functions(pack, unpack, exact=True)]))
    else:
        got = gradient(ac2.PolicyScope("recompute_all"), lambda y: ac2.tag_with_policy(y, hooks))
    assert same_bits(got, plain)


def test_a_pack_function_that_writes_to_its_tensor_is_an_error():
    x = torch.randn(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="has written to the tensor of shape .4. that it was given.*clone"):
        with ac2.PolicyScope(ac2.forms.functions(lambda t: t.mul_(2).clone(), lambda p: p)):
            x.sin().cos()
