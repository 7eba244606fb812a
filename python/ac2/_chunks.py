"""One op that is too large: a function of rows is run on a few rows at a time, in forward and in backward."""

from typing import Any, Callable, Dict, Optional, Tuple

import torch

from ac2 import _C
from ac2._budgets import BudgetLike, as_bytes
from ac2._scope import watch_python


def in_chunks(
    fn: Callable[..., Any],
    *tensors: torch.Tensor,
    dim: int = 0,
    chunks: Optional[int] = None,
    bytes: BudgetLike = None,
    reduce: Optional[str] = None,
    exact: bool = False,
) -> Any:
    """Runs ``fn`` on one slice of the tensors after the other, so that never more than the inside of one is there.

        def loss_of(hidden, target):                     # the logits of a large vocabulary, and their loss
            return F.cross_entropy(hidden @ vocabulary.T, target, reduction="sum"), (target != -100).sum()

        loss = ac2.in_chunks(loss_of, hidden, target, bytes="256MiB", reduce="mean")

    Each chunk runs in a region that computes again what backward needs, and backward goes through the chunks one after the
    other. Between forward and backward the tensors are held, what ``fn`` takes from elsewhere (weights), and what comes
    out. ``fn`` never runs twice; its ops are replayed. Inside a region, MUST decisions around the chunks count, and under a
    memory budget results of a chunk go when there is no room, and not before; a plan has each chunk computed again. docs/guide.md
    says which bits are those of one call.

    Args:
        fn: takes a slice of each tensor, and returns a tensor or a tuple of tensors.
        tensors: of one size along ``dim``. What all chunks share need not be given.
        dim: along which the tensors are cut, and results concatenated.
        chunks: how many, of sizes that differ by one row at most. Either this or ``bytes``.
        bytes: the results of all ops of a chunk together take no more in forward (``"256MiB"``), unless those of a single row
            do. How much a row takes is measured on a first chunk of a 64th of the rows and of 16 at most, whose results may take
            more, and again where a later chunk has taken more, because rows differ.
        reduce: None: results are concatenated. "sum": they are added up. "mean": each is a mean over its chunk's rows, and is
            weighted by their number; or ``fn`` returns a sum and a count of what was added, and the result is the sum of the
            sums by the sum of the counts.
        exact: what might not have the bits of one call is an error that names it: a sum over chunks (``reduce``, gradients of
            tensors that are not cut), random numbers, and ops that are not known to compute each row by itself with the same
            bits for any number of rows, such as products of matrices, sigmoid and gelu. Chunks have two rows at least. Not
            seen are kernels that take raw pointers, and numbers that ``fn`` reads from sizes.

    A function that writes to its slices is an error of PyTorch's (SplitWithSizes) with more than one chunk: begin with an op that
    does not, or with ``clone()``.

    Raises:
        ValueError: options that do not go together, or tensors of different sizes along ``dim``.
        RuntimeError: results that cannot be put together, and what ``exact`` refuses after a chunk. Exceptions of ``fn`` pass through.
    """
    if not callable(fn):
        raise TypeError(f"in_chunks was given {fn!r}; expected a function that takes a slice of each tensor.")
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"in_chunks was given {tensor!r}; expected tensors to cut. What all chunks share need not be given.")
    for name, value in (("dim", dim), ("chunks", chunks)):
        if isinstance(value, bool) or not isinstance(value, int) and not (value is None and name == "chunks"):
            raise TypeError(f"in_chunks: {name} is {value!r}; expected a whole number.")
    if not (reduce is None or isinstance(reduce, str)):
        raise TypeError(f'in_chunks: reduce is {reduce!r}; expected "sum", "mean", or None for results that are concatenated.')
    if not isinstance(exact, bool):
        raise TypeError(f"in_chunks: exact is {exact!r}; expected True or False.")
    watch_python()
    most = None if bytes is None else as_bytes(bytes, "bytes")
    return _C.in_chunks(fn, list(tensors), dim, chunks, most, reduce or "", exact)


