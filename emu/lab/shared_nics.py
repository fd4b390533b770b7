"""NICs of the kernel that TCP shares, and that change while a run goes on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from emu.errors import RunError
from emu.machines import LabMachine
from emu.network import Alarm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emu.machines import Lab
    from emu.network import RunClock
    from emu.problem import Problem
    from emu.scheduling import RateSegments


def changed_nics(problem: Problem, per_second: float) -> list[tuple[float, LabMachine]]:
    """Return when a machine's NIC changes, and the machine from then on, in order.

    Parameters
    ----------
    per_second
        Real bytes per wall second, of one emulated byte per emulated second.
    """
    machines, links = problem.cluster.machines, problem.cluster.links
    found = {(row[0], links[int(row[1])].machine) for row in links.steps.rows}
    changes = []
    for at, m in sorted(found):
        now = np.array([at])
        out, into = (
            float(links.steps.at(port, now)[0]) * per_second
            for port in links.of_machine(m)
        )
        changes.append((float(at), LabMachine(machines[m].name, out, into)))
    return changes


class SharedNics:
    """NICs that TCP shares by itself (`emu.coordinator.settings.KernelNics`).

    They change at times of the run's clock.

    Parameters
    ----------
    changes
        As `changed_nics` returns them.
    """

    def __init__(self, lab: Lab, changes: Iterable[tuple[float, LabMachine]]) -> None:
        self._lab, self._changes = lab, deque(changes)
        self._failure: RunError | None = None
        self._clock: RunClock
        self._change_alarm: Alarm

    def begin(self, clock: RunClock) -> None:
        """Take the clock of the run, in its loop."""
        self._clock = clock
        self._change_alarm = Alarm(asyncio.get_running_loop(), self._change_due)
        self._change_due()

    def decided(self, lines: RateSegments) -> None:
        """Set nothing."""

    def told(self, lines: RateSegments) -> RateSegments:
        """Return them as they are, without limits to speak of."""
        return lines

    def _change_due(self) -> None:
        """Make the changes that are due."""
        while self._changes:
            when = self._clock.to_wall(self._changes[0][0])
            if when > time.monotonic():
                self._change_alarm.set(when)
                return
            _, machine = self._changes.popleft()
            try:
                self._change(machine)
            except RunError as error:  # nobody hears it in a callback of the loop
                self._failure = self._failure or error

    def _change(self, machine: LabMachine) -> None:
        self._lab.change_nic(machine)

    def check(self) -> None:
        """Raise what changing a NIC has failed of.

        Raises
        ------
        RunError
            When a machine has gone, or the kernel refused.
        """
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Let go of the timer."""
        with contextlib.suppress(AttributeError):  # the run had not begun
            self._change_alarm.close()
