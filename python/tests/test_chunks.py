"""One op that is too large: in_chunks() runs a function on a few rows at a time."""

import pytest
import torch
import torch.nn.functional as F
from support import same_bits

import ac2

ROWS, COLUMNS, WORDS = 12, 16, 64


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def by_rows(x):
    return x.exp().sin().softmax(1).tanh()


@pytest.mark.parametrize("chunks", [1, 2, 5, 12, 40])
@pytest.mark.parametrize("around", [None, "recompute_all", "must_save_all"])
def test_work_by_rows_has_the_bits_of_one_call(chunks, around):
    x = leaf(ROWS, COLUMNS)
    expected = torch.autograd.grad(by_rows(x).sum(), x)[0]
    with ac2.DisableCheckpointing() if around is None else ac2.PolicyScope(around):
        y = ac2.in_chunks(by_rows, x, chunks=chunks)
    assert same_bits(y, by_rows(x)) and same_bits(torch.autograd.grad(y.sum(), x)[0], expected)


def test_the_function_runs_once_for_each_chunk():
    rows = []

    def fn(x):
        rows.append(len(x))
        return by_rows(x)

    ac2.in_chunks(fn, leaf(ROWS, COLUMNS), chunks=5).sum().backward()
    assert rows == [3, 3, 2, 2, 2]
    rows.clear()
    ac2.in_chunks(fn, torch.ones(130, 4), bytes=64 * 50)  # four results of 16 bytes a row
    assert rows == [2, 43, 43, 42]


def test_a_cross_entropy_that_ignores_targets_has_its_mean():
    hidden, words = leaf(ROWS, COLUMNS), leaf(WORDS, COLUMNS)
    target = torch.arange(ROWS)
    target[:5] = -100

    def loss_of(hidden, target):
        logits = hidden @ words.T
        return F.cross_entropy(logits, target, reduction="sum", label_smoothing=0.1), (target != -100).sum()

    loss = ac2.in_chunks(loss_of, hidden, target, chunks=5, reduce="mean")
    plain = F.cross_entropy(hidden @ words.T, target, label_smoothing=0.1)
    torch.testing.assert_close(loss, plain)
    for found, expected in zip(torch.autograd.grad(loss, (hidden, words)), torch.autograd.grad(plain, (hidden, words))):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_sums_of_a_half_precision_are_as_near_as_one(dtype):
    torch.manual_seed(0)
    x, words, target = torch.randn(2048, 16).to(dtype), torch.randn(64, 16).to(dtype), torch.randint(64, (2048,))

    def both(chunks, dtype=dtype, **how):
        w = words.to(dtype).requires_grad_()

        def loss_of(x, target):
            loss = F.cross_entropy(x.to(dtype) @ w.T, target, reduction="mean" if how else "sum")
            return loss if how else (loss, (target != -100).sum())

        loss = ac2.in_chunks(loss_of, x, target, chunks=chunks, reduce="mean")
        return loss.double().item(), torch.autograd.grad(loss**2, w)[0].double()

    truth, of_truth = both(1, torch.float64)
    for chunks in (512, 2048):
        for how in ({}, {"mean": True}):
            loss, gradient = both(chunks, **how)
            assert abs(loss - truth) < 0.01 * truth
            assert (gradient - of_truth).norm() < 0.02 * of_truth.norm()


def test_the_gradient_of_a_shared_tensor_reaches_its_hooks_once_and_has_its_type():
    words = torch.randn(8, 16).bfloat16().requires_grad_()
    seen = []
    shared = words * 2
    shared.register_hook(lambda gradient: seen.append(gradient.dtype))
    x = torch.randn(64, 16).bfloat16().requires_grad_()
    y = ac2.in_chunks(lambda x: (x @ shared.T).tanh(), x, chunks=16)
    y.sum().backward(retain_graph=True)
    assert seen == [torch.bfloat16] and words.grad.dtype == torch.bfloat16
    first = words.grad.clone()
    words.grad = None
    y.sum().backward()
    assert same_bits(words.grad, first)
    for chunks in (1, 4):  # and can be differentiated again
        y = ac2.in_chunks(lambda x: (x @ words.T).tanh(), x, chunks=chunks)
        (gradient,) = torch.autograd.grad(y.sum(), words, create_graph=True)
        (second,) = torch.autograd.grad(gradient.float().square().sum(), words)
        expected = second if chunks == 1 else expected
        assert (second.double() - expected.double()).norm() <= 0.02 * expected.double().norm()


