"""What kernel NICs cannot be asked for, and when they change."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from emu.emulation.network.clock import RunClock
from emu.errors import RunError, ScenarioError
from emu.lab import kernel_network
from emu.lab.kernel_network import (
    LabNics,
    _lab,
    burst_of,
    check_network,
    list_nic_changes,
)
from emu.lab.machines.lab import Lab, LabMachine, Paces
from emu.lab.machines.nic import Sharing
from emu.lab.machines.nic_check import NicCheck
from emu.prediction.scheduling import RateSegments
from emu.scenario import load, prepare

GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
FALLS = Path(__file__).parents[2] / "tools" / "mutation" / "events.yaml"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["schedule.policy=oes"], "schedule.policy"),
        (["schedule.policy=none", "emulation.flow_ends=fluid"], "emulation.flow_ends"),
    ],
)
def test_what_asks_for_assigned_rates_is_refused(
    overrides: list[str], key: str
) -> None:
    kernel = load(GOLDEN, ["expect=null", *overrides, "emulation.network=kernel"])
    with pytest.raises(ScenarioError, match="state") as caught:
        check_network(kernel)

    assert caught.value.key == key
    check_network(load(GOLDEN, ["expect=null", *overrides]))


def test_assigned_rates_are_of_any_policy() -> None:
    stated = ["emulation.network=kernel", "emulation.sharing=assigned"]
    check_network(load(GOLDEN, [*stated, "schedule.policy=fifo"]))


def test_a_connection_has_a_leaf_out_of_who_sends_and_into_who_receives() -> None:
    problem = prepare(load(GOLDEN, ["expect=null"])).problem
    lab = _lab(problem, 1e5, Sharing.ASSIGNED, [])
    machine_of = problem.placement.machine_of
    sent: dict[int, list[int]] = {}
    received: dict[int, list[int]] = {}
    for number, edge in enumerate(problem.job.edges):
        sent.setdefault(machine_of[edge.source], []).append(number)
        received.setdefault(machine_of[edge.destination], []).append(number)

    assert sent != received
    for number, machine in enumerate(lab.machines):
        plan_out, plan_in = lab.plans(machine)
        assert plan_out.numbered == tuple(sent.get(number, ()))
        assert plan_in.numbered == tuple(received.get(number, ()))


class FakeLab:
    """Notes what is told, and when; machine ``gone`` has gone."""

    def __init__(self) -> None:
        self.told: list[tuple[float, Any]] = []
        self.counters = self

    def restart(self) -> None:
        """Count from now: of nothing."""

    def change_nic(self, machine: LabMachine) -> None:
        """Note the new NIC."""
        if machine.name == "gone":
            raise RunError("machine gone has gone")
        self.set(machine)

    def paces(self, name: str) -> Paces:
        """Return what notes the rates of a machine as well."""
        del name
        return cast("Paces", self)

    def set(self, what: Any) -> None:
        """Note it."""
        self.told.append((time.monotonic(), what))

    def close(self) -> None:
        """Hold nothing."""


def carried_on(nics: LabNics) -> float:
    """Let 50 emulated seconds pass, a millisecond each; return the wall time of 0."""

    async def run() -> float:
        start = time.monotonic()
        nics.begin(RunClock(start, 0.001))
        await asyncio.sleep(0.05)
        return start

    try:
        return asyncio.run(run())
    finally:
        nics.close()


def test_nics_change_at_their_times_in_order() -> None:
    sink = '{"at": "3 s", "machine": "sink", "nic": {"in": "4 B/s", "out": "5 B/s"}}'
    events = f'[{{"at": "5 s", "machine": "sink", "nic": "2 B/s"}}, {sink}]'
    problem = prepare(load(FALLS, [f"events={events}"])).problem
    due = list_nic_changes(problem, 100.0)
    lab = FakeLab()
    start = carried_on(LabNics(cast("Lab", lab), due, None, 1.0))

    first, second = LabMachine("sink", 500.0, 400.0), LabMachine("sink", 200.0, 200.0)
    assert due == [(3.0, first), (5.0, second)]
    assert [what for _, what in lab.told] == [first, second]
    assert all(
        when >= start + 0.001 * at
        for (when, _), (at, _) in zip(lab.told, due, strict=True)
    )


def test_a_change_that_fails_is_heard_after_the_run() -> None:
    lab, gone = FakeLab(), LabMachine("gone", 1.0, 1.0)
    changes = [(1.0, gone), (2.0, LabMachine("m", 1.0, 1.0))]
    nics = LabNics(cast("Lab", lab), changes, None, 1.0)
    carried_on(nics)

    assert len(lab.told) == 1
    with pytest.raises(RunError, match="gone has gone"):
        nics.check()


def segments(*rows: tuple[int, float, float, float]) -> RateSegments:
    """Return lines of rates: edge, since, rate, served."""
    edges, since, rate, served = zip(*rows, strict=True)
    return RateSegments(
        edge=np.array(edges),
        iteration=np.zeros(len(rows), int),
        served=np.array(served),
        rate=np.array(rate),
        since=np.array(since),
    )


def stopped(
    nics: LabNics, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[float], list[float]]:
    """Return the wall clock, at run time 0, and the times of alarms that are set."""
    now = [50.0]
    rung: list[float] = []
    given = cast("Any", nics)
    given._clock = SimpleNamespace(to_wall=lambda instant: 50.0 + instant)
    given._alarm = SimpleNamespace(set=rung.append, close=lambda: None)
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(kernel_network, "time", clock)
    return now, rung


def test_a_nic_that_has_changed_takes_the_rates_again_that_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has a rate from 1 s on, and another NIC from 30 s on."""
    problem = prepare(load(FALLS)).problem
    lab, new = FakeLab(), LabMachine("m0", 1.0, 1.0)
    nics = LabNics(cast("Lab", lab), [], problem, 100.0)
    now, _ = stopped(nics, monkeypatch)
    nics._wait_for(30.0, new)
    nics.on_decisions(segments((0, 1.0, 7.0, 0.0)))
    for instant in (50.5, 51.0, 79.5, 80.0):
        now[0] = instant
        nics._carry_out_due()

    assert [what for _, what in lab.told] == [{0: 700.0}, new, {0: 700.0}]


