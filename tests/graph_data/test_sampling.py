"""Sampling: what is drawn, and that nothing but the key decides it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.graph_data import GrowingBatch, relabel, sample_batch, sample_neighbours
from emu.graph_data.sampling import Structure, relabel_by_place
from emu.host.stream_key import stream_key


def random_structure(vertices: int, degree: int, seed: int) -> Structure:
    rng = np.random.default_rng(seed)
    rows = [
        np.flatnonzero(rng.random(vertices) < degree / vertices)
        for _ in range(vertices)
    ]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Structure(indptr, np.concatenate(rows).astype(np.int32))


graphs = st.builds(
    random_structure, st.integers(2, 60), st.integers(1, 12), st.integers(0, 99)
)


@st.composite
def batches(
    draw: st.DrawFn,
) -> tuple[Structure, np.ndarray, list[int], np.uint64]:
    structure = draw(graphs)
    order = draw(st.permutations(range(structure.vertices)))
    count = draw(st.integers(1, structure.vertices))
    fanouts = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    stream = stream_key(draw(st.integers(0, 2**63)))
    return structure, np.array(order[:count]), fanouts, stream


@given(batches())
def test_blocks_have_the_order_of_dgl(
    case: tuple[Structure, np.ndarray, list[int], np.uint64],
) -> None:
    structure, seeds, fanouts, stream = case
    batch = sample_batch(structure, seeds, fanouts=fanouts, stream=stream)

    assert batch.sizes[0] == len(batch.vertices) == len(np.unique(batch.vertices))
    np.testing.assert_array_equal(batch.seeds, seeds)
    assert len(batch.edges) == len(fanouts) == len(batch.sizes) - 1
    for block, (source, destination) in enumerate(batch.edges):
        inner, fanout = batch.sizes[block + 1], fanouts[block]
        degrees = np.diff(structure.indptr)[batch.vertices[:inner]]
        taken = np.bincount(destination, minlength=inner)
        reached = set(source.tolist()) | set(range(inner))

        np.testing.assert_array_equal(taken, np.minimum(degrees, fanout))
        assert reached == set(range(batch.sizes[block]))
        pairs = set(zip(source.tolist(), destination.tolist(), strict=True))
        assert len(pairs) == len(source)  # without replacement
        for s, d in pairs:
            vertex = batch.vertices[d]
            row = slice(structure.indptr[vertex], structure.indptr[vertex + 1])
            assert batch.vertices[s] in structure.indices[row]


@given(batches(), st.integers(1, 5), st.integers(0, 99))
def test_grouping_by_owner_changes_nothing(
    case: tuple[Structure, np.ndarray, list[int], np.uint64], stores: int, seed: int
) -> None:
    """Hop by hop at any partition gives the blocks of one shot, edge by edge."""
    structure, seeds, fanouts, stream = case
    owner = np.random.default_rng(seed).integers(stores, size=structure.vertices)
    growing = GrowingBatch(seeds)
    for hop, fanout in enumerate(reversed(fanouts), start=1):
        replies = [
            sample_neighbours(
                structure,
                growing.frontier[owner[growing.frontier] == store],
                fanout=fanout,
                stream=stream,
                hop=hop,
            )
            for store in range(stores)
        ]
        sources, destinations = map(np.concatenate, zip(*replies, strict=True))
        growing.grow(sources, destinations)
    together = sample_batch(structure, seeds, fanouts=fanouts, stream=stream)
    apart = growing.finish()

    assert apart.sizes == together.sizes
    np.testing.assert_array_equal(apart.vertices, together.vertices)
    for one, other in zip(apart.edges, together.edges, strict=True):
        np.testing.assert_array_equal(one, other)


@given(st.lists(st.integers(0, 30), unique=True), st.lists(st.integers(0, 30)))
def test_relabel_numbers_by_first_appearance(known: list[int], ids: list[int]) -> None:
    vertices, positions = relabel(np.array(known, np.int64), np.array(ids, np.int64))

    assert vertices.tolist() == list(dict.fromkeys(known + ids))
    assert vertices[positions].tolist() == ids


@given(st.lists(st.tuples(*[st.lists(st.integers(0, 9), max_size=9)] * 2), min_size=2))
def test_places_are_those_of_hashes_whatever_earlier_batches_left(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    places = np.zeros(10, np.int32)
    for known, ids in pairs:
        first = np.array([*dict.fromkeys(known)], np.int64)
        others = np.array(ids, np.int64)
        vertices, positions = relabel_by_place(first, others, places)
        expected_vertices, expected_positions = relabel(first, others)
        assert vertices.tolist() == expected_vertices.tolist()
        assert positions.tolist() == expected_positions.tolist()
        assert positions.dtype == expected_positions.dtype


@pytest.mark.parametrize(("degree", "fanout"), [(9, 4), (30, 1), (6, 5)])
def test_every_neighbour_is_equally_likely(degree: int, fanout: int) -> None:
    """Chi-square over 20,000 draws with fixed seeds, 0.1 % level."""
    structure = Structure(np.array([0, degree]), np.arange(degree, dtype=np.int32))
    hits = np.zeros(degree)
    for n in range(20_000):
        sources, _ = sample_neighbours(
            structure, np.zeros(1, np.int64), fanout=fanout, stream=stream_key(n), hop=1
        )
        hits[sources] += 1
    expected = 20_000 * fanout / degree
    # Draws without replacement vary less: the statistic is scaled to chi-square.
    chi_square = (
        ((hits - expected) ** 2 / expected).sum() * (degree - 1) / (degree - fanout)
    )
    mean, deviation = degree - 1, np.sqrt(2 * (degree - 1))

    assert mean - 3.3 * deviation < chi_square < mean + 3.3 * deviation


def test_pairs_of_neighbours_are_equally_likely() -> None:
    """Floyd's subsets are uniform, not only their members."""
    structure = Structure(np.array([0, 5]), np.arange(5, dtype=np.int32))
    hits: dict[tuple[int, ...], int] = {}
    for n in range(20_000):
        sources, _ = sample_neighbours(
            structure, np.zeros(1, np.int64), fanout=2, stream=stream_key(3, n), hop=1
        )
        pair = tuple(sorted(sources.tolist()))
        hits[pair] = hits.get(pair, 0) + 1
    chi_square = sum((count - 2000) ** 2 / 2000 for count in hits.values())

    assert len(hits) == 10
    assert chi_square < 27.9  # 0.1 % level, 9 degrees of freedom


