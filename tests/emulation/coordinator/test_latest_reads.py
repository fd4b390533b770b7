"""Edges that read the newest: what was read is decided once, and obeyed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

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
)
from emu.runs.problem_json import schedule_from_json
from emu.trust.audit import audit
from tests.emulation.coordinator.emulated import emulable, run
from tests.emulation.coordinator.programs.drifting import drifted
from tests.leftovers import Leftovers

TASKS = ("p", "w0", "w1")


def bounded_staleness() -> tuple[Problem, Realization]:
    """Return two workers that read the newest parameters, two iterations old at most.

    The parameters in turn need gradients that are one iteration old at most; w1 is
    slower by far, so w0 reads some parameters twice and the server skips none of it.
    """
    edges = (
        Edge(0, 1, 3, latest=True),
        Edge(0, 2, 3, latest=True),
        Edge(1, 0, 1, latest=True),
        Edge(2, 0, 2, latest=True),
    )
    job = Job(tuple(Task(name, name[0]) for name in TASKS), edges, 8)
    cluster = Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 8.0, 9.0)))
    rng = np.random.default_rng(3)
    times = rng.uniform([[0.2], [0.5], [1.5]], [[0.6], [1.5], [2.5]], (3, 8))
    volumes = np.full((4, 8), 4.0)
    return Problem(cluster, job, Placement((0, 0, 1))), Realization(times, volumes)


def in_one_process(schedule: Schedule) -> dict[str, float]:
    """Return the values of a process that follows the log of reads."""
    job = schedule.problem.job
    assert schedule.reads is not None
    value = np.zeros(len(job.tasks))
    sent = np.zeros((len(job.tasks), job.iterations))
    for j, n in np.dstack(
        np.unravel_index(schedule.task_start.argsort(axis=None), sent.shape)
    )[0]:
        read = [(e, schedule.reads[e, n]) for e in job.in_edges(j)]
        inputs = [sent[job.edges[e].source, m] for e, m in read if m >= 0]
        value[j] = sent[j, n] = drifted(value[j], inputs)
    return dict(zip(TASKS, value.tolist(), strict=True))


@pytest.mark.emulation
def test_a_run_and_one_process_that_follows_its_log_have_one_result(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    problem, realization = bounded_staleness()
    program = "drifting:Drifts"
    emulated = run(
        emulable(problem, realization, programs=dict.fromkeys(TASKS, program)),
        realization,
        tmp_path,
        time_scale=0.05,
        allow=(program,),
    )
    leftovers.note()
    made = emulated.schedule

    results = {name: float(emulated.results[name]["value"][0]) for name in TASKS}
    assert results == in_one_process(made)
    assert made.reads is not None
    repeated = made.reads[:2, 1:] == made.reads[:2, :-1]
    assert repeated.any()
    assert (np.diff(made.reads[2]) > 1).any()  # what was not read at all
    assert not [
        v for v in audit(made, tolerance=1.0).violations if "read" in v.sentence
    ]
    for counted in emulated.statistics.values():
        assert counted["waiting"]["waiting"] == 0
        assert counted["memory"]["in_use"] == 0


def one_reader() -> Problem:
    """Return a source of 1 s, flows of 2 s, and a reader of 4 s, then 1 s."""
    job = Job((Task("p", "p"), Task("w", "w")), (Edge(0, 1, 2, latest=True),), 5)
    cluster = Cluster((Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)))
    return Problem(cluster, job, Placement((0, 1)))


def read_by_one() -> Schedule:
    times = np.array([[1.0] * 5, [4.0, 1.0, 1.0, 1.0, 1.0]])
    return simulate(one_reader(), Realization(times, np.full((1, 5), 20.0)))


def test_the_least_is_waited_for_and_the_newest_read() -> None:
    """Three iterations come at 3, 5 and 7 s."""
    schedule = read_by_one()

    assert schedule.reads is not None
    assert schedule.reads.tolist() == [[-1, 0, 1, 1, 2]]
    assert schedule.task_start[1].tolist() == [0, 4, 5, 6, 7]
    assert audit(schedule).passed
    written = json.loads(json.dumps(schedule.to_json()))
    assert written["reads"] == {"p->w": [-1, 0, 1, 1, 2]}
    again = schedule_from_json(one_reader(), written, "a file")
    np.testing.assert_array_equal(again.reads, schedule.reads)
    del written["reads"]
    with pytest.raises(DataError, match="not a schedule of this problem: 'p->w'"):
        schedule_from_json(one_reader(), written, "a file")


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        ([-1, 0, 0, 0, 2], "w[3] read of p->w iteration 0, the lag allows 1 and newer"),
        ([-1, 1, 1, 1, 2], "w[1] read of p->w iteration 1 before it arrived"),
        ([-1, -1, 1, 1, 2], "w[1] read of p->w iteration -1 where 0 had arrived"),
    ],
)
def test_audit_finds_what_was_read_amiss(read: list[int], sentence: str) -> None:
    schedule = read_by_one()
    assert schedule.reads is not None
    schedule.reads[0] = read

    assert sentence in [violation.sentence for violation in audit(schedule).violations]


def test_what_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="p->w is a credit: there is nothing to read"):
        Job(
            (Task("p", "p"), Task("w", "w")),
            (Edge(0, 1, 1, credit=True, latest=True),),
            2,
        )


def test_the_last_of_a_source_that_ends_first_is_read_until_the_end() -> None:
    """Three iterations are written, with lag 1 the fifth reader may have the last."""
    tasks = Task("p", "p", iterations=3), Task("w", "w")
    job = Job(tasks, (Edge(0, 1, 1, latest=True),), 5)
    times = np.array([[1.0, 1.0, 1.0, 0.0, 0.0], [4.0, 1.0, 1.0, 1.0, 1.0]])
    problem = Problem(one_reader().cluster, job, Placement((0, 1)))
    schedule = simulate(problem, Realization(times, np.full((1, 5), 20.0)))

    assert schedule.reads is not None
    assert schedule.reads[0].tolist()[-2:] == [2, 2]
    assert audit(schedule).passed