def test_rows_that_take_more_than_the_first_are_measured_again():
    made = []

    def sines(x):
        made.append(x.shape[0])
        return torch.cat([x[:, :1], x[:, 1:].sin().repeat(1, 1 if len(made) == 1 else 50)], 1).sum(1, keepdim=True)

    ac2.in_chunks(sines, torch.randn(256, 8), bytes=20000)
    # The second chunk has taken too much, and those behind it take less.
    assert made[0] == 4 and made[1] > 40 and max(made[2:]) < 15 and sum(made) == 256
    made.clear()
    ac2.in_chunks(lambda x: made.append(x.shape[0]) or x.sin(), torch.randn(4096, 4), bytes=1 << 14)
    assert made[0] == 16


def test_one_chunk_may_write_to_what_it_is_given():
    x = torch.randn(8, 6, requires_grad=True)
    relu = torch.nn.ReLU(inplace=True)
    for run in (lambda: ac2.in_chunks(relu, x * 1, chunks=1), lambda: ac2.tiled_mlp(relu, x * 1)):
        assert same_bits(torch.autograd.grad(run().sum(), x)[0], torch.autograd.grad(x.relu().sum(), x)[0])


def test_an_mlp_takes_one_token_too():
    linear, token = torch.nn.Linear(6, 3), torch.randn(6)
    assert same_bits(ac2.tiled_mlp(linear, token), linear(token[None])[0])


def test_a_loss_can_be_planned_on_the_meta_device_and_says_what_it_has_no_derivative_for():
    with torch.device("meta"):
        hidden, words, target = leaf(8, 4), leaf(6, 4), torch.zeros(8, dtype=torch.long)
    ac2.linear_cross_entropy(hidden, words, target).backward()
    assert hidden.grad.shape == (8, 4)
    hidden, words, target = leaf(8, 4), leaf(6, 4), torch.zeros(8, dtype=torch.long)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(hidden.detach(), torch.ones(8, 4))
        with pytest.raises(RuntimeError, match="input has a tangent.*in_chunks"):
            ac2.linear_cross_entropy(dual, words, target)
    with pytest.raises(RuntimeError, match="torch.func.*in_chunks"):
        torch.func.grad(lambda hidden: ac2.linear_cross_entropy(hidden, words.detach(), target))(hidden.detach())


# docs/guide.md says these bounds. `further`: how much further from the sums in double those of the chunks may be.
@pytest.mark.parametrize("dtype, bound, further", [(torch.float32, 4e-7, 1.25), (torch.bfloat16, 0.02, 2)])
@pytest.mark.parametrize("chunks", [4, 16, 64])
def test_sums_over_chunks_are_within_a_few_roundings_of_plain_ones(dtype, bound, further, chunks):
    def distance(a, b):
        return ((a - b).norm() / b.norm()).item()

    for seed in range(3):
        torch.manual_seed(seed)
        numbers = torch.randn(1024, 64).to(dtype), torch.randn(WORDS, 64).to(dtype)
        target = torch.randint(WORDS, (1024,))

        def found(dtype, chunks):
            hidden, words = (tensor.to(dtype).requires_grad_() for tensor in numbers)

            def loss_of(hidden, target):
                return F.cross_entropy(hidden @ words.T, target, reduction="sum")

            loss = ac2.in_chunks(loss_of, hidden, target, chunks=chunks, reduce="sum")
            return loss.detach().double(), torch.autograd.grad(loss, words)[0].double()

        exact, plain, ours = found(torch.float64, 1), found(dtype, 1), found(dtype, chunks)
        assert all(distance(mine, its) <= bound for mine, its in zip(ours, plain))
        assert distance(ours[1], exact[1]) <= further * distance(plain[1], exact[1])


