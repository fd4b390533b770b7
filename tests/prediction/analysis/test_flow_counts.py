"""Counts of kernels, from the states of connections between flows."""

from __future__ import annotations

import numpy as np
import pytest

from emu.emulation.wire.frame_layout import CONNECTION_ROWS, LAST_STATE, WAIT_ROWS
from emu.prediction.analysis.flow_counts import count_flows


def test_a_flow_has_what_its_connection_counted_until_the_next_one() -> None:
    """Two edges by turns; the second sends once, and its last state is the end's."""
    # And an edge that the job, of two, does not have.
    states = np.zeros(7, CONNECTION_ROWS)
    states["edge"] = [0, 1, 0, 1, 0, 2, 2]
    states["iteration"] = [0, 0, 1, LAST_STATE, LAST_STATE, 0, 1]
    states["retransmitted"] = [0, 5, 3, 6, 10, 0, 1]
    states["receiver_limited"] = [0, 0, 2_000_000, 0, 2_500_000, 0, 1]
    states["timer"] = [200_000, 1, 250_000, 2, 9, 1, 1]
    states["segments_allowed"] = [10, 20, 30, 40, 50, 60, 70]
    states["segment"] = [1448, 536, 1000, 500, 1448, 1448, 1448]
    states["window"] = [11, 12, 13, 14, 15, 16, 17]
    waits = np.array([(0, 1, 0.02, 0.5), (7, 0, 1.0, 1.0), (2, 0, 1.0, 1.0)], WAIT_ROWS)
    counts = count_flows(2, 2, states, waits)

    assert counts.retransmitted.tolist() == [[3, 7], [1, 0]]
    assert np.allclose(counts.receiver_limited, [[2.0, 0.5], [0.0, 0.0]])
    assert np.allclose(counts.timer, [[0.2, 0.25], [1e-6, 0.0]])
    assert counts.allowed.tolist() == [[14480, 30000], [10720, 0]]
    assert counts.window.tolist() == [[13, 15], [14, 0]]
    assert counts.hole.tolist() == [[0.0, 0.02], [0.0, 0.0]]
    assert counts.of_flow(0, 1)["unread"] == 0.5
    assert "hole" not in counts.of_flow(0, 0)


def test_every_count_has_its_unit() -> None:
    """Microseconds are seconds; what grows counts by its increase, else as it is."""
    states = np.zeros(2, CONNECTION_ROWS)
    states["iteration"] = [0, LAST_STATE]
    values = {
        "retransmitted": (1, 3),
        "timeouts": (2, 7),
        "busy": (1_000_000, 4_000_000),
        "receiver_limited": (500_000, 2_500_000),
        "buffer_limited": (250_000, 350_000),
        "round_trip": (900, 1500),
        "least_round_trip": (700, 800),
        "timer": (200_000, 300_000),
        "window": (11, 13),
        "segments_allowed": (10, 30),
        "segment": (1448, 536),
    }
    for name, (before, after) in values.items():
        states[name] = [before, after]
    waits = np.array([(0, 0, 0.02, 0.5)], WAIT_ROWS)

    found = count_flows(1, 1, states, waits).of_flow(0, 0)
    assert found == pytest.approx(
        {
            "retransmitted": 2.0,
            "timeouts": 5.0,
            "timer": 0.2,
            "busy": 3.0,
            "receiver_limited": 2.0,
            "buffer_limited": 0.1,
            "round_trip": 1.5e-3,
            "least_round_trip": 0.8e-3,
            "window": 13.0,
            "allowed": 14480.0,
            "hole": 0.02,
            "unread": 0.5,
        }
    )


def test_without_rows_nothing_is_known() -> None:
    none = np.empty(0, CONNECTION_ROWS), np.empty(0, WAIT_ROWS)

    assert count_flows(1, 1, *none).of_flow(0, 0) == {}


def test_iterations_behind_the_last_one_count_for_nothing() -> None:
    """Iterations have numbers 0 and 1, and rows of a third iteration are dropped."""
    states = np.zeros(2, CONNECTION_ROWS)
    states["iteration"] = [2, LAST_STATE]
    states["retransmitted"] = [0, 5]
    waits = np.array([(0, 2, 0.5, 0.5), (1, 0, 0.5, 0.5)], WAIT_ROWS)
    counts = count_flows(1, 2, states, waits)
    assert counts.retransmitted.tolist() == [[0, 0]]
    assert counts.hole.tolist() == [[0, 0]]
