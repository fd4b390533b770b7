"""What connections count, and how long their flows wait, against the schedule."""

from __future__ import annotations

import numpy as np

from emu.emulation.wire.frame_layout import CONNECTION_ROWS, WAIT_ROWS
from tests.trust.guards.reported import TIME_SCALE
from tests.trust.guards.test_guards import golden, said


def test_counts_of_a_connection_never_fall_and_waits_lie_in_their_flow() -> None:
    schedule, _ = golden()
    edge, iteration = schedule.flows()[0].tolist()
    edges = len(schedule.problem.job.edges)
    states = np.zeros(4, CONNECTION_ROWS)
    states["edge"] = [edge, edge, edges, edges]  # one that the job does not have
    states["retransmitted"] = [3, 3, 9, 0]
    seconds = schedule.flow_end[edge, iteration] - schedule.flow_start[edge, iteration]
    sound = np.array([(edge, iteration, 0.0, seconds * TIME_SCALE)], WAIT_ROWS)
    assert said(schedule, connections=states, waits=sound) == []

    # Runs that noted one of the two alone are asked for nothing.
    assert said(schedule, connections=states, waits=None) == []
    assert said(schedule, connections=None, waits=sound) == []

    falling = states.copy()
    falling["retransmitted"][1] = 2
    (finding,) = said(schedule, connections=falling, waits=sound)
    assert "retransmitted of the connection" in finding
    longer = sound.copy()
    longer["hole"] = seconds * TIME_SCALE + 0.01
    (finding,) = said(schedule, connections=states, waits=longer)
    assert "waited 0.01 s longer than can be (hole)" in finding
    assert said(schedule, connections=states, waits=longer, stall=0.0095) == []

    # Of several the first is named.
    falling["edge"] = edge
    falling["retransmitted"] = [3, 2, 1, 0]
    assert len(said(schedule, connections=falling, waits=sound)) == 1
    other_edge, other = schedule.flows()[1].tolist()
    both = np.array(
        [(edge, iteration, 0.0, 99.0), (other_edge, other, 0.0, 88.0)], WAIT_ROWS
    )
    assert len(said(schedule, connections=states, waits=both)) == 1

    # A reader may be late until the run ends: the bytes had arrived.
    until_end = (schedule.makespan - schedule.flow_start[edge, iteration]) * TIME_SCALE
    assert until_end > seconds * TIME_SCALE + 1.0
    unread = sound.copy()
    unread["unread"] = until_end
    assert said(schedule, connections=states, waits=unread) == []
    unread["unread"] = until_end + 0.01
    (finding,) = said(schedule, connections=states, waits=unread)
    assert "waited 0.01 s longer than can be (unread)" in finding


def test_last_bytes_may_be_read_until_a_process_tells_its_records() -> None:
    schedule, _ = golden()
    edge, iteration = schedule.flows()[0].tolist()
    states = np.zeros(0, CONNECTION_ROWS)
    until_end = (schedule.makespan - schedule.flow_start[edge, iteration]) * TIME_SCALE
    unread = np.array([(edge, iteration, 0.0, 0.0)], WAIT_ROWS)
    unread["unread"] = until_end + 0.01
    end = schedule.makespan * TIME_SCALE
    answers = {"s0": [end, end + 0.004], "w0": [end, end + 0.01], "ps0": [end, end]}
    statistics = {name: {"answered": answer} for name, answer in answers.items()}
    late = {"connections": states, "waits": unread, "statistics": statistics}
    assert said(schedule, **late) == []
    statistics["w0"]["answered"] = [end, end + 0.005]
    (finding,) = said(schedule, **late)
    assert "waited 0.005 s longer than can be (unread)" in finding


def test_what_stays_on_a_machine_may_wait_for_its_socket() -> None:
    """It takes no time, and a loopback that is late takes some."""
    schedule, _ = golden()
    local = [edge for edge, hops in enumerate(schedule.problem.hops) if not hops]
    edge = next(e for e in local if np.isfinite(schedule.flow_end[e, 0]))
    assert schedule.flow_end[edge, 0] == schedule.flow_start[edge, 0]
    states = np.zeros(0, CONNECTION_ROWS)
    waits = np.array([(edge, 0, 0.074, 0.0)], WAIT_ROWS)
    assert said(schedule, connections=states, waits=waits) == []
