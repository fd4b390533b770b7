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
from numpy.typing import NDArray
from torch import Tensor

from emu.virtual.gloo_operations import Ring
from emu.virtual.rank.deposits import Bytes

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
    getattr(torch, name): name for name in ("float32", "float64", "int32", "int64")
}
#: Bytes of a tensor up to which it is the number of operations that takes time.
_SMALL = 1 << 15


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
    is_alone = len(parts) == 1
    if is_alone or not like.numel():
        return parts[0]
    if is_small(like):
        return reduce_at_once(parts, like, operation)
    outcome = []
    for owner, span in enumerate(spans_of(like, len(parts))):
        pieces = [part[span] for part in parts]
        piece = reduce_piece(pieces, owner, like, operation)
        outcome.append(piece)
    return np.concatenate(outcome)


def is_small(like: Tensor) -> bool:
    """Return True where `reduce_at_once` takes less time than piece by piece."""
    return like.nbytes <= _SMALL and like.dtype in _NUMPY


def spans_of(like: Tensor, ranks: int) -> list[slice]:
    """Return the bytes of a tensor that end with each rank of a ring."""
    if ranks == 1:
        return [slice(0, like.nbytes)]
    ring = Ring(ranks=ranks, size=like.nbytes, element=like.element_size())
    length = ring.length(0) * ring.per_rank
    starts = [owner * length for owner in range(ranks)]
    return [slice(start, start + length) for start in starts]


def reduce_piece(
    parts: Sequence[Bytes], owner: int, like: Tensor, operation: str
) -> Bytes:
    """Return what the owner of a piece ends with; parameters as `reduce_by_ring`.

    ``parts``: the piece as each rank has it.
    """
    ranks = len(parts)
    join: Join = getattr(torch, REDUCTIONS[operation])
    contents = map(torch.from_numpy, parts)
    tensors = [content.view(like.dtype) for content in contents]
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
    dtype = np.dtype(_NUMPY[like.dtype])
    join: Join = getattr(np, REDUCTIONS[operation])
    first_span = spans_of(like, ranks)[0]
    length = first_span.stop // like.element_size()
    shape = (ranks, ranks * length)
    rows = np.zeros(shape, dtype)
    for row, part in zip(rows, parts, strict=True):
        row[:count] = part.view(dtype)

    pieces = rows.reshape(ranks * ranks, length)
    hops = pieces[_hops(ranks)]
    value, *joined = hops.reshape(ranks, -1)
    for piece in joined:
        value = join(piece, value, out=piece)
    if operation == "AVG":
        value /= ranks
    return value[:count].view(np.uint8)


@cache
def _hops(ranks: int) -> NDArray[np.int64]:
    """Return which piece of which rank comes at each hop, by hop and owner.

    As their places among the pieces of all ranks, shape (hops * owners,).
    """
    owners = np.arange(ranks)
    hops = np.arange(1, ranks + 1)[:, np.newaxis]
    giver = (owners - hops) % ranks
    places: NDArray[np.int64] = giver * ranks + owners
    return places.reshape(-1)
