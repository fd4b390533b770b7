"""Rows that caches keep, that are made in chunks, and names of what is prepared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.graph_data import CachePlan, SamplerCache, synthetic_graph
from emu.graph_data.caches import _count_by_store, count_with_cache, open_cache
from emu.graph_data.drawn_graph import DrawnStructure
from emu.graph_data.prepared import PreparedArrays
from emu.graph_data.sources import _name_form
from emu.graph_data.synthetic_graph import PRESETS, Blocks, _feature_rows
from emu.problem.workloads import SampleCounts


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (5, 11), (4, 8), (7, 8)])
def test_rows_are_the_same_whatever_part_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, start: int, stop: int
) -> None:
    """Noise is made by chunks, here of four rows."""
    monkeypatch.setattr(synthetic_graph, "CHUNK", 4)
    classes = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2])
    blocks = np.arange(12) // 3
    rows = _feature_rows(PRESETS["products-like"], classes, blocks, seed=3)
    everything = rows(0, 12)
    assert everything.shape == (12, 100)
    assert np.array_equal(rows(start, stop), everything[start:stop])
    assert not np.array_equal(everything[0:4], everything[4:8])


def test_blocks_lie_within_classes_and_fill_them() -> None:
    """The largest class has 225 of 1000 vertices, in two blocks."""
    blocks = Blocks(PRESETS["products-like"], 1000)
    sizes = np.diff(blocks.class_bounds)
    assert (blocks.class_bounds[0], blocks.class_bounds[-1]) == (0, 1000)
    assert (np.diff(sizes) <= 1).all()
    # Shares are those of 1, 1/2, 1/3 ... of 47 classes, whose sum is 4.438.
    assert sizes[0] == round(1000 / 4.438)
    assert {*blocks.class_bounds.tolist()} <= {*blocks.block_bounds.tolist()}
    first_blocks = blocks.block_bounds[blocks.block_bounds <= sizes[0]]
    assert first_blocks.tolist() == [0, sizes[0] // 2, sizes[0]]
    assert blocks.classes.tolist() == sorted(blocks.classes.tolist())
    assert len(blocks.blocks) == 1000


class Graph:
    """As much of a data set as caches take."""

    owner = np.array([0, 0, 0, 1, 1, 1], np.int32)
    structure = SimpleNamespace(degrees=np.array([1, 2, 3, 5, 7, 6]))


def cache_of(policy: str, rows: int, window: int = 0) -> tuple[Any, CachePlan]:
    """Return six vertices of two stores, and a cache of the machine of store 0."""
    dataset: Any = Graph()
    return dataset, CachePlan(policy, rows, window, (0,))


def test_rows_that_are_chosen_before_the_start_stay() -> None:
    """The two of store 1 with most neighbours; batches change nothing."""
    dataset, plan = cache_of("degree", 2)
    nothing: Any = None
    held = SamplerCache(dataset, nothing, plan, 0, draw=lambda _: np.empty(0, int))
    assert held.held.tolist() == [4, 5]
    assert held.look(np.array([3, 4])).tolist() == [False, True]
    assert held.look(np.array([0, 3, 5])).tolist() == [False, False, True]
    assert held.held.tolist() == [4, 5]
    held.begin()
    assert held.look_ahead().tolist() == []


def test_rows_that_a_window_needs_most_are_there_from_its_beginning() -> None:
    """Windows of two batches; the first of one asks for the rows of the next."""
    dataset, plan = cache_of("hot", 1, window=2)
    batches = [[0, 3], [3, 4], [4, 5], [1, 4], [5]]
    nothing: Any = None
    held = open_cache(
        dataset, nothing, plan, 0, 0, 5, lambda number: np.array(batches[number])
    )
    ahead, hits, kept = [], [], []
    for batch in batches:
        ahead.append(held.look_ahead().tolist())
        hits.append(held.look(np.array(batch)).tolist())
        kept.append(held.held.tolist())
    assert kept == [[3], [3], [4], [4], [5]]
    assert ahead == [[4], [], [5], [], []]
    assert hits == [[False, True], [True, False], [True, False], [False, True], [True]]


def test_vertices_are_counted_by_the_store_that_owns_them() -> None:
    """All, those that count, and those whose rows come early."""
    owner = np.array([0, 1, 1, 2, 1], np.int32)
    vertices = np.array([0, 1, 2, 3])
    assert _count_by_store(owner, 3, vertices) == (1, 2, 1)
    hits = np.array([False, True, False, True])
    assert _count_by_store(owner, 3, vertices, hits) == (0, 1, 1)
    counts = SampleCounts(
        owned=(1, 2, 1),
        edges=5,
        seeds=1,
        outputs=2,
        first_edges=4,
        frontier_owned=((1, 0, 0),),
        answered=((1, 2, 2),),
    )
    found = count_with_cache(counts, vertices, owner, hits, np.array([4, 3]))
    assert (found.hits, found.ahead) == ((0, 1, 1), (0, 1, 1))
    assert (found.owned, found.edges) == ((1, 2, 1), 5)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"size": 1000, "share": 0}, 25),  # rows of ten numbers, four bytes each
        ({"size": 1039, "share": 0}, 25),
        ({"size": 0, "share": 0.5}, 25),  # half of the rows of a mean store
    ],
)
def test_caches_are_as_large_as_is_stated(settings: dict[str, Any], rows: int) -> None:
    """A size is stated in bytes, or as a share of what a store has of 150 vertices."""
    dataset: Any = SimpleNamespace(feature_length=10, vertices=150, parts=3)
    section = {"policy": "lru", "window": 0, "homes": [0, 1], **settings}
    plan = CachePlan.from_settings({"cache": section, "precision": "float32"}, dataset)
    assert plan == CachePlan("lru", rows, 0, (0, 1))
    assert CachePlan.from_settings({}, dataset) is None


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"scale": 1}, ("g", "2 parts by metis, seed 3")),
        ({"scale": 0.5}, ("g", "2 parts by metis, seed 3, scale 0.5")),
    ],
)
def test_prepared_forms_are_named_with_their_scale(
    facts: dict[str, Any], named: tuple[str, str]
) -> None:
    """The name leaves out a scale of 1."""
    known = {"name": "g", "parts": 2, "partitioner": "metis", "seed": 3, **facts}
    assert _name_form(Path("g"), known) == named


def test_an_array_that_is_not_there_has_no_checksum() -> None:
    """Others have that of their file, or 0 where none was noted."""
    files = {"a.npy": {"crc32": 7, "bytes": 5}, "b.npy": {"bytes": 6}}
    prepared: Any = SimpleNamespace(_files=files)
    names = ("a", "b", "c")
    assert [PreparedArrays.checksum_of(prepared, name) for name in names] == [7, 0, 0]
    assert [PreparedArrays.holds(prepared, name) for name in names] == [
        True,
        True,
        False,
    ]
    assert PreparedArrays.size.fget(prepared) == 11  # type: ignore[attr-defined]


def drawn_structure() -> Any:
    """Return four vertices of weights 1 to 4, in two groups; half goes anywhere."""
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    return SimpleNamespace(
        vertices=4,
        total=10.0,
        prefix=np.append(0.0, np.cumsum(weights)),
        weights_of=weights.__getitem__,
        _share_anywhere=0.5,
        _groups=[(0.5, np.array([0, 2, 4]))],
    )


def test_draws_lead_to_vertices_by_their_weights_in_and_beyond_groups() -> None:
    """Half of the draws from vertex 0 go to vertices 0 and 1, and half to all."""
    structure = drawn_structure()
    targets = np.arange(4)
    near = 0.05 + 0.5 / 3
    shares = DrawnStructure._share(structure, np.zeros(4, int), targets)
    np.testing.assert_allclose(shares, [near, 2 * near, 0.15, 0.2])
    assert shares.sum() == pytest.approx(1.0)
    far = 0.05 + 0.5 / 7
    shares = DrawnStructure._share(structure, np.full(4, 2), targets)
    np.testing.assert_allclose(shares, [0.05, 0.1, 3 * far, 4 * far])


def test_hits_are_as_many_as_draws() -> None:
    """One draw of vertex 0, two of 2 and one of 3."""
    structure = drawn_structure()
    hits = DrawnStructure.expect_hits(structure, np.array([1.0, 0.0, 2.0, 1.0]))
    first, second = 0.2 + 0.5 / 3, 0.2 + 1.5 / 7
    np.testing.assert_allclose(hits, [first, 2 * first, 3 * second, 4 * second])
    assert hits.sum() == pytest.approx(4.0)
