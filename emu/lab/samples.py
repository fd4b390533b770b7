"""Samples of a lab while it runs: CPU time and waits of programs, TCP and queues."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from emu.array_types import Array
from emu.lab.machines.counters import PortOwners
from emu.lab.machines.lab import Lab
from emu.runs.array_files import SAMPLED

#: Wall seconds between two samples: one of four idle machines took 2 ms of CPU.
PERIOD = 0.5


class Samples:
    """Samples of a lab that is up, from its making to `close`."""

    def __init__(self, lab: Lab) -> None:
        self._counters = lab.counters
        self._scale = lab.time_scale
        self._waits = lab.core_waits()
        self._ports = PortOwners(lab.holders)
        self.owners = self._ports.found
        """Machines, ports, and the names of their programs."""
        self._began = time.monotonic()
        self._taken = self._began
        self.began = time.clock_gettime(time.CLOCK_REALTIME)
        """Seconds since 1970 at which they began, as packets are stamped."""
        self._rows: dict[str, list[Any]]
        self._rows = {key: [] for key in SAMPLED}
        self.take()

    @property
    def seconds(self) -> float:
        """Emulated seconds since the programs began."""
        wall_seconds = time.monotonic() - self._began
        return wall_seconds / self._scale

    @property
    def early(self) -> list[float]:
        """Emulated seconds that each machine computed in less than its quota says."""
        wall_seconds = self._waits.early
        return [wall / self._scale for wall in wall_seconds]

    def take(self, *, when_due: bool = False) -> None:
        """Take a sample now, or only if the last one is long ago."""
        now = time.monotonic()
        due = self._taken + PERIOD
        if when_due and now < due:
            return
        self._taken = now
        self._waits.sample()
        self._ports.sample()
        drops, queues = self._counters.queues()
        retransmitted = []
        timeouts = []
        for counts in self._counters.tcp().values():
            retransmitted.append(counts["retransmitted"])
            timeouts.append(counts["timeouts"])

        seconds = self.seconds
        ran, wait = self._waits.seconds()
        values = (
            seconds,
            ran / self._scale,
            wait / self._scale,
            retransmitted,
            timeouts,
            drops,
            queues,
        )
        for key, value in zip(SAMPLED, values, strict=True):
            self._rows[key].append(value)

    def close(self) -> dict[str, Array]:
        """Take the last sample; return all as `emu.runs.array_files.SAMPLED`."""
        self._waits.sample()
        # What was computed since the last comparison counts as well.
        self._waits.judge()
        self.take()
        return {key: np.array(values) for key, values in self._rows.items()}
