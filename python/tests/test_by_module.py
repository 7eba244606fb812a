"""ac2.policies.by_module: which module an op runs in, which rule decides for it, and what a region then holds and replays."""

import contextlib
import copy
import gc
import threading
import warnings
import weakref

import pytest
import torch
from support import assert_same, run

import ac2
from ac2 import CheckpointPolicy
from ac2.policies import by_module, first_of, per_op_override, save_ops

SAVE, RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
ROWS, WIDTH, HIDDEN = 4, 8, 32
# What a region holds more if it saves the result. The bias, which only the product takes, is then not held.
UP, ACT, DOWN = (ROWS - 1) * HIDDEN * 4, ROWS * HIDDEN * 4, (ROWS - 1) * WIDTH * 4


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, HIDDEN)
        self.act = torch.nn.GELU()
        self.down = torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(torch.nn.Module):
    def __init__(self, count=2):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.ModuleList(Block() for _ in range(count))
        self.head = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x).tanh()


def inputs():
    return torch.arange(ROWS * WIDTH, dtype=torch.float32).view(ROWS, WIDTH).sin().requires_grad_()


X = torch.ones(2, 2)


class Ask(torch.nn.Module):
    """Notes what the policies in force say of an op that runs here."""

    answer = None

    def forward(self, x):
        self.answer = decision()
        return x


def decision(op="aten::sin"):
    return ac2.current_decision(op, [X], [X])


class Model(torch.nn.Module):
    """Calls its children in their order."""

    def __init__(self, **children):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x):
        for child in self._modules.values():  # children() leaves out equal ones
            x = child(x)
        return x


class Outer(Model):
    pass


def answers(policy, model, call=None):
    """What each Ask in ``model`` was told, by its name, in a region around ``call(X)``."""
    asks = {name: module for name, module in model.named_modules() if isinstance(module, Ask)}
    for module in asks.values():
        module.answer = None
    with ac2.PolicyScope(policy):
        (call or model)(X)
    return {name: module.answer for name, module in asks.items() if module.answer is not None}


def saved(policy, model, call=None):
    """The names of those that were told MUST_SAVE."""
    told = answers(policy, model, call)
    assert all(answer in (SAVE, RECOMPUTE) for answer in told.values())
    return [name for name, answer in told.items() if answer == SAVE]


def two_layers():
    return Model(layers=torch.nn.Sequential(*(Model(a=Ask(), mlp=Model(act=Ask())) for _ in range(2))), head=Ask())


def numbers(model, policy):
    """The bytes that a region of ``policy`` holds, and the ops that its backward replays."""
    with ac2.PolicyScope(policy) as scope:
        loss = model(inputs()).sum()
    saved_bytes = scope.trace.stats().saved_bytes
    loss.backward()
    return saved_bytes, scope.trace.stats().recomputed_ops


def change_by(model, policy):
    """Of a step under ``policy`` against one that recomputes all: more bytes, and fewer ops. Gradients are the same."""

    def step(policy):
        def forward(model):
            with contextlib.nullcontext() if policy is None else ac2.PolicyScope(policy):
                return model(inputs()).sum()

        return run(model, forward)

    assert_same(step(policy), step(None))
    bytes_without, ops_without = numbers(model, "recompute_all")
    bytes_with, ops_with = numbers(model, policy)
    return bytes_with - bytes_without, ops_without - ops_with


@pytest.mark.parametrize("rules, expected", [
    ({"layers.*.mlp.up": SAVE}, (2 * UP, 2)),
    ({"layers.1.mlp.up": SAVE}, (UP, 1)),
    ({"layers.*.mlp.act": SAVE}, (2 * ACT, 2)),
    ({"Mlp": SAVE}, (2 * (UP + ACT + DOWN), 6)),
    ({"Mlp :: aten.gelu": SAVE}, (2 * ACT, 2)),
    ({"layers.*.mlp.up": RECOMPUTE, "**.mlp :: aten::*": SAVE}, (2 * (ACT + DOWN), 4)),
    ([("layers.0", False), ("Mlp :: aten.addmm.default", True)], (UP + DOWN, 2)),
    ({"layers.*.mlp :: aten.add": SAVE}, (0, 0)),
])
def test_a_region_holds_what_the_rules_save_and_replays_the_rest(rules, expected):
    assert change_by(Net(), by_module(rules)) == expected


