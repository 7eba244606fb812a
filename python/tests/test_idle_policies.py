"""A policy that came to nothing says so once, at the end of the first backward."""

import functools
import gc
import warnings
import weakref

import pytest
import torch

import ac2
from ac2 import CheckpointPolicy

SAVE, RECOMPUTE = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_RECOMPUTE
aten = torch.ops.aten
TO_SAVE = {torch.ops.aten.mm}


def step(policy):
    """The warnings of a step with a product and a sine."""
    x = torch.ones(4, 4, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ac2.PolicyScope(policy):
            y = ac2.name_tensor((x @ x).sin(), "sine").cos()
        y.sum().backward()
    return [str(warning.message) for warning in caught]


def in_a_set(ctx, op, *args, **kwargs):
    return SAVE if op in TO_SAVE else RECOMPUTE


def by_equality(ctx, op, *args, **kwargs):
    if op == torch.ops.aten.mm:
        return SAVE
    return RECOMPUTE


def by_identity_in_a_namespace(ctx, op, *args, **kwargs):
    return op is aten.mm


def in_a_default(ctx, op, *args, to_save=(torch.ops.aten.mm,), **kwargs):
    return op in to_save


class Policy:
    def __call__(self, ctx, op, *args, **kwargs):
        return op in [aten.mm, aten.addmm]


def in_a_closure():
    mine = frozenset([aten.mm])

    @ac2.by_operator
    def in_mine(ctx, op):
        return op in mine

    return in_mine


@pytest.mark.parametrize(
    "policy",
    [in_a_set, by_equality, by_identity_in_a_namespace, in_a_default, Policy(), in_a_closure(), functools.partial(in_a_set)],
    ids=["set", "==", "is", "default", "object", "closure", "partial"],
)
def test_a_function_that_compares_an_overload_with_its_packet_is_told_of(policy):
    (text,) = step(policy)
    assert "torch.ops.aten.mm, which is a packet of overloads" in text and "torch.ops.aten.mm.default" in text


def test_functions_that_know_what_they_are_given_are_not_spoken_of():
    def overloads(ctx, op, *args, **kwargs):
        return op is torch.ops.aten.addmm.default

    def packets(ctx, op, *args, **kwargs):
        return op.overloadpacket == torch.ops.aten.addmm

    def never(ctx, op, *args, **kwargs):
        return RECOMPUTE

    def also_saves(ctx, op, *args, **kwargs):
        return op == torch.ops.aten.mm or op is torch.ops.aten.sin.default

    def others(ctx, op, *args, **kwargs):
        return op == torch.ops.aten.conv2d

    for policy in (overloads, packets, never, also_saves, others, ["aten::mm"], [torch.ops.aten.mm]):
        assert step(policy) == []


def test_names_and_overrides_that_came_to_nothing_are_told_of():
    assert step(ac2.policies.save_only_these_names(["sine"])) == []
    (text,) = step(ac2.policies.save_only_these_names(["sin"]))
    assert 'Is "sine" meant?' in text
    (text,) = step(ac2.policies.per_op_override("must_save_all", {"aten::bmm": True}))
    assert "per_op_override" in text and '"aten::mm"' in text


def hooks():
    return ac2.SaveWithHooks(lambda tensor: tensor.clone(), lambda packed: packed)


def warnings_of(policy, last):
    """Of a step of a sine, which backward needs, and of `last`, whose result it does not. A text is said once a process."""
    x = torch.ones(4, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ac2.PolicyScope(policy):
            y = getattr(x.sin(), last)()
        y.sum().backward()
    return [str(warning.message) for warning in caught]


def of_the_op(name, decision):
    def policy(ctx, op, *args, **kwargs):
        return decision if name in str(op) else RECOMPUTE

    return policy


@pytest.mark.parametrize(
    ("last", "make"),
    [
        ("cos", lambda name: of_the_op(name, hooks())),
        ("sinh", lambda name: ac2.by_operator(of_the_op(name, hooks()))),
        ("cosh", lambda name: ac2.policies.per_op_override("recompute_all", {f"aten::{name}": hooks()})),
        ("atan", lambda name: ac2.policies.by_module({f"** :: aten.{name}": hooks()})),
    ],
    ids=["function", "by_operator", "per_op_override", "by_module"],
)
def test_hooks_that_never_packed_are_told_of(last, make):
    assert warnings_of(make("sin.") if last in ("cos", "sinh") else make("sin"), last) == []
    (text,) = warnings_of(make(last), last)
    assert "pack was not called until the end of the first backward" in text and f'"aten::{last}"' in text


def test_a_function_may_make_hooks_for_each_op_of_which_some_never_pack():
    packed = []

    def policy(ctx, op, *args, **kwargs):
        return ac2.SaveWithHooks(lambda tensor: packed.append(1) or tensor.clone(), lambda tensor: tensor)

    assert warnings_of(policy, "expm1") == []
    assert packed


def test_packets_of_an_object_and_of_a_partial_are_told_of():
    class Chooses:
        def __init__(self):
            self.to_save = {aten.mm}
            self.others = {aten.sin}

        def policy(self, ctx, op, *args, **kwargs):
            return op in self.to_save

    def chooses(to_save, ctx, op, *args, **kwargs):
        return op in to_save

    for policy in (Chooses().policy, functools.partial(chooses, {aten.mm})):
        (text,) = step(policy)
        assert "torch.ops.aten.mm, which is a packet" in text


def test_a_list_of_every_nth_of_which_nothing_ran_is_told_of():
    (text,) = step(ac2.policies.every_nth(2, ["aten::gelu"]))
    assert "every_nth" in text and "aten::gelu" in text
    assert step(ac2.policies.every_nth(2, ["aten::sin"])) == []


def test_hooks_given_as_the_policy_are_told_of():
    x = torch.ones(4, requires_grad=True)
    with ac2.PolicyScope(hooks()):
        y = x.asinh()
    with pytest.warns(UserWarning, match='A policy decided .* pack was not called .* results of "aten::asinh"'):
        y.sum().backward()
    assert warnings_of(hooks(), "cos") == []


def test_hooks_are_told_of_once_and_nothing_of_them_is_kept():
    pair = hooks()
    gone = weakref.ref(pair.pack)
    assert len(warnings_of(of_the_op("log1p", pair), "log1p")) == 1
    assert warnings_of(of_the_op("log1p", pair), "log1p") == []
    del pair
    gc.collect()
    assert gone() is None


def test_a_watched_function_is_freed_with_its_policy():
    def policy(ctx, op, *args, **kwargs):
        return op == aten.mm

    gone = weakref.ref(policy)
    step(policy)
    del policy
    gc.collect()
    assert gone() is None
