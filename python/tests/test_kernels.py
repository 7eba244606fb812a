"""Kernels that extension modules bind and that write through pointers: a region gives what plain PyTorch gives."""

import contextlib
import ctypes
import gc
import importlib.util
import inspect
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path

import pytest
import torch
from support import same_bits
from torch.utils.cpp_extension import include_paths, library_paths

import ac2
from ac2 import _C


@pytest.fixture(scope="session")
def shared_object(tmp_path_factory):
    """Compiled once. Without torch/extension.h, which takes longer."""
    path = tmp_path_factory.mktemp("kernels") / ("kernels" + sysconfig.get_config_var("EXT_SUFFIX"))
    includes = [f"-I{directory}" for directory in (*include_paths(), sysconfig.get_paths()["include"])]
    libraries = [option for directory in library_paths() for option in (f"-L{directory}", f"-Wl,-rpath,{directory}")]
    source = Path(__file__).with_name("kernels.cc")
    command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", *includes, str(source), "-o", str(path), *libraries]
    subprocess.run([*command, "-ltorch_python", "-ltorch_cpu", "-lc10"], check=True)
    return path


@pytest.fixture(scope="session")
def kernels(shared_object):
    """As torch.utils.cpp_extension loads it."""
    spec = importlib.util.spec_from_file_location("kernels", shared_object)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*may write to the tensors that it is given", UserWarning)
        yield


N = 8
OPTIONS = [
    {"policy": "recompute_all"},
    {"policy": "must_save_all"},
    {"policy": "memory"},
    {"memory_budget": ac2.MemoryBudget.soft(64)},
]


@pytest.fixture(params=OPTIONS, ids=["recompute_all", "must_save_all", "memory", "budget"])
def options(request):
    return request.param


def assert_as_plain(gradient, options):
    """``gradient(region)`` gives tensors; it is called with a region and without one."""
    actual, expected = gradient(ac2.PolicyScope(**options)), gradient(ac2.DisableCheckpointing())
    for mine, plain in zip(actual, expected):
        assert same_bits(mine, plain)


def leaf():
    return torch.arange(1.0, N + 1).requires_grad_()


