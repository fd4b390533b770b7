"""Counts of kernels, from the states of connections between flows."""

from __future__ import annotations

import numpy as np

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


def test_without_rows_nothing_is_known() -> None:
    none = np.empty(0, CONNECTION_ROWS), np.empty(0, WAIT_ROWS)

    assert count_flows(1, 1, *none).of_flow(0, 0) == {}
