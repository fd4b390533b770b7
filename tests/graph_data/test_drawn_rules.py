"""What a drawn graph is made of, by hand: hashes, draws, readers and owners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from emu.errors import DataError
from emu.graph_data import drawn_graph
from emu.graph_data.drawn_graph import DrawnGraph, DrawnStructure, _Sample

#: First numbers of splitmix64 with seed 0, as its authors publish them.
FIRST, SECOND, THIRD = 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F
WEIGHTS = [1.0, 3.0, 2.0, 4.0, 5.0, 5.0]


def structure(**changes: Any) -> Any:
    """Return six vertices of weight 20 in three blocks and two classes."""
    nothing = np.empty(0, np.int64)
    blocks = SimpleNamespace(
        block_bounds=np.array([0, 2, 4, 6]), class_bounds=np.array([0, 4, 6])
    )
    arguments: dict[str, Any] = {
        "indptr": nothing,
        "indices": nothing,
        "preset": SimpleNamespace(in_block=0.5, in_class=0.3),
        "blocks": blocks,
        "prefix": np.array([0.0, *np.cumsum(WEIGHTS)]),
        "key": np.uint64(0),
        "edges": 40,
        **changes,
    }
    return DrawnStructure(**arguments)


def test_hashes_are_those_of_splitmix64() -> None:
    """Numbers of a sequence are its own; a second number goes in by exclusive or."""
    zero = np.uint64(0)
    found = drawn_graph._uniform(zero, np.array([1, 2, 3]))
    assert found.tolist() == [(n >> 11) / 2**53 for n in (FIRST, SECOND, THIRD)]
    of_two = drawn_graph._uniform(zero, np.array([1]), np.array([FIRST ^ 2], np.uint64))
    assert of_two.tolist() == found[1:2].tolist()
    of_key = drawn_graph._uniform(np.uint64(3), np.array([2]))
    assert of_key.tolist() == found[:1].tolist()


def test_draws_lead_by_weight_into_a_block_a_class_or_anywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vertex 3 has weights 4 to 10 in its block, to 10 in its class, to 20 in all."""
    draws = [
        (0.49, 0.5, 3),
        (0.49, 0.3, 2),
        (0.5, 0.35, 1),
        (0.79, 0.05, 0),
        (0.8, 0.8, 5),
        (0.99, 0.74, 4),
        (0.99, 1.0, 5),
        (0.6, 0.4, 2),
    ]

    def uniform(_: Any, vertices: Any, numbers: Any) -> Any:
        # The draw of number n takes the numbers 2 n + 1 and 2 n + 2.
        assert set(vertices.tolist()) == {3}
        pairs = [draws[(number - 1) // 2] for number in numbers]
        return np.array([p[(n - 1) % 2] for p, n in zip(pairs, numbers, strict=True)])

    monkeypatch.setattr(drawn_graph, "_uniform", uniform)
    numbers = np.arange(len(draws))
    targets = structure()._targets(np.full(len(draws), 3), numbers)
    assert targets.tolist() == [vertex for _, _, vertex in draws]


def test_shares_of_draws_are_those_of_weights_in_each_group() -> None:
    """Vertex 3 has 0.2 / 20 anywhere, 0.3 / 10 in its class, 0.5 / 6 in its block."""
    shares = structure()._share(np.full(6, 3), np.arange(6))
    expected = [0.04, 0.12, 2 * (0.04 + 0.5 / 6), 4 * (0.04 + 0.5 / 6), 0.05, 0.05]
    assert shares.tolist() == pytest.approx(expected)
    assert shares.sum() == pytest.approx(1)
    draws = np.array([1.0, 0, 2, 0, 0, 4])
    hits = structure().expect_hits(draws)
    expected = [0.285, 0.855, 0.98 * 2 / 3, 0.98 * 4 / 3, 1.95, 1.95]
    assert hits.tolist() == pytest.approx(expected)
    assert hits.sum() == pytest.approx(7)


def test_degrees_and_draws_go_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of 1 of 20 has 2 of 40 edges; draws are rounded at random."""
    found = structure(repeats=1.25)
    assert found.degrees.tolist() == [2, 6, 4, 8, 10, 10]
    monkeypatch.setattr(drawn_graph, "_SLICE", 2)
    assert found.count_edges(np.array([1, 3, 5])) == 6 + 8 + 10
    for share, draws in ((0.5, [3, 8, 5, 13]), (0.49, [2, 7, 5, 12])):
        monkeypatch.setattr(
            drawn_graph, "_uniform", lambda _, vertices, s=share: 0.0 * vertices + s
        )
        assert found.draws_of(np.array([0, 1, 2, 5])).tolist() == draws


def test_few_draws_of_many_are_one_of_each_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vertex 5 has ten draws, of which 2.5 per neighbour are made; vertex 0 has two."""
    seen: dict[str, list[int]] = {}

    class Structure(DrawnStructure):
        @override
        def _targets(self, vertices: Any, numbers: Any) -> Any:
            seen.update(vertices=vertices.tolist(), numbers=numbers.tolist())
            return (vertices + 1) % 6

    found = Structure(**vars(structure()))
    monkeypatch.setattr(drawn_graph, "_uniform", lambda _, first, *__: 0.0 * first)
    rows, targets = found._draw_some(np.array([5, 0]), 2, np.uint64(1))
    assert seen == {"vertices": [5] * 5 + [0] * 2, "numbers": [0, 2, 4, 6, 8, 0, 1]}
    assert (rows.tolist(), targets.tolist()) == ([0] * 5 + [1] * 2, [0] * 5 + [1] * 2)
    # With all chances against them those of the vertex that has few count alone.
    monkeypatch.setattr(
        drawn_graph, "_uniform", lambda _, first, *__: 0.0 * first + 0.999
    )
    rows, _ = found._draw_some(np.array([5, 0]), 2, np.uint64(1))
    assert seen["numbers"] == [1, 3, 5, 7, 9, 0, 1]
    assert rows.tolist() == [1, 1]
    assert found.draws_of(np.array([5, 0])).tolist() == [10, 2]


def test_a_draw_that_repeats_counts_by_the_chance_that_it_is_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Vertex 5 to 4: ten draws of share 0.3 * 5/10 + 0.5 * 5/10 + 0.2 * 5/20."""
    expected = (1 - np.exp(-4.5)) / 4.5

    class Structure(DrawnStructure):
        @override
        def _targets(self, vertices: Any, _: Any) -> Any:
            return vertices - 1

    found = Structure(**vars(structure()))
    for share, count in ((expected - 1e-6, 5), (expected + 1e-6, 0)):
        monkeypatch.setattr(
            drawn_graph, "_uniform", lambda _, first, *__, s=share: 0.0 * first + s
        )
        rows, _ = found._draw_some(np.array([5]), 2, np.uint64(1))
        assert len(rows) == count


def test_each_neighbour_counts_once_and_never_the_vertex_itself() -> None:
    """The first draw of each stays, in the order of draws."""
    rows = np.array([0, 0, 0, 1, 1, 0, 1])
    targets = np.array([2, 3, 2, 3, 1, 0, 0])
    found = structure()._differ(np.array([3, 1]), rows, targets)
    assert [array.tolist() for array in found] == [[0, 1, 0, 1], [2, 3, 0, 0]]
    numbered = drawn_graph._number_draws(np.array([2, 0, 3]))
    assert [array.tolist() for array in numbered] == [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    around = drawn_graph._range_around(np.array([0, 1, 2, 5]), np.array([0, 2, 6]))
    assert [array.tolist() for array in around] == [[0, 0, 2, 2], [2, 2, 6, 6]]


def test_numbers_of_vertices_take_four_bytes_where_they_fit() -> None:
    """The largest of four bytes is 2^31 - 1."""
    for largest, dtype in ((2**31 - 1, np.int32), (2**31, np.int64)):
        narrow = drawn_graph.narrow(np.array([0, largest]))
        assert (narrow.dtype, narrow.tolist()) == (dtype, [0, largest])
    assert drawn_graph.narrow(np.empty(0, np.int64)).dtype == np.int32


def graph_of(parts: int, vertices: int, **attributes: Any) -> Any:
    """Return a drawn graph that has these attributes alone."""
    graph = object.__new__(DrawnGraph)
    vars(graph).update(parts=parts, vertices=vertices, **attributes)
    return graph


def sampled() -> Any:
    """Return three parts of 5, 2 and 1 vertices; of the first every other is drawn."""
    samples = [
        _Sample(
            members=np.arange(5),
            stride=2,
            rows=np.array([0, 0, 1, 2]),
            owners=np.array([1, 2, 0, 1]),
        ),
        _Sample(
            members=np.array([5, 6]),
            stride=1,
            rows=np.array([0, 1]),
            owners=np.array([0, 0]),
        ),
        _Sample(
            members=np.array([7]),
            stride=1,
            rows=np.empty(0, np.int64),
            owners=np.empty(0, np.int64),
        ),
    ]
    return graph_of(3, 8, _samples=samples)


def test_readers_of_vertices_that_are_not_drawn_are_those_of_the_one_before() -> None:
    """Bits of the other parts that own a neighbour; the own part is none."""
    graph = sampled()
    assert graph.readers.tolist() == [0b110, 0b110, 0, 0, 0b010, 1, 1, 0]
    assert graph.readers.dtype == np.uint8
    assert graph.crossing_shares == [0.75, 1.0, 0.0]
    assert graph.members_of(1).tolist() == [5, 6]


def test_the_interval_of_rows_that_are_read_is_of_the_widest_part() -> None:
    """Part 2 reads a third of five, of three drawn: 5/3, of a variance 25 2/27 2/5."""
    deviation = np.sqrt(25 * 2 / 27 * 2 / 5)
    assert sampled().ghost_error == pytest.approx(1.96 * deviation / (5 / 3))
    graph = sampled()
    (_, _, last) = graph._samples
    vars(graph)["_samples"] = [last] * 3
    assert graph.ghost_error == 0


@pytest.mark.parametrize(
    ("parts", "sizes"), [(1, [6]), (2, [4, 2]), (3, [2, 2, 2]), (4, [2, 2, 2, 0])]
)
def test_parts_are_whole_blocks_in_order(parts: int, sizes: list[int]) -> None:
    """Each part ends with the first block that ends no earlier than its even share."""
    graph = graph_of(parts, 6, drawn=structure(), _partitioner="metis", _seed=1)
    assert np.bincount(graph.owner, minlength=parts).tolist() == sizes
    assert (np.diff(graph.owner) >= 0).all()
    refused = graph_of(parts, 6, drawn=structure(), _partitioner="imported", _seed=1)
    with pytest.raises(DataError, match="comes in no parts"):
        _ = refused.owner
