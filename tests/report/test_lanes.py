"""Lanes of bars and of flows, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.report.lanes import crossings, pack_lanes, pack_lanes_per_group


def test_bars_take_the_lowest_lane_that_is_free() -> None:
    """A bar may begin where another ends; of equal starts the shortest goes lowest."""
    bars = [(0.0, 9.0), (0.0, 2.0), (1.0, 3.0), (2.0, 4.0), (3.0, 5.0), (9.0, 9.5)]
    start, end = np.array(bars).T
    lanes, count = pack_lanes(start, end)

    assert lanes.tolist() == [1, 0, 2, 0, 2, 0]
    assert count == 3


def test_groups_have_lanes_of_their_own() -> None:
    bars = [(0.0, 4.0), (1.0, 2.0), (1.0, 3.0), (2.5, 3.5)]
    start, end = np.array(bars).T
    group = np.array([2, 0, 2, 2])
    lanes, counts = pack_lanes_per_group(start, end, group, groups=3)

    assert lanes.tolist() == [0, 0, 1, 2]
    assert counts == [1, 0, 3]


def test_a_flow_has_a_lane_at_every_link_of_its_way() -> None:
    """Flows of edges 1 and 0 meet at link 2 alone; the third stays on a machine."""
    links = [SimpleNamespace(name=f"l{number}") for number in range(4)]
    problem = SimpleNamespace(hops=[(0, 2), (2, 3), ()], links=links)
    start = np.array([[5.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    end = np.array([[6.0, 2.0], [4.0, 9.0], [1.0, 1.0]])
    flows = np.array([[1, 0], [0, 1], [2, 0]])
    schedule: Any = SimpleNamespace(
        problem=problem, flow_start=start, flow_end=end, flows=lambda: flows
    )
    found = crossings(schedule)

    assert found.flow.tolist() == [0, 0, 1, 1]
    assert found.port.tolist() == [2, 3, 0, 2]
    assert found.lane.tolist() == [1, 0, 0, 0]
    assert found.lanes == [1, 0, 2, 1]
