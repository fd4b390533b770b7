"""Events of trace.json, one by one, of a schedule that is stated by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Schedule,
    Task,
)
from emu.problem.changes import SpeedChange
from emu.report.death_bands import DeathBand
from emu.report.trace import GROUP, trace_events

Event = dict[str, Any]
#: Lanes of links begin here, those of a NIC's other direction as many further on.
LANES = 100_000


def by_hand() -> Schedule:
    """Return a sender on m0 and a receiver on m1, joined by a link, in two iterations.

    The sender takes 1 s; 20 bytes go at 10 B/s, then 40 at the same rate; a second
    edge of lag 1 stays on m0, to a task that has no time.
    """
    cluster = Cluster(
        (Machine("m0", 50.0, 40.0, latency_out=0.25), Machine("m1", 60.0, 70.0)),
        shared_links=(Link("wire", 10.0),),
        routes=(Route((0,), (1,), ("out", "wire", "in")),),
        changes=(CapacityChange(1.5, "m1 in", 80.0),),
        speed_changes=(SpeedChange(2.5, "m1", 0.5),),
    )
    tasks = (Task("a", "store"), Task("b", "worker"), Task("c", "server"))
    edges = (Edge(0, 1), Edge(0, 2, lag=1))
    problem = Problem(cluster, Job(tasks, edges, 2), Placement((0, 1, 0)))
    times = np.array([[1.0, 1.0], [0.5, 0.5], [0.0, 2.0]])
    volumes = np.array([[20.0, 40.0], [0.0, 0.0]])
    return simulate(problem, Realization(times, volumes), record_rates=True)


@pytest.fixture
def events() -> list[Event]:
    """Return the events of that schedule."""
    return [*trace_events({"simulated": by_hand()})]


def bars_of(events: list[Event], pid: int, tid: int) -> list[tuple[str, float, float]]:
    """Return name, start and length of the bars of a lane, seconds."""
    return [
        (event["name"], event["ts"] / 1e6, event["dur"] / 1e6)
        for event in events
        if event["ph"] == "X" and (event["pid"], event["tid"]) == (pid, tid)
    ]


def test_processes_are_machines_and_one_of_links(events: list[Event]) -> None:
    names = {
        event["pid"]: event["args"]["name"]
        for event in events
        if event["name"] == "process_name"
    }
    assert names == {1: "simulated: m0", 2: "simulated: m1", 3: "simulated: links"}
    orders = {
        event["pid"]: event["args"]["sort_index"]
        for event in events
        if event["name"] == "process_sort_index"
    }
    assert orders == {1: 1, 2: 2, 3: 3}


def test_lanes_are_named_by_task_or_link(events: list[Event]) -> None:
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert names == {
        (1, 1): "a (store)",
        (2, 2): "b (worker)",
        (1, 3): "c (server)",
        (1, LANES): "NIC out 1",
        (2, 2 * LANES): "NIC in 1",
        (3, LANES): "wire 1",
    }
    for event in events:
        if event["name"] == "thread_sort_index":
            assert event["args"]["sort_index"] == event["tid"]


def test_bars_have_the_times_of_their_tasks_and_flows(events: list[Event]) -> None:
    """The second flow waits until the first has gone."""
    assert bars_of(events, 1, 1) == [("a 0", 0.0, 1.0), ("a 1", 1.0, 1.0)]
    flows = [("a->b 0", 1.0, 2.0), ("a->b 1", 3.0, 4.0)]
    for pid, tid in ((1, LANES), (3, LANES), (2, 2 * LANES)):
        assert bars_of(events, pid, tid) == flows
    # A latency of 0.25 s, and half of the speed from 2.5 s on.
    assert bars_of(events, 2, 2) == [("b 0", 3.25, 1.0), ("b 1", 7.25, 1.0)]


def test_a_flow_has_its_figures_once(events: list[Event]) -> None:
    told = [event["args"] for event in events if "bytes" in event.get("args", {})]
    assert told == [
        {
            "flow": "a->b",
            "iteration": 0,
            "bytes": 20.0,
            "waited_s": 0.0,
            "mean_bytes_per_s": 10.0,
            "latency_s": 0.25,
        },
        {
            "flow": "a->b",
            "iteration": 1,
            "bytes": 40.0,
            "waited_s": 1.0,
            "mean_bytes_per_s": 10.0,
            "latency_s": 0.25,
        },
    ]


def test_arrows_lead_from_bar_to_bar(events: list[Event]) -> None:
    """An arrow leaves a microsecond before the end of its bar, and has its number."""
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert [*starts] == [*ends] == [1, 2, 3, 4, 5]

    def places(found: dict[int, Event]) -> list[tuple[int, int, float]]:
        return [(event["pid"], event["tid"], event["ts"]) for event in found.values()]

    assert places(starts) == [
        (1, 1, 999_999.0),
        (2, 2 * LANES, 2_999_999.0),
        (1, 1, 1_999_999.0),
        (2, 2 * LANES, 6_999_999.0),
        (1, 1, 999_999.0),
    ]
    assert places(ends) == [
        (1, LANES, 1e6),
        (2, 2, 3.25e6),
        (1, LANES, 3e6),
        (2, 2, 7.25e6),
        (1, 3, 1e6),
    ]
    assert {event["cat"] for event in starts.values()} == {"dependency"}


def test_counters_hold_what_is_ready_and_not_delivered(events: list[Event]) -> None:
    """60 bytes of m0 from 2 s on, of which 40 are left at 3 s; nothing of m1."""
    levels = [
        (event["pid"], event["ts"] / 1e6, round(1e6 * event["args"]["value"], 6))
        for event in events
        if event["name"] == "not delivered (MB)"
    ]
    assert levels == [(1, 1.0, 20.0), (1, 2.0, 60.0), (1, 3.0, 40.0), (1, 7.0, 0.0)]
    rates = [
        (event["ts"] / 1e6, round(1e6 * event["args"]["value"], 6))
        for event in events
        if event["name"] == "wire, assigned rate (MB/s)"
    ]
    assert rates[0] == (1.0, 10.0)
    assert rates[-1] == (7.0, 0.0)


def test_changes_are_marks_of_their_machines(events: list[Event]) -> None:
    marks = [
        (event["name"], event["pid"], event["ts"], event["s"])
        for event in events
        if event["ph"] == "i"
    ]
    assert marks == [
        ("m1 has 0.5 of its speed", 2, 2.5e6, "p"),
        ("m1 in has 80 B/s", 2, 1.5e6, "p"),
    ]


def test_rates_that_nobody_assigned_are_means() -> None:
    schedule = replace(by_hand(), rates=None)
    names = {
        event["name"] for event in trace_events({"x": schedule}) if event["ph"] == "C"
    }
    assert "NIC out, mean rate (MB/s)" in names
    assert "NIC out, assigned rate (MB/s)" not in names


def test_groups_have_numbers_of_their_own_and_begin_with_the_first_attempt() -> None:
    """Attempts of the second group begin 4 s before the last one."""
    first, second = by_hand(), by_hand()
    deaths = [
        DeathBand("emulated", "done", -2.0, -1.0),
        DeathBand("emulated", "down", -1.0, 0.0, note="died"),
        DeathBand("simulated", "done", -4.0, 0.0),
    ]
    counts: Any = SimpleNamespace(of_flow=lambda *flow: {"flow": flow})
    found = [
        *trace_events({"emulated": first, "simulated": second}, deaths, counts=counts)
    ]
    attempts = [event for event in found if event.get("cat") == "death"]
    assert [
        (event["name"], event["pid"], event["ts"], event["dur"], event.get("args"))
        for event in attempts
    ] == [
        ("done", GROUP - 1, 2e6, 1e6, None),
        ("down", GROUP - 1, 3e6, 1e6, {"note": "died"}),
        ("done", 2 * GROUP - 1, 0.0, 4e6, None),
    ]
    orders = {
        event["pid"]: event["args"]["sort_index"]
        for event in found
        if event["name"] == "process_sort_index"
    }
    assert orders[GROUP - 1] == 0
    assert orders[2 * GROUP - 1] == GROUP
    assert bars_of(found, GROUP + 1, 1) == [("a 0", 4.0, 1.0), ("a 1", 5.0, 1.0)]
    # Kernels count what a run has sent, and no simulation.
    kernels = [
        event["args"].get("kernel")
        for event in found
        if "bytes" in event.get("args", {})
    ]
    assert kernels == [{"flow": (0, 0)}, {"flow": (0, 1)}, None, None]
    numbers = [event["id"] for event in found if event["ph"] == "s"]
    assert numbers == [*range(1, 11)]


def test_a_flow_that_takes_no_time_has_no_rate_and_its_arrow_stays_inside() -> None:
    """It starts when it ends, 2 s after it was ready."""
    schedule = by_hand()
    starts = schedule.flow_start.copy()
    starts[0, 0] = schedule.flow_end[0, 0]
    short = replace(schedule, flow_start=starts)
    found = [*trace_events({"x": short})]
    first, *_ = (event["args"] for event in found if "bytes" in event.get("args", {}))
    assert first["mean_bytes_per_s"] == 0.0
    assert first["waited_s"] == 2.0
    arrow = next(event for event in found if event["ph"] == "s" and event["id"] == 2)
    assert arrow["ts"] == 3e6