def test_changes_of_nics_are_by_time_machine_and_way() -> None:
    """A machine that changes both ways at once changes once; rates are wall ones."""
    events = (
        '[{"at": "5 s", "machine": "m1", "nic": "2 B/s"},'
        ' {"at": "3 s", "machine": "sink", "nic": {"in": "4 B/s", "out": "5 B/s"}},'
        ' {"at": "5 s", "machine": "m0", "nic": "3 B/s"}]'
    )
    problem = prepare(load(FALLS, [f"events={events}"])).problem
    assert list_nic_changes(problem, 10.0) == [
        (3.0, LabMachine("sink", 50.0, 40.0)),
        (5.0, LabMachine("m0", 30.0, 30.0)),
        (5.0, LabMachine("m1", 20.0, 20.0)),
    ]


def test_senders_wait_for_no_rate_where_nics_have_them() -> None:
    """Who has one may send at once, who has none sends nothing; else all stays."""
    problem = prepare(load(FALLS)).problem
    lab = cast("Lab", FakeLab())
    lines = segments((0, 1.0, 7.0, 3.0), (1, 1.0, 0.0, 4.0))

    found = LabNics(lab, [], problem, 100.0).for_senders(lines)

    assert found.rate.tolist() == [7e6, 0.0]
    assert found.served.tolist() == [3.0, -1e15]
    assert LabNics(lab, [], None, 100.0).for_senders(lines) is lines


