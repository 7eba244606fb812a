"""Plans, blocks inside regions, and what is asked of the policies in force: what C++ has, under the same names."""

import os
import pickle
import re

import pytest
import torch

import ac2
from ac2 import CheckpointPolicy
from support import same_bits


def _step(x, w):
    h = x
    for _ in range(8):
        h = torch.tanh(h @ w)
    return h.sum()


def _inputs():
    torch.manual_seed(0)
    return torch.randn(16, 16, requires_grad=True), torch.randn(16, 16).div(4).requires_grad_()


def _gradient_is_plain(loss, x):
    plain_x, w = _inputs()
    (plain,) = torch.autograd.grad(_step(plain_x, w), [plain_x])
    (gradient,) = torch.autograd.grad(loss, [x])
    return same_bits(gradient, plain)


def test_a_plan_holds_what_it_says_and_gives_plain_gradients():
    x, w = _inputs()
    planner = ac2.StepPlanner(lambda: torch.autograd.grad(_step(x, w), [x]), modelled_costs=True)
    smallest = planner.smallest().summary
    for budget in (smallest.peak_bytes, "16KiB"):
        made = planner.plan(budget)
        with ac2.PolicyScope(made) as scope:
            loss = _step(x, w)
        inputs = x.nbytes + w.nbytes  # which the program has, so that no plan counts them
        assert scope.trace.stats().saved_bytes == made.summary.forward_bytes + inputs
        assert _gradient_is_plain(loss, x)
        assert scope.trace.stats().recomputed_ops <= made.summary.replayed_ops
    assert ac2.live_node_count() == 0


def test_a_summary_says_what_the_whole_step_peaks_at_where_that_is_measured():
    x, w = _inputs()

    def step():
        torch.autograd.grad(_step(x, w), [x])

    planner = ac2.StepPlanner(step, modelled_costs=True, step_peak_on="cpu")
    everything = planner.summarize(lambda op: True)
    smallest = planner.smallest().summary
    assert smallest.step_start_bytes == everything.step_start_bytes >= x.nbytes + w.nbytes
    assert smallest.step_start_bytes + smallest.peak_bytes < smallest.step_peak_bytes < everything.step_peak_bytes
    assert f"step_peak_bytes={smallest.step_peak_bytes}, " in repr(smallest)

    summary = ac2.StepPlanner(step).smallest().summary
    assert summary.step_peak_bytes is None and summary.step_start_bytes is None
    for unmeasured in ("meta", torch.device("meta")):
        with pytest.raises(RuntimeError, match="step_peak_on is meta, whose memory ac2 cannot measure"):
            ac2.StepPlanner(step, step_peak_on=unmeasured)
    with pytest.raises(RuntimeError, match="abacus"):
        ac2.StepPlanner(step, step_peak_on="abacus")


def test_a_plan_is_for_a_step_and_not_for_each_of_several_modules(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    x = torch.randn(4, 8)
    made = ac2.plan(lambda: model(x).tanh().sum().backward(), "64KiB", modelled_costs=True)
    with pytest.raises(ValueError, match=r"was given a plan for 2 modules.*open one PolicyScope\(plan\) around it"):
        ac2.apply_checkpointing(model, modules="*", policy=made)
    assert ac2.remove_checkpointing(model) == []
    made.save(tmp_path / "plan.json")
    assert ac2.load_plan(tmp_path / "plan.json").summary == made.summary
    assert made.summary != ac2.plan(lambda: model(x).sum().backward(), "64KiB", modelled_costs=True).summary


def test_plan_is_the_planners_policy():
    x, w = _inputs()
    policy = ac2.plan(lambda: _step(x, w), "12KiB", modelled_costs=True)
    with ac2.PolicyScope(policy) as scope:
        loss = _step(x, w)
    assert 0 < scope.trace.stats().saved_bytes <= (12 << 10) + x.nbytes + w.nbytes
    assert _gradient_is_plain(loss, x)


def test_a_plan_is_a_policy_that_says_what_it_comes_to(tmp_path):
    x, w = _inputs()
    plan = ac2.StepPlanner(lambda: _step(x, w), modelled_costs=True).smallest()
    plan.save(tmp_path / "plan.json")
    again = ac2.Plan.load(tmp_path / "plan.json")
    for given in (plan, again, ac2.plan(lambda: _step(x, w), plan.summary.peak_bytes, modelled_costs=True)):
        assert isinstance(given, ac2.Plan) and repr(given.summary) == repr(plan.summary)
        with ac2.PolicyScope(given) as scope:
            loss = _step(x, w)
        assert scope.trace.stats().saved_bytes == plan.summary.forward_bytes + x.nbytes + w.nbytes
        assert _gradient_is_plain(loss, x)


def test_a_plan_is_saved_and_loaded(tmp_path):
    x, w = _inputs()
    planner = ac2.StepPlanner(lambda: _step(x, w), modelled_costs=True)
    made = planner.smallest()
    held = []
    for path in (tmp_path / "plan.json", str(tmp_path / "again.json")):
        made.save(path)
        with ac2.PolicyScope(ac2.load_plan(path)) as scope:
            loss = _step(x, w)
        held_after_forward = scope.trace.stats().saved_bytes
        assert _gradient_is_plain(loss, x)
        held.append((held_after_forward, scope.trace.stats().recomputed_ops))
    assert held[0] == held[1] and held[0][0] == made.summary.forward_bytes + x.nbytes + w.nbytes
    ac2.load_plan(tmp_path / "plan.json").save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "plan.json").read_text()
    with pytest.raises(RuntimeError, match="No such file"):
        ac2.load_plan(tmp_path / "missing.json")
    for path in (3, None, 1.5):
        with pytest.raises(TypeError, match=rf"load_plan was given {path}; expected a path: a text or an os.PathLike"):
            ac2.load_plan(path)
        with pytest.raises(TypeError, match=rf"save was given {path}; expected a path: a text or an os.PathLike"):
            made.save(path)
    with pytest.raises(RuntimeError, match="it is a directory"):
        ac2.load_plan(tmp_path)
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RuntimeError, match=r"it is damaged, or was not written by a plan's save\(\)"):
        ac2.load_plan(tmp_path / "plan.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.json", "plan.json"]


