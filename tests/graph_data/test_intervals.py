"""Balanced intervals: counted in plain Python, beside the best of all cuts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.graph_data.intervals import CLOSE, cut_intervals, interval_counts
from emu.graph_data.raw_graph import build_structure
from emu.graph_data.sampling import Structure

Pairs = set[tuple[int, int]]


def _structure(count: int, pairs: Pairs) -> Structure:
    ends = np.array([*pairs], np.int64).reshape(-1, 2)
    return build_structure(*ends.T, vertices=count, origin="drawn")


def _between(cut: list[int], pairs: Pairs, numbers: range) -> list[int]:
    """Count the edges that end in each interval and begin in another one."""
    found = dict.fromkeys(numbers, 0)
    for one, other in pairs:
        for end in (one, other) if cut[one] != cut[other] else ():
            if cut[end] in found:
                found[cut[end]] += 1
    return [*found.values()]


def _dealt(degrees: list[int], each: int) -> list[int]:
    """Deal vertices out by degree, there and back."""
    cut = [0] * len(degrees)
    order = sorted(range(len(degrees)), key=lambda v: -degrees[v])
    for place, v in enumerate(order):
        row, column = divmod(place, each)
        cut[v] = each - 1 - column if row % 2 else column
    return cut


@st.composite
def _graphs(draw: st.DrawFn, most: int) -> tuple[int, Pairs]:
    count = draw(st.integers(4, most))
    vertices = st.integers(0, count - 1)
    drawn = draw(st.sets(st.tuples(vertices, vertices), max_size=4 * count))
    return count, {(min(p), max(p)) for p in drawn if p[0] != p[1]}


@settings(max_examples=60, deadline=None)
@given(_graphs(9), st.integers(2, 3))
def test_nearly_as_even_as_the_best_of_all_cuts(
    graph: tuple[int, Pairs], each: int
) -> None:
    count, pairs = graph
    structure, owner = _structure(count, pairs), np.zeros(count, np.int32)
    cut = cut_intervals(structure, owner, 1, each, "balanced").tolist()
    sizes = sorted(cut.count(i) for i in range(each))
    assert sizes[-1] - sizes[0] <= 1
    spread = {
        cut: max(found) - min(found)
        for cut in itertools.product(range(each), repeat=count)
        if sorted(map(cut.count, range(each))) == sizes
        for found in [_between([*cut], pairs, range(each))]
    }
    # Of 250 graphs 187 were as even as the best; 61, 1, 1 were 1, 2, 3 edges off.
    assert spread[tuple(cut)] <= min(spread.values()) + 4
    degrees = np.diff(structure.indptr).tolist()
    assert spread[tuple(cut)] <= spread[tuple(_dealt(degrees, each))]


@settings(max_examples=60, deadline=None)
@given(_graphs(40), st.integers(1, 5), st.integers(1, 3), st.data())
def test_no_part_loses_a_vertex(
    graph: tuple[int, Pairs], each: int, parts: int, data: st.DataObject
) -> None:
    count, pairs = graph
    choice = st.lists(st.integers(0, parts - 1), min_size=count, max_size=count)
    owner = np.array(data.draw(choice), np.int32)
    if np.bincount(owner, minlength=parts).min() < each:
        with pytest.raises(ValueError, match=f"fewer than {each} intervals"):
            cut_intervals(_structure(count, pairs), owner, parts, each, "balanced")
        return
    cut = cut_intervals(_structure(count, pairs), owner, parts, each, "balanced")
    assert (cut // each == owner).all()
    for part in range(parts):
        sizes = np.bincount(cut[owner == part] - part * each, minlength=each)
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_edges_between_are_balanced_and_not_degrees(seed: int) -> None:
    """Half of the vertices have their edges within a clique, half all over the graph.

    By degree alone both are equal, and dealt out they need not be.
    """
    rng = np.random.default_rng(seed)
    count, each = 240, 6
    pairs: Pairs = set()
    for first in range(0, count // 2, 20):
        pairs |= {*itertools.combinations(range(first, first + 20), 2)}
    while len(pairs) < 6 * 190 + 1140:
        one, other = (int(v) for v in rng.integers(count // 2, count, 2))
        if one != other:
            pairs.add((min(one, other), max(one, other)))
    renamed = rng.permutation(count)
    ends = ((int(renamed[one]), int(renamed[other])) for one, other in pairs)
    pairs = {(min(pair), max(pair)) for pair in ends}
    structure = _structure(count, pairs)
    owner = (np.arange(count) % 2).astype(np.int32)
    cut = cut_intervals(structure, owner, 2, each, "balanced").tolist()
    for part in range(2):
        found = _between(cut, pairs, range(part * each, (part + 1) * each))
        assert max(found) - min(found) <= max(CLOSE * sum(found) / each, 1)


def test_ghosts_of_a_graph_that_is_looked_at_in_slices() -> None:
    """Beyond 2^20 vertices: the last one, of part 1, is next to one of part 0."""
    count = (1 << 20) + 2
    structure = _structure(count, {(3, count - 1)})
    interval = np.zeros(count, np.int32)
    interval[-1] = 1

    ghosts = interval_counts(structure, interval, 2, 1).ghosts

    assert ghosts.tolist() == [[0, 1], [1, 0]]
