"""Problems and schedules in files: what is left out, refused, and made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Schedule,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange
from emu.runs.problem_json import (
    problem_from_json,
    problem_to_json,
    schedule_from_json,
)
from emu.runs.recorded_run import realization_of, training_frame
from tests.report.recorded import schedules, write_run


def reading() -> Schedule:
    """Return three iterations of two tasks, and two of one that reads the newest.

    That stands beside the first; its edge from the second crosses machines.
    """
    tasks = Task("a", "x"), Task("b", "x"), Task("c", "y", iterations=2)
    edges = Edge(0, 2), Edge(1, 2, latest=True, lag=1)
    job = Job(tasks, edges, 3)
    machines = Machine("m0", 9.0, 9.0), Machine("m1", 9.0, 9.0)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))
    times = np.array([[1.0, 2.0, 3.0], [1.5, 0.5, 2.5], [1.0, 1.0, 1.0]])
    return simulate(problem, Realization(times, np.full((2, 3), 3.0)))


def test_what_was_read_of_the_newest_is_in_a_file() -> None:
    schedule = reading()
    assert schedule.reads is not None
    assert schedule.reads[0].tolist() == [-1, -1, -1]
    read = schedule_from_json(schedule.problem, schedule.to_json(), "x.json")

    assert read.reads is not None
    np.testing.assert_array_equal(read.reads, schedule.reads)
    assert {*schedule.reads[1].tolist()} > {-1}
    # A job of which nobody reads the newest notes nothing of it.
    plain, _ = schedules()
    assert schedule_from_json(plain.problem, plain.to_json(), "x.json").reads is None


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "within": (
        lambda it: it["flows"][0].update(edge="a->c"),
        "flow a->c stays on one machine",
    ),
    "twice": (lambda it: it["flows"].append(it["flows"][0]), "a row occurs twice"),
    "lacks": (lambda it: it["tasks"].pop(), "task c lacks iteration 1"),
    "more": (
        lambda it: it["flows"].append({**it["flows"][-1], "iteration": 2}),
        "flow b->c has too many iterations",
    ),
    "longer": (
        lambda it: it["tasks"].append({**it["tasks"][-1], "iteration": 2}),
        "task c has too many iterations",
    ),
    "late": (lambda it: it["tasks"][0].update(iteration=3), "iteration 3 of .* is non"),
    "early": (lambda it: it["tasks"][0].update(iteration=-1), "iteration -1 of .* is"),
    "true": (lambda it: it["tasks"][1].update(iteration=True), "iteration True of"),
    "huge": (lambda it: it["tasks"][0].update(end=1e18), "end is 1e[+]18 in"),
    "truth": (lambda it: it["tasks"][0].update(end=True), "end is True in"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_are_of_no_such_job_are_refused(name: str) -> None:
    change, problem = CHANGES[name]
    schedule = reading()
    content = json.loads(json.dumps(schedule.to_json()))
    change(content)
    with pytest.raises(DataError, match=f"x.json: not a schedule of .*: .*{problem}"):
        schedule_from_json(schedule.problem, content, "x.json")


def test_far_more_iterations_than_rows_are_refused() -> None:
    """A thousand may be stated of a short file, and of a longer one as many as rows."""
    schedule = reading()
    content = schedule.to_json()
    job = replace(schedule.problem.job, iterations=1001)
    problem = replace(schedule.problem, job=job)
    with pytest.raises(DataError, match="has 1001 iterations, and 8 of all tasks"):
        schedule_from_json(problem, content, "x.json")
    job = replace(schedule.problem.job, iterations=1000)
    problem = replace(schedule.problem, job=job)
    with pytest.raises(DataError, match="task a lacks iteration 3"):
        schedule_from_json(problem, content, "x.json")


def test_what_few_clusters_have_is_in_the_file_of_those_alone() -> None:
    machine = Machine("m0", 1.0, 2.0, slots={"gpu": 2})
    tuner = Tuner(0, "gpu", "gpu", most=9, period=0.5)
    change = SpeedChange(2.0, "m0", 0.5)
    job = Job((Task("a", "t", takes="gpu"),), (), 2)
    plain = Problem(Cluster((machine,)), job, Placement((0,)))
    tuned = Cluster((machine,), tuners=(tuner,), speed_changes=(change,))
    full = Problem(tuned, job, Placement((0,)))

    assert not {"tuners", "speed_changes"} & problem_to_json(plain).keys()
    content = json.loads(json.dumps(problem_to_json(full)))
    assert (len(content["tuners"]), len(content["speed_changes"])) == (1, 1)
    assert (content["links"], content["routes"]) == ([], [])
    for problem in (plain, full):
        content = json.loads(json.dumps(problem_to_json(problem)))
        again = problem_from_json(content, "problem.json")
        assert again.cluster == problem.cluster
        assert again.job == problem.job
        assert again.placement == problem.placement


def test_bytes_of_handoffs_are_those_of_flows_of_like_kinds() -> None:
    """Between four kinds of pairs; a credit and what never left have none."""
    names = ["xa", "xb", "ya", "yb", "za"]
    tasks = tuple(Task(name, name[0]) for name in names)
    edges = (
        *(Edge(0, 2), Edge(1, 3), Edge(1, 2)),  # x to y: over machines but the first
        *(Edge(0, 4), Edge(2, 4)),  # x to z and y to z: within one
        Edge(3, 4),  # y to z, over machines
        Edge(3, 2, lag=1, credit=True),
    )
    job = Job(tasks, edges, 2)
    machines = tuple(Machine(f"m{number}", 9.0, 9.0) for number in range(3))
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0, 2, 0)))
    volumes = np.array([[90.0] * 2, [3.0, 5.0], [7.0, 1.0], *[[90.0] * 2] * 2,
                        [6.0, 8.0], [0.0] * 2])  # fmt: skip
    schedule = simulate(problem, Realization(np.ones((5, 2)), volumes))
    content = schedule.to_json()  # in which handoffs have no bytes
    found = realization_of(schedule_from_json(problem, content, "result.json"))

    np.testing.assert_array_equal(found.times, np.ones((5, 2)))
    assert found.volumes.tolist() == [
        *([5.0, 3.0], [3.0, 5.0], [7.0, 1.0]),
        # Nothing tells what goes from x to z.
        *([0.0, 0.0], [6.0, 8.0], [6.0, 8.0], [0.0, 0.0]),
    ]


def test_rates_of_ports_are_assigned_or_the_mean_of_what_moved(run: Path) -> None:
    read = emu.load_run(run)
    assert read.emulated is not None
    assert {*read.ports.source} == {"assigned"}
    plain = replace(read, emulated=replace(read.emulated, rates=None))
    assert {*plain.ports.source} == {"mean"}
    assert (plain.ports.rate > 0).any()


def test_a_run_is_shown_with_its_length_and_verdict(tmp_path: Path) -> None:
    """Five digits; what is left of a run may have no schedule at all."""
    run = write_run(tmp_path / "run")
    read = emu.load_run(run)
    assert read.emulated is not None
    assert read.simulated is not None
    length = 12.3456789 - read.emulated.makespan
    longer = replace(read.emulated, task_end=read.emulated.task_end + length)
    shown = replace(read, emulated=longer, result={"verdict": {"trust": "degraded"}})
    assert repr(shown) == "<RecordedRun run: 12.346 s, degraded>"
    empty = replace(read, emulated=None, simulated=None, result={})
    assert repr(empty) == "<RecordedRun run: no schedule, not judged>"


def test_bytes_that_nobody_measured_are_noted_where_moves_ask_for_them(
    run: Path,
) -> None:
    read = replace(emu.load_run(run), measured=None, missing=())
    note = "bytes of handoffs within a machine are not known: those of like flows"
    assert note not in read.explain(helpful=False).notes
    assert note in read.explain(helpful=True).notes
    measured = emu.load_run(run)
    assert note not in measured.explain(helpful=True).notes


def test_figures_of_a_training_have_five_columns(tmp_path: Path) -> None:
    path = tmp_path / "training.csv"
    head = "time,task,iteration,figure,value"
    assert [*training_frame(path).columns] == head.split(",")
    path.write_text(f"{head}\n1,w0,0,loss,2.5\n2,w0,1,loss,\n3,w0,2,loss,1.5\n")
    frame = training_frame(path)
    assert frame.value.tolist() == [2.5, 1.5]
    assert [*frame.index] == [0, 1]
    path.write_text("time,task,iteration,value,figure\n")
    with pytest.raises(DataError, match="has the columns time, task, iteration, value"):
        training_frame(path)
