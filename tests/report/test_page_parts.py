"""Sections of pages by hand: cards, moves, doubts, and what is left out of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.task_moves import NO_MOVES
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
from emu.report.html import page
from emu.report.html.lab_page import _doubts, _ports, _use_table
from emu.report.html.link_drawing import Node, _node
from emu.report.terminal import plain_table, terminal
from emu.report.trace import trace_events
from emu.testing import two_machine_example


def test_a_card_has_what_its_machine_has_and_is_asked_for() -> None:
    """Memory that no task of a machine asks for has no meter there."""
    cluster = Cluster(
        (
            Machine("m0", 10.0, 20.0, {"cpu": 4.0, "memory": 8e9}),
            Machine("m1", 10.0, 10.0, {"memory": 4e9}),
        )
    )
    tasks = (Task("a", "store", {"cpu": 1.0}), Task("b", "worker", {"memory": 2e9}))
    problem = Problem(cluster, Job(tasks, (Edge(0, 1),), 1), Placement((0, 1)))
    first, second = page.placement_cards(problem, None).split("<div class=card>")[1:]
    assert '<span class=chip title="store">a</span>' in first
    assert "<span class=label>cpu</span>" in first
    assert "width:25.0%" in first
    assert "memory" not in first
    assert '<span class=chip title="worker">b</span>' in second
    assert "<span class=label>memory</span>" in second
    assert "width:50.0%" in second
    assert "NIC" not in first + second

    volumes = np.array([[40.0]])
    schedule = simulate(problem, Realization(np.ones((2, 1)), volumes))
    first, second = page.placement_cards(problem, schedule).split("<div class=card>")[
        1:
    ]
    # 40 bytes out at 20 B/s would take 2 of the 6 s, in at 10 B/s all of 4.
    assert "NIC out" in first
    assert "33% of 20 B/s" in first
    assert "67% of 10 B/s" in second
    assert "0% of 10 B/s" in first


def found(**more: Any) -> Any:
    """Return an explanation without moves, or with them."""
    fields: dict[str, Any] = {"moves": NO_MOVES, "notes": ("a <note>",)}
    return SimpleNamespace(**fields | more)


def test_moves_are_told_where_they_were_looked_for() -> None:
    assert page.which_task(found()) == ""
    assert page.would_help(found()) == "<p>a &lt;note&gt;</p>"
    nothing = SimpleNamespace(steps=(), before=3.0, makespan=3.0, count=0)
    told = page.which_task(found(moves=nothing))
    assert told == "<p>No better placement was found: no task needs to move.</p>"
    edit = {"placement.policy": "best"}
    step = SimpleNamespace(near="w to m1", makespan=2.0, why="", edit=edit)
    moved = SimpleNamespace(steps=(step,), before=3.0, makespan=2.0, count=1)
    told = page.which_task(found(moves=moved))
    assert "w to m1" in told
    assert "<pre>placement: {policy: best}</pre>" in told
    step.edit = None
    assert "<pre>" not in page.which_task(found(moves=moved))
    helping = found(
        moves=nothing,
        improvements=(),
        improvements_then=(),
        replayed_makespan=3.0,
    )
    assert page.would_help(helping) == "<p>Nothing that was tried.</p>"


def test_a_run_of_one_schedule_alone_has_no_difference() -> None:
    schedule = simulate(*two_machine_example(1))
    both: Any = SimpleNamespace(emulated=schedule, simulated=schedule)
    assert "<table" in page.difference_by_cause(both)
    for lacking in ("emulated", "simulated"):
        one: Any = SimpleNamespace(**{**vars(both), lacking: None})
        assert page.difference_by_cause(one) == ""


@pytest.mark.parametrize("only", ["emulated", "simulated", ""])
def test_causes_are_told_of_whichever_schedule_is_left(only: str) -> None:
    schedule = simulate(*two_machine_example(1))
    run: Any = SimpleNamespace(
        emulated=schedule if only == "emulated" else None,
        simulated=schedule if only == "simulated" else None,
        problem=schedule.problem,
        best=schedule,
    )

    def part(_: str, make: Any) -> str:
        return str(make())

    shown = "".join(page._causes(run, {}, part, helpful=False))
    assert ('id="why"' in shown) == bool(only)
    assert ("emu report --explain" in shown) == bool(only)


def test_verdicts_without_reasons_say_nothing() -> None:
    assert page.verdict_reasons(None) == ""
    assert page.verdict_reasons({"reasons": [], "remedies": []}) == ""
    shown = page.verdict_reasons({"reasons": ["late"], "remedies": ["wait"]})
    assert shown == (
        "<h3>Reasons</h3><ul><li>late</li></ul>"
        "<h3>What to do</h3><ul><li>wait</li></ul>"
    )


LAB: Any = {
    "failed": None,
    "waited_share": 0.05,
    "early_seconds": 0.4,
    "wall_seconds": 16.0,
    "time_scale": 2.0,
    "crossed": {"messages": 5},
}


@pytest.mark.parametrize(
    ("changes", "drawn", "words"),
    [
        ({}, 5, []),
        ({}, 4, ["the largest 4 of 5 messages are drawn"]),
        ({"early_seconds": 0.41}, 5, ["a machine computed for 410 ms less"]),
        ({"waited_share": 0.06}, 5, ["programs waited for a core 6%"]),
        (
            {"failed": {"program": "p", "machine": "m", "code": 3}},
            5,
            ["p failed first, on m (code 3)"],
        ),
        ({"capture": {"lost": 1234}}, 5, ["1,234 packets were not noted"]),
        ({"crossed": {"shared_queues": 2}}, 5, ["2 pairs of connections met"]),
    ],
)
def test_a_lab_tells_its_doubts_beyond_their_bounds(
    changes: dict[str, Any], drawn: int, words: list[str]
) -> None:
    """A twentieth of the 8 s of machines' time, and of what was computed."""
    told = _doubts(Path("run"), LAB | changes, drawn)
    assert told.count("<li>") == len(words)
    for word in words:
        assert word in told