MAKERS = {
    "mul": lambda: torch.ones(N) * 3,
    "fill_": lambda: torch.empty(N).fill_(2),
    "zero_": lambda: torch.ones(N).zero_(),
    "to": lambda: torch.ones(N, dtype=torch.float64).to(torch.float32),
    "contiguous": lambda: torch.ones(2, N // 2).t().contiguous().view(N),
    "neg": lambda: -torch.zeros(N),
    "expand": lambda: torch.ones(1).expand(N).contiguous(),
    "cat": lambda: torch.cat([torch.zeros(N // 2), torch.ones(N // 2)]),
    "pad": lambda: torch.nn.functional.pad(torch.ones(N - 2), (1, 1)),
    "clone": lambda: torch.ones(N).clone(),
    "empty_like": lambda: torch.ones(N).zero_().new_zeros(N),
    "a_view": lambda: (torch.ones(2 * N) * 2)[N:],
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_what_a_kernel_adds_to_a_result_is_what_backward_sees(kernels, make, options):
    def gradient(region):
        w, x = leaf(), leaf()
        with region:
            h = x.sin()
            y = make()
            kernels.add_twice(h.detach(), y)
            loss = (w * y.exp() + h.exp()).sum()
        del y, h
        gc.collect()
        loss.backward()
        return w.grad, x.grad

    assert_as_plain(gradient, options)


class AddTwice(torch.autograd.Function):
    kernels = None

    @staticmethod
    def forward(ctx, x, make):
        y = make()
        AddTwice.kernels.add_twice(x, y)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * (2 + x - x) + y - y, None


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_a_kernel_in_an_autograd_function_is_what_backward_sees(kernels, make, options):
    AddTwice.kernels = kernels

    def gradient(region):
        x = leaf()
        with region:
            y = AddTwice.apply(x.sin(), make)
            loss = (y.exp() * y).sum()
        del y
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


class Negate(torch.autograd.Function):
    kernels = None

    @staticmethod
    def forward(ctx, x):
        Negate.kernels.neg_(x)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def test_a_function_that_writes_its_input_by_a_kernel(kernels, options):
    Negate.kernels = kernels

    def gradient(region):
        x, w = leaf(), leaf()
        with region:
            h = x.exp() * 2
            s = h.cos() + w
            y = Negate.apply(h + 1)
            loss = (s.sin() * y.sigmoid() * w).sum()
        del h, s, y
        gc.collect()
        loss.backward()
        return x.grad, w.grad

    assert_as_plain(gradient, options)


def by_method_o(kernels, y):
    kernels.neg_(y)


def by_list(kernels, y):
    kernels.negate([y])


def by_object(kernels, y):
    kernels.Kernel().run(y)


def by_bound_method(kernels, y):
    run = kernels.Kernel().run
    run(y)


def by_call_operator(kernels, y):
    kernels.Kernel()(y)


def by_static_method(kernels, y):
    kernels.Kernel.run_anywhere(y)


def by_keyword(kernels, y):
    kernels.square(y, out=y)


def by_tuple(kernels, y):
    kernels.neg_by_tuple(y)


def by_tuple_and_dict(kernels, y):
    kernels.square_by_tuple(y, out=y)


def by_unpacked_arguments(kernels, y):
    kernels.square_by_tuple(*[y], **{"out": y})


def by_plain_object(kernels, y):
    kernels.PlainKernel().run(y)


def by_failing(kernels, y):
    with pytest.raises(ValueError, match="after it has written"):
        kernels.fail(y)


def by_apply(kernels, y):
    y.apply_(lambda number: -number)


def by_map(kernels, y):
    y.map_(torch.arange(float(N)), lambda a, b: a - 2 * b)


def by_map2(kernels, y):
    y.map2_(torch.arange(float(N)), torch.ones(N), lambda a, b, c: a - 2 * b + c)


WRITES = [
    by_method_o,
    by_list,
    by_object,
    by_bound_method,
    by_call_operator,
    by_static_method,
    by_keyword,
    by_tuple,
    by_tuple_and_dict,
    by_unpacked_arguments,
    by_plain_object,
    by_failing,
    by_apply,
    by_map,
    by_map2,
]


@pytest.mark.parametrize("write", WRITES)
def test_ops_before_a_kernel_keep_what_they_read_and_ops_after_it_read_what_it_wrote(kernels, write, options):
    def gradient(region):
        x = leaf()
        with region:
            y = x.sin() * 2
            before = y.cos().exp().tanh()
            write(kernels, y.detach())
            after = y.detach().exp() * x
            loss = (before * after.sin()).sum()
        del y, before, after
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("saved", [False, True])
def test_the_same_for_a_tensor_from_outside(kernels, write, saved, options):
    def gradient(region):
        x, outside = leaf(), torch.arange(float(N))
        with region:
            before = (outside.cos() * x).exp().tanh()
            if saved:
                before = before + outside * x
            write(kernels, outside)
            after = outside.exp() * x
            loss = (before * after.sin()).sum()
        del before, after
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


@pytest.mark.parametrize("write", WRITES)
def test_a_kernel_after_the_region_leaves_what_ops_read(kernels, write, options):
    def gradient(region):
        x = leaf()
        with region:
            y = x.sin() * 2
            loss = y.cos().exp().tanh().sum()
        write(kernels, y.detach())
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("saved", [False, True])
def test_a_kernel_after_the_region_leaves_what_ops_read_of_a_tensor_from_outside(kernels, write, saved, options):
    def gradient(region):
        x, outside = leaf(), torch.arange(float(N))
        with region:
            loss = (outside.cos() * x).exp().tanh().sum()
            if saved:
                loss = loss + (outside * x).sum()
        write(kernels, outside)
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_kernel_writes_to_a_tensor_by_another_one_over_the_same_memory(kernels, is_over, options):
    def gradient(region):
        x, outside = leaf(), torch.arange(float(N))
        alias = torch.from_dlpack(outside)
        with region:
            loss = (outside.cos() * x).exp().tanh().sum()
            if not is_over:
                kernels.neg_(alias)
        if is_over:
            kernels.neg_(alias)
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


def test_the_copy_of_what_a_kernel_overwrites_after_the_region_is_made_once_and_only_if_the_kernel_writes(kernels):
    x = leaf()
    outside = torch.ones(N)
    with ac2.PolicyScope("recompute_all") as scope:
        loss = (outside.cos() * x).exp().sin().sum()
    kernels.sum(outside)
    assert scope.trace.stats().copied_bytes == 0
    kernels.neg_(outside)
    assert scope.trace.stats().copied_bytes == N * 4
    kernels.neg_(outside)
    assert scope.trace.stats().copied_bytes == N * 4
    loss.backward()


def in_doubles(context, op, *args, **kwargs):
    return ac2.SaveWithHooks(lambda tensor: tensor.double(), lambda tensor: tensor.float())


@pytest.mark.parametrize(
    "options",
    [
        {"policy": in_doubles},
        {"memory_budget": ac2.MemoryBudget.soft(64), "forms": [ac2.forms.functions(torch.Tensor.double, torch.Tensor.float)]},
    ],
    ids=["decided", "for room"],
)
def test_a_kernel_that_writes_to_what_is_held_in_a_form(kernels, options):
    def gradient(region):
        x = leaf()
        with region:
            y = x.sin() * 2
            before = (y * y).tanh()
            kernels.neg_(y.detach())
            after = y.detach().exp() * x
            loss = (before * after).sum()
        del y, before, after
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


def test_a_kernel_returns_what_it_has_written_to_the_result_of_an_op(kernels, options):
    def gradient(region):
        x = leaf()
        with region:
            y = kernels.doubled(x)
            loss = (y.exp() * x).sum()
        del y
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


def test_every_call_at_a_place_is_seen(kernels):
    """The interpreter specialises instructions that have called the same kind of function several times."""

    def gradient(region):
        w = leaf()
        loss = 0
        kernel = kernels.PlainKernel()
        with region:
            for i in range(100):
                y = torch.ones(N) * i
                kernels.neg_(y)
                z = torch.ones(N) * 0.5
                kernels.square(y, out=z)
                kernels.add_twice(z, y)
                kernels.neg_by_tuple(y)
                kernel.run(y)
                loss = loss + (w * (y * 1e-3).cos()).sum()
        del y, z
        loss.backward()
        return (w.grad,)

    assert_as_plain(gradient, {})


PROGRAM = """
import importlib.util, math, sys, warnings
import torch
import torch.utils.cpp_extension  # whose modules are not in sys.modules
spec = importlib.util.spec_from_file_location("kernels", sys.argv[1])
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
neg_, run = kernels.neg_, kernels.Kernel.__dict__["run"].__func__
for _ in range(100):
    neg_(torch.ones(2))
import ac2

def gradient(region):
    w = torch.arange(1.0, 9).requires_grad_()
    with region:
        y = torch.ones(8) * 2
        neg_(y)
        z = torch.ones(8) * 2
        run(kernels.Kernel(), z)
        loss = (w * y.exp() * z.exp()).sum()
    del y, z
    loss.backward()
    return w.grad

warnings.simplefilter("ignore")
assert torch.equal(gradient(ac2.PolicyScope("recompute_all")), gradient(ac2.DisableCheckpointing()))
assert neg_ is kernels.neg_
assert not ac2._C.watch_kernel(neg_, ""), "a function that is watched is not watched twice"
for function in (torch.add, torch._C._nn.gelu, torch.Tensor.__dict__.get("add", torch._C.TensorBase.add), math.sin):
    assert ac2._C.watch_kernel(function, ""), f"{function} is no kernel, and was watched"
"""


def test_functions_that_were_imported_before_the_first_region_are_seen_and_others_left_alone(shared_object):
    subprocess.run([sys.executable, "-B", "-c", PROGRAM, str(shared_object)], check=True)


def test_functions_are_what_they_were(kernels):
    with ac2.PolicyScope("recompute_all"):
        pass
    for function in (kernels.neg_, kernels.square, kernels.add_twice, kernels.sum):
        assert not _C.watch_kernel(function, "again"), "it is watched already"
        assert isinstance(function, type(len)) and function is getattr(kernels, function.__name__)
    assert kernels.neg_.__doc__ == "neg_(tensor)" and "y += 2 * x" in kernels.add_twice.__doc__
    assert kernels.negate(2.5) == -2.5, "overloads are found"
    with pytest.raises(TypeError, match="incompatible function arguments"):
        kernels.negate("text")
    with pytest.raises(TypeError, match="takes exactly one argument"):
        kernels.neg_()
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        kernels.neg_by_tuple(tensor=torch.ones(1))
    assert inspect.isclass(kernels.Kernel) and kernels.Kernel.run.__name__ == "run"


def test_a_kernel_that_only_reads_copies_nothing(kernels):
    x = leaf()
    outside = torch.ones(N)
    with ac2.PolicyScope("recompute_all") as scope:
        y = (outside.cos() * x).exp()
        kernels.sum(outside)
        loss = y.sin().sum()
    assert scope.trace.stats().copied_bytes == 0
    loss.backward()


def test_the_copy_of_what_a_kernel_overwrites_is_counted(kernels):
    x = leaf()
    outside = torch.ones(N)
    with ac2.PolicyScope("recompute_all") as scope:
        y = (outside.cos() * x).exp()
        kernels.neg_(outside)
        loss = y.sin().sum()
    assert scope.trace.stats().copied_bytes == N * 4
    loss.backward()


def test_a_kernel_is_told_of_once_by_name_and_bytes(kernels):
    x = leaf()

    def step():
        with ac2.PolicyScope("recompute_all"):
            y = x * 2
            kernels.told_of(y.detach())
            loss = y.sin().sum()
        loss.backward()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step()
        step()
    (text,) = [str(warning.message) for warning in caught]
    assert "kernels.told_of" in text and f"{N * 4} bytes" in text and "torch.library.custom_op" in text


def test_a_warning_that_is_an_error_leaves_nothing_behind(kernels):
    x = leaf()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="kernels.told_of_as_an_error"):
            with ac2.PolicyScope("recompute_all"):
                y = x * 2
                kernels.told_of_as_an_error(y.detach())


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def exchange_api():
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = get_pointer(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return (ctypes.c_void_p * 7).from_address(table)


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="torch before 2.11 has no such table")
def test_a_write_through_the_table_of_dlpack_is_what_backward_sees(options):
    tensor_of = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))(exchange_api()[5])

    def gradient(region):
        x = leaf()
        with region:
            y = x.sin() * 2
            before = y.cos().exp()
            view = DLTensor()
            assert tensor_of(y.detach(), ctypes.byref(view)) == 0
            assert view.shape[0] == N
            ctypes.memmove(view.data, (ctypes.c_float * N)(*[3] * N), 4 * N)
            loss = (before * y.detach().exp() * x).sum()
        del y, before
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="torch before 2.11 has no such table")
def test_a_library_that_has_asked_for_the_table_before_ac2_was_there_is_seen():
    program = """
import contextlib, ctypes, torch
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
table = (ctypes.c_void_p * 7).from_address(get(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))
import ac2
def gradient(region):
    x = torch.linspace(0, 1, 8).requires_grad_()
    with region:
        y = x.sin() * 2
        before = y.cos().exp()
        view = (ctypes.c_void_p * 16)()
        assert ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(table[5])(y.detach(), view) == 0
        ctypes.memset(view[0], 0, 32)
        loss = (before * y.detach().exp() * x).sum()
    del y, before
    loss.backward()
    return x.grad
plain = gradient(contextlib.nullcontext())
assert torch.equal(gradient(ac2.PolicyScope("recompute_all")), plain)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="torch before 2.11 has no such table")
def test_an_owning_tensor_of_that_table_too(options):
    owning = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))(exchange_api()[3])

    def gradient(region):
        x = leaf()
        with region:
            y = x.sin() * 2
            before = y.cos().exp()
            managed = ctypes.c_void_p()
            assert owning(y.detach(), ctypes.byref(managed)) == 0
            # DLManagedTensorVersioned: version, manager_ctx, deleter, flags, dl_tensor
            ctypes.memmove(DLTensor.from_address(managed.value + 32).data, (ctypes.c_float * N)(*[3] * N), 4 * N)
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_void_p.from_address(managed.value + 16).value)(managed)
            loss = (before * y.detach().exp() * x).sum()
        del y, before
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


def test_a_kernel_of_ctypes_is_what_backward_sees(shared_object, options):
    def gradient(region):
        x = leaf()
        with region:
            y = x.sin() * 2
            before = y.cos().exp()
            ctypes.memset(ctypes.c_void_p(y.detach().data_ptr()), 0, 4 * N)
            loss = (before * y.detach().exp() * x).sum()
        del y, before
        gc.collect()
        loss.backward()
        return (x.grad,)

    assert_as_plain(gradient, options)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "write",
    [
        lambda c: c.apply_(lambda number: number / 2),
        lambda c: c.map_(torch.arange(float(N)), lambda number, other: number * other),
        lambda c: c[2:].apply_(lambda number: number + 1),
        lambda c: c.data.apply_(lambda number: number + 1),
    ],
)
def test_apply_and_map_write_between_a_region_and_its_backward(options, write):
    def step(scope):
        torch.manual_seed(0)
        w, c = torch.randn(N, requires_grad=True), torch.randn(N)
        with scope:
            y = ((c * 2).exp() * w).sin()
        write(c)
        return torch.autograd.grad(y.sum(), w)[0], c

    plain = step(contextlib.nullcontext())
    assert all(same_bits(a, b) for a, b in zip(step(ac2.PolicyScope(**options)), plain))
