"""Vertex intervals of the parts of a graph, and the rows that other parts need.

Dorylus cuts every server's vertices into intervals of equal counts that have similar
numbers of edges to other intervals (Thorpe et al., OSDI 2021, 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from emu.array_types import Array, Ints, Mask, SmallInts
from emu.errors import DataError
from emu.graph_data.dataset import Dataset
from emu.graph_data.drawn_graph import DrawnGraph
from emu.graph_data.sampling import Structure, rows_of

Cut = Literal["contiguous", "balanced"]
#: Share of the mean by which the edges between intervals of a balanced cut may differ.
CLOSE = 0.01


@dataclass(frozen=True, eq=False)
class IntervalCounts:
    """Sizes of the intervals of all parts, part-major."""

    vertices: Ints
    """Shape (intervals of all parts,)."""
    edges: Ints
    """Edges that a gather of each interval reads, likewise."""
    ghosts: Ints
    """Vertices of each interval with an edge into each part, 0 for its own; shape
    (intervals of all parts, parts)."""
    sources: Ints
    """Vertices of each part with an edge into each interval, 0 for its own part; of
    such a shape where they are counted, else empty."""


def cut_intervals(
    structure: Structure,
    owner: SmallInts,
    parts: int,
    each: int,
    how: Cut,
) -> SmallInts:
    """Return the interval of every vertex, numbered part by part: int32, (vertices,).

    The ``each`` intervals of a part differ by one vertex at most. ``contiguous`` cuts
    by vertex number, as the released code does; ``balanced`` with similar numbers of
    edges to other intervals, as the paper asks: vertices are dealt out by degree, there
    and back; then the intervals of a part that have most and fewest such edges swap
    vertices, until the two are within `CLOSE` times the mean or no swap brings them
    closer. Raises ValueError when a part has fewer vertices than intervals.
    """
    interval = np.empty(structure.vertices, np.int32)
    degree = structure.degrees
    for part in range(parts):
        vertices = np.flatnonzero(owner == part)
        if len(vertices) < each:
            raise ValueError(
                f"part {part} has {len(vertices)} vertices, fewer than {each} intervals"
            )

        if how == "contiguous":
            pieces = np.array_split(vertices, each)
            sizes = [len(piece) for piece in pieces]
            dealt = np.repeat(np.arange(each), sizes)
        else:
            # Largest degrees first, so that each round of dealing has vertices of like
            # degree; ties by number.
            order = np.argsort(-degree[vertices], kind="stable")
            vertices = vertices[order]
            dealt = _deal_out(len(vertices), each)
        first_interval = part * each
        interval[vertices] = first_interval + dealt
    if how == "balanced":
        for first in range(0, parts * each, each):
            numbers = range(first, first + each)
            _balance(structure, interval, numbers)
    return interval


def _deal_out(count: int, intervals: int) -> Ints:
    """Return the number of the interval that gets each of so many vertices.

    There and back: who gets the largest of one round gets the smallest of the next.
    """
    forth = np.arange(intervals)
    back = forth[::-1]
    round_trip = np.concatenate([forth, back])
    return np.resize(round_trip, count)


def _balance(
    structure: Structure,
    interval: SmallInts,
    numbers: range,
) -> None:
    """Swap vertices of some intervals, in place, until their outer edges are close."""
    # Edges from other intervals into each.
    between = np.empty(len(numbers), np.int64)
    for place, number in enumerate(numbers):
        members = np.flatnonzero(interval == number)
        _, sources = _edges_into(structure, members)
        comes_from_outside = interval[sources] != number
        between[place] = np.count_nonzero(comes_from_outside)

    # No swap takes an interval above the most or below the fewest edges, so that there
    # are fewer intervals at these two after each, and an end.
    while True:
        most = int(between.argmax())
        fewest = int(between.argmin())
        distance = between[most] - between[fewest]
        if distance <= CLOSE * between.mean():
            return
        swap = _best_swap(
            structure,
            interval,
            pair=(numbers[most], numbers[fewest]),
            edges=(int(between[most]), int(between[fewest])),
        )
        if swap is None:
            return
        between[most], between[fewest] = swap.edges
        leaving, joining = swap.vertices
        interval[leaving] = numbers[fewest]
        interval[joining] = numbers[most]


class _Swap(NamedTuple):
    """A vertex of each of two intervals, and the outer edges of both afterwards."""

    vertices: tuple[int, int]
    edges: tuple[int, int]


def _best_swap(
    structure: Structure,
    interval: SmallInts,
    pair: tuple[int, int],
    edges: tuple[int, int],
) -> _Swap | None:
    """Return the swap that brings two intervals nearest to each other, if one does.

    A vertex of degree d with c neighbours in an interval adds d - 2 c to its edges to
    others, and takes as many away where it leaves; two neighbours that swap leave an
    edge more on each side.

    ``pair``: the intervals with the most and the fewest of ``edges`` to others.
    """
    most, fewest = edges
    most_interval, fewest_interval = pair
    leaving = np.flatnonzero(interval == most_interval)
    joining = np.flatnonzero(interval == fewest_interval)
    leaving_edges = _edges_into(structure, leaving)
    losses, gains = _gains(interval, edges=leaving_edges, count=len(leaving), pair=pair)
    joining_edges = _edges_into(structure, joining)
    in_most, in_fewest = _gains(
        interval, edges=joining_edges, count=len(joining), pair=pair
    )

    # Of every vertex of the first the one of the second that fits it best.
    sums = in_most + in_fewest
    order = np.argsort(sums, kind="stable")
    # The two will be most - fewest - losses - gains + sums apart: this sum makes them
    # equal.
    aim = losses + gains - (most - fewest)
    nearest = _nearest(sums[order], aim)
    places = order[nearest]

    are_neighbours = _are_neighbours(leaving_edges, joining[places], structure.vertices)
    between_them = 2 * are_neighbours
    first = most - losses + in_most[places] + between_them
    second = fewest + gains - in_fewest[places] + between_them
    larger = np.maximum(first, second)
    smaller = np.minimum(first, second)
    apart = larger - smaller
    # As good as refused: `most` is no less than what they are apart now.
    is_refused = (larger > most) | (smaller < fewest)
    apart[is_refused] = most
    best = int(apart.argmin())
    if apart[best] >= most - fewest:
        return None
    partner = places[best]
    leaving_vertex = leaving[best]
    joining_vertex = joining[partner]
    return _Swap(
        vertices=(leaving_vertex, joining_vertex),
        edges=(int(first[best]), int(second[best])),
    )


def _are_neighbours(edges: tuple[Ints, Ints], partners: Ints, vertices: int) -> Mask:
    """Return which rows have an edge to their partner; ``edges`` are row and source."""
    # Both ends as one number: isin compares numbers, not pairs.
    row, source = edges
    edge_keys = row * vertices + source
    rows = np.arange(len(partners))
    pair_keys = rows * vertices + partners
    return np.isin(pair_keys, edge_keys)


def _nearest(numbers: Ints, aims: Ints) -> Ints:
    """Return the place of the sorted number that is nearest to each aim."""
    above = np.searchsorted(numbers, aims)
    above = np.minimum(above, len(numbers) - 1)
    below = np.maximum(above - 1, 0)
    distance_below = np.abs(numbers[below] - aims)
    distance_above = np.abs(numbers[above] - aims)
    # Of two as near the lower, so that every process takes the same.
    return np.where(distance_below <= distance_above, below, above)


def _gains(
    interval: SmallInts,
    edges: tuple[Ints, Array],
    count: int,
    pair: tuple[int, int],
) -> list[Ints]:
    """Return what ``count`` vertices add to the edges of each of two intervals."""
    row, source = edges
    source_interval = interval[source]
    degree = np.bincount(row, minlength=count)
    gains = []
    for number in pair:
        is_inside = source_interval == number
        inside = np.bincount(row[is_inside], minlength=count)
        gains.append(degree - 2 * inside)
    return gains


def _edges_into(structure: Structure, vertices: Ints) -> tuple[Ints, Ints]:
    """Return the place of each edge's end among ``vertices``, and its source."""
    indptr, sources = structure.neighbours(vertices)
    return rows_of(indptr), sources