def test_a_path_is_that_of_the_module_or_one_around_it():
    model = two_layers()
    everything = ["layers.0.a", "layers.0.mlp.act", "layers.1.a", "layers.1.mlp.act", "head"]
    for pattern, expected in {
        "layers.*.mlp": ["layers.0.mlp.act", "layers.1.mlp.act"],
        "layers.1": ["layers.1.a", "layers.1.mlp.act"],
        "layers": everything[:-1],
        "*": everything,
        "?ead": ["head"],
        "**.a": ["layers.0.a", "layers.1.a"],
        "": everything,
        "**": everything,
        "layers.*.mlp :: aten.sin": ["layers.0.mlp.act", "layers.1.mlp.act"],
        "layers.* :: aten::s?n": everything[:-1],
        " :: aten.sin.default": everything,
        "head :: torch.ops.aten.sin": ["head"],
        "head :: aten.cos": [],
    }.items():
        assert saved(by_module({pattern: SAVE}), model) == expected, pattern


def test_everything_is_also_what_runs_outside_of_modules():
    with ac2.PolicyScope(by_module({"**": SAVE})):
        assert decision() == SAVE
    with pytest.warns(UserWarning, match='"" matches no module'), ac2.PolicyScope(by_module({"": SAVE})):
        assert decision() == RECOMPUTE
        X.sin()


def test_a_name_may_be_that_of_a_class():
    model = Outer(inner=Model(a=Ask()), a=Ask())
    assert saved(by_module({"Model": SAVE}), model) == ["inner.a"]
    assert saved(by_module({"Outer": SAVE}), model) == ["inner.a", "a"]
    assert saved(by_module({"Ask :: aten.sin": SAVE}), model) == ["inner.a", "a"]
    assert saved(by_module({"a": SAVE}), model) == ["a"]


def test_the_first_rule_that_matches_decides():
    model = two_layers()
    told = answers(by_module({"layers.0.a": False, "layers.0": CheckpointPolicy.PREFER_SAVE, "layers.* :: aten.cos": SAVE}), model)
    assert told == {
        "layers.0.a": RECOMPUTE, "layers.0.mlp.act": CheckpointPolicy.PREFER_SAVE,
        "layers.1.a": RECOMPUTE, "layers.1.mlp.act": RECOMPUTE, "head": RECOMPUTE,
    }  # fmt: skip


def test_decisions_may_be_forms_and_functions():
    hooks = ac2.SaveWithHooks(lambda tensor: tensor, lambda packed: packed)
    told = answers(by_module({"a": ac2.forms.narrow(torch.bfloat16), "b": hooks}), Model(a=Ask(), b=Ask()))
    assert told == {"a": "narrow BFloat16", "b": "SaveWithHooks"}


def test_paths_are_relative_to_the_model_that_is_given_also_where_a_part_of_it_is_called():
    model = two_layers()
    policy = by_module({"layers.0": SAVE}, model=model)
    assert saved(policy, model) == ["layers.0.a", "layers.0.mlp.act"]
    assert saved(policy, model, model.layers) == ["layers.0.a", "layers.0.mlp.act"]
    assert saved(policy, model, model.layers[0].mlp) == ["layers.0.mlp.act"]
    # Without the model, the part is one.
    assert saved(by_module({"0": SAVE}), model, model.layers) == ["layers.0.a", "layers.0.mlp.act"]
    # The policy is about no other model.
    assert saved(policy, copy.deepcopy(model)) == []
    around = Outer(inner=model)
    assert saved(policy, around) == ["inner.layers.0.a", "inner.layers.0.mlp.act"]
    assert saved(by_module({"inner.layers.0": SAVE}), around) == ["inner.layers.0.a", "inner.layers.0.mlp.act"]
    assert saved(by_module({"Model": SAVE}, model=model), Outer(inner=model, other=Ask())) == [
        "inner.layers.0.a", "inner.layers.0.mlp.act", "inner.layers.1.a", "inner.layers.1.mlp.act", "inner.head",
    ]  # fmt: skip


def test_a_module_that_is_called_again_or_at_two_places_has_its_first_name():
    shared = Ask()
    model = Model(a=shared, b=torch.nn.Sequential(shared, Ask()))
    assert saved(by_module({"a": SAVE}), model) == ["a"]
    # Its second call is inside of b.
    assert saved(by_module({"b": SAVE}), model) == ["a", "b.1"]
    model = Model(a=Ask())
    assert saved(by_module({"a": SAVE}), model, lambda x: model(model(x))) == ["a"]


