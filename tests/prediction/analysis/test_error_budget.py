"""An error budget: causes sum to the difference of a run and its simulation."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.prediction.analysis.error_budget import (
    DelayCause,
    before_first_bytes,
    divide,
    drift_of_machines,
    error_budget,
    send_rows,
)
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
from emu.testing import two_machine_example

SECONDS = st.floats(-5, 5)


def _simulated(iterations: int = 3) -> Schedule:
    return simulate(*two_machine_example(iterations), record_rates=True)


def test_a_simulation_does_not_differ_from_itself() -> None:
    schedule = _simulated()

    assert set(error_budget(schedule, schedule, {}).values()) == {0.0}


@given(st.integers(0, 2**32 - 1))
def test_the_causes_sum_to_the_difference(seed: int) -> None:
    """A run with other times and volumes divergences in every way at once."""
    problem, realization = two_machine_example(4)
    rng = np.random.default_rng(seed)
    other = Realization(
        realization.times * rng.uniform(0.8, 1.5, realization.times.shape),
        realization.volumes * rng.uniform(0.8, 1.5, realization.volumes.shape),
    )
    emulated = simulate(problem, other, record_rates=True)
    simulated = simulate(problem, realization)
    rows = {
        (int(edge), int(n)): rng.uniform(0, 40, 4)
        for edge, n in emulated.flows()
        if rng.random() < 0.8
    }

    budget = error_budget(emulated, simulated, rows)

    assert math.fsum(budget.values()) == pytest.approx(
        emulated.makespan - simulated.makespan, abs=1e-9 * emulated.makespan
    )


def test_a_flow_waits_for_its_first_bytes_on_kernel_nics() -> None:
    problem, realization = two_machine_example(3)
    more = Realization(realization.times, realization.volumes * 1.5)
    kernel = dataclasses.replace(simulate(problem, more), rates=None)
    first = {
        (int(e), int(n)): kernel.flow_start[e, n] + 0.25 for e, n in kernel.flows()
    }

    budget = error_budget(kernel, simulate(problem, realization), {}, first=first)

    plain = error_budget(kernel, simulate(problem, realization), {})
    waits = budget[DelayCause.FIRST_BYTES] / 0.25
    assert waits == round(waits) > 0
    assert budget[DelayCause.NETWORK] == pytest.approx(
        plain[DelayCause.NETWORK] - budget[DelayCause.FIRST_BYTES]
    )


def test_first_bytes_that_came_before_their_flow_took_no_time() -> None:
    """By a clock that is off."""
    problem, realization = two_machine_example(3)
    more = Realization(realization.times, realization.volumes * 1.5)
    kernel = dataclasses.replace(simulate(problem, more), rates=None)
    first = {
        (int(e), int(n)): kernel.flow_start[e, n] - 0.25 for e, n in kernel.flows()
    }

    budget = error_budget(kernel, simulate(problem, realization), {}, first=first)

    assert budget[DelayCause.FIRST_BYTES] == 0.0


def test_what_is_between_the_parts_is_control_latency() -> None:
    schedule = _simulated()
    last = int(schedule.task_end[:, -1].argmax())
    start, end = schedule.task_start.copy(), schedule.task_end.copy()
    start[last, -1] += 0.25
    end[last, -1] += 0.25
    later = dataclasses.replace(schedule, task_start=start, task_end=end)

    budget = error_budget(later, schedule, {})

    assert budget["control latency"] == pytest.approx(0.25)
    assert sum(map(abs, budget.values())) == pytest.approx(0.25)
    # No machine has drifted for it.
    drifts = drift_of_machines(later, schedule)
    assert [*drifts.values()] == pytest.approx([0.0] * len(drifts))


@pytest.mark.parametrize(
    ("row", "most"),
    [
        ([10.0, 4.0, 5.0, 0.0], DelayCause.COPYING),  # left in time, came 1 s later
        ([11.0, 4.0, 5.0, 0.0], DelayCause.SHAPING),
        ([11.0, 4.0, 5.0, 0.9], DelayCause.LOOP_LAG),
        ([11.0, 4.0, 10.9, 0.0], DelayCause.CONTROL),
        ([11.0, 10.9, 10.9, 0.9], DelayCause.CPU),
        ([11.0, math.nan, math.nan, 0.0], DelayCause.SHAPING),
    ],
)
def test_the_sender_knows_why(row: list[float], most: DelayCause) -> None:
    late = divide(10.0, 11.0, np.array(row))

    assert max(late, key=lambda source: late[source]) is most
    assert math.fsum(late.values()) == pytest.approx(1.0)


@given(SECONDS, SECONDS, st.lists(SECONDS, min_size=4, max_size=4))
def test_parts_are_never_negative_and_sum(
    due: float, end: float, row: list[float]
) -> None:
    late = divide(due, end, np.array(row))

    assert math.fsum(late.values()) == pytest.approx(end - due, abs=1e-12)
    assert end < due or min(late.values()) >= 0


def test_nothing_is_late_that_was_never_due() -> None:
    assert divide(math.nan, 3.0, None) == {}
    assert divide(3.0, 2.0, None) == {DelayCause.CLOCK: -1.0}
    assert divide(3.0, 4.0, None) == {DelayCause.SHAPING: 1.0}


def test_rows_come_from_all_processes() -> None:
    first = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]).astype("<f8").tobytes()
    second = np.array([[7.0, 0.0, 1.0, 1.0, 1.0, 1.0]]).astype("<f8").tobytes()

    rows = send_rows([first, b"", second])

    assert {key: row.tolist() for key, row in rows.items()} == {
        (1, 2): [3.0, 4.0, 5.0, 6.0],
        (7, 0): [1.0] * 4,
    }


def _two_flows(size: float) -> Schedule:
    """Return a task of 1 s that sends twice, at 10 B/s; b takes 1 s for each."""
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 2)
    machines = Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    return simulate(problem, Realization(np.ones((2, 2)), np.full((1, 2), size)))


def test_first_bytes_are_late_from_when_their_flow_may_go() -> None:
    """The second flow is ready at 2 s, and waits for the first until 6 s."""
    kernel = _two_flows(50.0)
    first = {(0, n): float(kernel.flow_start[0, n]) + 0.25 for n in (0, 1)}

    budget = error_budget(kernel, _two_flows(30.0), {}, first=first)

    assert budget[DelayCause.FIRST_BYTES] == pytest.approx(0.5)
    assert budget[DelayCause.NETWORK] == pytest.approx(4.0 - 0.5)


def test_flows_drift_apart_with_the_machine_that_sends_them() -> None:
    drifts = drift_of_machines(_two_flows(50.0), _two_flows(30.0))

    assert drifts == {"m0": pytest.approx(4.0)}


def test_every_part_of_a_chain_has_its_cause() -> None:
    """Task a is 0.5 s late, b 2 s, the flow between them 0.75 s; c takes 9 s in both.

    Its fluid is due at 5.5 s, and leaves at 6 s, queued at 5.6, by an alarm 0.1 s late.
    """
    tasks = tuple(Task(name, name) for name in "abc")
    machines = Machine("m0", 90.0, 10.0), Machine("m1", 80.0, 70.0)
    job = Job(tasks, (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1, 0)))
    sizes = np.array([[40.0]])
    simulated = simulate(problem, Realization(np.array([[1.0], [2.0], [9.0]]), sizes))
    slower = Realization(np.array([[1.5], [4.0], [9.0]]), sizes)
    ran = simulate(problem, slower, record_rates=True)
    ran.flow_end[0, 0] = 6.25
    ran.task_start[1, 0] = 6.25
    ran.task_end[1, 0] = 10.25

    budget = error_budget(ran, simulated, {(0, 0): np.array([6.0, 5.6, 5.5, 0.1])})
    found = {cause: seconds for cause, seconds in budget.items() if abs(seconds) > 1e-9}
    assert found == pytest.approx(
        {
            DelayCause.OVERRUN: 0.5 + 2.0,
            DelayCause.OTHER_PATHS: -2.0,  # the simulation ends with c
            DelayCause.CPU: 0.1,
            DelayCause.LOOP_LAG: 0.1,
            DelayCause.SHAPING: 0.3,
            DelayCause.COPYING: 0.25,
        }
    )


@pytest.mark.parametrize(
    ("seconds", "makespan", "share"),
    [(0.5, 4.0, 0.125), (-0.5, 4.0, 0.0), (0.0, 0.0, 0.0)],
)
def test_first_bytes_are_a_share_of_the_makespan(
    seconds: float, makespan: float, share: float
) -> None:
    assert before_first_bytes({DelayCause.FIRST_BYTES: seconds}, makespan) == share


def test_a_notice_is_late_from_when_there_was_something_to_send() -> None:
    """Due at 10 s: queued at 10.4, notified at 10.9, sent at 11 and there at 11.5."""
    parts = divide(10.0, 11.5, np.array([11.0, 10.4, 10.9, 0.02]))

    assert parts == pytest.approx(
        {
            DelayCause.CPU: 0.4,
            DelayCause.CONTROL: 0.5,
            DelayCause.LOOP_LAG: 0.02,
            DelayCause.SHAPING: 0.08,
            DelayCause.COPYING: 0.5,
        }
    )


def test_every_cause_is_explained_in_the_documents() -> None:
    """Hold the table of causes in docs/results.md against those that a run divides."""
    document = Path(__file__).parents[3] / "docs" / "results.md"
    text = document.read_text(encoding="utf-8")
    _, _, table = text.partition("\ncause | seconds\n---|---\n")
    rows, _, _ = table.partition("\n\n")
    explained = [row.partition(" | ")[0] for row in rows.splitlines()]

    assert explained == [str(cause) for cause in DelayCause]