def test_chunks_may_be_cut_into_chunks():
    x = leaf(ROWS, COLUMNS)
    y = ac2.in_chunks(lambda rows: ac2.in_chunks(by_rows, rows, chunks=2), x, chunks=3)
    assert same_bits(y, by_rows(x))
    assert same_bits(*(torch.autograd.grad(z.square().sum(), x)[0] for z in (y, by_rows(x))))


@pytest.mark.parametrize("draw", [torch.rand_like, torch.randn_like, F.dropout], ids=["uniform", "normal", "dropout"])
def test_backward_has_the_random_numbers_of_forward_chunk_by_chunk(draw):
    x = leaf(ROWS, 5)
    torch.manual_seed(1)
    y = ac2.in_chunks(lambda rows: rows * draw(torch.ones_like(rows)), x, chunks=3)
    torch.manual_seed(1)
    drawn = torch.cat([draw(torch.ones(4, 5)) for _ in range(3)])
    assert same_bits(y, x * drawn) and same_bits(torch.autograd.grad(y.sum(), x)[0], drawn)
    torch.manual_seed(1)
    if draw is torch.rand_like:  # docs/guide.md says of which the numbers are those of one call
        assert same_bits(drawn, draw(torch.ones(ROWS, 5)))


def test_autocast_is_that_of_the_call_in_forward_and_in_backward():
    hidden, words, target = leaf(ROWS, COLUMNS), leaf(WORDS, COLUMNS), torch.arange(ROWS)

    def loss_of(hidden, target):
        return F.cross_entropy(F.linear(hidden, words), target, reduction="sum")

    def found(call):
        loss = call()
        return [loss, *torch.autograd.grad(loss, (hidden, words))]

    exact = found(lambda: loss_of(hidden, target))
    with torch.autocast("cpu", torch.bfloat16):
        plain = loss_of(hidden, target)
        ours = ac2.in_chunks(loss_of, hidden, target, chunks=3, reduce="sum")
    plain, ours = found(lambda: plain), found(lambda: ours)
    for mine, its, true in zip(ours, plain, exact):
        assert mine.dtype == its.dtype == torch.float32
        assert 0 < (mine - true).norm() <= 1.5 * (its - true).norm()


def test_second_derivatives_of_a_mean_are_those_of_one_call():
    hidden, words, target = leaf(ROWS, COLUMNS), leaf(WORDS, COLUMNS), torch.arange(ROWS)

    def loss_of(hidden, target):
        return F.cross_entropy(hidden @ words.T, target)

    def second(loss):
        first = torch.autograd.grad(loss, (hidden, words), create_graph=True)
        return torch.autograd.grad(sum(gradient.square().sum() for gradient in first), (hidden, words))

    ours = second(ac2.in_chunks(loss_of, hidden, target, chunks=4, reduce="mean"))
    for mine, its in zip(ours, second(loss_of(hidden, target))):
        torch.testing.assert_close(mine, its)


