"""The same names, orders and defaults in C++ and in Python, read from the headers, the stubs and the package."""

import ast
import inspect
import pathlib
import re

import pytest
import torch

import ac2

_ROOT = pathlib.Path(__file__).parents[2]


def _struct(header, name):
    """The members of a struct of options as (type, name, default), in their order."""
    text = re.sub(r"//.*$", "", (_ROOT / header).read_text(), flags=re.M)
    body = re.search(rf"^struct {name} \{{(.*?)^\}};", text, re.M | re.S).group(1)
    members = re.findall(r"^  ([\w:][\w:<>()&, ]*?) (\w+)\s*=\s*(.*?);[ \t]*$", body, re.M | re.S)
    assert members, f"{name} was not read from {header}"
    return members


def _names(header, struct):
    return [name for _, name, _ in _struct(header, struct)]


def _keywords(function):
    return [each for each in inspect.signature(function).parameters.values() if each.kind == each.KEYWORD_ONLY]


_NOTHING = {"{}", "std::nullopt", "nullptr", '""'}


def _means_the_same(cpp, python):
    if cpp in _NOTHING:
        return python in (None, (), "", False)
    if cpp in ("true", "false"):
        # None where Python asks torch.distributed first.
        return python is (cpp == "true") or python is None
    return cpp.strip('"') == str(python) or float(cpp) == float(python)


# Options of C++ in a struct, and the function of Python that has them as keyword arguments.
_OPTIONS = {
    ("ac2/scope.h", "ScopeOptions"): ac2.PolicyScope.__init__,
    ("ac2/plan.h", "PlanOptions"): ac2.StepPlanner.__init__,
    ("ac2/in_chunks.h", "ChunkOptions"): ac2.in_chunks,
}


@pytest.mark.parametrize("header, struct", list(_OPTIONS))
def test_options_have_the_same_names_order_and_defaults_in_both_languages(header, struct):
    keywords = _keywords(_OPTIONS[header, struct])
    members = _struct(header, struct)
    assert [each.name for each in keywords] == [name for _, name, _ in members]
    differ = [
        (name, default, each.default)
        for each, (_, name, default) in zip(keywords, members)
        if not _means_the_same(default, each.default)
    ]
    assert differ == []


def test_the_binding_takes_the_options_of_a_scope_in_their_order():
    stubs = ast.parse((pathlib.Path(ac2.__file__).parent / "_C.pyi").read_text())
    scope = next(each for each in stubs.body if isinstance(each, ast.ClassDef) and each.name == "Scope")
    init = next(each for each in scope.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    options = _names("ac2/scope.h", "ScopeOptions")
    assert [each.arg for each in init.args.args] == ["self", "policy", *options]
    # self, the policy, and each option.
    taken = re.search(r"__init__\((.*)\) -> None", ac2._C.Scope.__init__.__doc__).group(1)
    assert len(re.findall(r"\barg\d+: ", taken)) == 1 + len(options)


def test_a_checkpointed_module_has_the_options_of_a_scope_and_its_own():
    scope = _struct("ac2/scope.h", "ScopeOptions")
    module = _struct("ac2/nn/checkpointing.h", "CheckpointOptions")
    assert module[: len(scope)] == scope
    own = [name for _, name, _ in module[len(scope) :]]
    assert own == ["keep_output", "offload_inputs", "off_in_eval", "off_under_no_grad"]
    for name, default in [(each.name, each.default) for each in _keywords(ac2.PolicyScope.__init__)]:
        ac2.checkpoint_wrapper(torch.nn.Linear(2, 2), "recompute_all", **{name: default})
    for name in ("off_in_eval", "off_under_no_grad"):
        ac2.checkpoint_wrapper(torch.nn.Linear(2, 2), "recompute_all", **{name: True})


def test_no_option_lies_deeper_than_three_structs():
    structs = {}
    for header in [*(_ROOT / "ac2").glob("*.h"), *(_ROOT / "ac2" / "nn").glob("*.h")]:
        for name in re.findall(r"^struct (\w+(?:Options|Spec)) \{", header.read_text(), re.M):
            structs[name] = [kind for kind, _, _ in _struct(header.relative_to(_ROOT), name)]

    def depth(name):
        inside = [other for other in structs for kind in structs[name] if re.search(rf"\b{other}\b", kind)]
        return 1 + max((depth(other) for other in inside), default=0)

    assert {"ScopeOptions", "CheckpointSpec", "OffloadOptions"} <= set(structs)
    assert {name: depth(name) for name in structs if depth(name) > 3} == {}


def _functions_of_cpp():
    """Names of parameters of the functions at namespace level, of each overload."""
    found = {}
    for header in [*(_ROOT / "ac2").glob("*.h"), *(_ROOT / "ac2" / "nn").glob("*.h"), *(_ROOT / "policies").glob("*.h")]:
        if header.name == "old_names.h":
            continue
        text = re.sub(r"^namespace internal \{.*?^\}  // namespace internal$", "", header.read_text(), flags=re.M | re.S)
        text = re.sub(r"//.*$", "", text, flags=re.M)
        for name, inside in re.findall(r"^(?:[\w:<>&,]+ )+\*?(\w+)\(((?:[^()]|\([^()]*\))*)\)(?: \{|;)", text, re.M):
            bare = inside
            while re.search(r"<[^<>]*>|\{[^{}]*\}|\([^()]*\)", bare):
                bare = re.sub(r"<[^<>]*>|\{[^{}]*\}|\([^()]*\)", "", bare)
            parameters = [re.sub(r"\s*=.*", "", each, flags=re.S).strip() for each in bare.split(",") if each.strip()]
            names = [re.search(r"(\w*)$", each).group(1) for each in parameters]
            found.setdefault(name, []).append([each for each in names if each != "options"])
    return found


# Where Python takes what C++ does not, or has another habit for it.
_OTHER_PARAMETERS = {
    "checkpoint": "torch.utils.checkpoint's",
    "checkpoint_sequential": "torch.utils.checkpoint's",
    "in_chunks": "tensors follow the function one by one",
    "apply_checkpointing": "CheckpointSpec is keyword arguments",
    "replayable": "a decorator takes the function first",
    "write_report": "one trace, a scope or a list of them",
}


def test_functions_take_their_arguments_in_the_same_order_in_both_languages():
    compared, differ = [], {}
    for name, overloads in _functions_of_cpp().items():
        function = getattr(ac2, name, None) or getattr(ac2.policies, name, None)
        if function is None or name in _OTHER_PARAMETERS:
            continue
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # of the binding's
            continue
        positional = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        compared.append(name)
        if not any(positional[: len(each)] == each[: len(positional)] for each in overloads):
            differ[name] = (overloads, positional)
    assert {"plan", "explain", "tag_with_policy", "name_tensor"} <= set(compared)
    assert differ == {}


def test_a_report_is_written_of_a_trace_to_a_path():
    assert _functions_of_cpp()["write_report"] == [["trace", "path"], ["traces", "path"]]
    assert list(inspect.signature(ac2.write_report).parameters)[1:] == ["path"]