def test_a_plan_copies_where_that_is_faster_and_says_so(tmp_path):
    x, w = (t.detach().to("meta").requires_grad_() for t in _inputs())
    copies = {"modelled_costs": True, "copy_bytes_per_forward": 1e6, "forms": [ac2.forms.host_memory(min_bytes=0)]}
    planner, without = ac2.StepPlanner(lambda: _step(x, w), **copies), ac2.StepPlanner(lambda: _step(x, w))
    bytes = without.smallest().summary.peak_bytes
    made, plain = planner.plan(bytes), without.plan(bytes)
    assert plain.summary.uses == []
    (use,) = made.summary.uses
    assert use.form == "host memory" and use.values > 0 and use.bytes > 0
    assert made.summary.replay_cost + use.cost < plain.summary.replay_cost
    assert f"uses=[FormUse(form='host memory', values={use.values}, bytes={use.bytes}, cost=" in repr(made.summary)
    assert pickle.loads(pickle.dumps(use)) == use == ("host memory", use.values, use.bytes, use.cost)
    made.save(tmp_path / "plan.json")
    assert '"ac2_plan":5' in (tmp_path / "plan.json").read_text()
    ac2.load_plan(tmp_path / "plan.json").save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "plan.json").read_text()
    # On the CPU there is nothing to copy to. What the plan would copy stays, within its bytes.
    x, w = _inputs()
    on_meta = [t.detach().to("meta").requires_grad_() for t in (x, w)]
    policy = ac2.plan(lambda: _step(*on_meta), bytes, **copies)
    with pytest.warns(UserWarning, match="not on a device that has one behind it"), ac2.PolicyScope(policy):
        loss = _step(x, w)
    assert _gradient_is_plain(loss, x)
    with pytest.raises(RuntimeError, match="no result of the step can be copied"):
        ac2.StepPlanner(lambda: _step(x, w), **copies)


# A step whose products take longer than packing their results. Returns its forward and its input.
def _step_of_products(side=512):
    x, w = torch.randn(side, side, requires_grad=True), torch.randn(side, side).div(side**0.5).requires_grad_()

    def forward():
        y = x
        for _ in range(5):
            y = (y @ w).cos() * y.tanh()
        return y.sum()

    return forward, x


