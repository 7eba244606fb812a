"""Wrapped modules."""

import copy
import functools
import io
import pickle
import types

import pytest
import torch
import torch.utils.checkpoint as torch_checkpoint
from support import assert_same, mlp, run, same_bits

import ac2


class Block(torch.nn.Module):
    """At the top of the module, so that it can be pickled."""

    def __init__(self, width=16):
        super().__init__()
        self.lin = torch.nn.Linear(width, width)
        self.norm = torch.nn.BatchNorm1d(width)

    def forward(self, x, scale: float = 1.0):
        """Says whether it ran in a region."""
        self.enabled = ac2.is_checkpoint_enabled()
        return torch.nn.functional.gelu(self.norm(self.lin(x))) * scale


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(x):
    return lambda model: model(x).square().mean()


def test_a_wrapped_module_stays_what_it_is():
    block = Block()
    before = dict(block.named_parameters()), list(block.state_dict()), [n for n, _ in block.named_modules()], repr(block)
    wrapped = ac2.checkpoint_wrapper(block)
    assert wrapped is block and isinstance(wrapped, Block) and type(wrapped).__name__ == "Block"
    after = dict(wrapped.named_parameters()), list(wrapped.state_dict()), [n for n, _ in wrapped.named_modules()], repr(wrapped)
    assert after == before
    wrapped.load_state_dict(Block().state_dict())
    import inspect

    assert list(inspect.signature(wrapped.forward).parameters) == ["x", "scale"]
    assert "ran in a region" in wrapped.forward.__doc__


@pytest.mark.parametrize("policy", [None, "save_compute_intensive", ["aten::addmm"]])
def test_gradients_and_buffers_are_those_of_the_module(policy):
    model, x = Model(), torch.randn(5, 16)
    expected = run(model, loss_of(x))
    for layer in model.layers:
        ac2.checkpoint_wrapper(layer, policy)
    assert_same(run(model, loss_of(x)), expected)


def test_copies_and_archives_are_checkpointed_too():
    x = torch.randn(5, 16)
    block = ac2.checkpoint_wrapper(Block(), "save_compute_intensive", memory_budget=1 << 20)
    archive = io.BytesIO()
    torch.save(block, archive)
    archive.seek(0)
    others = [copy.deepcopy(block), pickle.loads(pickle.dumps(block)), torch.load(archive, weights_only=False), copy.copy(block)]
    for other in others:
        assert isinstance(other, Block)
        assert_same(run(other, loss_of(x)), run(block, loss_of(x)))
    for other in others:
        other(x)
        assert other.enabled
    assert type(others[1]) is type(block)


@pytest.mark.parametrize("options", [
    {"policy": ac2.policies.every_nth(2)},
    {"policy": ac2.SaveWithHooks(torch.clone, torch.clone)},
    {"memory_budget": ac2.MemoryBudget("1MiB")},
    {"memory_budget": ac2.whatever_fits()},
], ids=str)
def test_copies_share_the_policy_and_the_budget(options):
    """As averages of weights copy a model."""
    x = torch.randn(5, 16)
    model = Model()
    ac2.apply_checkpointing(model, modules="layers.*", **options)
    for other in (copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model).module):
        assert_same(run(other, loss_of(x)), run(model, loss_of(x)))
        other(x)
        assert all(ac2.last_trace(layer) is not None for layer in other.layers)
        assert ac2.remove_checkpointing(other) == ac2.remove_checkpointing(copy.deepcopy(model)) != []


def test_a_model_that_keeps_its_scopes_can_be_copied():
    model = Block()
    with ac2.PolicyScope("recompute_all") as scope:
        model(torch.randn(5, 16)).sum().backward()
    model.kept = [scope, scope.trace]
    assert copy.deepcopy(model).kept[0].trace == scope.trace


@pytest.mark.parametrize("forward", ["generator", "coroutine"])
def test_a_forward_whose_code_runs_after_the_region_is_an_error(forward):
    class Later(torch.nn.Linear):
        def generator(self, x):
            yield super().forward(x)

        async def coroutine(self, x):
            return super().forward(x)

    later = Later(16, 16)
    later.forward = getattr(later, forward)
    with pytest.raises(TypeError, match=f"Later returned a {forward}, whose code would run when the region is over"):
        ac2.checkpoint_wrapper(later)(torch.randn(5, 16))
    with pytest.raises(TypeError, match=f"{forward} returned a {forward}|Later returned a {forward}"):
        ac2.checkpoint(getattr(later, forward), torch.randn(5, 16))
    assert not ac2.is_checkpoint_enabled()