def test_rates_wait_until_their_lines_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of one sender at one instant are set together; a rate of 0 is not set."""
    problem = prepare(load(FALLS)).problem
    lab = FakeLab()
    nics = LabNics(cast("Lab", lab), [], problem, 100.0)
    source = nics._source
    given = cast("Any", nics)
    now, rung = stopped(nics, monkeypatch)

    nics.on_decisions(
        segments((0, 1.0, 7.0, 0.0), (0, 0.0, 5.0, 0.0), (0, 0.0, 0.0, 0.0))
    )
    assert [what for _, what in lab.told] == [{0: 500.0}]
    assert rung == [51.0]
    now[0] = 51.0
    nics._carry_out_due()
    assert [what for _, what in lab.told] == [{0: 500.0}, {0: 700.0}]
    assert rung == [51.0]
    assert given._set[source[0]] == {0: 700.0}


@pytest.mark.parametrize(
    ("override", "key", "words"),
    [
        ("emulation.catch_up=1 s", "emulation.catch_up", "depth of the buckets"),
        (
            "events=[{at: 1 s, cut: sink, for: 1 s}]",
            "events[0].cut",
            "slow: sink, direction: both, by: 100",
        ),
    ],
)
def test_what_kernel_nics_cannot_do_is_refused(
    override: str, key: str, words: str
) -> None:
    """They pace no senders, and let something through at any time."""
    common = ["schedule.policy=maxmin", "emulation.network=kernel"]
    scenario = load(FALLS, [*common, override])
    with pytest.raises(ScenarioError, match=words) as caught:
        check_network(scenario)
    assert caught.value.key == key


def test_bursts_are_of_two_nics_and_of_packets_of_each() -> None:
    """Four bursts of 0.5 ms, or as many packets, and twice as many with rates."""
    userspace = load(GOLDEN, ["expect=null"])
    assert burst_of(userspace) == (0.0, 0.0)
    kernel = ["expect=null", "schedule.policy=maxmin", "emulation.network=kernel"]
    assert burst_of(load(GOLDEN, kernel)) == (2e-3, 4 * 1514)
    by_rates = [*kernel, "emulation.sharing=assigned"]
    assert burst_of(load(GOLDEN, by_rates)) == (2e-3, 8 * 1514)


def test_a_problem_without_shaping_has_nics_a_million_times_as_fast() -> None:
    """Each way apart; the rest is as it was."""
    problem = prepare(load(FALLS)).problem
    found = kernel_network._without_shaping(problem)
    for before, after in zip(
        problem.cluster.machines, found.cluster.machines, strict=True
    ):
        assert after.bandwidth_in == before.bandwidth_in * 1e6
        assert after.bandwidth_out == before.bandwidth_out * 1e6
        assert after.name == before.name
    assert found.job is problem.job
    assert found.placement is problem.placement


def test_rates_that_no_kernel_carries_are_refused_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those of a change; so are more edges than there are leaves."""
    problem = prepare(load(GOLDEN, ["expect=null"])).problem
    with pytest.raises(ScenarioError, match="choose time_scale and byte_scale"):
        _lab(problem, 1e-3, Sharing.FAIR, [])
    first = problem.cluster.machines[0].name
    slow = [(1.0, LabMachine(first, 1.0, 1.0))]
    with pytest.raises(ScenarioError, match=r"1 B/s is no NIC"):
        _lab(problem, 1e5, Sharing.FAIR, slow)
    lab = _lab(problem, 1e5, Sharing.FAIR, [])
    for found, machine in zip(lab.machines, problem.cluster.machines, strict=True):
        assert found.nic_out == machine.bandwidth_out * 1e5
        assert found.nic_in == machine.bandwidth_in * 1e5

    edges = len(problem.job.edges)
    monkeypatch.setattr(kernel_network, "_MOST_EDGES", edges)
    _lab(problem, 1e5, Sharing.FAIR, [])
    monkeypatch.setattr(kernel_network, "_MOST_EDGES", edges - 1)
    with pytest.raises(RunError, match="no leaf of their own"):
        _lab(problem, 1e5, Sharing.FAIR, [])


def test_counts_of_machines_are_by_what_they_are_of() -> None:
    """TCP, the NIC's share, and all traffic with the seconds that it took."""
    counters = SimpleNamespace(
        tcp=lambda: {"a": {"timeouts": 1}, "b": {"timeouts": 2}},
        traffic=lambda: {"a": {"out_bytes": 3}, "b": {"out_bytes": 4}},
    )
    lab: Any = SimpleNamespace(counters=counters)
    check: Any = SimpleNamespace(shares={"a": {"out": 0.5}, "b": {"out": 0.75}})
    assert kernel_network._read_counts(lab, check, 9.0) == {
        "a": {
            "tcp": {"timeouts": 1},
            "nic": {"out": 0.5},
            "traffic": {"out_bytes": 3, "seconds": 9.0},
        },
        "b": {
            "tcp": {"timeouts": 2},
            "nic": {"out": 0.75},
            "traffic": {"out_bytes": 4, "seconds": 9.0},
        },
    }


def test_nics_that_are_off_are_refused_with_what_makes_them_slower() -> None:
    """They are measured by what the scenario lets them be off."""
    asked: list[float] = []

    def measure(most: float) -> NicCheck:
        asked.append(most)
        return NicCheck({"a": {"out": share}}, 0.5, off, most)

    lab: Any = SimpleNamespace(check_nics=measure)
    share = 1.0
    off: tuple[str, ...] = ()
    assert kernel_network._checked_nics(lab, 0.125).shares == {"a": {"out": 1.0}}
    share = 0.5
    off = ("a out carries half",)
    with pytest.raises(ScenarioError, match="a larger time_scale makes NICs") as caught:
        kernel_network._checked_nics(lab, 0.25)
    assert caught.value.key == "emulation.time_scale"
    assert asked == [0.125, 0.25]