def test_hops_and_streams_draw_differently() -> None:
    structure = Structure(np.array([0, 1000]), np.arange(1000, dtype=np.int32))
    drawn = {
        tuple(
            sample_neighbours(
                structure,
                np.zeros(1, np.int64),
                fanout=5,
                stream=stream_key(*key),
                hop=hop,
            )[0].tolist()
        )
        for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
        for hop in (1, 2)
    }

    assert len(drawn) == 8


def test_draws_are_the_same_on_every_machine_and_day() -> None:
    """Golden: a change here changes every run's volumes and weights."""
    structure = Structure(np.array([0, 1000]), np.arange(1000, dtype=np.int32))
    sources, _ = sample_neighbours(
        structure, np.zeros(1, np.int64), fanout=4, stream=stream_key(1, 2, 3), hop=1
    )

    assert stream_key(1, 2, 3) == 7702586659592502839
    assert sources.tolist() == [191, 51, 231, 12]


@pytest.mark.parametrize("vertex", [-1, 2])
def test_a_vertex_that_is_not_there_is_refused(vertex: int) -> None:
    structure = Structure(np.array([0, 1, 1]), np.zeros(1, np.int32))

    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        sample_neighbours(
            structure, np.array([vertex]), fanout=1, stream=stream_key(0), hop=1
        )


def test_a_fanout_below_one_is_refused() -> None:
    structure = Structure(np.array([0, 0]), np.zeros(0, np.int32))

    with pytest.raises(ValueError, match="fanout of 0"):
        sample_batch(structure, np.array([0]), fanouts=[0], stream=stream_key(0))


def test_vertices_without_neighbours_are_their_own_batch() -> None:
    structure = Structure(np.zeros(4, np.int64), np.zeros(0, np.int32))
    batch = sample_batch(
        structure, np.array([2, 0]), fanouts=[3, 3], stream=stream_key(0)
    )

    assert batch.sizes == (2, 2, 2)
    assert batch.vertices.tolist() == [2, 0]