def test_modules_that_are_added_later_are_found():
    class Lazy(Model):
        def forward(self, x):
            if not hasattr(self, "first"):
                self.first, self.second = Ask(), Ask()
                self.list = torch.nn.ModuleList([Model(a=Ask())])
            return self.list[0](self.second(self.first(x)))

    model = Lazy(other=Ask())
    policy = by_module({"second": SAVE, "list.*": SAVE, "other": SAVE})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ac2.PolicyScope(policy):
            model(X)
            X.sin()
    assert [model.first.answer, model.second.answer, model.list[0].a.answer] == [RECOMPUTE, SAVE, SAVE]
    model.list[0].add_module("b", Ask())
    assert saved(by_module({"list.0.b": SAVE}), model) == ["list.0.b"]
    policy = by_module({"list.0": SAVE}, model=model)
    model.list[0].add_module("c", Ask())
    names = ["list.0.a", "list.0.b", "list.0.c"]
    assert saved(policy, model) == names
    model.list[0].add_module("d", Ask())
    assert saved(policy, Outer(inner=model)) == [f"inner.{name}" for name in (*names, "list.0.d")]


def test_a_module_that_is_not_registered_is_a_model_by_itself():
    hidden = [Model(a=Ask()), Ask()]

    class Holder(Model):
        def forward(self, x):
            return hidden[1](hidden[0](super().forward(x)))

    model = Outer(inner=Holder(a=Ask()))
    with ac2.PolicyScope(by_module({"a": SAVE, "Holder :: aten.cos": SAVE})):
        model(X)
        assert (model.inner.a.answer, hidden[0].a.answer, hidden[1].answer) == (RECOMPUTE, SAVE, RECOMPUTE)
    assert answers(by_module({"inner": SAVE}), model) == {"inner.a": SAVE}
    assert (hidden[0].a.answer, hidden[1].answer) == (SAVE, SAVE)


class Failing(torch.nn.Module):
    error = None

    def forward(self, x):
        if self.error is not None:
            raise self.error
        return x


@pytest.mark.parametrize("error", [ValueError("as asked"), KeyboardInterrupt(), SystemExit()])
def test_a_forward_that_fails_leaves_its_module(error):
    model = Model(a=Model(fails=Failing()), b=Ask())
    policy = by_module({"a": SAVE})
    saved(policy, model)  # the hooks are there
    model.a.fails.error = error
    with pytest.raises(type(error)):
        model(X)
    assert saved(policy, model, model.b) == []
    with pytest.raises(type(error)):
        model(X)
    with ac2.PolicyScope(policy):
        assert decision() == RECOMPUTE
    model.a.fails.error = None
    assert saved(policy, model) == []
    with ac2.PolicyScope(policy):
        with contextlib.suppress(type(error)):
            model.a.fails.error = error
            model(X)
        model.a.fails.error = None
        model(X)
        assert model.b.answer == RECOMPUTE


def test_a_module_that_catches_the_error_of_another_goes_on():
    class Catching(Model):
        def forward(self, x):
            with contextlib.suppress(ValueError):
                self.fails(x)
            return self.a(x)

    model = Model(inner=Catching(fails=Failing(), a=Ask()))
    model.inner.fails.error = ValueError("as asked")
    assert saved(by_module({"inner.fails": SAVE}), model) == []
    assert saved(by_module({"inner": SAVE}), model) == ["inner.a"]


def test_a_hook_that_fails_before_forward_does_no_harm():
    def fail(module, args):
        raise ValueError("as asked")

    model = Model(a=Model(b=Ask()), c=Ask())
    policy = by_module({"a": SAVE})
    hook = model.a.register_forward_pre_hook(fail)
    with ac2.PolicyScope(policy):
        with pytest.raises(ValueError):
            model(X)
        hook.remove()
        model(X)
    assert (model.a.b.answer, model.c.answer) == (SAVE, RECOMPUTE)


def test_a_module_may_call_itself():
    class Tree(Model):
        def forward(self, x, depth=2):
            return self.a(x) if depth == 0 else self.b(self(x, depth - 1))

    model = Tree(a=Ask(), b=Ask())
    assert saved(by_module({"a": SAVE}), model) == ["a"]
    assert saved(by_module({"b": SAVE}), model) == ["b"]


def test_each_thread_is_in_its_own_modules():
    models = [Model(a=Ask()) if i % 2 else Model(b=Ask()) for i in range(8)]
    policy = by_module({"a": SAVE})
    barrier = threading.Barrier(len(models))

    def train(model):
        for _ in range(20):
            barrier.wait()
            with ac2.PolicyScope(policy):
                model(X)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first region may be of a model without it
        threads = [threading.Thread(target=train, args=(model,)) for model in models]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [next(model.children()).answer for model in models] == [RECOMPUTE, SAVE] * 4