def test_a_budget_keeps_what_chunks_made_while_there_is_room_and_a_plan_does_not():
    words, hidden, target = leaf(512, COLUMNS), leaf(64, COLUMNS), torch.arange(64)

    def loss_of(hidden, target):
        return F.cross_entropy(hidden @ words.T, target, reduction="sum")

    def forward():
        return ac2.in_chunks(loss_of, hidden.sin(), target, chunks=8, reduce="sum")

    expected = torch.autograd.grad(forward(), (hidden, words))
    most = 16 * 64 * 512 * 4  # far more than all results
    plan = ac2.plan(lambda: forward().backward(), most)
    recomputed = []
    for policy, budget in [(plan, None), (None, most), (None, 100 * 1024), (None, ac2.whatever_fits())]:
        with ac2.PolicyScope(policy, memory_budget=budget) as scope:
            loss = forward()
        for mine, its in zip(torch.autograd.grad(loss, (hidden, words)), expected):
            assert same_bits(mine, its)
        recomputed.append(scope.trace.stats().recomputed_ops)
    assert recomputed[0] == plan.summary.replayed_ops > 0
    assert recomputed[1] == recomputed[3] == 0 < recomputed[2]


def test_a_tuple_comes_back_as_a_tuple():
    x = leaf(ROWS, COLUMNS)
    both = ac2.in_chunks(lambda x: (x.sin(), x.cos()), x, chunks=3)
    assert isinstance(both, tuple) and same_bits(both[0], x.sin()) and same_bits(both[1], x.cos())
    sums = ac2.in_chunks(lambda x: [x.sum(), x.square().sum()], x, chunks=3, reduce="sum")
    torch.testing.assert_close(sums, (x.sum(), x.square().sum()))