def interval_counts(
    structure: Structure,
    interval: SmallInts,
    parts: int,
    each: int,
    *,
    sources: bool = False,
) -> IntervalCounts:
    """Return the sizes of the intervals of `cut_intervals`.

    The structure is symmetric: the ghosts of the backward pass are those of the forward
    pass. To count sources as well takes six times as long.
    """
    count = parts * each
    part = interval // each
    needs = _needs(structure, part, parts)
    # A vertex counts once per part that reads it, however many edges go there.
    ghosts = np.zeros((count, parts), np.int64)
    np.add.at(ghosts, interval, needs)
    # Weighted counts are float64, and whole numbers below 2^53 exact there.
    edges = np.bincount(interval, weights=structure.degrees, minlength=count)

    pushes = np.zeros((0, parts), np.int64)
    if sources:
        pushes = _count_sources(structure, interval, part, (count, parts))
    sizes = np.bincount(interval, minlength=count)
    return IntervalCounts(
        vertices=sizes,
        edges=edges.astype(np.int64),
        ghosts=ghosts,
        sources=pushes,
    )


def _count_sources(
    structure: Structure,
    interval: SmallInts,
    part: SmallInts,
    shape: tuple[int, int],
) -> Ints:
    """Return ``IntervalCounts.sources``, of such a shape: (intervals, parts)."""
    count, parts = shape
    intervals_of_part = count // parts

    pushes = np.zeros(shape, np.int64)
    for number in range(count):
        members = np.flatnonzero(interval == number)
        _, neighbours = structure.neighbours(members)
        # A source with several edges into the interval counts once.
        sources = np.unique(neighbours)
        pushes[number] = np.bincount(part[sources], minlength=parts)
        # Within its part it needs no copy.
        home = number // intervals_of_part
        pushes[number, home] = 0
    return pushes