def test_names_have_nothing_of_wrappers_in_them():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    policy = by_module({"layers.1.mlp": SAVE})
    model = two_layers()
    ac2.apply_checkpointing(model, modules="layers.*", policy=policy)
    assert saved(policy, model) == ["layers.1.mlp.act"]
    ac2.remove_checkpointing(model)
    model.layers[1] = checkpoint_wrapper(model.layers[1])
    model.layers[1]._checkpoint_wrapped_module.register_forward_hook(lambda *args: None)
    assert list(answers(policy, model).values()).count(SAVE) == 1
    parallel = torch.nn.DataParallel(two_layers())
    assert saved(policy, parallel) == ["module.layers.1.mlp.act"]
    assert saved(by_module({"layers.1.mlp": SAVE}, model=parallel), parallel) == ["module.layers.1.mlp.act"]
    assert saved(by_module({"inner.layers.1": SAVE}), Outer(inner=parallel))[-1:] == ["inner.module.layers.1.mlp.act"]
    # A module of that name in any other is one.
    assert saved(by_module({"module.layers.1.mlp": SAVE}), Model(module=two_layers())) == ["module.layers.1.mlp.act"]


def test_names_of_distributed_data_parallel_and_of_fully_shard(tmp_path):
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        parallel = torch.nn.parallel.DistributedDataParallel(Net())
        plain = change_by(Net(), by_module({"layers.*.mlp.up": SAVE}))
        assert numbers(parallel, by_module({"layers.*.mlp.up": SAVE}))[1] == numbers(parallel, "recompute_all")[1] - plain[1]
        assert numbers(parallel, by_module({"Mlp": SAVE}))[1] == numbers(parallel, "recompute_all")[1] - 6
        del parallel
        model = Model(inner=Model(a=Ask(), linear=torch.nn.Linear(2, 2)))
        fully_shard(model.inner)
        assert type(model.inner).__name__ == "FSDPModel"
        assert saved(by_module({"inner": SAVE}), model) == ["inner.a"]
        assert saved(by_module({"Model": SAVE}), Outer(inner=model.inner)) == ["inner.a"]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiled_code_has_no_graph_break_and_the_same_results():
    model = Net()
    by_module({"layers.0": SAVE}, model=model)
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    def step(call):
        return lambda model: call(model)(inputs()).sum()

    plain = run(model, step(lambda model: model))
    assert_same(run(model, step(lambda model: torch.compile(model, backend=backend, fullgraph=True))), plain)
    torch._dynamo.reset()
    assert_same(run(model, step(lambda model: torch.compile(model.forward, backend=backend, fullgraph=True))), plain)
    assert len(graphs) == 2
    # In a function that is compiled the region is one as ever, outside of graphs.
    policy = by_module({"layers.*.mlp.up": SAVE})

    def compiled(model):
        return torch.compile(lambda x: ac2.checkpoint(model, x, policy=policy), backend=backend)

    assert_same(run(model, step(compiled)), plain)


def test_regions_of_wrapped_modules_know_the_names_in_the_whole_model():
    model = Net()
    ac2.apply_checkpointing(model, modules="layers.*", policy="recompute_all")
    outputs = [model(inputs())]
    without = [ac2.last_trace(layer).stats().saved_bytes for layer in model.layers]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no pattern of a later layer is missed in the region of the first
        ac2.apply_checkpointing(model, modules="layers.*", policy=by_module({"layers.1.mlp.up": SAVE, "head": SAVE}))
        outputs.append(model(inputs()))
    held = [ac2.last_trace(layer).stats().saved_bytes for layer in model.layers]
    assert [with_rule - plain for with_rule, plain in zip(held, without)] == [0, UP]


def test_it_composes():
    policy = by_module({"layers.*.mlp.up": SAVE})
    assert change_by(Net(), first_of(policy, save_ops(["aten::gelu"]))) == (2 * (UP + ACT), 4)
    assert change_by(Net(), per_op_override(policy, {"aten::addmm": RECOMPUTE})) == (0, 0)
    assert policy.name == "by_module"


