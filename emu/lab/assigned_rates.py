"""Rates that the scheduler decides, set where the kernel limits each connection."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import heapq
import itertools
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from emu.errors import RunError
from emu.lab.shared_nics import SharedNics
from emu.network import Alarm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from emu.machines import Lab, LabMachine, Paces
    from emu.network import RunClock
    from emu.problem import Problem
    from emu.scheduling import RateSegments

#: Rates that senders are told are so many times what they are: they never wait.
UNSHAPED = 1e6
#: Bytes that a line has served below which no bucket lets a byte go. With buckets of 16
#: KB, ten flows that waited at a NIC of 10 Mbit/s made the one before them 0.17 s late.
_NOTHING = -1e15


class AssignedRates(SharedNics):
    """Sets every edge's leaf, out of the machine that sends, when its line begins.

    Lines are decided up to 50 ms ahead, and a leaf has no time of its own: they wait
    here. The NIC that receives shares by itself. A NIC that has changed takes its rates
    again: its leaves had none then.

    Parameters
    ----------
    changes
        As `changed_nics` returns them.
    per_second
        Real bytes per wall second, of one emulated byte per emulated second.
    """

    def __init__(
        self,
        lab: Lab,
        changes: Iterable[tuple[float, LabMachine]],
        problem: Problem,
        per_second: float,
    ) -> None:
        super().__init__(lab, changes)
        names = [machine.name for machine in problem.cluster.machines]
        self._paces: dict[str, Paces] = {name: lab.paces(name) for name in names}
        machine_of = problem.placement.machine_of
        self._source = [names[machine_of[edge.source]] for edge in problem.job.edges]
        self._per_second = per_second
        self._set = {name: dict[int, float]() for name in names}
        self._waiting: list[tuple[float, int, int, float]] = []
        self._count = itertools.count()
        self._alarm: Alarm

    @override
    def begin(self, clock: RunClock) -> None:
        """Take the clock of the run, in its loop."""
        super().begin(clock)
        self._alarm = Alarm(asyncio.get_running_loop(), self._set_due)

    @override
    def decided(self, lines: RateSegments) -> None:
        """Set rates at the times of their lines.

        A connection without a rate keeps the one that it had, for what is still on its
        way: its sender knows, and the NIC limits the sum.

        Raises
        ------
        RunError
            When the kernel refuses.
        """
        for edge, rate, since in zip(
            lines.edge.tolist(), lines.rate.tolist(), lines.since.tolist(), strict=True
        ):
            if rate > 0:
                when = self._clock.to_wall(since)
                heapq.heappush(self._waiting, (when, next(self._count), edge, rate))
        self._set_due()

    @override
    def told(self, lines: RateSegments) -> RateSegments:
        """Let senders with a rate send at once, and the others nothing, no bucket."""
        served = np.where(lines.rate > 0, lines.served, _NOTHING)
        return dataclasses.replace(lines, served=served, rate=lines.rate * UNSHAPED)

    def _set_due(self) -> None:
        now, due = time.monotonic(), defaultdict[str, dict[int, float]](dict)
        while self._waiting and self._waiting[0][0] <= now:
            _, _, edge, rate = heapq.heappop(self._waiting)
            due[self._source[edge]][edge] = rate * self._per_second
        for machine, rates in due.items():
            self._set[machine] |= rates
            self._pace(machine, rates)
        if self._waiting:
            self._alarm.set(self._waiting[0][0])

    def _pace(self, machine: str, rates: Mapping[int, float]) -> None:
        try:
            self._paces[machine].set(rates)
        except OSError as error:
            raise RunError(f"machine {machine} takes no rates: {error}") from error

    @override
    def _change(self, machine: LabMachine) -> None:
        super()._change(machine)
        name = machine.name
        self._paces[name].close()
        self._paces[name] = self._lab.paces(name)  # it knows the new NIC
        self._pace(name, self._set[name])

    @override
    def close(self) -> None:
        """Let go of the timers and the sockets."""
        super().close()
        with contextlib.suppress(AttributeError):  # the run had not begun
            self._alarm.close()
        for paces in self._paces.values():
            paces.close()