def _needs(structure: Structure, part: SmallInts, parts: int) -> Mask:
    """Return which other parts read each vertex: bool, (vertices, parts)."""
    shape = (structure.vertices, parts)
    needs = np.zeros(shape, dtype=bool)
    step = 1 << 20  # vertices: of all edges at once the indices take gigabytes
    for first in range(0, structure.vertices, step):
        last = min(first + step, structure.vertices)
        indptr = structure.indptr[first : last + 1]
        first_edge = indptr[0]
        last_edge = indptr[-1]
        sources = structure.indices[first_edge:last_edge]
        degrees = np.diff(indptr)
        readers = np.repeat(part[first:last], degrees)
        # Repeated pairs set one mark: a part reads a vertex once.
        needs[sources, readers] = True

    vertices = np.arange(structure.vertices)
    needs[vertices, part] = False
    return needs


# The cut depends on the graph alone: other settings ask for the same one.
@lru_cache(maxsize=4)
def count_intervals(
    dataset: Dataset,
    each: int,
    how: Cut,
    *,
    sources: bool = False,
) -> IntervalCounts:
    """Return `interval_counts` of a data set's parts; raises as `cut_intervals`."""
    structure = dataset.structure
    owner = dataset.owner
    parts = dataset.parts
    if isinstance(dataset, DrawnGraph):
        return _drawn_counts(dataset, each, sources=sources)

    cut = cut_intervals(
        structure,
        owner=owner,
        parts=parts,
        each=each,
        how=how,
    )
    return interval_counts(
        structure,
        interval=cut,
        parts=parts,
        each=each,
        sources=sources,
    )


def _drawn_counts(
    dataset: DrawnGraph,
    each: int,
    *,
    sources: bool,
) -> IntervalCounts:
    """Return the sizes of equal intervals of a drawn graph, from who reads whom.

    Raises DataError where sources are asked for, which follow edges; ValueError as
    `cut_intervals`.
    """
    if sources:
        raise DataError("sources of edges are counted in a graph that is held")

    parts = dataset.parts
    structure = dataset.structure
    interval = cut_intervals(
        structure,
        owner=dataset.owner,
        parts=parts,
        each=each,
        how="contiguous",
    )

    count = parts * each
    ghosts = np.zeros((count, parts), np.int64)
    for reader in range(parts):
        reads = dataset.readers >> reader & 1
        ghosts[:, reader] = np.bincount(interval, weights=reads, minlength=count)
    edges = np.bincount(interval, weights=structure.degrees, minlength=count)
    sizes = np.bincount(interval, minlength=count)
    return IntervalCounts(
        vertices=sizes,
        edges=edges.astype(np.int64),
        ghosts=ghosts,
        sources=np.zeros((0, parts), np.int64),
    )