def test_wrong_use_is_an_error_that_says_what_was_expected():
    x = torch.ones(4, 4)
    for kind, match, call in [
        (ValueError, "either the number of chunks or the bytes", lambda: ac2.in_chunks(by_rows, x)),
        (ValueError, "tensor 1 has 3 rows", lambda: ac2.in_chunks(torch.add, x, x[:3], chunks=2)),
        (ValueError, 'reduce is "max"', lambda: ac2.in_chunks(by_rows, x, chunks=2, reduce="max")),
        (ValueError, "chunks must be a positive number", lambda: ac2.in_chunks(by_rows, x, chunks=0)),
        (ValueError, "no tensor to cut", lambda: ac2.in_chunks(by_rows, chunks=2)),
        (TypeError, "chunks is 1.5", lambda: ac2.in_chunks(by_rows, x, chunks=1.5)),
        (TypeError, "expected a function", lambda: ac2.in_chunks(x, x, chunks=2)),
        (TypeError, "expected tensors to cut", lambda: ac2.in_chunks(by_rows, x, 3, chunks=2)),
        (TypeError, "the function returned 3", lambda: ac2.in_chunks(lambda x: 3, x, chunks=2)),
        (RuntimeError, "cannot be concatenated", lambda: ac2.in_chunks(torch.sum, x, chunks=2)),
        (RuntimeError, "has 4 rows along dimension 0 for a chunk of 2", lambda: ac2.in_chunks(torch.t, x, chunks=2)),
        (ZeroDivisionError, "", lambda: ac2.in_chunks(lambda x: 1 // 0, x, chunks=2)),
        (RuntimeError, "aten::batch_norm in training", lambda: ac2.in_chunks(torch.nn.BatchNorm1d(4), x, chunks=2)),
    ]:
        with pytest.raises(kind, match=match):
            call()
    assert ac2.live_node_count() == 0 and not ac2.is_checkpoint_enabled()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunks", [None, 1, 3])
def test_a_linear_cross_entropy_is_plain_but_for_the_order_of_additions(chunks, smoothing):
    hidden, words, bias = (torch.randn(*shape, dtype=torch.double, requires_grad=True) for shape in ((2, 6, 4), (32, 4), (32,)))
    target = torch.arange(12).view(2, 6)
    target[1, 2] = -1
    loss = ac2.linear_cross_entropy(
        hidden, words, target, bias=bias, ignore_index=-1, label_smoothing=smoothing, chunks=chunks
    )
    plain = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(hidden, words, bias).flatten(0, 1), target.flatten(), ignore_index=-1, label_smoothing=smoothing
    )
    torch.testing.assert_close(loss, plain)
    with_gradients = (hidden, words, bias)
    for found, expected in zip(torch.autograd.grad(loss, with_gradients), torch.autograd.grad(plain, with_gradients)):
        torch.testing.assert_close(found, expected)


def test_wrong_use_of_linear_cross_entropy_is_an_error_that_says_what_was_expected():
    hidden, words, target = torch.ones(4, 3), torch.ones(5, 3), torch.zeros(4, dtype=torch.long)
    for kind, match, call in [
        (TypeError, "target is 3; expected a tensor", lambda: ac2.linear_cross_entropy(hidden, words, 3)),
        (TypeError, "chunks is 1.5", lambda: ac2.linear_cross_entropy(hidden, words, target, chunks=1.5)),
        (RuntimeError, "expected class indices", lambda: ac2.linear_cross_entropy(hidden, words, target.float())),
        (RuntimeError, 'reduction is "none"', lambda: ac2.linear_cross_entropy(hidden, words, target, reduction="none")),
    ]:
        with pytest.raises(kind, match=match):
            call()


@pytest.mark.parametrize("chunks", [None, 1, 5])
def test_a_tiled_mlp_is_plain_but_for_the_order_of_additions(chunks):
    mlp = torch.nn.Sequential(torch.nn.Linear(COLUMNS, WORDS), torch.nn.GELU(), torch.nn.Linear(WORDS, 3))
    x = leaf(2, 100, COLUMNS)
    y, plain = ac2.tiled_mlp(mlp, x, chunks=chunks), mlp(x)
    torch.testing.assert_close(y, plain)
    leaves = (x, *mlp.parameters())
    for found, expected in zip(torch.autograd.grad(y.sum(), leaves), torch.autograd.grad(plain.sum(), leaves)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given", [{}, {"is_causal": True}, {"mask": True}, {"scale": 0.3, "enable_gqa": True}])
def test_attention_over_queries_is_plain_but_for_the_order_of_additions(given):
    query, key, value = leaf(2, 4, 70, 8), leaf(2, 4, 70, 8), leaf(2, 4, 70, 8)
    if given.get("enable_gqa"):
        key, value = leaf(2, 2, 70, 8), leaf(2, 2, 70, 8)
    leaves = [query, key, value]
    if given.pop("mask", False):
        leaves.append(leaf(4, 70, 70))
        given["attn_mask"] = leaves[3]
    y = ac2.query_chunked_attention(query, key, value, **given, chunks=4)
    plain = F.scaled_dot_product_attention(query, key, value, **given)
    torch.testing.assert_close(y, plain)
    for found, expected in zip(torch.autograd.grad(y.sum(), leaves), torch.autograd.grad(plain.sum(), leaves)):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_wrong_use_of_the_ready_ones_is_an_error_that_says_what_was_expected():
    x = torch.ones(2, 8, 4)
    for kind, match, call in [
        (TypeError, "expected a function of tokens", lambda: ac2.tiled_mlp(3, x)),
        (TypeError, "hidden is 3; expected a tensor", lambda: ac2.tiled_mlp(torch.sin, 3)),
        (TypeError, "chunks is 1.5", lambda: ac2.tiled_mlp(torch.sin, x, chunks=1.5)),
        (TypeError, "the function returned 3", lambda: ac2.tiled_mlp(lambda x: 3, x)),
        (RuntimeError, "whose first dimension is the tokens", lambda: ac2.tiled_mlp(lambda x: x.t(), x)),
        (ZeroDivisionError, "", lambda: ac2.tiled_mlp(lambda x: 1 // 0, x)),
        (TypeError, "key is None; expected a tensor", lambda: ac2.query_chunked_attention(x, None, x)),
        (RuntimeError, "both is_causal and attn_mask", lambda: ac2.query_chunked_attention(x, x, x, x[0, :1, :1], is_causal=True)),
    ]:
        with pytest.raises(kind, match=match):
            call()
    assert ac2.live_node_count() == 0 and not ac2.is_checkpoint_enabled()
