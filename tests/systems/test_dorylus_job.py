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
from emu.systems.dorylus.remarks import ages_of_reads, live_versions
from emu.systems.dorylus.section import DorylusJobSection
from tests.golden.cases import Case, cases, exactly, problem_of
from tests.systems.sections import context_of, section_of


def shape_of(servers: int = 2, **keys: Any) -> DorylusJobSection:
    """Return the section of a job on so many servers, which it names."""
    stated = {
        "machines": [f"g{k}" for k in range(servers)],
        "parameter_servers": ["p"],
        "intervals": 2,
        **keys,
    }
    section = section_of("dorylus", **stated)
    assert isinstance(section, DorylusJobSection)
    return section


def built(section: DorylusJobSection) -> Job:
    return section.build(context_of([]))


def golden_shape(case: Case) -> DorylusJobSection:
    if not case.name.startswith("async"):
        return shape_of(epochs=4)
    return shape_of(epochs=4, mode="async", staleness=int(case.name[5]))


def machine_of(cluster: Cluster, pinned: str | None) -> int:
    """Return the machine of a task by our name, of lambdas another in golden files."""
    return cluster.index((pinned or "").replace("lambda", "l"))


@pytest.mark.parametrize("case", cases("dorylus"), ids=str)
def test_golden_times_and_reads(case: Case) -> None:
    """Its own builder gives the job that two simulators agreed on, name by name."""
    stated, realization = problem_of(case)
    job, other = built(golden_shape(case)), stated.job
    tasks = [other.index(task.name) for task in job.tasks]
    edges = [other.edge_positions[name] for name in job.edge_names]
    assert len(job.tasks) == len(other.tasks)
    assert len(job.edges) == len(other.edges)
    placed = Placement(
        tuple(machine_of(stated.cluster, task.pinned) for task in job.tasks)
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


def _problem(section: DorylusJobSection, quota: int = 2, threads: int = 1) -> Problem:
    job = built(section)
    slots = {"threads": threads, "lambdas": quota}
    machines = [
        *(Machine(name, 20.0, 20.0, slots=slots) for name in section.ranks([])),
        *(Machine(name, 10.0, 10.0) for name in section.lambdas_of(section.ranks([]))),
        *(Machine(name, 20.0, 20.0) for name in section.parameter_servers),
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


@st.composite
def sections(draw: st.DrawFn) -> DorylusJobSection:
    """Draw a job of any shape that runs."""
    mode = draw(st.sampled_from(["no_pipe", "pipe", "async"]))
    attends, launches = draw(st.booleans()), draw(st.booleans())
    return shape_of(
        draw(st.integers(1, 3)),
        intervals=draw(st.integers(1, 3)),
        parameter_servers=[f"p{k}" for k in range(draw(st.integers(1, 2)))],
        epochs=4,
        mode=mode,
        staleness=draw(st.integers(0, 2)) if mode == "async" else 0,
        model={
            "kind": "gat" if attends else "gcn",
            "hidden": 4,
            "layers": draw(st.integers(1, 3)),
        },
        fuse=draw(st.booleans()),
        rematerialize=draw(st.booleans()) and not attends,
        stream=1 if attends else draw(st.integers(1, 2)),
        launch={"cold": "1 s"} if launches else {},
        receivers=draw(st.sampled_from(["server", "interval"])),
        first_epoch=draw(st.sampled_from(["sync", "free"])),
    )


@settings(max_examples=60, deadline=None)
@given(section=sections(), seed=st.integers(0, 99), quota=st.integers(1, 3))
def test_epochs_apart_and_what_is_read(
    section: DorylusJobSection, seed: int, quota: int
) -> None:
    """Every shape runs to its end, epochs stay within S, reads within e - 1 - S."""
    problem = _problem(section, quota)
    job = problem.job
    schedule = simulate(problem, _times(job, seed), "maxmin")
    first = [
        min(j for j, t in enumerate(job.tasks) if t.settings.get("interval") == i)
        for i in range(len(section.ranks([])) * section.intervals)
    ]
    begins = np.where(  # a launch that waits for its slot has entered its epoch
        np.isnan(schedule.task_start[first]), 0, schedule.task_start[first]
    )
    ends = schedule.task_end[job.index("done")]
    lag = section.staleness + 1
    assert 1 <= live_versions(schedule) <= section.staleness + 2
    assert ages_of_reads(schedule).max(initial=0) <= lag
    assert (begins[:, lag:] >= ends[:-lag] - 1e-9).all()
    if schedule.reads is None:
        assert section.mode != "async"
        return
    epochs = np.arange(job.iterations)
    for e, edge in enumerate(job.edges):
        together = job.tasks[edge.destination].kind == "ghosts"
        if edge.latest:
            least = epochs if together else np.maximum(epochs - lag, -1)
            assert (schedule.reads[e] >= least).all(), job.edge_names[e]


@settings(max_examples=60, deadline=None)
@given(section=sections(), lambdas=st.booleans())
def test_edges_by_formula(*, section: DorylusJobSection, lambdas: bool) -> None:
    if not lambdas:
        section = section.model_copy(update={"backend": "cpu", "stream": 1})
    least = section.least_edges([])
    assert least <= len(built(section).edges) <= 3 * least


@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("one_receiver", [False, True])
def test_no_value_is_older_than_the_bound(
    staleness: int,
    one_receiver: bool,  # noqa: FBT001
) -> None:
    """One slow NIC: ghosts are on their way when the next epoch may begin."""
    receivers = "server" if one_receiver else "interval"
    section = shape_of(epochs=8, mode="async", staleness=staleness, receivers=receivers)
    problem = _problem(section)
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
    model = {"hidden": 4, "layers": 3}
    late = {"mode": "async", "staleness": 1, "first_epoch": "free"}
    problem = _problem(shape_of(1, epochs=6, model=model, **late))
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


def test_the_first_epoch_waits_for_all_rows_where_it_is_said_to() -> None:
    """A gate per server and way holds its two intervals, in epoch 0 of async alone."""
    keys: dict[str, Any] = {"mode": "async", "staleness": 1}
    of_sync = built(shape_of(**keys, first_epoch="sync"))
    of_free = built(shape_of(**keys, first_epoch="free"))
    of_pipe = built(shape_of(mode="pipe", first_epoch="sync"))
    held = {name for name in of_sync.edge_names if "full_" in name.partition("->")[0]}
    assert held == {
        *(f"full_{i // 2}->ga1_{i}" for i in range(4)),
        *(f"dfull_{i // 2}->dga_{i}" for i in range(4)),
    }
    for job in (of_free, of_pipe):
        assert not any("full_" in task.name for task in job.tasks)


def test_applies_wait_for_the_devices_of_their_backend() -> None:
    for backend, pool in (("cpu", "threads"), ("gpu", "gpu")):
        tasks = built(shape_of(backend=backend)).tasks
        pools = {task.kind: task.takes for task in tasks}
        assert pools["apply"] == pools["apply_back"] == pool
        assert pools["gather"] == pools["scatter"] == "threads"


def test_the_first_part_of_a_lambda_reads_the_weights() -> None:
    names = built(shape_of(stream=2)).edge_names
    assert "wu0->av0_0.first" in names
    assert "wu0->av0_0" not in names
    assert "wu0->av0_0" in built(shape_of(stream=1)).edge_names
    whole = shape_of(stream=1, backend="cpu")
    assert "wu0->av0_0" in built(whole).edge_names


@pytest.mark.parametrize(("servers", "intervals"), [(4, 8), (8, 16)])
def test_numbers_of_tasks(servers: int, intervals: int) -> None:
    section = shape_of(servers, intervals=intervals, mode="async", receivers="interval")
    job = built(section)
    expected = {(4, 8): (651, 3104), (8, 16): (3603, 39040)}
    assert (len(job.tasks), len(job.edges)) == expected[servers, intervals]
    assert 0.85 * len(job.edges) <= section.least_edges([]) <= len(job.edges)


def test_from_64_intervals_on_a_server_receives_by_one_task() -> None:
    few, many = shape_of(8, intervals=7), shape_of(8, intervals=8)
    own = {task.name for task in built(few).tasks if task.kind == "ghosts"}
    assert len(own) > 16
    names = {task.name for task in built(many).tasks if task.kind == "ghosts"}
    assert names == {f"{d}in_{g}" for d in ("", "d") for g in range(8)}
