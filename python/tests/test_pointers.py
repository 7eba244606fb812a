"""Writes that no dispatcher sees."""

import ctypes
import gc

import numpy
import pytest
import torch
import torch.utils.dlpack
from support import same_bits

import ac2


def by_numpy(tensor):
    tensor.numpy()[:] = 3


def by_array(tensor):
    numpy.asarray(tensor)[:] = 3


def by_dlpack(tensor):
    torch.from_dlpack(tensor).fill_(3)


def by_capsule(tensor):
    torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor)).fill_(3)


def write_threes(pointer, tensor):
    threes = (ctypes.c_float * tensor.numel())(*[3] * tensor.numel())
    ctypes.memmove(pointer, threes, ctypes.sizeof(threes))


def by_pointer(tensor):
    write_threes(tensor.data_ptr(), tensor)


def by_storage(tensor):
    write_threes(tensor.untyped_storage().data_ptr(), tensor)


def by_view(tensor):
    tensor[2:].numpy()[:] = 3


WRITES = [by_numpy, by_array, by_dlpack, by_capsule, by_pointer, by_storage, by_view]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all"])
def test_a_write_through_a_pointer_is_what_backward_sees(write, policy):
    def gradient(region):
        w = torch.arange(8.0).requires_grad_()
        x = torch.arange(8.0) + 1
        with region:
            z = (x * 2).detach()
            write(z)
            loss = (w * z).sum()
        del z
        gc.collect()
        loss.backward()
        return w.grad

    assert same_bits(gradient(ac2.PolicyScope(policy)), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("write", WRITES)
def test_a_write_after_autograd_has_saved_is_what_backward_sees(write):
    def gradient(region):
        w = torch.arange(8.0).requires_grad_()
        with region:
            z = (torch.arange(8.0) * 2).detach()
            loss = (w * z).sum()
            write(z)
        del z
        gc.collect()
        loss.backward()
        return w.grad

    assert same_bits(gradient(ac2.PolicyScope("recompute_all")), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("write", WRITES)
def test_what_is_computed_from_a_written_result_is_recomputed_from_it(write):
    def gradient(region):
        w = torch.arange(8.0).requires_grad_()
        with region:
            z = (torch.arange(8.0) * 2).detach()
            write(z)
            loss = (w * z.exp().sin()).sum()
        del z
        loss.backward()
        return w.grad

    assert same_bits(gradient(ac2.PolicyScope("recompute_all")), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("write", WRITES)
def test_what_was_computed_before_a_write_is_recomputed_from_what_there_was_then(write):
    def gradient(region):
        x = torch.arange(8.0).requires_grad_()
        with region:
            z = x.sin()
            loss = z.cos().exp().sum()
            write(z.detach())
        del z
        gc.collect()
        loss.backward()
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope("recompute_all")), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("keep", [False, True])
def test_a_write_after_the_region_is_what_backward_sees_of_what_autograd_has_saved(write, keep):
    def gradient(region):
        x = torch.arange(8.0).requires_grad_()
        with region:
            z = x + 1
            sine = (z * 2).sin()
            loss = (sine.cos() * sine.exp()).sum()
        write(z.detach())  # which no formula of autograd needs
        write(sine.detach())
        if not keep:
            del z, sine
            gc.collect()
        loss.backward()
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope("recompute_all")), gradient(ac2.DisableCheckpointing()))


def test_an_array_sees_what_an_op_writes_later_and_backward_what_the_array_writes():
    def gradient(region):
        w = torch.arange(8.0).requires_grad_()
        with region:
            z = (torch.arange(8.0) * 2).detach()
            array = z.numpy()
            z.add_(1)
            array[:4] = 7
            loss = (w * z).sum()
        del z, array
        gc.collect()
        loss.backward()
        return w.grad

    assert same_bits(gradient(ac2.PolicyScope("recompute_all")), gradient(ac2.DisableCheckpointing()))


def test_who_hands_out_no_pointer_pays_nothing():
    x = torch.randn(64, requires_grad=True)
    with ac2.PolicyScope("recompute_all") as scope:
        y = x.sin().cos().sin().sum()
    held = scope.trace.stats().saved_bytes
    assert held == 64 * 4
    y.backward()


def test_a_result_that_has_handed_out_its_pointer_is_held():
    x = torch.randn(64, requires_grad=True)
    with ac2.PolicyScope("recompute_all") as scope:
        z = x.sin()
        z.data_ptr()
        y = z.cos().sum()
    del z
    assert scope.trace.stats().saved_bytes == 2 * 64 * 4
    y.backward()
    assert scope.trace.stats().recomputed_ops == 0


def test_the_methods_are_still_those_of_torch():
    with ac2.PolicyScope("recompute_all"):
        pass
    x = torch.randn(4)
    assert x.numpy().shape == (4,) and x.data_ptr() == x.untyped_storage().data_ptr()
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, requires_grad=True).numpy()
    assert torch.Tensor.numpy.__name__ == "numpy" and torch.Tensor.data_ptr.__doc__


def numpy_array(path):
    array = numpy.ones((4, 4), numpy.uint8)
    return array, torch.from_numpy(array)


def byte_buffer(path):
    buffer = bytearray(b"\1" * 16)
    return numpy.frombuffer(buffer, numpy.uint8), torch.frombuffer(buffer, dtype=torch.uint8).view(4, 4)


def capsule(path):
    array = numpy.ones((4, 4), numpy.uint8)
    return array, torch.from_dlpack(array)


def as_tensor(path):
    array = numpy.ones((4, 4), numpy.float32)
    return array, torch.as_tensor(array)


