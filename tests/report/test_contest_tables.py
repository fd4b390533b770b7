"""Sides, causes and flows of the worst instance that a contest has found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.experiment.contest import Kind
from emu.report.contest_tables import (
    contest_json,
    contest_lines,
    contest_table,
    flows_table,
)
from tests.report.test_system_tables import Run


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


def test_both_sides_stand_with_their_runs_and_what_the_loss_hangs_on() -> None:
    """The loser was run over sockets, the winner was not; one cause alone refuses."""
    run = Run(makespan=9.0, makespan_error=0.125)
    loser = SimpleNamespace(makespan=8.0, limit="network", limits={"cpu": 0.1}, run=run)
    winner = SimpleNamespace(makespan=5.0, limit="cpu", limits={"cpu": 0.9}, run=None)
    found: Any = SimpleNamespace(
        loser=SimpleNamespace(name="oes", kind=Kind.RULES),
        winner=SimpleNamespace(name="maxmin", kind=Kind.RULES),
        bout=SimpleNamespace(loser=loser, winner=winner),
        loss=0.6,
        steady_loss=0.25,
        without={"equal NICs": None, "equal tasks": 0.125},
        tries=12345,
        refused=0,
        instance=SimpleNamespace(bounds=lambda: "2 machines", lines=lambda: ["a"]),
    )
    table = contest_table(found)
    assert str(table.title) == "oes takes 60 % longer than maxmin"
    rows = [[*map(str, column.cells)] for column in table.columns]
    assert [*zip(*rows, strict=True)] == [
        ("oes", "8 s", "network", "9 s, +12.5 %, trusted"),
        ("maxmin", "5 s", "cpu", ""),
    ]
    assert [*contest_lines(found)] == [
        "with every number moved by up to 1% it stays at 25 % or more",
        "with equal NICs: refused",
        "with equal tasks: +12.5 %",
        "worst of 12,345: 2 machines",
    ]
    found.refused = 1
    assert [*contest_lines(found)][-1] == (
        "worst of 12,345, 1 of them refused: 2 machines"
    )
    document: Any = contest_json(found, "f.yaml")
    assert document["loser"]["run"]["makespan"] == 9.0
    assert document["winner"] == {
        "name": "maxmin",
        "makespan": 5.0,
        "limits": {"cpu": 0.9},
    }
    figures = ("loss", "steady_loss", "tries", "refused", "file", "kind")
    assert [document[name] for name in figures] == [
        0.6,
        0.25,
        12345,
        1,
        "f.yaml",
        Kind.RULES.value,
    ]
    found.loser.kind = Kind.SYSTEMS
    title = "oes needs 60 % more time per seed than maxmin"
    assert str(contest_table(found).title) == title
