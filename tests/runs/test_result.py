"""Tables of result.json, of jobs whose figures are known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Outages,
    Placement,
    Problem,
    Realization,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange
from emu.runs.problem_json import schedule_from_json
from emu.runs.result import (
    flow_error,
    flow_rows,
    port_rows,
    relative_error,
    task_rows,
    training_curve,
)
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.testing import two_machine_example


@pytest.mark.parametrize("pipeline", ["A", "B", "none"])
@pytest.mark.parametrize("several", [False, True])
def test_mean_times_of_a_pipeline_are_those_stated(
    pipeline: str, *, several: bool
) -> None:
    """Its first and last cycles, in which a phase has no mini-batch, take no time."""
    times = {"sampler": 4, "model_forward": 3, "data_forward": 2}
    times |= {"data_backward": 5, "model_backward": 1}
    job = {
        "system": "p3",
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [2, 2],
        "batch_size": 10,
        "iterations": 5,
        "pipeline": pipeline,
        "times": {kind: f"{time} ms" for kind, time in times.items()},
    }
    beside = {
        "system": "custom",
        "iterations": 9,
        "tasks": [{"name": "t", "time": "1 s"}],
    }
    jobs = [{"name": "a", "job": job}, {"name": "b", "job": beside}]
    cluster = {"machines": [{"count": 2, "nic": "1 Gbit/s"}]}
    text = {"cluster": cluster, **({"jobs": jobs} if several else {"job": job})}
    ready = prepare(loads(json.dumps(text)))
    schedule = simulate(ready.problem, ready.realization)
    rows = task_rows(schedule, np.zeros_like(schedule.task_end))

    found = {kind: rows[kind]["mean_seconds"] for kind in times}
    assert found == pytest.approx({kind: time / 1e3 for kind, time in times.items()})
    if several:
        assert rows["task"]["mean_seconds"] == 1.0


def test_a_step_is_over_when_the_last_worker_has_said_its_loss() -> None:
    reports = [
        (2.0, "w1", 1, {"loss": 1.0, "other": 9.0}),
        (3.0, "w0", 1, {"loss": 4.0}),
        (2.5, "w2", 1, {"loss": 2.5}),
        (1.0, "w0", 0, {"loss": 5.0}),
        (9.0, "ps0", 0, {"other": 9.0}),
    ]
    assert training_curve(reports) == [
        {"iteration": 0, "time": 1.0, "loss": 5.0},
        {"iteration": 1, "time": 3.0, "loss": 2.5},
    ]


def test_lateness_and_time_of_a_kind_are_its_greatest_ones() -> None:
    problem, realization = two_machine_example(3)
    times = realization.times + np.arange(18.0).reshape(6, 3)
    schedule = simulate(problem, Realization(times, realization.volumes))
    late = np.zeros_like(times)
    late[0] = [0.5, -1.0, 0.25]  # of g0; g1 is never late
    row = task_rows(schedule, late)["graph_store"]
    assert (row["tasks"], row["late_iterations"]) == (2, 2)
    assert row["max_late_seconds"] == 0.5
    assert row["max_seconds"] == pytest.approx(times[1].max())
    assert row["mean_seconds"] == pytest.approx(times[:2].mean())


def test_times_of_a_kind_are_those_that_a_slow_machine_took() -> None:
    """A machine halves its speed at 2 s: two of four iterations take 2 s, not 1 s."""
    change = SpeedChange(2.0, "m0", 0.5)
    cluster = Cluster((Machine("m0", 1e9, 1e9),), speed_changes=(change,))
    problem = Problem(cluster, Job((Task("a", "a"),), (), 4), Placement((0,)))
    schedule = simulate(problem, Realization(np.ones((1, 4)), np.ones((0, 4))))
    row = task_rows(schedule, np.zeros((1, 4)))["a"]
    assert (row["max_seconds"], row["mean_seconds"]) == (2.0, 1.5)


def test_a_link_is_used_as_a_share_of_what_runs_and_not_of_recovery() -> None:
    problem, realization = two_machine_example(3, second_nic=4.0)
    schedule = simulate(problem, realization)
    recovered = replace(schedule, outages=Outages(seconds=9.0, recovery=4.0))
    rows = {row["port"]: row for row in port_rows(recovered)}
    for machine, rate in (("m0", 10.0), ("m1", 4.0)):
        for direction in ("in", "out"):
            row = rows[f"{machine} {direction}"]
            carried = rate * schedule.length
            assert row["used"] == pytest.approx(row["bytes"] / carried)


def test_ends_are_apart_by_the_middle_the_most_and_the_95th() -> None:
    """Of 21 flows the ends are off by 0 to 20 s, either way."""
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 21)
    machines = Machine("m0", 1e9, 1e9), Machine("m1", 1e9, 1e9)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    made = simulate(problem, Realization(np.ones((2, 21)), np.ones((1, 21))))
    off = np.arange(21.0) * (-1.0) ** np.arange(21)
    found = flow_error(replace(made, flow_end=made.flow_end + off), made)

    assert found == {
        "median_seconds": pytest.approx(10.0),
        "p95_seconds": pytest.approx(19.0),
        "max_seconds": pytest.approx(20.0),
    }


def test_a_schedule_is_read_as_it_was_written() -> None:
    """All differ: the time that deaths add, and when a flow was ready, began, ended."""
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 3)
    machines = Machine("m0", 1e3, 1e3), Machine("m1", 1e3, 1e3)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    times = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    made = simulate(problem, Realization(times, np.full((1, 3), 5e3)))
    written = replace(made, outages=Outages(seconds=9.0, recovery=4.0))

    read = schedule_from_json(problem, written.to_json(), "result.json")

    assert read.outages == written.outages
    assert made.flow_ready[0, 2] < made.flow_start[0, 2] < made.flow_end[0, 2]
    for name in ("task_start", "task_end", "flow_ready", "flow_start", "flow_end"):
        np.testing.assert_array_equal(getattr(read, name), getattr(written, name))


def test_flows_of_a_kind_wait_and_last_as_long_as_their_mean() -> None:
    """Three flows are there after 1, 2 and 3 s, at 1 B/s; the last has no byte.

    The first is sent from 1 to 4 s, the second from then on to 6 s. The simulation
    beside them has links twice as fast.
    """
    job = Job((Task("a", "x"), Task("b", "y")), (Edge(0, 1),), 3)
    run = Realization(np.array([[1.0] * 3, [0.5] * 3]), np.array([[3.0, 2.0, 0.0]]))
    schedules = []
    for rate in (1.0, 2.0):
        cluster = Cluster((Machine("m0", 9.0, rate), Machine("m1", 9.0, 9.0)))
        schedules.append(simulate(Problem(cluster, job, Placement((0, 1))), run))
    (row,) = flow_rows(*schedules)
    assert row == {
        "from": "x",
        "to": "y",
        "flows": 2,
        "bytes": 5.0,
        "mean_waiting_seconds": 1.0,
        "mean_seconds": 2.5,
        "simulated_mean_seconds": 1.25,
    }
    (row,) = flow_rows(schedules[1])
    assert row["mean_waiting_seconds"] == 0.25
    assert "simulated_mean_seconds" not in row


def test_an_error_is_a_share_of_what_was_expected_or_all_of_it() -> None:
    """A microsecond beside no time at all is rounding; more counts in full."""
    found = [relative_error(*pair) for pair in ((3.0, 2.0), (1e-6, 0.0), (2e-6, 0.0))]
    assert found == [0.5, 0.0, 1.0]


@pytest.mark.parametrize("path", [[3, 0], [True], [2.0], [-1]])
def test_quotas_are_numbers_of_slots(path: list[Any]) -> None:
    machine = Machine("m0", 1.0, 1.0, slots={"gpu": 2})
    tuner = Tuner(0, "gpu", "gpu", most=9, period=0.5)
    job = Job((Task("a", "t", takes="gpu"),), (), 1)
    problem = Problem(Cluster((machine,), tuners=(tuner,)), job, Placement((0,)))
    run = Realization(np.ones((1, 1)), np.zeros((0, 1)))
    schedule = replace(simulate(problem, run), quotas=np.array([[3], [1]]))
    content = schedule.to_json()
    again = schedule_from_json(problem, content, "x.json").quotas
    assert again is not None
    assert again.tolist() == [[3], [1]]
    (name,) = content["quotas"]
    content["quotas"][name] = path
    with pytest.raises(DataError, match="a quota is no number of slots"):
        schedule_from_json(problem, content, "x.json")
