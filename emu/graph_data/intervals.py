"""Vertex intervals of the parts of a graph, and the rows that other parts need.

Dorylus cuts every server's vertices into intervals of equal counts (OSDI 2021, 4.1).
"""

from __future__ import annotations

import itertools
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
    """Vertices of each part with an edge into each interval, 0 for its own part; of
    such a shape where they are counted, else empty."""


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
    structure: Structure,
    interval: NDArray[np.int32],
    parts: int,
    each: int,
    *,
    sources: bool = False,
) -> IntervalCounts:
    """Return the sizes of intervals.

    Parameters
    ----------
    structure
        Symmetric: the ghosts of the backward pass are those of the forward pass.
    interval
        From `cut_intervals`.
    sources
        Count them too, which takes six times as long.
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
    degree = np.diff(structure.indptr)
    edges = np.bincount(interval, weights=degree, minlength=count).astype(np.int64)
    vertices = np.bincount(interval, minlength=count)
    pushed = np.zeros((0, parts), np.int64)
    if sources:
        pushed = _source_counts(structure, interval, parts, each)
    return IntervalCounts(vertices, edges, ghosts, pushed)


def _source_counts(
    structure: Structure, interval: NDArray[np.int32], parts: int, each: int
) -> NDArray[np.int64]:
    """Return `IntervalCounts.sources`."""
    found = np.zeros((parts * each, parts), np.int64)
    order = np.argsort(interval, kind="stable")
    bounds = np.searchsorted(interval[order], np.arange(len(found) + 1))
    for i, (begin, end) in enumerate(itertools.pairwise(bounds)):
        around = [
            structure.indices[structure.indptr[v] : structure.indptr[v + 1]]
            for v in order[begin:end]
        ]
        sources = np.unique(np.concatenate(around))
        found[i] = np.bincount(interval[sources] // each, minlength=parts)
        found[i, i // each] = 0
    return found
