"""Graphs that are drawn have the sizes of those that are generated and held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import DataError, ScenarioError
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import Target
from emu.graph_data import (
    BatchPlan,
    count_samples,
    drawn_graph,
    open_for,
    open_layers,
)
from emu.graph_data.drawn_graph import DrawnGraph
from emu.graph_data.intervals import count_intervals
from emu.scenario import build_job
from emu.scenario.realize import open_data
from emu.scenario.scenario_file import loads
from tests import draws

PLAN = BatchPlan(seed=3, samplers=4, batch_size=128, fanouts=(10, 25), epoch="local")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is prepared for all tests of this file, in place of those of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def settings_of(*, drawn: bool, partitioner: str = "metis", **keys: Any) -> Any:
    dataset = {"name": "products-like", "scale": 0.02, "seed": 0, "root": ""}
    dataset |= {"normalise": False, "feature_length": None, **keys}
    return {
        "dataset": dataset | ({"drawn": True} if drawn else {}),
        "partitioner": partitioner,
        "parts": 4,
        "model": {"kind": "gcn", "norm": "mean", "layers": 2},
    }


@pytest.mark.parametrize("partitioner", ["metis", draws.rarely("hash")])
def test_batches_are_as_large_as_those_of_the_generated_graph(partitioner: str) -> None:
    """Edges, rows, and whose rows they are; METIS has to find what is planted."""
    sizes = {}
    for drawn in (True, False):
        dataset = open_for(settings_of(drawn=drawn, partitioner=partitioner))
        counts = count_samples(dataset, PLAN, 4)
        batches = [(own, batch) for own, row in enumerate(counts) for batch in row]
        sizes[drawn] = np.mean(
            [
                [batch.edges, batch.outputs, batch.inputs, batch.owned[own]]
                for own, batch in batches
            ],
            axis=0,
        )
    assert sizes[True] == pytest.approx(sizes[False], rel=0.05)


def test_degrees_and_readers_are_those_of_the_generated_graph() -> None:
    drawn, held = open_for(settings_of(drawn=True)), open_for(settings_of(drawn=False))
    assert (drawn.vertices, drawn.edges) == (held.vertices, held.edges)
    sample = np.arange(0, drawn.vertices, 7)
    indptr, targets = drawn.structure.neighbours(sample)
    found, real = np.diff(indptr), held.structure.degrees
    shares = [10, 50, 90, 99]
    assert np.percentile(found, shares) == pytest.approx(
        np.percentile(real, shares), rel=0.08
    )
    assert targets.max() < drawn.vertices
    assert drawn.structure.degrees.sum() == pytest.approx(held.edges, rel=0.02)

    remote = {}
    for is_drawn in (True, False):
        _, graphs = open_layers(settings_of(drawn=is_drawn))
        remote[is_drawn] = sum(len(graphs[0].part(n).remote) for n in range(4))
    assert remote[True] == pytest.approx(remote[False], rel=0.05)
    _, graphs = open_layers(settings_of(drawn=True))
    counts = count_intervals(drawn, 2, "contiguous")
    assert counts.ghosts.sum() == remote[True]
    assert counts.vertices.sum() == drawn.vertices


@pytest.mark.nightly
def test_a_sample_reads_what_its_interval_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_of(drawn=True)["dataset"]

    def count(tried: int) -> tuple[Any, float]:
        monkeypatch.setattr(drawn_graph, "_READER_DRAWS", tried)
        dataset = DrawnGraph(settings, "metis", 3)
        numbers = range(dataset.parts)
        counts = [np.count_nonzero(dataset.readers >> part & 1) for part in numbers]
        return np.array(counts), dataset.ghost_error

    exact, no_error = count(10**9)
    assert no_error == 0
    wider = 0.0
    for tried in (400_000, 20_000):
        found, error = count(tried)
        assert error > wider
        wider = error
        # Three deviations, where the interval has about two.
        assert abs(found / exact - 1).max() < 1.5 * error


def test_edges_are_counted_as_degrees_say() -> None:
    dataset = DrawnGraph(settings_of(drawn=True)["dataset"], "metis", 3)
    some = np.arange(5, dataset.vertices, 3)
    assert dataset.drawn.count_edges(some) == dataset.drawn.degrees[some].sum()
    members = [dataset.members_of(part) for part in range(3)]
    assert np.array_equal(np.concatenate(members), np.arange(dataset.vertices))


def test_a_vertex_has_the_same_neighbours_whenever_it_is_asked_for() -> None:
    structure = open_for(settings_of(drawn=True)).structure
    vertices = np.array([5, 900, 17])
    indptr, all_of = structure.neighbours(vertices)
    key = np.uint64(11)
    sources, places = structure.draw(vertices, 4, key)
    for place in range(3):
        neighbours = all_of[indptr[place] : indptr[place + 1]]
        drawn = sources[places == place]
        assert {*drawn} <= {*neighbours}
        assert len({*drawn}) == len(drawn) <= 4
    again, _ = structure.draw(vertices, 4, key)
    assert (again == sources).all()
    other, _ = structure.draw(vertices, 4, np.uint64(12))
    assert {*other} != {*sources}


def test_what_has_no_size_is_refused() -> None:
    dataset = open_for(settings_of(drawn=True))
    with pytest.raises(DataError, match="neither features nor labels"):
        dataset.gather(np.array([1]))
    with pytest.raises(DataError, match="is not made up, and cannot be drawn"):
        open_for(settings_of(drawn=True, name="ogbn-products"))
    with pytest.raises(DataError, match="must be in"):
        open_for(settings_of(drawn=True, scale=2.0))


def test_nothing_trains_or_runs_on_a_drawn_graph() -> None:
    job: dict[str, Any] = {
        "system": "data_parallel",
        "model": {"hidden": 8, "layers": 2},
    }
    job |= {"dataset": {"name": "products-like", "scale": 0.002, "drawn": True}}
    job |= {"fanouts": [3, 4], "batch_size": 8, "iterations": 2}
    job |= {"times": {"sampler": "1 ms", "worker": "1 ms"}}
    machines: Any = [{"name": "m", "count": 2, "nic": "1 Gbit/s"}]
    scenario = loads(json.dumps({"cluster": {"machines": machines}, "job": job}))
    assert emu.place(scenario).simulate().makespan > 0
    with pytest.raises(ScenarioError, match="nothing trains on a drawn graph"):
        compare_systems(scenario, ["data_parallel"], target=Target(0.5))
    with pytest.raises(ScenarioError, match="has sizes alone"):
        open_data(build_job(scenario))
