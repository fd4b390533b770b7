"""No input counts before its latency is over: by the receiver's own notes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from emu.emulation.coordinator import process_specs
from emu.emulation.wire.process_spec import EdgeEnd
from emu.prediction.simulation import simulate
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.scenario import load, prepare
from emu.testing import two_machine_example
from emu.testing.strategies import problems
from emu.testing.trials import Case, run_trial
from emu.trust.guards import Evidence
from emu.trust.guards.earliest_ends import earliest_ends
from emu.trust.guards.evidence import list_latencies
from emu.trust.guards.schedule import latency
from tests.integration.scenarios import GOLDEN
from tests.trust.guards.reported import reported


@given(drawn=problems(links=True, own=True, latest=True, latencies=True))
def test_every_input_that_is_had_too_early_is_found(
    drawn: tuple[Problem, Realization],
) -> None:
    """Whichever task it is: one that began half a latency earlier than it could."""
    problem, realization = drawn
    schedule, job = simulate(problem, realization), problem.job
    sound = reported(schedule)
    assert [*latency(sound)] == []

    there = sound.grid(sound.received, "last")
    for e, edge in enumerate(job.edges):
        for n in range(job.rounds[edge.destination]):
            k = n - edge.lag
            if edge.latest:
                assert schedule.reads is not None
                k = int(schedule.reads[e, n])
            if k < 0 or np.isnan(there[e, k]) or problem.latencies[e] < 0.3:
                continue
            began = schedule.task_start.copy()
            for begins in (there[e, k] + 0.5 * problem.latencies[e], np.nan):
                began[edge.destination, n] = begins
                (found,) = latency(replace(sound, began=began))
                name = job.tasks[edge.destination].name
                assert f"task {name}[{n}] had" in str(found)


def waiting(*waits: float, latest: bool = False) -> Evidence:
    """Return tasks that began so long after their inputs came; a latency is 2 s."""
    machines = Machine("m0", 10.0, 10.0, latency_out=2.0), Machine("m1", 10.0, 10.0)
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1, latest=latest),), 4)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    run = Realization(np.ones((2, 4)), np.full((1, 4), 20.0))
    schedule = simulate(problem, run)
    began = schedule.task_start.copy()
    began[1] = schedule.flow_end[0] + np.array(waits)
    return reported(replace(schedule, reads=None), began=began)


def test_the_first_of_several_is_named_and_clocks_may_be_slewed() -> None:
    """By a hundredth of the latency."""
    assert [*latency(waiting(2.0, 1.985, 5.0, 2.0))] == []
    # And readings rounded: 1e-6 s of wall time are 5e-6 s.
    assert [*latency(waiting(2.0, 1.98 - 3e-6, 5.0, 2.0))] == []
    assert [*latency(waiting(2.0, 1.98 - 8e-6, 5.0, 2.0))]
    (found,) = latency(waiting(2.0, 1.97, 5.0, 0.5))

    assert found.sentence == (
        "task b[1] had a->b 1.97 s after its last byte came: its latency is 2 s "
        "(and 1 others)"
    )


def test_a_latency_counts_from_when_the_last_byte_came() -> None:
    """Which is half a second after it was sent, of 2 s."""
    evidence = waiting(2.0, 2.0, 2.0, 2.0)
    later = evidence.received.copy()
    later["last"] += 0.5

    (found,) = latency(replace(evidence, received=later))
    assert found.sentence.startswith("task b[0] had a->b 1.5 s after its last byte")
    assert [*latency(replace(evidence, sent=later))] == []


def test_a_task_that_never_ended_has_not_begun_too_early() -> None:
    evidence = waiting(2.0, 2.0, 2.0, 2.0)
    evidence.began[1, 3] = np.nan
    assert [*latency(evidence)]
    ended = evidence.schedule.task_end.copy()
    ended[1, 3] = np.nan
    lost = replace(evidence.schedule, task_end=ended)

    assert [*latency(replace(evidence, schedule=lost))] == []


def test_reads_that_were_not_noted_are_never_too_early() -> None:
    assert [*latency(waiting(0.0, 0.0, 0.0, 0.0, latest=True))] == []


def test_without_latency_the_begin_of_a_task_may_be_missing() -> None:
    """Runs of an earlier emu do not, and knew none."""
    schedule = simulate(*two_machine_example(2))
    unknown = np.full_like(schedule.task_start, np.nan)

    assert [*latency(reported(schedule, began=unknown))] == []


def test_order_alone_has_no_latency() -> None:
    """A flow, a credit, and what leads to a gate and on, between two machines."""
    tasks = (*(Task(name, "t") for name in "abc"), Task("gate", "g", gate=True))
    edges = Edge(0, 1), Edge(0, 2, credit=True), Edge(0, 3), Edge(3, 2)
    machines = tuple(Machine(f"m{m}", 1.0, 1.0, latency_in=4.0) for m in range(3))
    placement = Placement((0, 1, 1, 2))
    problem = Problem(Cluster(machines), Job(tasks, edges, 1), placement)
    realization = Realization(np.array([[1.0], [1.0], [1.0], [0.0]]), np.zeros((4, 1)))

    assert list_latencies(problem) == problem.latencies.tolist() == [4, 0, 0, 0]
    ends = simulate(problem, realization).task_end
    least = earliest_ends(problem, realization.times, realization.volumes)
    assert ends.tolist() == least.tolist() == [[1], [6], [2], [1]]


def evidence_of(late: str) -> Evidence:
    """Return what a run of processes reports, in virtual time."""
    nic = {"in": "10 B/s", "out": "10 B/s", "latency": late}
    edits = {
        "emulation.time_scale": 0.02,
        "emulation.byte_scale": 100,
        "cluster.machines[0].nic": nic,
    }
    trial = run_trial(Case.of(prepare(load(GOLDEN, edits))))
    assert trial.run is not None, trial.error
    told = {name: getattr(trial.run, name) for name in ("sent", "received", "began")}
    return reported(trial.run.schedule, **told, time_scale=0.02, byte_scale=100.0)


@pytest.mark.parametrize("late", ["200 ms", "2 s"])
def test_a_runtime_that_holds_nothing_back_is_found(
    late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule alone does not show it: it names when tasks had to start."""
    assert [*latency(evidence_of(late))] == []

    told = process_specs.edge_end

    def forgets(problem: Problem, edge: int, *, incoming: bool) -> EdgeEnd:
        return replace(told(problem, edge, incoming=incoming), latency=0.0)

    monkeypatch.setattr(process_specs, "edge_end", forgets)
    (found,) = latency(evidence_of(late))
    assert "its latency is" in str(found)