def test_a_nic_of_a_lab_has_the_most_that_it_ever_has() -> None:
    """That of b is halved at 1.5 s outwards, and doubled inwards."""
    events = [{"machine": "b", "time": 1.5, "nic_out": 50.0, "nic_in": 400.0}]
    traffic: Any = SimpleNamespace(
        machines=("a", "b"), nics=np.array([[10.0, 100.0], [20.0, 200.0]])
    )
    lab: Any = {"events": events}
    ports = _ports(lab, traffic)
    assert [(port["name"], port["capacity"]) for port in ports] == [
        ("a out", 10.0),
        ("a in", 20.0),
        ("b out", 100.0),
        ("b in", 400.0),
    ]
    assert ports[2]["limits"] == [(0.0, 100.0), (1.5, 50.0)]
    assert (ports[3]["machine"], ports[3]["direction"]) == (1, "in")


def test_the_use_of_a_nic_is_a_sign_per_bin() -> None:
    """Blank where nothing went, and full where more than all did."""
    crossing: Any = {
        "bin_seconds": 0.5,
        "nic_use": {"a": {"out": [0.0, 0.01, 1.0, 3.0], "in": [0.5]}},
    }
    table = _use_table(crossing)
    (names, means, signs) = ([*column.cells] for column in table.columns)
    assert names == ["a out", "a in"]
    assert means == ["100 %", "50 %"]
    assert str(signs[0])[0] == " "
    assert str(signs[0])[2] == str(signs[0])[3]
    assert len({*str(signs[0])}) == 3


def test_a_node_is_drawn_around_its_place() -> None:
    cluster: Any = SimpleNamespace(machines=[SimpleNamespace(name="a_long_name")])
    square = _node(Node(0, is_junction=True), np.array([50.0, 70.0]), cluster)
    assert 'x="45" y="65" width="10" height="10"' in square
    disc = _node(Node(0, is_junction=False), np.array([50.0, 70.0]), cluster)
    assert 'cx="50" cy="70" r="19"' in disc
    assert ">a_long<" in disc


def test_headers_of_numbers_are_folded_where_a_terminal_is_narrow() -> None:
    """Figures are whole; a name takes what is left, and folds."""
    table = plain_table("", "name", ">a very long header")
    table.add_row("n" * 30, "123456789")
    console = terminal()
    console.width = 30
    with console.capture() as printed:
        console.print(table)
    lines = printed.get().splitlines()
    assert "123456789" in printed.get()
    assert max(map(len, lines)) <= 30
    wide = plain_table("", "name", ">a very long header")
    wide.add_row("n", "1")
    with console.capture() as printed:
        console.print(wide)
    assert "a very long header" in printed.get()


def test_a_task_without_time_has_no_lane_and_no_arrow() -> None:
    """A gate between two tasks, and two links of which the second is crossed."""
    from emu.problem import Link, Route

    cluster = Cluster(
        (Machine("m0", 10.0, 10.0), Machine("m1", 10.0, 10.0)),
        shared_links=(Link("one", 5.0), Link("two", 5.0)),
        routes=(Route((0,), (1,), ("out", "one", "two", "in")),),
    )
    tasks = (Task("a", "t"), Task("b", "t"), Task("c", "t"))
    edges = (Edge(0, 1), Edge(1, 2))
    problem = Problem(cluster, Job(tasks, edges, 1), Placement((0, 0, 1)))
    times = np.array([[1.0], [2e-7], [1.0]])
    schedule = simulate(problem, Realization(times, np.array([[0.0], [10.0]])))
    events = [*trace_events({"x": schedule})]
    lanes = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert lanes[3, 100_000] == "one 1"
    assert lanes[3, 200_000] == "two 1"
    arrows = [event["ts"] for event in events if event["ph"] == "s"]
    # The bar of b is 0.2 us long: its arrow leaves from the middle.
    assert arrows[0] == pytest.approx(1e6 + 0.1, abs=1e-3)
    hidden = replace(schedule)
    bars = schedule.bars()
    bars[1] = False
    vars(hidden)["bars"] = lambda: bars
    events = [*trace_events({"x": hidden})]
    names = [
        event["args"]["name"] for event in events if event["name"] == "thread_name"
    ]
    assert "b (t)" not in names
    categories = [event["cat"] for event in events if event["ph"] == "s"]
    assert len(categories) == 2
