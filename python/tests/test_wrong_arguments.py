"""Wrong arguments of public functions: the error says what was given and what was expected, and nothing has changed."""

import contextlib
import pickle

import pytest
import torch

import ac2

X = torch.ones(2, 4, requires_grad=True)


def model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())


@contextlib.contextmanager
def a_scope():
    with ac2.PolicyScope("recompute_all") as scope:
        yield scope


def planner():
    return ac2.StepPlanner(lambda: X.detach().requires_grad_().sin().exp().sum().backward())


@pytest.mark.parametrize("error, text, call", [
    (TypeError, r"^timeline is 'x.html'; expected True or False", lambda: ac2.PolicyScope("recompute_all", timeline="x.html")),
    (TypeError, r"^verify is 2; expected True or False", lambda: ac2.PolicyScope("recompute_all", verify=2)),
    (TypeError, r"^gather_units is 2; expected True or False", lambda: ac2.PolicyScope("recompute_all", gather_units=2)),
    (TypeError, r"^keep_for_next_backward is 2; expected True", lambda: ac2.PolicyScope("recompute_all", keep_for_next_backward=2)),
    (TypeError, r"^modelled_costs is 3; expected True or False", lambda: ac2.MemoryBudget(5, modelled_costs=3)),
    (TypeError, r"^memory_budget is tensor\(1024.5000\); expected a number", lambda: ac2.PolicyScope(memory_budget=torch.tensor(1024.5))),
    (TypeError, r"^bytes is tensor\(\[1, 2\]\); expected a number", lambda: ac2.MemoryBudget.soft(torch.tensor([1, 2]))),
    (TypeError, r"^verify is 'no'; expected True or False", lambda: ac2.PolicyScope("recompute_all", verify="no")),
    (TypeError, r"^modelled_costs is \[\]; expected", lambda: ac2.PolicyScope(memory_budget=100, modelled_costs=[])),
    (TypeError, r"^off_in_eval is 'yes'; expected", lambda: ac2.checkpoint_wrapper(model(), off_in_eval="yes")),
    (TypeError, r"^whatever_fits was given '1GiB'.*ac2.MemoryBudget\(bytes\)", lambda: ac2.whatever_fits("1GiB")),
    (TypeError, r"^whatever_fits was given 3;", lambda: ac2.whatever_fits(3)),
    (TypeError, r"^ac2.checkpoint was given 3 to run; expected a function", lambda: ac2.checkpoint(3, X)),
    (TypeError, r"^context_fn is 3; expected a function", lambda: ac2.checkpoint(model(), X, context_fn=3)),
    (TypeError, r"^context_fn returned None; expected two", lambda: ac2.checkpoint(model(), X, context_fn=lambda: None)),
    (TypeError, r"^context_fn returned \(3, 4\)", lambda: ac2.checkpoint_wrapper(model(), context_fn=lambda: (3, 4))),
    (ValueError, r"^checkpoint_sequential was given use_reentrant=True",
     lambda: ac2.checkpoint_sequential(model(), 1, X, use_reentrant=True)),
    (ValueError, r"^checkpoint_sequential was given an empty list. Put the functions that are to run into it",
     lambda: ac2.checkpoint_sequential([], 2, X)),
    (ValueError, r"^checkpoint_sequential was given an empty Sequential. Put the functions",
     lambda: ac2.checkpoint_sequential(torch.nn.Sequential(), 1, X)),
    (TypeError, r"^checkpoint_sequential was given '2' segments", lambda: ac2.checkpoint_sequential(model(), "2", X)),
    (TypeError, r"^checkpoint_sequential was given 2.0 segments", lambda: ac2.checkpoint_sequential(model(), 2.0, X)),
    (TypeError, r"^checkpoint_sequential was given Linear.*expected a torch.nn.Sequential or a list",
     lambda: ac2.checkpoint_sequential(model()[0], 1, X)),
    (TypeError, r"^apply_checkpointing was given 3; expected a torch.nn.Module", lambda: ac2.apply_checkpointing(3, modules="*")),
    (TypeError, r"^apply_checkpointing: check_fn is 3;", lambda: ac2.apply_checkpointing(model(), check_fn=3)),
    (TypeError, r"check_fn is <class .*Linear'>; .*go to modules=",
     lambda: ac2.apply_checkpointing(model(), check_fn=torch.nn.Linear)),
    (TypeError, r"^apply_checkpointing: modules is Sequential", lambda: ac2.apply_checkpointing(model(), modules=model())),
    (TypeError, r"^write_report was given 3; expected an ac2.Trace", lambda: ac2.write_report(3, "x.html")),
    (TypeError, r"^write_report was given <ac2.PolicyScope.*scope.trace", lambda: ac2.write_report(ac2.PolicyScope("recompute_all"), "x.html")),
    (TypeError, r"^write_report was given 3; expected an ac2.Trace", lambda: ac2.write_report([3], "x.html")),
    (TypeError, r"^keeps is 3; expected a function", lambda: planner().summarize(3)),
    (TypeError, r"^by_operator was given 'speed'; expected a function", lambda: ac2.by_operator("speed")),
    (TypeError, r"^name_tensor was given the name 3; expected a text", lambda: ac2.name_tensor(X, 3)),
    (TypeError, r"^managed_elsewhere was given one Tensor; expected several", lambda: ac2.managed_elsewhere(X)),
    (TypeError, r"^managed_elsewhere was given one Linear.*model.parameters\(\)", lambda: ac2.managed_elsewhere(model()[0])),
    (TypeError, r"^A name is 3; expected a text", lambda: ac2.policies.save_only_these_names([3])),
    (TypeError, r"^ac2.checkpoint was given None to run; expected a function", lambda: ac2.checkpoint(None, X)),
    (ValueError, r"^\"sped\" is no policy: did you mean \"speed\"", lambda: ac2.checkpoint(policy="sped")),
    (TypeError, r"^ac2.checkpoint was given 3 to decorate; expected a function", lambda: ac2.checkpoint(policy="speed")(3)),
    (ValueError, r"^ac2.checkpoint was given use_reentrant='x'", lambda: ac2.checkpoint(model(), X, use_reentrant="x")),
    (TypeError, r"^policy is the function ac2.policies.speed, .*pass ac2.policies.speed\(\)",
     lambda: ac2.PolicyScope(ac2.policies.speed)),
    (TypeError, r"^policy is the function ac2.policies.by_size, .*by_size\(\.\.\.\)", lambda: ac2.PolicyScope(ac2.policies.by_size)),
    (TypeError, r"^policy is GELU.*; expected a name such as", lambda: ac2.PolicyScope(torch.nn.GELU())),
    (TypeError, r"^ac2.policies.every_nth was called as every_nth\(2.5\); expected every_nth\(n: ", lambda: ac2.policies.every_nth(2.5)),
    (TypeError, r"^ac2.MemoryBudget was called as MemoryBudget\(\); expected MemoryBudget\(bytes: object, ", lambda: ac2.MemoryBudget()),
    (TypeError, r"^ac2.MemoryBudget.peak was called as peak\(\); expected peak\(bytes: ", lambda: ac2.MemoryBudget.peak()),
    (TypeError, r"^ac2.SaveWithHooks was called as SaveWithHooks\(1, 2\); expected SaveWithHooks\(pack: Callable, unpack: Callable\)\.$",
     lambda: ac2.SaveWithHooks(1, 2)),
    (TypeError, r"^forms\[1\] is 8; expected a form: ac2.forms.one_bit\(\), or an object of a class that is derived from ac2.Form\.$",
     lambda: ac2.PolicyScope("recompute_all", forms=[ac2.forms.one_bit(), 8])),
    (TypeError, r"^forms\[0\] is <function one_bit", lambda: ac2.plan(lambda: None, 8, forms=[ac2.forms.one_bit])),
    (TypeError, r"^forms is ac2.forms.one_bit\(\); expected a list", lambda: ac2.load_plan("x", forms=ac2.forms.one_bit())),
    (TypeError, r"^forms is 'speed'; expected a list", lambda: ac2.checkpoint_wrapper(model(), forms="speed")),
    (ValueError, r"^forms has the form \"one bit\" twice\. Give each form once",
     lambda: ac2.PolicyScope("recompute_all", forms=[ac2.forms.one_bit(), ac2.forms.one_bit()])),
    (ValueError, r"^ac2.forms.quantized was given 3 bits; expected 8 or 4", lambda: ac2.forms.quantized(3)),
    (TypeError, r"^ac2.forms.quantized was given '8' as its bits; expected a whole number", lambda: ac2.forms.quantized("8")),
    (ValueError, r"^ac2.forms.quantized was given the seed -1", lambda: ac2.forms.quantized(8, seed=-1)),
    (TypeError, r"^ac2.forms.narrow was given 8; expected a dtype", lambda: ac2.forms.narrow(8)),
    (ValueError, r"^ac2.forms.narrow was given torch.int8; expected one of torch.bfloat16", lambda: ac2.forms.narrow(torch.int8)),
    (TypeError, r"^ac2.forms.file was given 8; expected the path of a directory", lambda: ac2.forms.file(8)),
    (ValueError, r"^ac2.forms.file was given \"\" as its directory", lambda: ac2.forms.file("")),
    (ValueError, r"/no/such/directory", lambda: ac2.forms.file("/no/such/directory")),
    (TypeError, r"^ac2.forms.functions was given 3 as unpack; expected a function", lambda: ac2.forms.functions(torch.clone, 3)),
    (TypeError, r"^exact is 'yes'; expected True or False", lambda: ac2.forms.functions(torch.clone, torch.clone, "yes")),
    (ValueError, r"^OffloadOptions was given -1; expected numbers of bytes", lambda: ac2.forms.host_memory(min_bytes=-1)),
    (ValueError, r"^The policy is ac2.forms.host_memory\(min_bytes=8\), which has options of its own\. .*give the scope offload=", lambda: ac2.PolicyScope(ac2.forms.host_memory(min_bytes=8))),
    (TypeError, r"^pickle was given ac2.forms.functions\(.*derived from ac2.Form",
     lambda: pickle.dumps(ac2.forms.functions(torch.clone, torch.clone))),
    (TypeError, r"^ac2.OffloadOptions was called as OffloadOptions\(foo=1\); expected OffloadOptions\(\*, min_bytes: int = ",
     lambda: ac2.OffloadOptions(foo=1)),
    (TypeError, r"^ac2.SaveScope was called as SaveScope\(3\); expected SaveScope\(\)\.$", lambda: ac2.SaveScope(3)),
    (TypeError, r"^ac2.sqrt_segments was called as sqrt_segments\('x'\); expected sqrt_segments\(modules: int\)\.$",
     lambda: ac2.sqrt_segments("x")),
    (TypeError, r"^offload_to_cpu is 'no'; expected True or False", lambda: ac2.checkpoint_wrapper(model(), offload_to_cpu="no")),
    (ValueError, r"^checkpoint_wrapper was given a ModuleList, which has no forward.*Wrap the modules in it",
     lambda: ac2.checkpoint_wrapper(torch.nn.ModuleList([model()]))),
    (ValueError, r"'0' picks '0', a ModuleList, which has no forward.*modules=\"0\.\*\"",
     lambda: ac2.apply_checkpointing(torch.nn.Sequential(torch.nn.ModuleList([model()])), modules="0")),
    (ValueError, r"^apply_checkpointing: check_fn picks no module",
     lambda: ac2.apply_checkpointing(torch.nn.ModuleList([model()]), check_fn=lambda m: isinstance(m, torch.nn.ModuleList))),
    (ValueError, r"^sqrt_segments was asked to divide -1 modules", lambda: ac2.sqrt_segments(-1)),
    (TypeError, r"^pickle was given .*policy by its name", lambda: pickle.dumps(ac2.checkpoint_wrapper(model(), ac2.policies.speed()))),
    (TypeError, r"^pickle was given .*a function of a Python module", lambda: pickle.dumps(ac2.policies.speed())),
    (TypeError, r"^pickle was given .*A plan is written to a file by plan.save\(path\), and read by ac2.load_plan",
     lambda: pickle.dumps(ac2.plan(lambda: X.sin().exp().sum(), "1MiB"))),
    (RuntimeError, r"^No plan holds this step within 1 bytes.*\(memory_budget=; in C\+\+ ScopeOptions::memory_budget\)",
     lambda: ac2.plan(lambda: X.sin().exp().sum(), 1, recording_budget="1MiB")),
])
def test_the_error_says_what_was_given_and_what_was_expected(error, text, call):
    with pytest.raises(error, match=text):
        call()
    assert not ac2.is_checkpoint_enabled()


def test_options_that_are_off_or_on_take_what_stands_for_it():
    import numpy

    for flag in (None, False, True, 0, 1, numpy.True_):
        ac2.PolicyScope("recompute_all", timeline=flag)


@pytest.mark.parametrize("guard", [ac2.DisableCheckpointing, ac2.SaveScope, ac2.RecomputeScope], ids=lambda kind: kind.__name__)
def test_a_block_that_is_not_open_cannot_be_left(guard):
    block = guard()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^This {guard.__name__} is not open. Use it in a with statement."):
            block.__exit__(None, None, None)
        with block, block:  # which may be open several times
            pass
    with a_scope():
        assert ac2.is_checkpoint_enabled()