def test_wrapping_again_exchanges_the_policy():
    block = Block()
    kind = type(ac2.checkpoint_wrapper(block, "must_save_all"))
    assert type(ac2.checkpoint_wrapper(block, "recompute_all")) is kind
    with ac2.PolicyScope("recompute_all", timeline=True) as scope:
        y = block(torch.randn(5, 16))
    y.sum().backward()
    assert scope.trace.stats().recomputed_ops > 0


def test_wrong_arguments_are_errors_and_change_nothing():
    block = Block()
    for error, arguments, options in [
        (ValueError, ("sped",), {}),
        (TypeError, (), {"budget": 3}),
        (ValueError, (), {"memory_budget": "64MB"}),
        (ValueError, (), {"memory_budget": "MiB"}),
        (ValueError, (), {"memory_budget": -5}),
        (ValueError, (), {"memory_budget": 0}),
        (ValueError, (), {"memory_budget": 1 << 63}),
        (ValueError, (), {"memory_budget": "0.0000001KiB"}),
        (TypeError, (), {"memory_budget": 0.5}),
        (TypeError, (), {"memory_budget": True}),
        (ValueError, (), {"use_reentrant": True}),
        (ValueError, (), {"checkpoint_fn": print}),
    ]:
        with pytest.raises(error):
            ac2.checkpoint_wrapper(block, *arguments, **options)
        assert type(block) is Block
    with pytest.raises(TypeError, match="expected a torch.nn.Module"):
        ac2.checkpoint_wrapper(print)
    with pytest.raises(TypeError, match="scripted"):
        ac2.checkpoint_wrapper(torch.jit.script(torch.nn.Linear(2, 2)))


def test_it_takes_what_pytorchs_wrapper_takes():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl

    block = ac2.checkpoint_wrapper(Block(), checkpoint_impl=CheckpointImpl.NO_REENTRANT, preserve_rng_state=False,
                                   determinism_check="none", debug=False, early_stop=True, respect_saved_tensors_hooks=True,
                                   context_fn=torch_checkpoint.noop_context_fn)
    block(torch.randn(5, 16))
    assert block.enabled
    with pytest.raises(ValueError, match="reentrant"):
        ac2.checkpoint_wrapper(Block(), checkpoint_impl=CheckpointImpl.REENTRANT)


def test_a_context_fn_is_called_for_each_forward():
    """torchtitan's counts matmuls, and begins anew in each."""

    def every_second_mm():
        count = 0

        def policy(ctx, op, *args, **kwargs):
            nonlocal count
            count += op is torch.ops.aten.mm.default
            save = op is torch.ops.aten.mm.default and count % 2 == 1
            return ac2.CheckpointPolicy.MUST_SAVE if save else ac2.CheckpointPolicy.PREFER_RECOMPUTE

        return torch_checkpoint.create_selective_checkpoint_contexts(policy)

    weights = [torch.nn.Linear(16, 16, bias=False) for _ in range(3)]
    model = torch.nn.Sequential(*[part for weight in weights for part in (weight, torch.nn.Tanh())])
    ac2.checkpoint_wrapper(model, context_fn=every_second_mm)
    held = []
    for _ in range(2):
        loss = model(torch.randn(4, 16)).sum()
        held.append(ac2.last_trace(model).stats().saved_bytes)
        loss.backward()
    assert held[0] == held[1]



def test_apply_checkpointing_picks_by_name_class_or_function():
    for selection, expected in [
        ({"modules": "layers.*"}, ["layers.0", "layers.1", "layers.2"]),
        ({"modules": ["layers.[02]", "head"]}, ["layers.0", "layers.2", "head"]),
        ({"modules": "**.lin"}, ["layers.0.lin", "layers.1.lin", "layers.2.lin"]),
        ({"modules": Block}, ["layers.0", "layers.1", "layers.2"]),
        ({"modules": "*"}, ["head"]),  # the list that is its neighbour is not called
        ({"check_fn": lambda module: isinstance(module, torch.nn.BatchNorm1d)}, [f"layers.{i}.norm" for i in range(3)]),
    ]:
        model, x = Model(), torch.randn(5, 16)
        before = run(model, loss_of(x))
        assert ac2.apply_checkpointing(model, **selection, policy="speed") == expected
        assert_same(run(model, loss_of(x)), before)