def test_a_plan_packs_where_that_is_cheaper_and_says_so(tmp_path):
    forward, x = _step_of_products()

    def step():
        forward().backward()

    plain = torch.autograd.grad(forward(), x)[0]
    forms = [ac2.forms.quantized(8)]
    planner = ac2.StepPlanner(step, modelled_costs=True, forms=forms)
    without = ac2.StepPlanner(step, modelled_costs=True)
    bytes = without.smallest().summary.peak_bytes
    made, exact = planner.plan(bytes), without.plan(bytes)
    assert exact.summary.uses == []
    (use,) = made.summary.uses
    assert use.form == "quantized 8 bits, seed 0" and use.values > 0 and use.bytes == use.values * 512 * 512 * 4
    assert made.summary.replay_cost + use.cost < exact.summary.replay_cost
    made.save(tmp_path / "plan.json")
    assert '"form":"quantized 8 bits, seed 0"' in (tmp_path / "plan.json").read_text()
    for policy in (made, ac2.load_plan(tmp_path / "plan.json"), ac2.plan(step, bytes, modelled_costs=True, forms=forms)):
        with ac2.PolicyScope(policy) as scope:
            loss = forward()
        gradient = torch.autograd.grad(loss, x)[0]
        assert scope.trace.stats().recomputed_ops == made.summary.replayed_ops
        assert 0 < (gradient - plain).norm() / plain.norm() < 0.1


def test_a_plan_packs_by_functions_of_the_program_which_have_no_name_in_a_file(tmp_path):
    forward, _ = _step_of_products()
    packed = []
    pack = lambda tensor: packed.append(tensor.shape) or tensor.to(torch.float8_e4m3fn)
    quarters = ac2.forms.functions(pack, lambda quarter: quarter.float())
    exact = ac2.StepPlanner(lambda: forward().backward(), modelled_costs=True).smallest()
    planner = ac2.StepPlanner(lambda: forward().backward(), modelled_costs=True, forms=[quarters])
    made = planner.plan(exact.summary.peak_bytes)
    (use,) = made.summary.uses
    assert use.form == quarters.name
    packed.clear()
    with ac2.PolicyScope(made):
        loss = forward()
    assert len(packed) == use.values
    loss.backward()
    with pytest.raises(RuntimeError, match="has no name in a file"):
        made.save(tmp_path / "plan.json")
    with pytest.raises(TypeError, match="^forms is 8; expected a list of forms"):
        ac2.StepPlanner(lambda: None, forms=8)
    with pytest.raises(RuntimeError, match=r"has no form that copies. Add ac2.forms.host_memory\(\)"):
        ac2.StepPlanner(lambda: None, forms=[quarters], copy_bytes_per_forward=1e9)


@pytest.mark.parametrize("wrong", [0, -1.5, float("inf"), float("nan")])
def test_a_speed_of_copies_that_is_not_positive_is_an_error(wrong):
    with pytest.raises(ValueError, match="copy_bytes_per_forward is .*; expected a positive number"):
        ac2.StepPlanner(lambda: None, copy_bytes_per_forward=wrong)
    with pytest.raises(TypeError, match="copy_bytes_per_forward is '25GB'; expected a number of bytes"):
        ac2.StepPlanner(lambda: None, copy_bytes_per_forward="25GB")


