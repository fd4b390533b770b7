"""Vertex intervals of the parts of a graph, and the rows that other parts need.

Dorylus cuts every server's vertices into intervals of equal counts (OSDI 2021, 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.graph_data.sampling import Structure

Cut = Literal["contiguous", "balanced"]


@dataclass(frozen=True, eq=False)
class IntervalCounts:
    """Sizes of the intervals of all parts, part-major."""

    vertices: NDArray[np.int64]
    """Shape (intervals of all parts,)."""
    edges: NDArray[np.int64]
    """Edges that a gather of each interval reads, likewise."""
    ghosts: NDArray[np.int64]
    """Vertices of each interval with an edge into each part, 0 for its own; shape
    (intervals of all parts, parts)."""
    sources: NDArray[np.int64]
    """Vertices of each part with an edge into each interval, 0 for its own part;
    likewise."""


def cut_intervals(
    structure: Structure, owner: NDArray[np.int32], parts: int, each: int, how: Cut
) -> NDArray[np.int32]:
    """Return the interval of every vertex, numbered part by part.

    Parameters
    ----------
    owner
        Part of every vertex.
    each
        Intervals of a part; their counts of vertices differ by one at most.
    how
        ``contiguous``: by vertex number, as the released code does; ``balanced``:
        vertices are dealt out by degree, there and back, so that intervals have
        similar numbers of edges, as the paper asks.

    Returns
    -------
    interval
        int32, shape (vertices,).

    Raises
    ------
    ValueError
        When a part has fewer vertices than intervals.
    """
    interval = np.empty(structure.vertices, np.int32)
    degree = np.diff(structure.indptr)
    for part in range(parts):
        mine = np.flatnonzero(owner == part)
        if len(mine) < each:
            raise ValueError(
                f"part {part} has {len(mine)} vertices, fewer than {each} intervals"
            )
        if how == "contiguous":
            sizes = [len(piece) for piece in np.array_split(mine, each)]
            dealt = np.repeat(np.arange(each), sizes)
        else:
            mine = mine[np.argsort(-degree[mine], kind="stable")]
            there = np.arange(2 * each)
            there[each:] = there[each - 1 :: -1] if each else there[:0]
            dealt = np.resize(there, len(mine))
        interval[mine] = part * each + dealt
    return interval


def interval_counts(
    structure: Structure, interval: NDArray[np.int32], parts: int, each: int
) -> IntervalCounts:
    """Return the sizes of intervals.

    Parameters
    ----------
    structure
        Symmetric: the ghosts of the backward pass are those of the forward pass.
    interval
        From `cut_intervals`.
    """
    count = parts * each
    part = interval // each
    needed = np.zeros((structure.vertices, parts), dtype=bool)
    step = 1 << 20
    for first in range(0, structure.vertices, step):
        last = min(first + step, structure.vertices)
        begin, end = structure.indptr[first], structure.indptr[last]
        degree = np.diff(structure.indptr[first : last + 1])
        needed[structure.indices[begin:end], np.repeat(part[first:last], degree)] = True
    needed[np.arange(structure.vertices), part] = False
    ghosts = np.zeros((count, parts), np.int64)
    np.add.at(ghosts, interval, needed)
    sources = np.zeros((count, parts), np.int64)
    degree = np.diff(structure.indptr)
    order = np.argsort(interval, kind="stable")
    bounds = np.searchsorted(interval[order], np.arange(count + 1))
    for i in range(count):
        mine = order[bounds[i] : bounds[i + 1]]
        entries = _entries(structure.indptr[mine], degree[mine])
        around = np.unique(structure.indices[entries])
        sources[i] = np.bincount(part[around], minlength=parts)
        sources[i, i // each] = 0
    edges = np.bincount(interval, weights=degree, minlength=count).astype(np.int64)
    return IntervalCounts(
        np.bincount(interval, minlength=count), edges, ghosts, sources
    )


def _entries(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of all entries of some rows of a sparse matrix."""
    starts = np.cumsum(counts) - counts
    found: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(
        first - starts, counts
    )
    return found