def test_apply_checkpointing_names_what_picks_nothing():
    model = Model()
    for modules in (5, 1.5, [5], [None]):
        with pytest.raises(TypeError, match="apply_checkpointing: modules .*expected a pattern such as"):
            ac2.apply_checkpointing(model, modules=modules)
    for modules in ("blocks.*", torch.nn.Conv2d, ["layers.*", "blocks.*"], [], ()):
        with pytest.raises(ValueError, match="picks no module of Model"):
            ac2.apply_checkpointing(model, modules=modules)
    with pytest.raises(ValueError, match="check_fn picks no module of Model.*'layers'"):
        ac2.apply_checkpointing(model, check_fn=lambda module: False)
    with pytest.raises(ValueError, match="picks no module of Linear, which has no submodules"):
        ac2.apply_checkpointing(torch.nn.Linear(2, 2), modules="*")
    with pytest.raises(TypeError, match="apply_checkpointing was given 'budget', which is no option.*memory_budget"):
        ac2.apply_checkpointing(model, modules="*", budget=3)
    with pytest.raises(ValueError, match="needs either"):
        ac2.apply_checkpointing(model)
    with pytest.raises(ValueError, match="needs either"):
        ac2.apply_checkpointing(model, modules="*", check_fn=bool)
    assert not any(hasattr(type(module), "_ac2_is_checkpointed") for module in model.modules())


def test_modules_share_a_budget():
    budget = ac2.MemoryBudget(1 << 20)
    model = Model()
    ac2.apply_checkpointing(model, modules="layers.*", memory_budget=budget)
    y = model(torch.randn(5, 16))
    assert budget.held_bytes() > 0
    y.sum().backward()
    assert budget.held_bytes() == 0


def test_modules_share_a_number_of_bytes():
    held = []
    for options in ({"memory_budget": "1MiB"}, {"memory_budget": ac2.MemoryBudget(1 << 20)}):
        torch.manual_seed(0)
        model = Model()
        ac2.apply_checkpointing(model, modules="layers.*", **options)
        budgets = {id(module._ac2_checkpointing.options["memory_budget"]) for module in model.layers}
        assert len(budgets) == 1
        y = model(torch.randn(5, 16))
        held.append(model.layers[0]._ac2_checkpointing.options["memory_budget"].held_bytes())
        y.sum().backward()
    assert held[0] == held[1] > 0


def test_functional_call_reaches_a_wrapped_module():
    block, x = ac2.checkpoint_wrapper(Block().eval()), torch.randn(5, 16)
    parameters = {name: (p * 2).detach().requires_grad_() for name, p in block.named_parameters()}
    actual = torch.func.functional_call(block, parameters, (x,))
    plain = Block().eval()
    plain.load_state_dict(block.state_dict())
    assert same_bits(actual, torch.func.functional_call(plain, parameters, (x,)))
    assert block.enabled
    actual.sum().backward()


class OwnForward:
    """What accelerate does to a module: prepare() with mixed precision, and add_hook_to_module()."""

    @staticmethod
    def mixed_precision(module):
        module._original_forward = module.forward
        function = module.forward.__func__ if hasattr(module.forward, "__func__") else module.forward
        autocast = torch.autocast("cpu", dtype=torch.bfloat16)
        if hasattr(module.forward, "__func__"):
            module.forward = types.MethodType(autocast(function), module)
        else:
            module.forward = autocast(function)

    @staticmethod
    def hook(module):
        module._old_forward = module.forward

        def new_forward(module, *args, **kwargs):
            return module._old_forward(*args, **kwargs)

        module.forward = functools.update_wrapper(functools.partial(new_forward, module), module._old_forward)

    @staticmethod
    def remove_hook(module):
        module.forward = module._old_forward
        del module._old_forward

    @staticmethod
    def by_hand(module):
        module.forward = lambda x, scale=1.0: type(module).forward(module, x, scale)