@pytest.mark.parametrize("error, text, rules", [
    (ValueError, "by_module was given no rule", {}),
    (ValueError, 'the pattern "mlp :: " has no op', {"mlp :: ": SAVE}),
    (ValueError, 'the pattern "a..b" has an empty component', {"a..b": SAVE}),
    (ValueError, 'the pattern "mlp::aten.mm" has "::" without a space', {"mlp::aten.mm": SAVE}),
    (ValueError, 'An op of a module is "0 :: aten.mm"', {"0 ::aten.mm": SAVE}),
    (ValueError, 'Ops of all modules are "\\*\\* :: aten::mm"', {"aten::mm": SAVE}),
    (ValueError, 'the component "a\\*\\*"', {"a**": SAVE}),
    (ValueError, 'the pattern "mlp" twice', [("mlp", SAVE), ("mlp", True)]),
    (ValueError, 'by_module, "mlp :: aten.gelo".*Did you mean aten::gelu', {"mlp :: aten.gelo": SAVE}),
    (TypeError, r"by_module: the decision for 'mlp' is 3; expected a member of ac2.CheckpointPolicy", {"mlp": 3}),
    (TypeError, r"by_module: the decision for 'mlp' is None", {"mlp": None}),
    (TypeError, r"by_module: a pattern is 3; expected a text", {3: SAVE}),
    (TypeError, r"by_module was given 'mlp'; expected \{pattern: decision\}", "mlp"),
    (TypeError, r"by_module was given 3; expected \{pattern", 3),
    (TypeError, r"by_module: a rule is 'mlp'; expected \{pattern", ["mlp"]),
])
def test_wrong_rules_are_errors_that_name_the_pattern(error, text, rules):
    with pytest.raises(error, match=text):
        by_module(rules)


def test_a_pattern_that_matches_nothing_of_the_given_model_is_an_error_with_the_nearest_names():
    model = Net(12)
    with pytest.raises(ValueError, match=r'"layers.\*.mpl" matches no module of the model. Did you mean layers.\*.mlp'):
        by_module({"layers.*.mpl": SAVE}, model=model)
    with pytest.raises(ValueError, match=r'"layers.12.mlp" matches no module.*Did you mean layers.1.mlp, layers.10.mlp'):
        by_module({"head": SAVE, "layers.12.mlp": SAVE}, model=model)
    with pytest.raises(ValueError, match=r'"Blok".*Did you mean Block'):
        by_module({"Blok": SAVE}, model=model)
    with pytest.raises(ValueError, match=r'Modules there: "Net", "layers", "layers.\*"'):
        by_module({"encoder.everything": SAVE}, model=model)
    with pytest.raises(TypeError, match="by_module: model is 3; expected the torch.nn.Module"):
        by_module({"head": SAVE}, model=3)
    by_module({"Block": SAVE, "layers.*.mlp": SAVE, "": SAVE, "**": SAVE, "layers": SAVE}, model=model)


def test_elsewhere_it_is_a_warning_once_at_the_end_of_the_first_region():
    model = Net()
    policy = by_module({"layers.*.mpl": SAVE, "head": SAVE, "Nett": SAVE})

    def region():
        with ac2.PolicyScope(policy):
            model(inputs())

    with pytest.warns(UserWarning) as caught:
        region()
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 1
    assert '"layers.*.mpl" matches no module that was there' in texts[0] and "Did you mean layers.*.mlp" in texts[0]
    assert 'the pattern "Nett" matches no module' in texts[0] and '"head" matches' not in texts[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        region()
    other = by_module({"layers.*.mpl": SAVE})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="layers"), ac2.PolicyScope(other):
            model(inputs())


def test_neither_policies_nor_hooks_keep_a_model_alive():
    model = Net()
    policy = by_module({"head": SAVE}, model=model)
    numbers(model, policy)
    of_model, of_head = weakref.ref(model), weakref.ref(model.head)
    del model
    gc.collect()
    assert of_model() is None and of_head() is None
    assert change_by(Net(), policy) == (0, 0)


def test_modules_may_be_equal_or_have_no_hash():
    class Equal(Model):
        def __eq__(self, other):
            return isinstance(other, Equal)

        __hash__ = None

    class EqualWithHash(Equal):
        def __hash__(self):
            return 1

    for kind in (Equal, EqualWithHash):
        model = Model(a=kind(x=Ask()), b=kind(x=Ask()))
        for policy in (by_module({"b": SAVE}, model=model), by_module({"b": SAVE})):
            with ac2.PolicyScope(policy):
                model(X)
            assert (model.a.x.answer, model.b.x.answer) == (RECOMPUTE, SAVE)