def linear_cross_entropy(
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    *,
    bias: Optional[torch.Tensor] = None,
    class_weights: Optional[torch.Tensor] = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    chunks: Optional[int] = None,
) -> torch.Tensor:
    """``F.cross_entropy(F.linear(input, weight, bias), target)``, of whose logits a few rows are there at a time.

        loss = ac2.linear_cross_entropy(hidden, vocabulary, target)

    Forward makes the logits of a few rows, their loss and its gradients; backward scales the gradients, and makes no logits.
    Between the two the gradients of what requires one are held, inside a region under every policy too. :func:`in_chunks`
    with the same function holds less, takes longer, and has second derivatives. Sums over rows differ from plain ones by the
    order of additions; those of half precision are added up in float.

    Args:
        input: [..., features].
        weight: [classes, features].
        target: [...], class indices (int64).
        bias: [classes].
        class_weights: [classes]; no gradient goes there.
        reduction: "mean" over the rows that are not ignored, or "sum".
        ignore_index: a target that does not count.
        label_smoothing: from 0 to 1.
        chunks: how many. None: of as many rows as a row of ``input`` has numbers, and at least 64.

    Raises:
        TypeError: what should be a tensor is none.
        RuntimeError: other types and shapes, options out of their range, and a backward with ``create_graph``.
    """
    named = {"input": input, "weight": weight, "target": target, "bias": bias, "class_weights": class_weights}
    _check_tensors("linear_cross_entropy", named, ("bias", "class_weights"))
    _check_chunks("linear_cross_entropy", chunks)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise RuntimeError(
            "linear_cross_entropy has no rules for torch.func (grad, vmap, jvp and others). In place of it, call in_chunks() with a "
            "function of linear() and cross_entropy()."
        )
    return _C.linear_cross_entropy(
        input, weight, target, bias, class_weights, str(reduction), ignore_index, label_smoothing, chunks
    )


def tiled_mlp(
    mlp: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor, *, chunks: Optional[int] = None
) -> torch.Tensor:
    """``mlp(hidden)``, of whose inside a few tokens are there at a time, in forward and in backward.

        hidden = hidden + ac2.tiled_mlp(self.mlp, self.norm(hidden))

    This is :func:`in_chunks` over tokens, by the name that it has in DeepSpeed (ALST), axolotl and Liger. Gradients of weights
    are sums over chunks.

    Args:
        mlp: takes [tokens, features], and returns a tensor whose first dimension is the tokens.
        hidden: [..., features].
        chunks: how many. None: of as many tokens as one has features, and at least 64.

    Raises:
        TypeError: ``mlp`` is no function, ``hidden`` no tensor, or the function returns none.
        RuntimeError: other shapes. Exceptions of ``mlp`` pass through.
    """
    if not callable(mlp):
        raise TypeError(f"tiled_mlp was given {mlp!r}; expected a function of tokens, such as a module.")
    _check_tensors("tiled_mlp", {"hidden": hidden}, ())
    _check_chunks("tiled_mlp", chunks)
    watch_python()
    return _C.tiled_mlp(mlp, hidden, chunks)


def query_chunked_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
    *,
    chunks: Optional[int] = None,
) -> torch.Tensor:
    """``F.scaled_dot_product_attention`` with the same arguments, a few queries at a time, in forward and in backward.

    The scores of all queries are never there where the kernel makes them: with a mask that has a gradient (a bias of
    positions), with dropout on the CPU, where no fused kernel takes the sizes or types. Fused kernels make none. This is
    :func:`in_chunks` over queries; gradients of keys, values and a mask that all queries share are sums over chunks.

    Args:
        query: [..., queries, features].
        key, value: [..., keys, features].
        attn_mask: [..., queries or 1, keys], bools or what is added to the scores.
        dropout_p: drawn chunk by chunk.
        is_causal: query i attends to keys 0 to i; a chunk computes no scores behind its last one.
        scale: None: 1 by the root of the features.
        enable_gqa: fewer heads of keys and values than of queries.
        chunks: how many. None: of as many queries as one has features, and at least 256.

    Raises:
        TypeError: what should be a tensor is none.
        RuntimeError: other shapes, options out of their range, and what PyTorch's function raises.
    """
    _check_tensors(
        "query_chunked_attention", {"query": query, "key": key, "value": value, "attn_mask": attn_mask}, ("attn_mask",)
    )
    _check_chunks("query_chunked_attention", chunks)
    return _C.query_chunked_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, chunks)


def _check_tensors(caller: str, named: Dict[str, Any], optional: Tuple[str, ...]) -> None:
    for name, value in named.items():
        if not isinstance(value, torch.Tensor) and not (value is None and name in optional):
            raise TypeError(f"{caller}: {name} is {value!r}; expected a tensor.")


def _check_chunks(caller: str, chunks: Any) -> None:
    if isinstance(chunks, bool) or not (chunks is None or isinstance(chunks, int)):
        raise TypeError(f"{caller}: chunks is {chunks!r}; expected a whole number.")
