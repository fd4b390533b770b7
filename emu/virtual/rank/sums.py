"""Sums as gloo's ring makes them, in its order, so that they are equal to the bit.

A piece of the tensor goes round the ring of ranks downwards: the piece that rank c ends
with begins at c - 1, is joined by the values of c - 2, and so on (gloo, allreduce.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from emu.virtual.gloo_operations import Ring

#: Reductions by name: how two values become one.
REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def reduce_by_ring(parts: Sequence[Tensor], operation: str) -> Tensor:
    """Return what gloo makes of the flat tensors of all ranks, shape (elements,).

    ``operation``: of `REDUCTIONS`.
    """
    join = REDUCTIONS[operation]
    ranks = len(parts)
    first = parts[0]
    if ranks == 1 or not first.numel():
        return first.clone()

    element = first.element_size()
    ring = Ring(ranks=ranks, size=first.numel() * element, element=element)
    total = torch.empty_like(first)
    piece = ring.length(0) // element * ring.per_rank
    for owner in range(ranks):
        span = slice(owner * piece, (owner + 1) * piece)
        value = parts[owner - 1][span]
        for distance in range(2, ranks + 1):
            value = join(parts[(owner - distance) % ranks][span], value)
        total[span] = value
    if operation == "AVG":
        total /= ranks
    return total