def test_steps_in_flight_share_the_bytes_of_their_plan():
    x, w = _inputs()

    def forward():
        return _step(x, w)

    alone = ac2.StepPlanner(lambda: torch.autograd.grad(forward(), [x]), modelled_costs=True)
    planner = ac2.StepPlanner(lambda: torch.autograd.grad(forward(), [x]), modelled_costs=True, in_flight=4)

    def bytes_of(plan):
        return 3 * plan.summary.forward_bytes + plan.summary.peak_bytes

    smallest = planner.smallest()
    assert bytes_of(smallest) <= bytes_of(alone.smallest()) <= 4 * alone.smallest().summary.peak_bytes
    most = 4 * alone.smallest().summary.peak_bytes
    plan = planner.plan(most)
    assert bytes_of(plan) <= most
    assert plan.summary.replay_cost <= alone.plan(most // 4).summary.replay_cost
    losses = []
    for _ in range(4):
        with ac2.PolicyScope(plan) as scope:
            losses.append(forward())
        assert scope.trace.stats().saved_bytes == plan.summary.forward_bytes + x.nbytes + w.nbytes
    for loss in losses:
        assert _gradient_is_plain(loss, x)
    said = bytes_of(smallest)
    with pytest.raises(RuntimeError, match=rf"smallest that was found takes {said} with 4 steps in flight"):
        planner.plan(said - 1)
    made = ac2.plan(lambda: torch.autograd.grad(forward(), [x]), most, modelled_costs=True, in_flight=4)
    assert bytes_of(made) <= most


@pytest.mark.parametrize("wrong", [0, -1])
def test_fewer_than_one_step_in_flight_is_an_error(wrong):
    with pytest.raises(ValueError, match=f"in_flight is {wrong}; expected 1 or more steps"):
        ac2.StepPlanner(lambda: None, in_flight=wrong)
    with pytest.raises(TypeError, match="in_flight is 2.5; expected a number of steps"):
        ac2.StepPlanner(lambda: None, in_flight=2.5)


def test_summarize_asks_of_each_op_in_the_order_of_the_program():
    x, w = _inputs()
    planner = ac2.StepPlanner(lambda: _step(x, w), modelled_costs=True)
    seen = []
    all_kept = planner.summarize(lambda op: seen.append((op.index, op.name, op.bytes, op.cost)) or True)
    assert all_kept.replayed_ops == 0
    assert [index for index, *_ in seen] == sorted(index for index, *_ in seen)
    assert {name for _, name, *_ in seen} >= {"aten::mm", "aten::tanh"}
    none_kept = planner.summarize(lambda op: False)
    assert none_kept.replayed_ops > 0 and none_kept.forward_bytes < all_kept.forward_bytes


def test_what_a_memory_budget_would_cost_a_step_is_said_before_it_runs():
    x = torch.randn(32, 64, requires_grad=True)

    def forward():
        y = x
        for _ in range(20):
            y = y.sin()
        return y.sum()

    planner = ac2.StepPlanner(lambda: forward().backward(), modelled_costs=True)
    everything = planner.budget("1MiB")
    assert everything.replayed_ops == 0 and everything.forward_bytes == 19 * x.nbytes
    half = planner.budget(10 * x.nbytes)
    assert half.replay_cost > 0 and half.peak_bytes <= 10 * x.nbytes
    with ac2.PolicyScope(memory_budget=ac2.MemoryBudget(10 * x.nbytes, modelled_costs=True)) as scope:
        loss = forward()
    loss.backward()
    assert scope.trace.stats().recomputed_ops == half.replayed_ops > 0
    with pytest.raises(RuntimeError, match="cannot meet a memory budget of 1024 bytes: at one place it holds"):
        planner.budget("1KiB")
    with pytest.raises(ValueError):
        planner.budget(0)


def test_what_a_step_or_keeps_raises_reaches_the_caller_as_itself():
    class Mine(Exception):
        pass

    def raises(*_):
        raise Mine

    with pytest.raises(Mine):
        ac2.StepPlanner(raises)
    x, w = _inputs()
    planner = ac2.StepPlanner(lambda: _step(x, w))
    with pytest.raises(Mine):
        planner.summarize(raises)
    with pytest.raises(RuntimeError, match="smallest|least|no plan"):
        planner.plan(16)
    for wrong in (0, "64MB", -1):
        with pytest.raises(ValueError):
            planner.plan(wrong)
    with pytest.raises(TypeError):
        ac2.plan(lambda: None, ac2.MemoryBudget(8))
    with pytest.raises(TypeError):
        ac2.StepPlanner(3)
    assert ac2.live_node_count() == 0


def test_blocks_inside_a_region_are_recomputed_or_saved():
    for policy, block, saves in (
        ("must_save_all", None, True),
        ("recompute_all", ac2.SaveScope, True),
        ("recompute_all", ac2.RecomputeScope, False),
        ("recompute_all", None, False),
    ):
        x, w = _inputs()
        with ac2.PolicyScope(policy) as scope:
            if block is None:
                loss = _step(x, w)
            else:
                with block():
                    loss = _step(x, w)
            held = scope.trace.stats().saved_bytes
        assert (held > 8 * x.nbytes) == saves, (policy, block)
        assert _gradient_is_plain(loss, x)
    with ac2.SaveScope(), ac2.RecomputeScope():  # outside a region they do nothing
        assert not ac2.is_checkpoint_enabled()
    with ac2.PolicyScope("recompute_all"), ac2.SaveScope(), pytest.raises(RuntimeError, match="Conflicting policies"):
        with ac2.RecomputeScope():
            _step(*_inputs())
    assert ac2.live_node_count() == 0


def test_current_decision_is_what_the_policies_in_force_say():
    assert ac2.current_decision("aten::mm") is None
    a, b = torch.randn(2, 2), torch.randn(2, 2)
    with ac2.PolicyScope(ac2.policies.save_ops(["aten::mm"])):
        assert ac2.current_decision("aten::mm") in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
        assert ac2.current_decision(torch.ops.aten.mm.default) == ac2.current_decision(torch.ops.aten.mm)
        assert ac2.current_decision("aten::tanh") in (CheckpointPolicy.PREFER_RECOMPUTE, CheckpointPolicy.MUST_RECOMPUTE)
        with pytest.raises(RuntimeError, match="aten::m"):
            ac2.current_decision("aten::mmm")
        with pytest.raises(TypeError):
            ac2.current_decision(3)
    seen = []

    def policy_fn(ctx, op, *args):
        seen.append((op, len(args)))
        return CheckpointPolicy.MUST_SAVE

    with ac2.PolicyScope(policy_fn):
        with pytest.raises(RuntimeError):
            ac2.current_decision("aten::mm")
        assert ac2.current_decision("aten::mm", [a, b], [a]) == CheckpointPolicy.MUST_SAVE
        with pytest.raises(ValueError, match="1 inputs"):
            ac2.current_decision("aten::mm", [a], [a])
    assert seen == [(torch.ops.aten.mm.default, 2)]


def test_exposed_memory_is_held_and_not_computed_again():
    x = torch.randn(4, requires_grad=True)
    with ac2.PolicyScope("recompute_all"):
        mask = torch.zeros(4)
        ac2.expose(mask)
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(mask)).fill_(2)
        y = (x * mask).sum()
    (gradient,) = torch.autograd.grad(y, [x])
    assert gradient.tolist() == [2.0] * 4
    with pytest.raises(TypeError):
        ac2.expose(3)


