"""The package itself: what it says of itself, and that it is the torch's that is there."""

import ast
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import ac2
from ac2 import _built_with, _C, _torch_version


def stub_names(name):
    tree = ast.parse((pathlib.Path(ac2.__file__).parent / name).read_text())
    functions = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return functions | {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}


def test_every_public_name_has_a_docstring():
    for name in ac2.__all__:
        value = getattr(ac2, name)
        if not isinstance(value, str):
            assert inspect.getdoc(value), name
    for module in (ac2.forms, ac2.policies):
        for name in module.__all__:
            assert inspect.getdoc(getattr(module, name)), name
    assert len(inspect.getdoc(ac2.checkpoint).splitlines()) > 20


def test_the_stubs_name_what_there_is():
    there = {name for name in dir(_C) if not name.startswith("__")}
    assert stub_names("_C.pyi") - {"_T"} == there - {"policies"}
    assert stub_names("policies.pyi") - {"_Op"} == set(ac2.policies.__all__)
    assert (pathlib.Path(ac2.__file__).parent / "py.typed").exists()


def test_every_policy_of_the_runtime_is_there_by_name_and_by_function():
    for name in _C.policy_names():
        assert getattr(ac2.policies, name)().name
        with ac2.PolicyScope(name):
            pass


def test_another_torch_is_an_error_that_says_which_wheel_to_take(monkeypatch):
    monkeypatch.setattr(_built_with, "TORCH_VERSION", "2.3.1")
    minor = ".".join(torch.__version__.split(".")[:2])
    with pytest.raises(ImportError) as caught:
        _torch_version.check()
    for text in ("built for torch 2.3", f"+torch{minor}", "--no-build-isolation", "torch==2.3.*"):
        assert text in str(caught.value)


def test_the_checked_torch_is_the_one_it_was_compiled_with():
    assert _torch_version.minor(_C.torch_version) == _torch_version.minor(_built_with.TORCH_VERSION)
    assert _torch_version.minor(torch.__version__) == _torch_version.minor(_C.torch_version)


def test_headers_cmake_and_package_have_one_version():
    root = pathlib.Path(__file__).parents[2]
    header = (root / "ac2" / "version.h").read_text()
    macros = re.findall(r"^#define AC2_VERSION_(MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE)
    assert [name for name, _ in macros] == ["MAJOR", "MINOR", "PATCH"]
    assert re.findall(r' kVersion = "(.*)";', header) == [ac2.__version__]
    assert ".".join(number for _, number in macros) == ac2.__version__
    assert re.findall(r"^project\(ac2 VERSION (\S+) ", (root / "CMakeLists.txt").read_text(), re.MULTILINE) == [ac2.__version__]


def test_there_is_one_runtime_in_the_process():
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libac2.so" in line}
    assert len(loaded) == 1
    assert os.path.isdir(ac2.cmake_prefix_path)


def test_the_import_does_not_import_the_compiler_which_takes_seconds():
    code = "import sys, ac2; sys.exit(any(name in sys.modules for name in ('torch._dynamo', 'torch._inductor')))"
    path = os.pathsep.join([str(pathlib.Path(ac2.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-B", "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