OWN = [OwnForward.mixed_precision, OwnForward.hook, OwnForward.by_hand]


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
@pytest.mark.parametrize("wrapped", ["before", "after"])
def test_a_forward_of_the_instance_runs_in_one_region(own, wrapped):
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(op)
        return ac2.CheckpointPolicy.PREFER_RECOMPUTE

    def step(model):
        return model(x).float().square().mean()

    plain, block, x = Block(), Block(), torch.randn(5, 16)
    block.load_state_dict(plain.state_dict())
    own(plain)
    if wrapped == "before":
        ac2.checkpoint_wrapper(block, policy)
    own(block)
    if wrapped == "after":
        ac2.checkpoint_wrapper(block, policy)
    expected, actual = step(plain), step(block)
    assert block.enabled and same_bits(actual, expected)
    count = len(asked)
    del asked[:]
    with ac2.PolicyScope(policy):
        plain(x)
    assert count == len(asked)
    for loss in (expected, actual):
        loss.backward()
    for a, b in zip(block.parameters(), plain.parameters()):
        assert same_bits(a.grad, b.grad)


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
def test_a_copy_of_a_module_with_a_forward_of_its_own_is_checkpointed(own):
    block = ac2.checkpoint_wrapper(Block())
    if own is not OwnForward.by_hand:  # whose lambda knows the module that it was made for
        own(block)
        other = copy.deepcopy(block)
        other(torch.randn(5, 16))
        assert other.enabled and not hasattr(block, "enabled")


def test_a_hook_that_is_removed_leaves_the_region():
    block, x = ac2.checkpoint_wrapper(Block()), torch.randn(5, 16)
    OwnForward.hook(block)
    OwnForward.remove_hook(block)
    block(x)
    assert block.enabled
    del block.forward, block.enabled
    block(x)
    assert block.enabled and "forward" not in block.__dict__
    with pytest.raises(AttributeError):
        del block.forward


def test_a_forward_that_the_class_gets_later_runs_in_a_region():
    class Plain(Block):
        pass

    block = ac2.checkpoint_wrapper(Plain())
    type(block).forward = lambda self, x: Block.forward(self, x).sin()
    block(torch.randn(5, 16))
    assert block.enabled


class Noting(torch.nn.Linear):
    def forward(self, x):
        self.enabled = ac2.is_checkpoint_enabled()
        return super().forward(x)


@pytest.mark.parametrize("order", ["weight norm first", "wrapped first"])
def test_weight_norm_can_be_removed_from_a_wrapped_module(order):
    layer, x = Noting(4, 4), torch.randn(2, 4)
    steps = [lambda: torch.nn.utils.parametrizations.weight_norm(layer), lambda: ac2.checkpoint_wrapper(layer)]
    for step in steps if order == "weight norm first" else reversed(steps):
        step()
    other = copy.deepcopy(layer)
    for module in (layer, other):
        module(x).sum().backward()
        assert module.__dict__.pop("enabled") and type(module).__name__ == "ParametrizedNoting"
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    layer(x)
    assert layer.enabled and type(layer).__name__ == "Noting" and list(layer.state_dict()) == ["bias", "weight"]


def test_last_trace_is_that_of_the_last_region():
    model, x = Model(), torch.randn(5, 16)
    ac2.apply_checkpointing(model, modules="layers.*")
    assert ac2.last_trace(model.layers[0]) is None
    model(x).sum().backward()
    first = ac2.last_trace(model.layers[0])
    assert first.stats().recorded_ops > 0 and first.stats().recomputed_ops > 0
    with ac2.PolicyScope("recompute_all") as scope:
        model(x).sum().backward()
    assert ac2.last_trace(model.layers[0]) == scope.trace != first
    for other in (copy.copy(model.layers[0]), copy.deepcopy(model.layers[0]), pickle.loads(pickle.dumps(model.layers[0]))):
        assert ac2.last_trace(other) is None
    with pytest.raises(ValueError, match="Linear that is not wrapped"):
        ac2.last_trace(model.head)


