"""The Dorylus job: exact schedules, shapes of every mode, bounds of staleness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.prediction.simulation import simulate
from emu.problem import Cluster, Job, Machine, Placement, Problem, Realization
from emu.systems.dorylus.graph import DorylusConfig, steps_of
from emu.systems.dorylus.job import dorylus_job, least_edges
from emu.systems.dorylus.remarks import ages_of_reads, live_versions
from tests.golden.cases import Case, cases, exactly, problem_of


def _config(case: Case) -> DorylusConfig:
    asynchronous = case.name.startswith("async")
    return DorylusConfig(
        servers=("g0", "g1"),
        intervals=2,
        parameter_servers=("p",),
        lambdas=("l0", "l1", "l2", "l3"),
        epochs=4,
        mode="async" if asynchronous else "pipe",
        staleness=int(case.name[5]) if asynchronous else 0,
    )


@pytest.mark.parametrize("case", cases("dorylus"), ids=str)
def test_golden_times_and_reads(case: Case) -> None:
    """Its own builder gives the job that two simulators agreed on, name by name."""
    stated, realization = problem_of(case)
    job, other = dorylus_job(_config(case)), stated.job
    tasks = [other.index(task.name) for task in job.tasks]
    edges = [other.edge_positions[name] for name in job.edge_names]
    assert len(job.tasks) == len(other.tasks)
    assert len(job.edges) == len(other.edges)
    placed = Placement(
        tuple(stated.cluster.index(task.pinned or "") for task in job.tasks)
    )
    schedule = simulate(
        Problem(stated.cluster, job, placed),
        Realization(realization.times[tasks], realization.volumes[edges]),
        "oes",
    )
    expected = case.results["oes"]
    (span,) = exactly([expected["makespan"]])
    assert schedule.makespan == pytest.approx(span, rel=1e-9)
    for name, ends in expected["task_ends"].items():
        found = schedule.task_end[job.index(name)][: len(ends)]
        np.testing.assert_allclose(found, exactly(ends), rtol=1e-9, err_msg=name)
    for name, read in expected.get("reads", {}).items():
        assert schedule.reads is not None
        found = schedule.reads[job.edge_positions[name]]
        np.testing.assert_array_equal(found, read, err_msg=name)


def _problem(config: DorylusConfig, quota: int = 2, threads: int = 1) -> Problem:
    job = dorylus_job(config)
    slots = {"threads": threads, "lambdas": quota}
    machines = [
        *(Machine(name, 20.0, 20.0, slots=slots) for name in config.servers),
        *(Machine(name, 10.0, 10.0) for name in config.lambdas),
        *(Machine(name, 20.0, 20.0) for name in config.parameter_servers),
    ]
    cluster = Cluster(tuple(machines))
    where = tuple(cluster.index(task.pinned or "") for task in job.tasks)
    return Problem(cluster, job, Placement(where))


def _times(job: Job, seed: int) -> Realization:
    rng = np.random.default_rng(seed)
    idle = np.array(
        [t.gate or t.kind in {"call", "answer", "ghosts"} for t in job.tasks]
    )
    times = rng.uniform(0.5, 4, (len(job.tasks), job.iterations))
    times[idle] = 0
    volumes = rng.uniform(0, 8, (len(job.edges), job.iterations))
    volumes[list(job.control)] = 0
    return Realization(times, volumes)


CONFIGS = st.builds(
    lambda g, n, p, mode, s, attention, **more: DorylusConfig(
        servers=tuple(f"g{k}" for k in range(g)),
        intervals=n,
        parameter_servers=tuple(f"p{k}" for k in range(p)),
        lambdas=tuple(f"l{k}" for k in range(g * n)),
        epochs=4,
        mode=mode,
        staleness=s if mode == "async" else 0,
        attention=attention,
        **more | ({"stream": 1, "rematerialize": False} if attention else {}),
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["no_pipe", "pipe", "async"]),
    st.integers(0, 2),
    st.booleans(),
    layers=st.integers(1, 3),
    fuse=st.booleans(),
    rematerialize=st.booleans(),
    stream=st.integers(1, 2),
    launches=st.booleans(),
    one_receiver=st.booleans(),
    first_epoch_sync=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(config=CONFIGS, seed=st.integers(0, 99), quota=st.integers(1, 3))
def test_epochs_apart_and_what_is_read(
    config: DorylusConfig, seed: int, quota: int
) -> None:
    """Every shape runs to its end, epochs stay within S, reads within e - 1 - S."""
    problem = _problem(config, quota)
    job = problem.job
    schedule = simulate(problem, _times(job, seed), "maxmin")
    first = [
        min(j for j, t in enumerate(job.tasks) if t.settings.get("interval") == i)
        for i in range(config.count)
    ]
    begins = np.where(  # a launch that waits for its slot has entered its epoch
        np.isnan(schedule.task_start[first]), 0, schedule.task_start[first]
    )
    ends = schedule.task_end[job.index("done")]
    lag = config.staleness + 1
    assert 1 <= live_versions(schedule) <= config.staleness + 2
    assert ages_of_reads(schedule).max(initial=0) <= lag
    assert (begins[:, lag:] >= ends[:-lag] - 1e-9).all()
    if schedule.reads is None:
        assert config.mode != "async"
        return
    epochs = np.arange(job.iterations)
    for e, edge in enumerate(job.edges):
        together = job.tasks[edge.destination].kind == "ghosts"
        if edge.latest:
            least = epochs if together else np.maximum(epochs - lag, -1)
            assert (schedule.reads[e] >= least).all(), job.edge_names[e]


@settings(max_examples=60, deadline=None)
@given(config=CONFIGS, lambdas=st.booleans())
def test_edges_by_formula(*, config: DorylusConfig, lambdas: bool) -> None:
    config = config if lambdas else replace(config, lambdas=(), stream=1)
    least = least_edges(
        (len(config.servers), config.intervals, len(config.parameter_servers)),
        steps_of(config),
        lambdas=lambdas,
        together=config.one_receiver,
    )
    assert least <= len(dorylus_job(config).edges) <= 3 * least


@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("one_receiver", [False, True])
def test_no_value_is_older_than_the_bound(
    staleness: int,
    one_receiver: bool,  # noqa: FBT001
) -> None:
    """One slow NIC: ghosts are on their way when the next epoch may begin."""
    config = DorylusConfig(
        ("g0", "g1"), 2, ("p0",), ("l0", "l1", "l2", "l3"), epochs=8,
        mode="async", staleness=staleness, one_receiver=one_receiver,
    )  # fmt: skip
    problem = _problem(config)
    times = _times(problem.job, 5)
    ghosts = [
        e
        for e, edge in enumerate(problem.job.edges)
        if problem.job.tasks[edge.destination].kind == "ghosts"
    ]
    volumes = times.volumes.copy()
    volumes[ghosts] *= 40
    schedule = simulate(problem, replace(times, volumes=volumes), "maxmin")
    assert schedule.reads is not None
    oldest = 0
    for e, edge in enumerate(problem.job.edges):
        source, to = (problem.job.tasks[j] for j in (edge.source, edge.destination))
        if edge.latest and to.kind != "ghosts":
            age = np.arange(8) - schedule.reads[e]
            assert (age[1:] <= staleness + 1).all(), (source.name, to.name)
            oldest = max(oldest, int(age[1:].max()))
    assert oldest == staleness + 1


def test_versions_that_are_live_by_hand() -> None:
    """Counted from the times of reads and stashes, layer by layer, another way."""
    config = DorylusConfig(
        ("g0",), 2, ("p0",), ("l0", "l1"), epochs=6, layers=3,
        mode="async", staleness=1, first_epoch_sync=False,
    )  # fmt: skip
    problem = _problem(config)
    times = _times(problem.job, 1)
    seconds = np.where(times.times > 0, 1.0, 0.0)
    slow = [j for j, t in enumerate(problem.job.tasks) if t.name in {"av1_1", "av2_1"}]
    seconds[slow] = 20.0
    schedule = simulate(problem, replace(times, times=seconds), "maxmin")
    held = []
    job = problem.job
    for layer in range(3):
        update = schedule.task_end[job.index(f"wu{layer}")]
        begins = np.concatenate([[0], update])
        spans = {version: [begins[version + 1]] for version in range(-1, 6)}
        for i in range(2):
            edge = job.edge_positions[f"wu{layer}->av{layer}_{i}"]
            stash = f"stash{layer}_{i}"
            last = stash if layer == 1 else f"av{layer}_{i}"
            assert schedule.reads is not None
            for n in range(6):
                read = int(schedule.reads[edge, n])
                spans[read].append(schedule.task_end[job.index(last), n])
        for at in begins:
            newest = int((begins <= at).sum()) - 2
            needed = {v for v in spans if v <= newest and max(spans[v]) > at}
            held.append(len(needed | {newest}))
    assert live_versions(schedule) == max(held)


@pytest.mark.parametrize(("servers", "intervals"), [(4, 8), (8, 16)])
def test_numbers_of_tasks(servers: int, intervals: int) -> None:
    config = DorylusConfig(
        servers=tuple(f"g{k}" for k in range(servers)),
        intervals=intervals,
        parameter_servers=("p",),
        lambdas=tuple(f"l{k}" for k in range(servers * intervals)),
        epochs=2,
        mode="async",
        one_receiver=False,
    )
    job = dorylus_job(config)
    expected = {(4, 8): (651, 3104), (8, 16): (3603, 39040)}
    assert (len(job.tasks), len(job.edges)) == expected[servers, intervals]
    sizes = servers, intervals, 1
    least = least_edges(sizes, steps_of(config), lambdas=True, together=False)
    assert 0.85 * len(job.edges) <= least <= len(job.edges)


def test_from_64_intervals_on_a_server_receives_by_one_task() -> None:
    servers = tuple(f"g{k}" for k in range(8))
    few = DorylusConfig(servers, 7, ("p",), ("l",) * 56, epochs=2)
    many = DorylusConfig(servers, 8, ("p",), ("l",) * 64, epochs=2)
    assert not few.receives_together
    assert many.receives_together
    names = {task.name for task in dorylus_job(many).tasks if task.kind == "ghosts"}
    assert names == {f"{d}in_{g}" for d in ("", "d") for g in range(8)}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"servers": ()}, "needs servers"),
        ({"parameter_servers": ()}, "needs parameter_servers"),
        ({"intervals": 0}, "intervals are 0"),
        ({"staleness": 1}, "mode pipe has no staleness 1"),
        ({"staleness": -1, "mode": "async"}, "staleness -1"),
        ({"lambdas": ("l0",)}, "1 lambdas for 4 intervals"),
        ({"stream": 3}, "1 or 2 parts"),
        ({"attention": True, "stream": 2}, "attention neither streams"),
        ({"attention": True, "rematerialize": True}, "nor rematerializes"),
    ],
)
def test_impossible_shapes(change: dict[str, Any], problem: str) -> None:
    good = DorylusConfig(("g0", "g1"), 2, ("p",), (), epochs=1)
    with pytest.raises(ValueError, match=problem):
        replace(good, **change)
