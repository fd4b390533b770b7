"""Parts of a whole graph, held against dense matrices of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.errors import DataError
from emu.graph_data import Adjacency, WholeGraph
from emu.graph_data.dataset import open_dataset, partition
from emu.graph_data.raw_graph import build_structure
from emu.graph_data.sampling import Structure
from emu.graph_data.sources import list_data
from emu.graph_data.whole_graph import Aggregation, open_whole_graph
from tests.graph_data.parts import whole_of

FORMS = st.builds(
    Aggregation, st.sampled_from(["mean", "symmetric", "sum"]), loops=st.booleans()
)


def dense(adjacency: Adjacency, columns: int) -> NDArray[np.float64]:
    matrix = np.zeros((adjacency.rows, columns))
    rows = np.repeat(np.arange(adjacency.rows), np.diff(adjacency.indptr))
    np.add.at(matrix, (rows, adjacency.columns), adjacency.weights)
    return matrix


def normalised(edges: NDArray[Any], vertices: int, form: Aggregation) -> NDArray[Any]:
    """Return the matrix of the whole graph, from its definition."""
    matrix = np.zeros((vertices, vertices))
    for source, destination in edges:
        if source != destination:
            matrix[destination, source] = matrix[source, destination] = 1.0
    if form.loops:
        matrix += np.eye(vertices)
    degree = np.maximum(matrix.sum(1), 1.0)
    if form.norm == "mean":
        matrix /= degree[:, None]
    elif form.norm == "symmetric":
        matrix /= np.sqrt(degree)[:, None] * np.sqrt(degree)[None, :]
    return matrix


@st.composite
def graphs(draw: st.DrawFn) -> tuple[NDArray[Any], int, NDArray[np.int32], int]:
    vertices = draw(st.integers(1, 12))
    parts = draw(st.integers(1, min(vertices, 4)))
    vertex = st.integers(0, vertices - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex), max_size=40))
    others = st.lists(
        st.integers(0, parts - 1), min_size=vertices - parts, max_size=vertices - parts
    )
    owner = draw(st.permutations([*range(parts), *draw(others)]))
    ends = np.array(edges, np.int32).reshape(-1, 2)
    return ends, vertices, np.array(owner, np.int32), parts


def structure_of(edges: NDArray[Any], vertices: int) -> Structure:
    sources, destinations = edges[:, 0], edges[:, 1]
    return build_structure(sources, destinations, vertices=vertices, origin="test")


@given(graphs(), FORMS)
def test_rows_of_all_parts_are_those_of_the_graph(
    graph: tuple[NDArray[Any], int, NDArray[np.int32], int], form: Aggregation
) -> None:
    edges, vertices, owner, parts = graph
    expected = normalised(edges, vertices, form)
    whole = whole_of(structure_of(edges, vertices), owner, parts, form)

    for number in range(parts):
        part = whole.part(number)
        np.testing.assert_array_equal(part.local, np.flatnonzero(owner == number))
        np.testing.assert_array_equal(part.owners, owner[part.remote])
        at = part.vertices
        for adjacency, matrix in (
            (part.forward, expected),
            (part.backward, expected.T),
        ):
            rows = dense(adjacency, len(at))
            full = np.zeros((len(part.local), vertices))
            full[:, at] = rows
            np.testing.assert_allclose(full, matrix[part.local], rtol=1e-15)
            np.testing.assert_array_equal(
                dense(adjacency.transpose(len(at)), len(part.local)), rows.T
            )
        np.testing.assert_array_equal(part.positions(at), np.arange(len(at)))


@given(graphs())
def test_needed_vertices_are_the_ends_of_edges_between_two_parts(
    graph: tuple[NDArray[Any], int, NDArray[np.int32], int],
) -> None:
    edges, vertices, owner, parts = graph
    form = Aggregation("sum", loops=False)
    whole = whole_of(structure_of(edges, vertices), owner, parts, form)

    both = [*edges, *edges[:, ::-1]]
    for reader in range(parts):
        for source in range(parts):
            expected = {
                int(u)
                for u, v in both
                if source != reader and owner[u] == source and owner[v] == reader
            }
            assert whole.ghosts_of(source, reader).tolist() == sorted(expected)


def path(vertices: int) -> Structure:
    at = np.arange(vertices - 1, dtype=np.int32)
    return structure_of(np.stack([at, at + 1], 1), vertices)


def test_a_part_without_edges_to_others_has_no_remote_vertex() -> None:
    edges = np.array([[0, 1], [2, 3]], np.int32)
    owner = np.array([0, 0, 1, 1], np.int32)
    whole = whole_of(structure_of(edges, 4), owner, 2, Aggregation("mean", True))

    assert [len(whole.part(number).remote) for number in (0, 1)] == [0, 0]
    assert len(whole.ghosts_of(0, 1)) == 0


@pytest.mark.parametrize(
    ("owner", "parts", "problem"),
    [
        ([0, 0, 1], 2, "3 owners for 4 vertices"),
        ([0, 0, 1, 2], 2, "owners reach from 0 to 2 of 2"),
        ([0, -1, 1, 1], 2, "owners reach from -1 to 1 of 2"),
        ([0, 0, 2, 2], 3, "part 1 of 3 owns no vertex of 4: write fewer machines"),
    ],
)
def test_wrong_owners_are_refused(owner: list[int], parts: int, problem: str) -> None:
    with pytest.raises((ValueError, DataError), match=problem):
        whole_of(path(4), np.array(owner, np.int32), parts, Aggregation("mean", True))


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="no norm is called median"):
        Aggregation("median", loops=True)


def test_vertices_of_others_have_no_position() -> None:
    form = Aggregation("mean", loops=True)
    whole = whole_of(path(6), np.repeat([0, 1], 3).astype(np.int32), 2, form)

    for vertex in (4, 5):
        with pytest.raises(ValueError, match="neither local nor remote"):
            whole.part(0).positions(np.array([0, vertex]))


def test_what_is_cached_is_what_was_split() -> None:
    form = Aggregation("symmetric", loops=True)
    dataset = open_dataset("products-like", scale=0.0005, parts=3)
    split = whole_of(dataset.structure, dataset.owner, 3, form)

    for _ in range(2):
        assert_equal(open_whole_graph(dataset, form), split)
    assert "whole graph, 3 parts" in {kept.origin for kept in list_data()}
    prepared = [kept.name for kept in list_data() if kept.kind == "prepared"]
    assert prepared == ["products-like"] * 2


def assert_equal(found: WholeGraph, expected: WholeGraph) -> None:
    assert found.vertices == expected.vertices
    for number in range(expected.parts):
        here, there = found.part(number), expected.part(number)
        for name in ("local", "remote", "owners"):
            np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
        for one, other in (
            (here.forward, there.forward),
            (here.backward, there.backward),
        ):
            for name in ("indptr", "columns", "weights"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def communities(count: int, size: int) -> Structure:
    """Return cliques on a ring of single edges, their vertices shuffled."""
    inner = np.stack(np.triu_indices(size, 1), 1)
    edges = [inner + number * size for number in range(count)]
    bridges = [[n * size, (n + 1) % count * size + 1] for n in range(count)]
    order = np.random.default_rng(1).permutation(count * size)
    return structure_of(order[np.concatenate([*edges, bridges])], count * size)


def test_hierarchical_cuts_between_boxes_first() -> None:
    structure = communities(8, 12)

    owner = partition(structure, 6, "hierarchical", boxes=[4, 2])

    np.testing.assert_allclose(np.bincount(owner), 16, atol=3)
    box = (owner >= 4).astype(int)
    np.testing.assert_allclose(np.bincount(box), [64, 32], atol=4)
    ends = np.repeat(np.arange(structure.vertices), np.diff(structure.indptr))
    between = (box[ends] != box[structure.indices]).sum() // 2
    assert between <= 36  # one clique is cut at most: 64 of 96 are five and a third


def test_one_box_is_plain_metis() -> None:
    structure = communities(4, 6)

    found = partition(structure, 4, "hierarchical", boxes=[4])

    np.testing.assert_array_equal(found, partition(structure, 4, "metis"))


@pytest.mark.parametrize("boxes", [[], [2, 1], [4, 0], [5, -1]])
def test_boxes_that_do_not_hold_the_parts_are_refused(boxes: list[int]) -> None:
    with pytest.raises(ValueError, match="do not hold 4 parts"):
        partition(path(8), 4, "hierarchical", boxes=boxes)


def test_boxes_tell_data_sets_apart() -> None:
    def opened(*boxes: int) -> str:
        dataset = open_dataset(
            "products-like",
            scale=0.0005,
            partitioner="hierarchical",
            parts=3,
            boxes=boxes,
        )
        return str(dataset.folder)

    assert len({opened(2, 1), opened(1, 2), opened(3)}) == 3
