"""What is sampled while the programs of a lab run: waits, losses, queues, ports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.machines.port_owners import PortOwners
from emu.machines.run_delay import CoreWaits
from emu.runs.traffic_file import SAMPLED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.machines import Lab

#: Wall seconds between two samples: one of four idle machines took 2 ms of CPU.
PERIOD = 0.5


class Samples:
    """Samples of a lab that is up, from its making to `close`."""

    def __init__(self, lab: Lab) -> None:
        self._counters = lab.counters
        self._waits, self._owners = CoreWaits(lab.process), PortOwners(lab.process)
        self._began = time.monotonic()
        self._rows: dict[str, list[Any]] = {key: [] for key in SAMPLED}
        self.take()

    @property
    def seconds(self) -> float:
        """Wall seconds since the programs began."""
        return time.monotonic() - self._began

    @property
    def owners(self) -> dict[tuple[str, int], str]:
        """Name of the program by machine and port."""
        return self._owners.found

    def take_when_due(self) -> None:
        """Take a sample if the last one is long ago."""
        if self.seconds >= self._rows["time"][-1] + PERIOD:
            self.take()

    def take(self) -> None:
        """Take a sample now."""
        self._waits.sample()
        self._owners.sample()
        dropped, queued = self._counters.queues()
        tcp = self._counters.tcp().values()
        now = (
            self.seconds,
            *self._waits.seconds(),
            [counts["retransmitted"] for counts in tcp],
            [counts["timeouts"] for counts in tcp],
            dropped,
            queued,
        )
        for key, value in zip(SAMPLED, now, strict=True):
            self._rows[key].append(value)

    def close(self) -> dict[str, NDArray[Any]]:
        """Take the last sample; return all as `emu.runs.traffic_file.write_samples`."""
        self.take()
        return {key: np.array(values) for key, values in self._rows.items()}
