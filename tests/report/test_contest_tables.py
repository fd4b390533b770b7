"""Flows of the worst instance that a contest has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.experiment.contest import Kind
from emu.report.contest_tables import flows_table


def contest_of(slow: Any, fast: Any, kind: Kind) -> Any:
    """Return a contest whose two edges end so in two iterations each."""
    flows = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    job = SimpleNamespace(edge_names=["a->b", "b->c"])
    problem = SimpleNamespace(job=job)
    sides = {}
    for side, ends in (("loser", slow), ("winner", fast)):
        schedule = SimpleNamespace(
            problem=problem, flow_end=np.array(ends), flows=lambda: flows
        )
        sides[side] = SimpleNamespace(simulated=schedule)
    return SimpleNamespace(
        bout=SimpleNamespace(**sides),
        loser=SimpleNamespace(name="oes", kind=kind),
        winner=SimpleNamespace(name="maxmin"),
    )


def test_flows_that_the_loser_delivers_later_stand_by_their_delay() -> None:
    """Of four flows one ends at the same time, and one earlier."""
    slow = [[5.0, 8.0], [7.0, 9.0]]
    fast = [[5.0, 7.5], [4.0, 9.5]]
    table = flows_table(contest_of(slow, fast, Kind.RULES))

    assert table is not None
    rows = [[*column.cells] for column in table.columns]
    assert rows == [
        ["b->c", "a->b"],
        ["0", "1"],
        ["7 s", "8 s"],
        ["4 s", "7.5 s"],
        ["3 s", "500 ms"],
    ]


def test_without_later_flows_or_the_same_ones_there_is_no_table() -> None:
    ends = [[5.0, 8.0], [7.0, 9.0]]
    sooner = [[4.0, 8.0], [7.0, 9.0]]
    assert flows_table(contest_of(ends, ends, Kind.RULES)) is None
    assert flows_table(contest_of(sooner, ends, Kind.RULES)) is None
    assert flows_table(contest_of(ends, sooner, Kind.SYSTEMS)) is None
