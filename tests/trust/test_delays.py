"""Delays by who made them: turns second by second, the rest of a run by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from emu.trust.delays import Delays, by_turns, first_bytes, late_orders, measure_delays
from emu.trust.observed import Observations, ProcessWaits

#: Milliseconds: nothing to do, then waits before a turn, in it, and at work in it.
TURNS = st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=5)


@given(TURNS, st.integers(0, 90), st.integers(0, 90))
def test_turns_overlap_delays_as_counted_millisecond_by_millisecond(
    turns: list[tuple[int, int, int, int]], begin: int, length: int
) -> None:
    """Each millisecond of a turn is part work, part wait, as all of the turn is."""
    worked = np.zeros(400)
    waited = np.zeros(400)
    rows = []
    now = 0
    for idle, before, within, work in turns:
        start = now + idle + before
        waited[now + idle : start] = 1.0
        now = start + within + work
        if now > start:
            worked[start:now] = work / (now - start)
            waited[start:now] = within / (now - start)
        rows.append((start, now, before, within))

    observed = Observations(turns=np.array(rows, float).reshape(-1, 4))
    end = begin + length
    found = by_turns(np.array([begin]), np.array([end]), observed)

    expected = worked[begin:end].sum(), waited[begin:end].sum()
    assert np.allclose(np.ravel(found), expected)


TIME_SCALE = 2.0
PAUSE = 0.125
FLOW = (0, 0)


def stated() -> Schedule:
    """Return s (1 s), its flow of 1 s, and r (2 s), on two machines."""
    machines = (Machine("a", 100.0, 100.0), Machine("b", 100.0, 100.0))
    job = Job((Task("s", "x"), Task("r", "x")), (Edge(0, 1),), 1)
    problem = Problem(Cluster(machines), job, Placement((0, 1)))
    realization = Realization(np.array([[1.0], [2.0]]), np.array([[100.0]]))
    return simulate(problem, realization, "maxmin")


def late_run() -> Schedule:
    """Return a run in which every part took longer than `stated`, by an own amount.

    s: 0.25 s. A gap of 0.5 s. The flow from 1.75 s to 4 s. A gap of 0.75 s. r: 1 s.
    """
    return replace(
        stated(),
        task_start=np.array([[0.0], [4.75]]),
        task_end=np.array([[1.25], [7.75]]),
        flow_ready=np.array([[1.25]]),
        flow_start=np.array([[1.75]]),
        flow_end=np.array([[4.0]]),
        rates=None,
    )


def delays_of(s_waits: float = 0.0, r_waits: float = 0.0, **observed: Any) -> Delays:
    """Return the delays where processes waited for so many emulated seconds.

    The sender knew 0.25 s after the start that it may send, and the kernel of the
    receiver had first bytes after 0.625 s.
    """
    known = Observations(
        first={FLOW: 1.75 + 0.625},
        sends={FLOW: np.array([4.0, 1.5, 1.75 + 0.25, 0.0])},
        processes={
            "s": ProcessWaits(core=s_waits * TIME_SCALE),
            "r": ProcessWaits(core=r_waits * TIME_SCALE),
        },
        time_scale=TIME_SCALE,
        **observed,
    )
    return measure_delays(late_run(), stated(), np.array([[PAUSE]]), known)


def parts(delays: Delays) -> list[float]:
    """Return what had no core, of s, r and the flow, and the pauses of receivers."""
    flows = [delays.core.flows[FLOW], delays.pauses[FLOW]]
    return [*delays.core.work[:, 0].tolist(), *flows]


#: What s lost: its work, the gap before its flow, and until its first bytes came. What
#: r lost: its work, the gap before it, and the pause.
OF_S = 0.25 + (0.5 + 0.625)
OF_R = 1.0 + 0.75 + PAUSE


@pytest.mark.parametrize(
    ("s_waits", "r_waits", "expected"),
    [
        (0.5 * OF_S, 0.5 * OF_R, [0.0, 0.0, 0.0, PAUSE]),
        # Nobody knows whether the pause is of r's wait.
        (0.0, OF_R - 0.01, [0.0, 0.0, 0.0, 0.0]),
        (0.0, OF_R + 0.01, [0.0, 1.75, PAUSE, 0.0]),
        (OF_S - 0.01, 0.0, [0.0, 0.0, 0.0, PAUSE]),
        (OF_S + 0.01, 0.0, [0.25, 0.0, 1.125, PAUSE]),
    ],
)
def test_a_process_that_waited_longer_than_it_was_late_had_no_core(
    s_waits: float, r_waits: float, expected: list[float]
) -> None:
    delays = delays_of(s_waits, r_waits)

    assert parts(delays) == pytest.approx(expected)
    assert delays.held.longest == 0.0
    assert delays.stalls[FLOW] == pytest.approx(0.625 + PAUSE)
    is_clear = [s_waits <= 0.5 * OF_S, r_waits <= 0.5 * OF_R]
    assert delays.is_clear[:, 0].tolist() == is_clear


def test_a_wait_of_less_than_a_tenth_of_the_run_is_no_cause() -> None:
    """Processes that lost less waited for longer than that; the run takes 7.75 s."""
    short = replace(stated(), rates=None)
    waits = {name: ProcessWaits(core=0.3) for name in "sr"}
    observed = Observations(processes=waits)
    nothing = np.zeros((1, 1))

    assert measure_delays(short, short, nothing, observed).core.longest == 0.0

    # From a tenth on it may be: of 4.25 s, where r lost 0.25 s.
    longer = replace(short, task_end=short.task_end + np.array([[0.0], [0.25]]))
    for share, lost in ((0.1, 0.25), (0.09, 0.0)):
        waits = {"r": ProcessWaits(core=share * longer.length)}
        observed = Observations(processes=waits)
        assert measure_delays(longer, short, nothing, observed).core.longest == lost


def test_what_the_coordinator_made_is_taken_off_the_rest() -> None:
    """Two turns, of 0.5 s and 0.7 s, in which it waits for 0.2 and 0.14 s.

    Before the first, at 1.6 s, it waited for 0.1 s. Of that turn 0.4 s lie between the
    gap before the flow and its order, at 2 s. The second begins 0.05 s before the gap
    of r, and ends before r begins, 0.05 s late.
    """
    turns = np.array([[1.6, 2.1, 0.1, 0.2], [3.95, 4.65, 0.0, 0.14]])
    began = np.array([[0.0], [4.8]])
    # Both are starved, and have what is left.
    delays = delays_of(9.0, 9.0, turns=turns, began=began)

    flow_worked, flow_waited = 0.4 * 0.6, 0.1 + 0.4 * 0.4
    work_worked, work_waited = 0.65 * 0.8, 0.65 * 0.2
    assert delays.held.flows[FLOW] == pytest.approx(flow_worked)
    assert delays.held.work[:, 0] == pytest.approx([0.0, work_worked])
    rest_flow = 0.5 + 0.625 - flow_worked
    rest_work = 0.75 + 1.0 - work_worked
    assert delays.core.flows[FLOW] == pytest.approx(rest_flow + PAUSE)
    assert delays.core.work[:, 0] == pytest.approx([0.25, rest_work])
    # Who is not starved waited for what the turns show.
    alone = delays_of(turns=turns, began=began)
    assert alone.core.flows[FLOW] == pytest.approx(flow_waited)
    assert alone.core.work[:, 0] == pytest.approx([0.0, work_waited])


def test_a_task_that_begins_late_waits_within_its_own_time() -> None:
    """From 4.75 to 5.5 s, of work that is 1 s longer, the coordinator is at work."""
    began = np.array([[0.0], [5.5]])
    delays = delays_of(turns=np.array([[4.0, 9.0, 0.0, 0.0]]), began=began)
    assert delays.held.work[:, 0] == pytest.approx([0.0, 0.75 + 0.75])
    # No longer than the work is longer.
    late = delays_of(turns=np.array([[4.0, 9.0, 0.0, 0.0]]), began=began + 1.0)
    assert late.held.work[1, 0] == pytest.approx(0.75 + 1.0)


@pytest.mark.parametrize("has_rates", [False, True])
def test_first_bytes_and_orders_count_where_no_rates_were_assigned(
    *, has_rates: bool
) -> None:
    ran = late_run()
    if has_rates:
        problem = ran.problem
        realization = Realization(np.array([[1.0], [2.0]]), np.array([[100.0]]))
        rates = simulate(problem, realization, record_rates=True).rates
        ran = replace(ran, rates=rates)
    rows = {FLOW: np.array([4.0, 1.9, 2.0, 0.0])}
    observed = Observations(first={FLOW: 2.5}, sends=rows)

    expected = (0.0, 0.0) if has_rates else (0.75, 0.25)
    assert first_bytes(ran, observed)[FLOW] == expected[0]
    assert late_orders(ran, observed)[FLOW] == expected[1]
    # A payload that came with its order, or after it, had nothing to wait for.
    for queued in (2.0, 2.1):
        later = Observations(sends={FLOW: np.array([4.0, queued, 2.0, 0.0])})
        assert late_orders(ran, later)[FLOW] == 0.0
