"""What an error says that tells that memory ran out."""

import contextlib
import re

import pytest
import torch

import ac2

FAR_TOO_MUCH = 1 << 50


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 512)
        self.second = torch.nn.Linear(512, 64)

    def forward(self, x):
        return self.second(torch.nn.functional.gelu(self.first(x)))


class TakesTooMuchInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.empty(FAR_TOO_MUCH)


@contextlib.contextmanager
def held():
    """A region holds its input, 64 KiB, and 128 KiB of the first layer and as many of GELU."""
    model = Mlp()
    x = torch.randn(64, 256)
    with ac2.PolicyScope("must_save_all"):
        y = model(x)
    del x
    yield model
    del y


def assert_complete(text):
    assert text.count("What ac2 holds:") == 1
    assert "320.00 KiB for backward that nobody else refers to, in 3 tensors" in text
    assert "128.00 KiB  first: aten::addmm [64, 512] float" in text
    assert "128.00 KiB  after first: aten::gelu [64, 512] float" in text
    assert "64.00 KiB  taken by first: from outside the region [64, 256] float" in text


def test_explain_held_names_the_modules():
    with held():
        text = ac2.explain_held()
        assert "128.00 KiB  first: aten::addmm [64, 512] float" in text
        assert "memory_budget" not in text


def test_an_op_in_a_region_says_what_is_held():
    with held():
        with ac2.PolicyScope("recompute_all"), pytest.raises(RuntimeError, match="can't allocate memory") as raised:
            torch.empty(FAR_TOO_MUCH)
        assert_complete(str(raised.value))
        assert "A memory_budget may not be enough" in str(raised.value)
        assert "The memory was asked for by aten::empty.memory_format." in str(raised.value)


def test_the_op_that_asks_has_the_name_of_its_module():
    with held() as model:
        with ac2.PolicyScope("recompute_all"), pytest.raises(RuntimeError, match="can't allocate memory") as raised:
            torch.nn.functional.linear(torch.empty(1, 256).expand(1 << 46, 256), model.first.weight)
        assert re.search(r"The memory was asked for by aten::\w+ of .* float, of first\.\n", str(raised.value)), raised.value


def test_an_error_says_what_the_program_holds_itself():
    with held() as model:
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(1, 256)).sum().backward()
        optimizer.step()
        results = [model(torch.randn(1, 256)) for _ in range(9)]
        text = str(torch.OutOfMemoryError("can't allocate memory: you tried to allocate 4096 bytes."))
        # The state: two numbers for each of a parameter's, and a count of steps for each parameter.
        assert "On cpu the program holds 642.25 KiB of parameters, 642.25 KiB of gradients, 1.25 MiB of Adam's state: no budget" in text
        assert "A list, results, has 9 tensors whose graphs it keeps." in text
        del results, optimizer


def test_a_backward_says_what_is_held():
    with held():
        x = torch.randn(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="can't allocate memory") as raised:
            TakesTooMuchInBackward.apply(x).sum().backward()
        assert_complete(str(raised.value))


def test_an_accelerators_error_says_what_is_held_wherever_it_arises():
    with held():
        with pytest.raises(torch.OutOfMemoryError) as raised:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 KiB. GPU 0 has no more.")
        assert_complete(str(raised.value))
        assert "With a memory_budget of 262144 bytes (256.00 KiB)" in str(raised.value)


def test_without_anything_held_an_error_of_a_region_names_the_op():
    with ac2.PolicyScope("recompute_all"), pytest.raises(RuntimeError) as raised:
        torch.empty(FAR_TOO_MUCH)
    assert "asked for by aten::empty" in str(raised.value) and "regions hold" not in str(raised.value)
    assert str(torch.OutOfMemoryError("no more")) == "no more"
    assert torch.OutOfMemoryError().args == ()


def test_other_errors_are_as_they_were():
    with held():
        x = torch.randn(3, requires_grad=True)
        with pytest.raises(RuntimeError) as raised:
            (x * 2).backward()
        assert "ac2" not in str(raised.value)


def test_several_models_are_told_apart_by_their_classes():
    with held():
        other = torch.nn.Linear(2, 2)
        assert "128.00 KiB  Mlp.first: aten::addmm" in ac2.explain_held()
        del other


def test_names_given_to_tensors_come_first():
    with ac2.PolicyScope("must_save_all"):
        x = torch.randn(4, requires_grad=True)
        y = ac2.name_tensor(x * x, "square").sin()
    assert '16 B  "square": aten::mul.Tensor [4] float' in ac2.explain_held()
    del x, y