def shared_memory(path):
    tensor = torch.ones(4, 4).share_memory_()
    return tensor.numpy(), tensor


def view_of_a_tensor(path):
    tensor = torch.ones(4, 4)
    return tensor.numpy(), tensor


def mapped_file(path):
    array = numpy.memmap(path / "frames", numpy.float32, "w+", shape=(4, 4))
    array[:] = 1
    return array, torch.from_numpy(array)


BUFFERS = [numpy_array, byte_buffer, capsule, as_tensor, shared_memory, mapped_file, view_of_a_tensor]


def must_recompute(context, op, *args, **kwargs):
    return ac2.CheckpointPolicy.MUST_RECOMPUTE


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("options", [{"policy": "recompute_all"}, {"policy": "must_save_all"}, {"policy": must_recompute}, {"memory_budget": 4096}])
def test_what_was_computed_from_a_buffer_is_computed_from_what_it_held_then(tmp_path, buffer, options):
    def gradient(region):
        array, tensor = buffer(tmp_path)
        x = torch.full((4, 4), 0.5).requires_grad_()
        with region:
            y = (tensor.float() / 255 * x).sum()
            array[:] = 200
            z = y + (tensor.float() / 255 * x).sin().sum()
        z.backward()
        array[:] = 0
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope(**options)), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("when", ["in the region", "after the region", "between two backwards"])
@pytest.mark.parametrize("options", [{"policy": "recompute_all"}, {"policy": "must_save_all"}, {"memory_budget": 4096}])
def test_an_array_that_is_made_of_what_a_region_has_taken_may_be_filled(when, options):
    def gradient(region):
        x = torch.full((4, 4), 0.5).requires_grad_()
        outside = torch.ones(4, 4)
        with region:
            inside = (outside * 2).detach()
            y = ((outside.sin() + inside.cos()) * x).exp().sum()
            if when == "in the region":
                outside.numpy()[:] = 5
                inside.numpy()[:] = 6
            y = y + ((outside.tanh() + inside.sin()) * x).exp().sum()
        if when == "after the region":
            outside.numpy()[:] = 5
            inside.numpy()[:] = 6
        y.backward(retain_graph=True)
        if when == "between two backwards":
            outside.numpy()[:] = 5
            inside.numpy()[:] = 6
        y.backward()
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope(**options)), gradient(ac2.DisableCheckpointing()))


def write_through(capsule, count):
    """As a library does that has taken the capsule: a DLManagedTensor begins with the pointer to the bytes."""
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    managed = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
    data = ctypes.c_void_p.from_address(managed).value
    ctypes.memmove(data, (ctypes.c_float * count)(*[3] * count), 4 * count)


CAPSULES = {"method": lambda tensor: tensor.__dlpack__(), "function": lambda tensor: torch.utils.dlpack.to_dlpack(tensor)}


@pytest.mark.parametrize("capsule_of", CAPSULES.values(), ids=CAPSULES.keys())
@pytest.mark.parametrize("options", [{"policy": "recompute_all"}, {"policy": "must_save_all"}, {"memory_budget": 4096}])
def test_a_capsule_that_is_made_after_the_region_of_what_the_region_has_taken_may_be_written_to(capsule_of, options):
    def gradient(region):
        x = torch.full((4, 4), 0.5).requires_grad_()
        outside, saved = torch.ones(4, 4), torch.ones(4, 4)
        with region:
            y = ((outside.sin() + saved.cos()) * x * saved).exp().sum()
        write_through(capsule_of(outside), 16)
        write_through(capsule_of(saved), 16)
        y.backward()
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope(**options)), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("alias", [torch.from_dlpack, lambda v: torch.from_numpy(v.numpy())])
@pytest.mark.parametrize("policy", ["recompute_all", "must_save_all"])
def test_a_write_through_an_alias_is_a_write_to_the_tensor(alias, policy):
    def gradient(region):
        x = torch.full((4, 4), 0.5).requires_grad_()
        c = torch.arange(16.0).view(4, 4)
        with region:
            v = (c * 2).detach()
            before = (v.cos() * x).exp()
            w = alias(v)
            between = (v.sin() * x).exp()
            w *= 3
            z = (before * between + v.tanh() * x + v * x).sum()
        del v
        z.backward()
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope(policy)), gradient(ac2.DisableCheckpointing()))


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("options", [{"policy": "recompute_all"}, {"policy": "must_save_all"}, {"memory_budget": 4096}])
def test_what_a_region_has_taken_may_be_moved_to_shared_memory_and_written_to(is_over, options):
    def gradient(region):
        x = torch.full((4, 4), 0.5).requires_grad_()
        outside = torch.ones(4, 4)

        def share():
            outside.share_memory_()
            outside.add_(1)
            outside.untyped_storage()[0] = 7  # as another process may

        with region:
            y = (outside.sin() * x).exp().sum()
            if not is_over:
                share()
        if is_over:
            share()
        y.backward()
        return x.grad

    assert same_bits(gradient(ac2.PolicyScope(**options)), gradient(ac2.DisableCheckpointing()))


def test_weights_in_a_mapped_file_are_not_copied(tmp_path):
    torch.save({"w": torch.randn(128, 256)}, tmp_path / "weights.pt")
    w = torch.load(tmp_path / "weights.pt", mmap=True)["w"]
    x = torch.randn(128, 256, requires_grad=True)
    with ac2.PolicyScope("recompute_all") as scope:
        y = (x + w).sin().cos().sum()
    stats = scope.trace.stats()
    assert stats.copied_bytes == 0 and stats.saved_bytes == 2 * 128 * 256 * 4  # x and w
    y.backward()
    assert scope.trace.stats().recomputed_ops == 2
