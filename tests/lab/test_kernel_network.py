"""What kernel NICs cannot be asked for, and when they change."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from emu.emulation.network.clock import RunClock
from emu.errors import RunError, ScenarioError
from emu.lab.kernel_network import (
    LabNics,
    _lab,
    check_network,
    list_nic_changes,
)
from emu.lab.machines.lab import Lab, LabMachine, Paces
from emu.lab.machines.nic import Sharing
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


def carried_on(nics: LabNics, lines: RateSegments | None = None) -> float:
    """Let 50 emulated seconds pass, a millisecond each; return the wall time of 0."""

    async def run() -> float:
        start = time.monotonic()
        nics.begin(RunClock(start, 0.001))
        if lines is not None:
            nics.on_decisions(lines)
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


def test_a_nic_that_has_changed_takes_the_rates_again_that_it_had() -> None:
    problem = prepare(load(FALLS)).problem
    lab, new = FakeLab(), LabMachine("m0", 1.0, 1.0)
    nics = LabNics(cast("Lab", lab), [(30.0, new)], problem, 100.0)
    one = np.array([0])
    rates = RateSegments(one, one, np.array([0.0]), np.array([7.0]), np.array([1.0]))
    carried_on(nics, rates)

    assert [what for _, what in lab.told] == [{0: 700.0}, new, {0: 700.0}]