def test_pinned_memory_and_segments_are_as_in_cpp():
    ac2.release_offload_memory()
    assert ac2.offload_memory().bytes_in_use == 0 and ac2.offload_memory().bytes >= 0
    assert [ac2.sqrt_segments(n) for n in (1, 4, 9, 16)] == [1, 2, 3, 4]


# What C++ has at namespace level and Python has otherwise, or cannot have.
_OTHERWISE = {
    "BudgetOption": "memory_budget= takes a number, a text or a MemoryBudget",
    "Bytes": "a number, or a text",
    "CheckpointOptions": "keyword arguments",
    "ChunkOptions": "keyword arguments",
    "CheckpointedModule": "the wrapped module itself",
    "Checkpointing": "the wrapped module itself",
    "CheckpointSpec": "keyword arguments",
    "LinearCrossEntropyOptions": "keyword arguments",
    "QueryChunkOptions": "keyword arguments",
    "ModuleSelector": "modules= and check_fn=",
    "NamedTensor": "policies by name are those of ac2.policies",
    "OpContext": "policy_fn(ctx, op, *args, **kwargs)",
    "PlanOptions": "keyword arguments",
    "FormEstimate": "a tuple (bytes, pack_cost, unpack_cost)",
    "FormInput": "the arguments of Form.takes",
    "Policy": "a name, a callable, a list of ops, or one of ac2.policies",
    "PolicyDecision": "a CheckpointPolicy, a bool, a form or SaveWithHooks",
    "PolicyInstance": "first_of and the other composed policies of ac2.policies",
    "Replayable": "what replayable() returns",
    "RankGroup": "group=",
    "ScopeOptions": "keyword arguments",
    "enter_policy": "first_of and the other composed policies of ac2.policies",
    "find_checkpointing": "last_trace(module)",
    "save_plan": "the old name of Plan.save",
    "policy_per_region": "first_of and the other composed policies of ac2.policies",
    "to_string": "str()",
}


def _names_of_cpp(*folders):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    names = set()
    for folder in folders:
        for file in sorted(os.listdir(os.path.join(root, folder))):
            if file.endswith(".h"):
                with open(os.path.join(root, folder, file)) as header:
                    text = re.sub(r"^namespace internal \{.*?^\}  // namespace internal$", "", header.read(), flags=re.M | re.S)
                names |= set(re.findall(r"^(?:class|struct|enum class) (\w+)[^;\n]*\{", text, re.M))
                names |= set(re.findall(r"^(?!static_assert|using|return)[A-Za-z_][\w:<>,&* ]* \*?(\w+)\(", text, re.M))
    return names


# The options of a policy are keyword arguments, and a name is a policy.
_OTHERWISE_IN_POLICIES = {"QuantizeOptions", "SpillOptions", "policy_by_name"}


def test_python_has_all_policies_that_cpp_has():
    names = _names_of_cpp("policies")
    assert {"save_ops", "every_nth", "quantize_ops"} <= names  # the headers were read
    assert sorted(name for name in names - _OTHERWISE_IN_POLICIES if not hasattr(ac2.policies, name)) == []


def test_python_has_all_that_cpp_has():
    names = _names_of_cpp("ac2", os.path.join("ac2", "nn"))
    assert {"PolicyScope", "StepPlanner", "plan", "explain", "Form", "one_bit"} <= names  # the headers were read
    there = {*dir(ac2), *ac2.forms.__all__}
    assert sorted(name for name in names if name not in _OTHERWISE and name not in there) == []
    assert set(ac2.forms.__all__) <= names
    assert sorted(name for name in _OTHERWISE if name not in names or hasattr(ac2, name)) == []
