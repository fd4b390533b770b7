"""Synthetic presets: close to what is published, at any scale."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from emu.errors import DataError
from emu.graph_data import synthetic_graph
from emu.graph_data.dataset import open_dataset, partition
from emu.graph_data.raw_graph import RawGraph
from emu.graph_data.synthetic_graph import PRESETS, synthetic_source
from tests.graph_data.imports import edge_cut

SMALL = {"products-like": 0.004, "reddit-like": 0.03, "papers100m-like": 0.0005}


@pytest.fixture(scope="module", params=SMALL)
def drawn(request: pytest.FixtureRequest) -> tuple[str, RawGraph]:
    name: str = request.param
    return name, synthetic_source(name, scale=SMALL[name], seed=0).load()


def test_sizes_are_those_published_times_the_scale(
    drawn: tuple[str, RawGraph],
) -> None:
    name, graph = drawn
    preset, scale = PRESETS[name], SMALL[name]

    assert graph.structure.vertices == round(preset.vertices * scale)
    assert len(graph.structure.indices) == 2 * round(preset.edges * scale)
    assert len(graph.train) == round(preset.split[0] * scale)
    assert graph.rows(0, 10).shape == (10, preset.feature_length)
    assert set(graph.labels.tolist()) == set(range(preset.classes))


@pytest.mark.parametrize(
    ("name", "published"), [("products-like", 0.81), ("papers100m-like", 0.57)]
)
def test_neighbours_share_labels_as_published(name: str, published: float) -> None:
    graph = synthetic_source(name, scale=SMALL[name], seed=0).load()
    destinations = np.repeat(
        np.arange(graph.structure.vertices), np.diff(graph.structure.indptr)
    )
    same = graph.labels[graph.structure.indices] == graph.labels[destinations]

    assert np.mean(same) == pytest.approx(published, abs=0.03)


def test_degrees_have_a_heavy_tail(drawn: tuple[str, RawGraph]) -> None:
    _, graph = drawn
    degrees = np.diff(graph.structure.indptr)

    assert np.median(degrees) < 0.9 * degrees.mean()
    assert degrees.max() > 3 * degrees.mean()


def test_the_structure_is_symmetric(drawn: tuple[str, RawGraph]) -> None:
    _, graph = drawn
    vertices = graph.structure.vertices
    destinations = np.repeat(np.arange(vertices), np.diff(graph.structure.indptr))
    sources = graph.structure.indices.astype(np.int64)

    np.testing.assert_array_equal(
        np.sort(sources * vertices + destinations), destinations * vertices + sources
    )


def test_the_split_is_disjoint(drawn: tuple[str, RawGraph]) -> None:
    _, graph = drawn
    ids = np.concatenate([graph.train, graph.valid, graph.test])

    assert len(np.unique(ids)) == len(ids)


def test_rows_do_not_depend_on_who_asks(drawn: tuple[str, RawGraph]) -> None:
    _, graph = drawn
    whole = graph.rows(0, graph.structure.vertices)

    np.testing.assert_array_equal(graph.rows(4000, 4200), whole[4000:4200])


def test_seeds_differ_and_repeat() -> None:
    # In this order: the last graph that was made is kept.
    first, other, again = (
        synthetic_source("products-like", scale=0.001, seed=seed).load()
        for seed in (0, 1, 0)
    )

    assert again is not first

    np.testing.assert_array_equal(first.structure.indices, again.structure.indices)
    np.testing.assert_array_equal(first.rows(0, 50), again.rows(0, 50))
    assert not np.array_equal(first.structure.indices, other.structure.indices)
    assert not np.array_equal(first.rows(0, 50), other.rows(0, 50))


def test_other_parts_are_cut_out_of_the_same_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Edges are drawn once for 2 and for 3 parts, and are those of a new graph."""
    draw = Mock(wraps=synthetic_graph._draw_edges)
    monkeypatch.setattr(synthetic_graph, "_draw_edges", draw)
    opened = [
        open_dataset(
            "products-like", scale=0.001, seed=71, parts=parts, partitioner="hash"
        )
        for parts in (2, 3)
    ]

    assert draw.call_count == 1

    synthetic_graph._generate_once.cache_clear()
    new = synthetic_source("products-like", scale=0.001, seed=71).load()
    for dataset in opened:
        structure = dataset.structure
        np.testing.assert_array_equal(structure.indptr, new.structure.indptr)
        np.testing.assert_array_equal(structure.indices, new.structure.indices)


def test_large_graphs_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_graph, "_MOST_KEPT_EDGES", 10)
    source = synthetic_source("products-like", scale=0.001, seed=0)

    assert source.load() is not source.load()


def test_metis_cuts_far_less_than_hash() -> None:
    structure = synthetic_source("products-like", scale=0.004, seed=0).load().structure
    metis, hashed = (partition(structure, 4, kind) for kind in ("metis", "hash"))

    assert edge_cut(structure, metis) < 0.2
    assert edge_cut(structure, hashed) == pytest.approx(0.75, abs=0.02)
    for owner in (metis, hashed):
        sizes = np.bincount(owner, minlength=4)
        assert sizes.max() < 1.1 * sizes.mean()


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5, float("nan")])
def test_impossible_scales_are_refused(scale: float) -> None:
    with pytest.raises(DataError, match="must be in"):
        open_dataset("products-like", scale=scale)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_scale_that_would_make_the_graph_dense_is_refused(name: str) -> None:
    """The least that the error names is one that works, and little less does not."""
    with pytest.raises(DataError, match=r"edges; write \S+ or more") as refused:
        synthetic_source(name, scale=1e-7, seed=0)
    least = float(str(refused.value).split("write ")[1].split()[0])
    synthetic_source(name, scale=least, seed=0)
    with pytest.raises(DataError, match="or more"):
        synthetic_source(name, scale=0.6 * least, seed=0)


def test_an_unknown_partitioner_is_refused() -> None:
    structure = synthetic_source("products-like", scale=0.001, seed=0).load().structure

    with pytest.raises(ValueError, match="no partitioner is called spectral"):
        partition(structure, 2, "spectral")


def test_what_differs_is_cached_apart() -> None:
    folders = {
        open_dataset(
            "products-like", scale=0.001, seed=seed, parts=parts, partitioner="hash"
        ).folder
        for seed in (0, 1)
        for parts in (1, 2)
    }

    assert len(folders) == 4
