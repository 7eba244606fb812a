"""A memory budget without a number: what a program sees of it in Python."""

import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from support import same_bits

import ac2


def layers(count=8, width=32):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(count)))


def test_nothing_is_dropped_while_there_is_memory():
    model, x = layers(), torch.randn(4, 32)
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    with ac2.PolicyScope(memory_budget=ac2.whatever_fits()) as scope:
        loss = model(x).sum()
    loss.backward()
    assert scope.trace.stats().evicted_values == 0
    assert scope.trace.stats().recomputed_ops == 0
    assert all(same_bits(parameter.grad, wanted) for parameter, wanted in zip(model.parameters(), expected))
    assert ac2.live_node_count() == 0


def test_each_call_gives_the_same_budget():
    assert ac2.whatever_fits().bytes() == 2**63 - 1
    assert repr(ac2.whatever_fits()) == "whatever_fits()"
    x = torch.randn(256, requires_grad=True)
    with ac2.PolicyScope(memory_budget=ac2.whatever_fits(modelled_costs=True), modelled_costs=True):
        y = x.sin().sin()
    assert ac2.whatever_fits(modelled_costs=True).held_bytes() == 1024
    assert ac2.whatever_fits().held_bytes() == 0
    y.sum().backward()


def test_costs_are_modelled_where_the_budget_is_made():
    with pytest.raises(ValueError, match="whatever_fits"):
        ac2.PolicyScope(memory_budget=ac2.whatever_fits(), modelled_costs=True).__enter__()


def test_modules_and_functions_take_it():
    model = layers()
    ac2.apply_checkpointing(model, modules="*", memory_budget=ac2.whatever_fits())
    x = torch.randn(4, 32)
    model(x).sum().backward()
    ac2.checkpoint(layers(), x, memory_budget=ac2.whatever_fits()).sum().backward()


# In a process of its own, whose memory ends.
STEP = textwrap.dedent(
    """
    import hashlib, resource, sys
    import torch, ac2

    def layers(width, count):
        torch.manual_seed(0)
        return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Tanh())
                                     for _ in range(count)))

    def train(model, x, budget):
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            with ac2.PolicyScope(memory_budget=budget) if budget else torch.enable_grad():
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        return digest.hexdigest()

    train(layers(64, 2), torch.randn(64, 64), None)   # threads and their stacks are there
    torch.manual_seed(1)
    x = torch.randn(16384, 128)                       # 8 MiB
    how = sys.argv[1]
    if "limited" in how:
        pages = int(open("/proc/self/statm").read().split()[0])
        most = pages * resource.getpagesize() + (256 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        print("trained", train(layers(128, 20), x, ac2.whatever_fits() if "region" in how else None))   # 480 MiB
    except RuntimeError as error:
        print("error", error)
    print(ac2.whatever_fits().bytes())
    """
)


