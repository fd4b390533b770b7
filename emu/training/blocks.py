"""Blocks of a mini-batch as plain arrays: the edges of the aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Block:
    """One layer's edges; its destinations are the first of its sources.

    Raises
    ------
    ValueError
        When an edge leaves its sets, or destinations do not ascend.
    """

    source: NDArray[Any]
    destination: NDArray[Any]
    """Positions of the ends of every edge, of one integer type; destinations ascend."""
    outer: int
    inner: int
    """Number of sources and of destinations."""

    def __post_init__(self) -> None:
        source, destination = self.source, self.destination
        if len(source) != len(destination) or self.inner > self.outer:
            raise ValueError("a block's ends or sets do not fit each other")
        if len(source) and not (
            source.min() >= 0
            and source.max() < self.outer
            and destination[0] >= 0
            and destination[-1] < self.inner
            and (destination[1:] >= destination[:-1]).all()
        ):
            raise ValueError("a block's edges leave its sets, or are out of order")

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Edges into every destination."""
        return np.bincount(self.destination, minlength=self.inner)

    @property
    def offsets(self) -> NDArray[Any]:
        """Position of the first edge into every destination."""
        ends = np.cumsum(self.degrees)
        return (ends - self.degrees).astype(self.source.dtype)


def make_blocks(
    sizes: Sequence[int], edges: Sequence[tuple[NDArray[np.int32], NDArray[np.int32]]]
) -> list[Block]:
    """Return the blocks of a mini-batch, input side first.

    Parameters
    ----------
    sizes, edges
        As in `SampledBatch`.

    Raises
    ------
    ValueError
        As `Block`, or when there are not as many edge lists as sets but one.
    """
    return [
        Block(source, destination, outer, inner)
        for (outer, inner), (source, destination) in zip(
            pairwise(sizes), edges, strict=True
        )
    ]