def test_the_report_says_which_modules_had_regions():
    class Reported(Model):
        def forward(self, x):
            return self.layers[1](self.layers[0](x))

    def block_of_a_function(x):
        return x.sin().cos()

    model, x, _other = Reported(), torch.randn(5, 16, requires_grad=True), torch.nn.Tanh()
    ac2.apply_checkpointing(model, modules="layers.*")
    for _ in range(2):
        model(x).sum().backward()
    with ac2.patch_torch_checkpoint():
        torch_checkpoint.checkpoint(block_of_a_function, x, use_reentrant=False)
        torch_checkpoint.checkpoint(functools.partial(model.head.forward), x, use_reentrant=False)
    lines = str(ac2.report()).splitlines()
    mine = [line.strip() for line in lines if line.strip().startswith("Reported.layers.")]
    for line, regions in zip(mine, ["2 regions", "2 regions", "no region"]):
        assert f"(Block): {regions}" in line, line
    assert len(mine) == 3 and any("A module has none if" in line for line in lines)
    assert "  torch.nn.modules.linear.Linear: 1 region" in lines
    assert [line for line in lines if "block_of_a_function: 1 region" in line]
    assert ac2.report()._repr_html_().startswith("<pre>ac2: ")


def test_the_report_of_a_model_is_of_the_last_region_of_each_module(tmp_path):
    model, x, page = Model(), torch.randn(5, 16, requires_grad=True), tmp_path / "page.html"
    with pytest.raises(ValueError, match="a Model of which 0 modules are wrapped"):
        ac2.report(model)
    ac2.apply_checkpointing(model, modules="layers.*", timeline=True)
    with pytest.raises(ValueError, match=f"a Model of which {len(model.layers)} modules are wrapped, and none has had a region"):
        ac2.report(model, page)
    model(x).sum().backward()
    lines = str(ac2.report(model, page)).splitlines()
    assert lines[0] == f"ac2: {len(model.layers)} regions." and lines[1].startswith("  layers.0: ") and "aten::addmm" in page.read_text()
    with ac2.PolicyScope("recompute_all") as scope:
        model(x).sum().backward()
    assert ac2.report(model) == ac2.report(scope)  # all of them are in one region


def test_remove_checkpointing_leaves_the_model_as_it_was():
    x = torch.randn(5, 16)
    model, plain = Model(), Model()
    plain.load_state_dict(model.state_dict())
    ac2.apply_checkpointing(model, modules="layers.*")
    ac2.checkpoint_wrapper(model, memory_budget=1 << 20)
    kept = model.layers[1].forward
    model(x), plain(x)
    assert ac2.remove_checkpointing(model) == ["", "layers.0", "layers.1", "layers.2"]
    assert ac2.remove_checkpointing(model) == []
    assert_same(run(model, loss_of(x)), run(plain, loss_of(x)))
    kept(x), plain.layers[1](x)  # who has kept it has the module's own
    assert not model.layers[1].enabled
    model.layers[0](x), plain.layers[0](x)
    assert not model.layers[0].enabled
    for layer in model.layers:
        layer.enabled = plain.layers[0].enabled
    assert [type(module) for module in model.modules()] == [type(module) for module in plain.modules()]
    archive = pickle.dumps(model)
    assert b"ac2" not in archive and len(archive) == len(pickle.dumps(plain))


def test_remove_checkpointing_leaves_parametrizations():
    layer, x = Noting(4, 4), torch.randn(2, 4)
    torch.nn.utils.parametrizations.weight_norm(ac2.checkpoint_wrapper(layer))
    assert ac2.remove_checkpointing(layer) == [""]
    layer(x)
    assert not layer.enabled and type(layer).__name__ == "ParametrizedNoting"
    torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is Noting


def test_a_module_can_be_off_in_eval_and_under_no_grad():
    block, x = ac2.checkpoint_wrapper(Block(), off_in_eval=True), torch.randn(5, 16)
    other = pickle.loads(pickle.dumps(ac2.checkpoint_wrapper(Block(), off_under_no_grad=True)))
    for module, training, grad, expected in [
        (block, True, True, True), (block, False, True, False), (block, True, False, True),
        (other, True, True, True), (other, False, True, True), (other, True, False, False),
    ]:  # fmt: skip
        with torch.set_grad_enabled(grad):
            module.train(training)(x)
        assert module.enabled == expected


