"""Lag of a loop during a run, and what its host had to do meanwhile."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

from emu.emulation.network.statistics import HostUse
from emu.host.this_host import host_cpu, seconds_without_core, this_host

#: Wall seconds between two looks at the loop's lag. 120 processes wake 1200 times a
#: second for it: 40 us each are a twentieth of a core.
_PERIOD = 0.1
#: Pressure stall information of Linux, where the kernel keeps it.
_WAITS_OF_DISKS = Path("/proc/pressure/io")


class HostMetrics:
    """Samples the lag of the running event loop, and counts the host's CPU time."""

    def __init__(self) -> None:
        self.closed = False
        self._use: HostUse | None = None  # all of a process have the same
        # Made when the barrier falls: what came before is no one's fault.
        self._samples = 0
        self._sum = 0.0
        self._max = 0.0
        self._began = this_host.monotonic()
        self._host = host_cpu()
        self._waited = seconds_without_core()
        self._disk = seconds_of_disks()
        self._blocks = count_blocks()

        self._sleep()

    def _sleep(self) -> None:
        # Timed anew at every look: lag does not add up.
        due = this_host.monotonic() + _PERIOD

        def look() -> None:
            lag = max(this_host.monotonic() - due, 0.0)
            self._samples += 1
            self._sum += lag
            self._max = max(self._max, lag)
            self._sleep()

        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(_PERIOD, look)

    def usage(self) -> tuple[float, int]:
        """Return the CPU seconds and the peak memory of this process, bytes."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        return cpu_seconds, usage.ru_maxrss * 1024

    def close(self) -> None:
        """Stop sampling."""
        self.closed = True
        self._handle.cancel()

    def use(self) -> HostUse:
        """Return the figures from the start to the first call."""
        if self._use is None:
            self._use = self._count()
        return self._use

    def _count(self) -> HostUse:
        host: dict[str, float] = {}
        for use, seconds in host_cpu().items():
            host[use] = seconds - self._host.get(use, 0.0)
        mean = 0.0
        if self._samples:
            mean = self._sum / self._samples
        return HostUse(
            seconds=this_host.monotonic() - self._began,
            loop_lag_mean=mean,
            loop_lag_max=self._max,
            waited=seconds_without_core() - self._waited,
            host=host,
            disk=seconds_of_disks() - self._disk,
            blocks=count_blocks() - self._blocks,
        )


def seconds_of_disks() -> float:
    """Return seconds in which something here waited for a disk; 0: not counted."""
    try:
        some, *_ = _WAITS_OF_DISKS.read_text().splitlines()
    except (OSError, ValueError):
        return 0.0
    _, _, microseconds = some.rpartition("total=")
    return float(microseconds) * 1e-6


def count_blocks() -> int:
    """Return the blocks of disks that this process has read and written."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_inblock + usage.ru_oublock
