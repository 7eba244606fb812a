"""Threads that want Python's lock, the GIL, while a thread that has it waits for them."""

import subprocess
import sys
import textwrap


def run_program(text):
    """In a process of its own, which two threads that wait for each other would never end."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_backward_in_python_that_waits_for_its_turn_lets_others_run_python():
    # The first thread unpacks in its turn, in Python. The second one has the GIL and waits for the turn.
    assert run_program("""
        import sys, threading
        import torch, ac2

        sys.setswitchinterval(1000)  # a thread keeps the GIL until it waits for something
        in_unpack, second_comes = threading.Event(), threading.Event()

        def unpack(packed):
            in_unpack.set()
            second_comes.wait()
            return packed[0]

        hooks = ac2.SaveWithHooks(lambda tensor: [tensor.clone()], unpack)

        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x.sin())
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                in_unpack.wait()
                second_comes.set()
                (saved,) = ctx.saved_tensors
                return grad * 2 + saved

        x, w = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
        with ac2.PolicyScope(lambda ctx, op, *args, **kwargs: hooks if op is torch.ops.aten.exp.default
                             else ac2.CheckpointPolicy.PREFER_RECOMPUTE):
            first, second = x.exp().sum(), Twice.apply(w).sum()
        threads = [threading.Thread(target=loss.backward) for loss in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.equal(x.grad, torch.ones(4).exp()) and torch.equal(w.grad, 2 + torch.ones(4).sin())
        print("done")
    """) == ["done"]


def test_a_tensor_of_pythons_that_is_being_spilled_is_let_go_of_while_backward_waits_for_it():
    # A dispatch mode makes the copy that is written, so that the writer lets go of an object of Python's.
    assert run_program("""
        import sys, tempfile
        import torch, ac2
        from torch.utils._python_dispatch import TorchDispatchMode

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return func(*args, **(kwargs or {}))

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x.sin())
                return x[:1] * 2

            @staticmethod
            def backward(ctx, grad):
                (saved,) = ctx.saved_tensors
                return saved * grad

        x = torch.ones(1 << 23, requires_grad=True)
        with tempfile.TemporaryDirectory() as directory:
            with Mode(), ac2.PolicyScope(ac2.policies.spill_to_file(directory, ["aten::sin"])):
                loss = Scaled.apply(x).sum()
            sys.setswitchinterval(1000)
            loss.backward()
        assert torch.equal(x.grad, torch.ones(1 << 23).sin())
        print("done")
    """) == ["done"]