def train(how):
    done = subprocess.run([sys.executable, "-c", STEP, how], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_step_that_needs_more_than_the_process_has_has_the_bits_of_plain_training():
    plain = train("plain")
    assert train("plain limited")[0].startswith("error")
    fits = train("region limited")
    assert fits[0] == plain[0]
    assert int(fits[-1]) < 1 << 40  # learned
    assert train("region") == plain


LOSS = textwrap.dedent(
    """
    import re, resource
    import torch, ac2
    import torch.nn.functional as F

    hidden, words = torch.randn(2048, 64, requires_grad=True), torch.randn(65536, 64, requires_grad=True)
    target = torch.randint(65536, (2048,))

    def loss_of(hidden, target):
        return F.cross_entropy(hidden @ words.T, target, reduction="sum")   # logits of 512 MiB

    def step(chunks):
        with ac2.PolicyScope(memory_budget=ac2.whatever_fits()):
            if chunks:
                loss = ac2.in_chunks(loss_of, hidden, target, chunks=chunks, reduce="sum")
            else:
                loss = loss_of(hidden, target)
        loss.backward()
        return loss.item()

    F.cross_entropy(hidden[:64] @ words.T, target[:64]).backward()   # threads and their stacks are there
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        step(None)
    except RuntimeError as error:
        chunks = int(re.search(r"in (\\d+) chunks of rows, by ac2.in_chunks", str(error)).group(1))
    whole = step(chunks)
    by_row = sum(F.cross_entropy(hidden[i:i + 16] @ words.T, target[i:i + 16], reduction="sum").item()
                 for i in range(0, 2048, 16))
    print(chunks, abs(whole - by_row) / by_row < 1e-5, bool(words.grad.isfinite().all()))
    """
)


def test_the_number_of_chunks_that_an_error_names_does():
    done = subprocess.run([sys.executable, "-c", LOSS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    chunks, *holds = done.stdout.split()
    assert int(chunks) > 2 and holds == ["True", "True"], done.stdout


PEAK = textwrap.dedent(
    """
    import torch, ac2

    budget = ac2.MemoryBudget.peak(48 << 20)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(12)))
    x = torch.randn(8192, 64)                                  # 2 MiB, and so is each result
    def step():
        model(x).square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        return gradients
    with ac2.DisableCheckpointing():
        expected = step()                                      # goes over, and is warned of
    assert budget.times_over() > 0
    over = budget.times_over()
    with ac2.PolicyScope(memory_budget=budget) as scope:
        actual = step()
    assert budget.times_over() == over
    assert scope.trace.stats().evicted_values > 0
    assert all(torch.equal(a, b) for a, b in zip(actual, expected))
    print(budget)
    """
)


def test_a_bound_on_the_peak():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "MemoryBudget.peak(50331648)\n"
    assert done.stderr.count("The peak of 50331648 bytes is exceeded") == 1, done.stderr


def test_only_a_positive_number_is_a_peak():
    with pytest.raises(ValueError, match="bytes is 0; expected a positive number of bytes"):
        ac2.MemoryBudget.peak(0)


@pytest.mark.parametrize(
    "text",
    ["MemoryBudget(4096)", "MemoryBudget.soft(4096)", "MemoryBudget.peak(1099511627776)", "whatever_fits()",
     "MemoryBudget.soft(4096, modelled_costs=True)", "whatever_fits(modelled_costs=True)"],
)
def test_a_budget_prints_as_what_makes_it_and_is_pickled_as_that(text):
    budget = eval("ac2." + text)
    assert repr(budget) == text
    assert repr(pickle.loads(pickle.dumps(budget))) == text


def test_a_wrapped_model_is_pickled_with_its_budget():
    model = layers(2)
    ac2.apply_checkpointing(model, modules="*", memory_budget=ac2.MemoryBudget.soft(4096))
    again = pickle.loads(pickle.dumps(model))
    x = torch.randn(4, 32)
    again(x).sum().backward()
    model(x).sum().backward()
    assert all(same_bits(a.grad, b.grad) for a, b in zip(again.parameters(), model.parameters()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_peak_limits_what_the_allocator_of_a_gpu_reserves_and_lets_go_of_it():
    # 12 layers of some 100 MiB each.
    model, x = layers(12, 1024).cuda(), torch.randn(8192, 1024, device="cuda")

    def gradients():
        found = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        return found

    def most_reserved():
        return torch.cuda.memory_stats()["reserved_bytes.all.peak"]

    model(x).sum().backward()
    gradients()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model(x).sum().backward()
    expected = gradients()
    plain = most_reserved()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    budget = ac2.MemoryBudget.peak(plain * 6 // 10)
    for _ in range(3):
        with ac2.PolicyScope(memory_budget=budget) as scope:
            loss = model(x).sum()
        loss.backward()
        assert all(same_bits(found, wanted) for found, wanted in zip(gradients(), expected))
    assert scope.trace.stats().recomputed_ops > 0
    assert most_reserved() <= plain * 6 // 10
    assert torch.cuda.get_per_process_memory_fraction() < 1
    del budget, scope, loss
    assert torch.cuda.get_per_process_memory_fraction() == 1
