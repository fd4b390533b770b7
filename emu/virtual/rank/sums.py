"""Sums as gloo's ring makes them, in its order, so that they are equal to the bit.

A piece of the tensor goes round the ring of ranks downwards: the piece that rank c ends
with begins at c - 1, is joined by the values of c - 2, and so on (gloo, allreduce.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from emu.array_types import Ints
from emu.virtual.gloo_operations import Ring
from emu.virtual.rank.layouts import Bytes

#: Reductions by name: functions of that name in numpy and torch make two values one.
REDUCTIONS = {
    "SUM": "add",
    "AVG": "add",
    "PRODUCT": "multiply",
    "MIN": "minimum",
    "MAX": "maximum",
    "BAND": "bitwise_and",
    "BOR": "bitwise_or",
    "BXOR": "bitwise_xor",
}
#: How two values become one; both are tensors, or arrays.
Join: TypeAlias = Callable[..., Any]
#: Types that numpy adds as torch does; its calls take less time.
_NUMPY = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int32: "int32",
    torch.int64: "int64",
}
#: Bytes of a tensor up to which it is the number of operations that takes time.
_SMALL = 1 << 15


@cache
def check_reduction(dtype: torch.dtype, operation: str) -> None:
    """Raise what gloo does where values of a type have no such reduction.

    It has to be known before a call: of ranks that make pieces of a sum for each other
    one that fails would have the others wait for ever.
    """
    is_of_bits = operation in {"BAND", "BOR", "BXOR"}
    if is_of_bits and dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{operation} with non-integral dtype")
    if dtype.is_complex and operation not in {"SUM", "AVG"}:
        raise RuntimeError(f"ReduceOp.{operation} is not of complex numbers")
    value = torch.zeros(1, dtype=dtype)
    join: Join = getattr(torch, REDUCTIONS[operation])
    total = join(value, value)
    if operation == "AVG":
        total /= 1


def reduce_by_ring(parts: Sequence[Bytes], like: Tensor, operation: str) -> Bytes:
    """Return what gloo makes of the values of all ranks, as bytes.

    Parameters
    ----------
    parts
        Bytes of every rank.
    like
        A tensor of their size and type.
    operation
        Of `REDUCTIONS`.
    """
    ranks = len(parts)
    if ranks == 1 or not like.numel():
        return parts[0]
    if is_small(like):
        return reduce_at_once(parts, like, operation)

    outcome = []
    spans = spans_of(like, ranks)
    for owner, span in enumerate(spans):
        pieces = [part[span] for part in parts]
        piece = reduce_piece(pieces, owner, like, operation)
        outcome.append(piece)
    return np.concatenate(outcome)


def is_small(like: Tensor) -> bool:
    """Return True where `reduce_at_once` takes less time than piece by piece."""
    return like.nbytes <= _SMALL and like.dtype in _NUMPY


def spans_of(like: Tensor, ranks: int) -> list[slice]:
    """Return the bytes of a tensor that end with each rank of a ring."""
    size = like.nbytes
    if ranks == 1:
        return [slice(0, size)]

    element = like.element_size()
    ring = Ring(ranks=ranks, size=size, element=element)
    length = ring.length(0) * ring.per_rank
    spans = []
    for owner in range(ranks):
        start = owner * length
        span = slice(start, start + length)
        spans.append(span)
    return spans


def reduce_piece(
    parts: Sequence[Bytes],
    owner: int,
    like: Tensor,
    operation: str,
) -> Bytes:
    """Return what the owner of a piece ends with; parameters as `reduce_by_ring`.

    ``parts``: the piece as each rank has it.
    """
    ranks = len(parts)
    dtype = like.dtype
    function = REDUCTIONS[operation]
    join: Join = getattr(torch, function)
    contents = map(torch.from_numpy, parts)
    tensors = [content.view(dtype) for content in contents]

    value = tensors[owner - 1]
    for distance in range(2, ranks + 1):
        giver = (owner - distance) % ranks
        value = join(tensors[giver], value)
    if operation == "AVG":
        value /= ranks

    content: Bytes = value.view(torch.uint8).numpy()
    return content


def reduce_at_once(parts: Sequence[Bytes], like: Tensor, operation: str) -> Bytes:
    """Return the same with all pieces going round in one operation per hop."""
    ranks = len(parts)
    count = like.numel()
    type_name = _NUMPY[like.dtype]
    dtype = np.dtype(type_name)
    function = REDUCTIONS[operation]
    join: Join = getattr(np, function)

    first_span = spans_of(like, ranks)[0]
    element = like.element_size()
    length = first_span.stop // element
    row_length = ranks * length
    rows = np.zeros((ranks, row_length), dtype)
    for row, part in zip(rows, parts, strict=True):
        row[:count] = part.view(dtype)

    pieces = rows.reshape(ranks * ranks, length)
    order = _hops(ranks)
    hops = pieces[order].reshape(ranks, -1)
    value, *joined = hops
    for piece in joined:
        value = join(piece, value, out=piece)
    if operation == "AVG":
        value /= ranks
    reduced = value[:count]
    return reduced.view(np.uint8)


@cache
def _hops(ranks: int) -> Ints:
    """Return which piece of which rank comes at each hop, by hop and owner.

    As their places among the pieces of all ranks, shape (hops * owners,).
    """
    owners = np.arange(ranks)
    hops = np.arange(1, ranks + 1)
    givers = (owners - hops[:, np.newaxis]) % ranks
    places: Ints = givers * ranks + owners
    return places.reshape(-1)
