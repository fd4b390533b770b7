"""Numbers of edges by formula, held against the jobs that are built."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.errors import ScenarioError
from emu.systems.job_section import MOST_EDGES
from emu.systems.training_section import batch_problem, feature_bytes, number_bytes

FEW = st.integers(1, 4)


def _counted(name: str, changes: dict[str, Any]) -> tuple[int, int]:
    scenario = emu.load(name, changes)
    machines = [name for name, _ in scenario.stated_cluster.names_and_positions()]
    found = scenario.to_job(train_vertices=1)
    return scenario.job.least_edges(machines), len(found.edges)


@settings(max_examples=25, deadline=None)
@given(
    workers=FEW,
    each=st.sampled_from([1, 2, 4]),
    servers=FEW,
    sampling=st.sampled_from(["oneshot", "multiround"]),
    sync=st.sampled_from(["parameter_server", "ring"]),
)
def test_edges_of_dgtp(
    workers: int, each: int, servers: int, sampling: str, sync: str
) -> None:
    least, edges = _counted(
        "testbed_products",
        {
            "job.workers": workers,
            "job.samplers_per_worker": each,
            "job.parameter_servers": servers,
            "job.sampling": sampling,
            "job.sync": sync,
            "job.credit_window": "unlimited",
            "job.times.sampler_hop": "1 ms",
            "job.times.sampler_fetch": "1 ms",
            "job.times.graph_store_hop": "1 ms",
        },
    )
    assert least == edges


@settings(max_examples=25, deadline=None)
@given(
    system=st.sampled_from(["p3", "data_parallel"]),
    count=st.integers(2, 9),
    structure=st.sampled_from(["replicated", "hashed"]),
)
def test_edges_of_replicas(system: str, count: int, structure: str) -> None:
    more: dict[str, str | None]
    more = {"job.structure": structure} if system == "p3" else {}
    machines = [{"name": "m", "count": count, "nic": "1 Gbit/s", "slots": {"gpu": 1}}]
    if system == "data_parallel":
        more |= {f"job.{key}": None for key in ("pipeline", "push", "cache")}
    times = {"sampler_hop": "1 ms", "graph_store_hop": "1 ms"} if more else {}
    least, edges = _counted(
        "p3_amazon",
        {
            "cluster": {"machines": machines},
            "job.system": system,
            **{f"job.times.{kind}": time for kind, time in times.items()},
            "job.credit_window": "unlimited",
            "expect": None,
            **more,
        },
    )
    assert 0.6 * edges <= least <= edges


@settings(max_examples=10, deadline=None)
@given(segments=st.integers(1, 5), ranks=st.integers(2, 5))
def test_edges_of_collectives(segments: int, ranks: int) -> None:
    names = [f"w{rank}" for rank in range(ranks)]
    ring = {"among": names, "volume": "8 B", "segments": segments}
    least, edges = _counted(
        "golden",
        {
            "job.tasks": [{"name": name, "time": "1 s"} for name in names],
            "job.flows": [],
            "job.collectives": [{"allreduce": ring}],
            "placement": None,
            "expect": None,
        },
    )
    assert 0.6 * edges <= least <= edges


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        (
            "testbed_products",
            {"job.parameter_servers": 10_000, "job.workers": 9_000},
            (
                r"job.parameter_servers: found 10,000, which make 180,\d+,\d+ edges or "
                r"more, at most 500,000 are built: write \d+ or fewer"
            ),
        ),
        (
            "dorylus_amazon",
            {"job.intervals": 10_000, "job.receivers": "interval"},
            r"job.intervals: found 10,000, .* write \d+ or fewer",
        ),
        (
            "dorylus_amazon",
            {"cluster.machines[0].count": 9_000, "job.intervals": 9_000},
            "cluster.machines: found 9,0",
        ),
        ("p3_amazon", {"cluster.machines[0].count": 10_000}, "cluster.machines: "),
        ("dgcl_two_racks", {"job.epochs": 10**7}, "job.epochs: found 10,000,000"),
        (
            "testbed_products",
            {"job.iterations": 10**7},
            (
                "job.iterations: found 10,000,000, with 72 edges or more 720,000,000 "
                "flows, at most 100,000,000 are simulated: write 1,388,888 or fewer"
            ),
        ),
    ],
)
def test_what_is_too_large_is_counted_and_not_built(
    name: str, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ScenarioError, match=problem):
        emu.load(name, change)


def test_what_is_advised_fits() -> None:
    change = {"job.intervals": 10_000, "job.receivers": "interval"}
    with pytest.raises(ScenarioError, match="write ") as caught:
        emu.load("dorylus_amazon", change)
    advised = int(str(caught.value).split("write ")[1].split()[0].replace(",", ""))
    scenario = emu.load("dorylus_amazon")
    names = [name for name, _ in scenario.stated_cluster.names_and_positions()]
    section = scenario.job.model_copy(update={"receivers": "interval"})
    for intervals, fits in ((advised, True), (advised + 1, False)):
        found = section.model_copy(update={"intervals": intervals})
        assert (found.least_edges(names) <= MOST_EDGES) == fits


@pytest.mark.parametrize(
    ("tasks", "segments", "key"),
    [(400, 1, r"collectives\[1\]\.allreduce\.among"),
     (30, 1000, r"collectives\[1\]\.allreduce\.segments")],
)  # fmt: skip
def test_a_collective_that_is_too_large_is_named_itself(
    tasks: int, segments: int, key: str
) -> None:
    names = [f"w{i}" for i in range(tasks)]
    small = {"among": names[:2], "volume": "1 MB", "lag": 1}
    large = {"among": names, "volume": "1 MB", "lag": 1, "segments": segments}
    job: dict[str, Any] = {"system": "custom", "iterations": 1}
    job["tasks"] = [{"name": name, "time": "1 ms"} for name in names]
    job["collectives"] = [{"allreduce": one} for one in (small, large, small)]
    content = {"name": "n", "cluster": {"machines": [{"nic": "1 MB/s"}]}, "job": job}
    with pytest.raises(ScenarioError, match=rf"job\.{key}: found {tasks}"):
        emu.loads(json.dumps(content))


@pytest.mark.parametrize(
    ("epoch", "batch", "words"),
    [
        ("replicate", 99, ""),
        ("replicate", 100, "100 seeds are more than the 100 training"),
        ("split", 48, ""),
        ("split", 49, "49 seeds are more than one worker's share of the 100 training"),
    ],
)
def test_a_mini_batch_is_no_larger_than_what_a_worker_trains_on(
    epoch: str, batch: int, words: str
) -> None:
    """Three samplers share 99 of 100 vertices; two workers with three each 48."""
    stated: Any = {
        "samplers_per_worker": 3,
        "workers": 2,
        "batch_size": batch,
        "epoch": epoch,
    }
    said = batch_problem(stated, 100)
    assert said.startswith(words)
    assert bool(said) == bool(words)
    few = batch_problem(stated, 2)
    assert few == "2 training vertices are too few for so many samplers"


@pytest.mark.parametrize(
    ("keys", "train", "problem"),
    [
        ({"batch_size": 99}, 100, ""),
        (
            {"batch_size": 101},
            100,
            "101 seeds are more than the 100 training vertices: write 99 or fewer",
        ),
        ({"batch_size": 102}, 102, ""),
        ({"batch_size": 3}, 2, "2 training vertices are too few for so many samplers"),
        # Six samplers share 100 vertices: 16 each, three of a worker 48.
        ({"batch_size": 48, "epoch": "shard"}, 100, ""),
        (
            {"batch_size": 51, "epoch": "shard"},
            100,
            (
                "51 seeds are more than one worker's share of the 100 training "
                "vertices: write 48 or fewer"
            ),
        ),
        (
            {"batch_size": 3, "epoch": "local"},
            5,
            "5 training vertices are too few for so many samplers",
        ),
    ],
)
def test_a_batch_is_told_the_most_seeds_that_samplers_can_share(
    keys: dict[str, Any], train: int, problem: str
) -> None:
    settings = {"samplers_per_worker": 3, "workers": 2, "epoch": "replicate", **keys}
    assert batch_problem(settings, train) == problem


def test_features_are_as_wide_as_their_type() -> None:
    def stated(precision: str) -> dict[str, Any]:
        return {"precision": precision, "dataset": {}}

    for precision, size in (("float32", 4), ("float64", 8)):
        assert number_bytes(stated(precision)) == size
        assert feature_bytes(stated(precision)) == size