def test_a_budget_may_be_a_text():
    for text, count in [("64MiB", 64 << 20), ("1.5 KiB", 1536), ("8", 8)]:
        assert ac2.checkpoint_wrapper(Block(), memory_budget=text).__dict__["_ac2_checkpointing"].options["memory_budget"] == count
    x = torch.randn(64, 64, requires_grad=True)
    with ac2.PolicyScope(memory_budget="40KiB") as scope:
        y = x.sin().cos().tanh().sin().cos().tanh()
    assert scope.trace.stats().evicted_values > 0
    y.sum().backward()


@pytest.mark.parametrize("wrapped_by", [
    ac2.checkpoint_wrapper, lambda module: ac2.apply_checkpointing(torch.nn.ModuleDict({"graph": module}), modules="graph"),
])
def test_a_graph_module_can_be_recompiled_while_it_is_wrapped(wrapped_by):
    graph, x = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())), torch.randn(2, 4)
    plain = type(graph)
    wrapped_by(graph)
    for _ in range(2):
        with graph.graph.inserting_before(output := list(graph.graph.nodes)[-1]):
            output.args = (graph.graph.call_function(torch.sin, output.args),)
        graph.recompile()
        before = ac2.last_trace(graph)
        y = graph(x)
        assert ac2.last_trace(graph) is not before
    linear = getattr(graph, "0")
    assert same_bits(y, linear(x).relu().sin().sin())
    ac2.remove_checkpointing(graph)
    assert type(graph) is plain and same_bits(graph(x), y)
    graph.recompile()
    assert same_bits(graph(x), y)


@pytest.mark.parametrize("copied", [
    copy.deepcopy,
    copy.copy,
    lambda graph: pickle.loads(pickle.dumps(graph)),
    lambda graph: copy.deepcopy(torch.nn.Sequential(graph))[0],
], ids=["deepcopy", "copy", "pickle", "within a model"])
def test_a_copy_of_a_wrapped_graph_module_is_checkpointed_too(copied):
    graph, x = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())), torch.randn(2, 4)
    ac2.checkpoint_wrapper(graph, "save_compute_intensive", off_in_eval=True)
    other = copied(graph)
    assert isinstance(other, torch.fx.GraphModule) and other is not graph and ac2.last_trace(other) is None
    assert_same(run(other, loss_of(x)), run(graph, loss_of(x)))
    assert same_bits(other(x), graph(x))
    trace = ac2.last_trace(other)
    assert trace != ac2.last_trace(graph) and trace.stats().recorded_ops > 0
    other.eval()(x)
    assert ac2.last_trace(other) == trace  # its settings came along
    ac2.remove_checkpointing(other)
    assert same_bits(other.train()(x), graph(x)) and ac2.last_trace(graph) is not None
    assert type(pickle.loads(pickle.dumps(other))).__bases__ == (torch.fx.GraphModule,)


class Registered(torch.nn.Module):
    kinds = {}

    def __init_subclass__(cls, *, kind, **options):
        super().__init_subclass__(**options)
        Registered.kinds[kind] = cls


class Named(Registered, kind="named"):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).sin()


def test_a_base_with_init_subclass_hears_nothing_of_the_wrapped_modules_class():
    module, x = Named(), torch.randn(2, 4)
    plain = run(copy.deepcopy(module), loss_of(x))
    ac2.checkpoint_wrapper(module)
    assert Registered.kinds == {"named": Named}
    assert_same(run(module, loss_of(x)), plain)
    module(x).sum().backward()
    assert isinstance(module, Named) and ac2.last_trace(module).stats().recomputed_ops > 0
    assert type(pickle.loads(pickle.dumps(module))) is type(module)
    ac2.remove_checkpointing(module)
    assert type(module) is Named


def test_a_region_that_ctrl_c_kept_from_being_closed_ends_with_its_scope(monkeypatch):
    module, x = ac2.checkpoint_wrapper(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())), torch.randn(2, 4)

    def interrupted(self, *exception):
        raise KeyboardInterrupt  # as a signal that arrives at the first instruction

    with monkeypatch.context() as patched:
        patched.setattr(ac2.PolicyScope, "__exit__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module(x)
    assert not ac2.is_checkpoint_enabled()
    module(x).sum().backward()
    assert ac2.last_trace(module).stats().recomputed_ops > 0
