"""How well a process was served by its host while it ran: what the verdict is from."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import psutil

#: Wall seconds between two looks at the loop's lag. 120 processes wake 1200 times a
#: second for it: 40 us each are a twentieth of a core.
_PERIOD = 0.1
_OF_MAIN_THREAD = Path("/proc/self/schedstat")


class HostMetrics:
    """Samples the lag of the running event loop, and counts the host's CPU time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._samples, self._sum, self._max = 0, 0.0, 0.0
        self._began = 0.0
        self._host: dict[str, float] = {}
        self._waited = 0.0

    def start(self) -> None:
        """Begin now, when the barrier falls: what came before is no one's fault."""
        self._began = time.monotonic()
        self._host, self._waited = host_cpu(), waited_for_cpu()
        self._sleep()

    def _sleep(self) -> None:
        self._due = time.monotonic() + _PERIOD
        self._handle = self._loop.call_later(_PERIOD, self._look)

    def _look(self) -> None:
        lag = max(time.monotonic() - self._due, 0.0)
        self._samples += 1
        self._sum += lag
        self._max = max(self._max, lag)
        self._sleep()

    def close(self) -> None:
        """Stop sampling."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def to_json(self) -> dict[str, Any]:
        """Return the figures since the start, wall seconds.

        ``loop_lag_*``: of timers behind their time; ``waited``: the event loop was
        ready and had no core; ``host``: CPU time of all cores by use.
        """
        now = host_cpu()
        return {
            "seconds": time.monotonic() - self._began,
            "loop_lag_mean": self._sum / self._samples if self._samples else 0.0,
            "loop_lag_max": self._max,
            "waited": waited_for_cpu() - self._waited,
            "host": {use: now[use] - self._host.get(use, 0.0) for use in now},
        }


def host_cpu() -> dict[str, float]:
    """Return CPU seconds of this host since its start: busy, idle, steal."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    steal = getattr(times, "steal", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return {"busy": sum(times) - idle - steal - guest, "idle": idle, "steal": steal}


def waited_for_cpu() -> float:
    """Return the seconds that this process's main thread was ready without a core.

    0 where the system does not tell.
    """
    try:
        return int(_OF_MAIN_THREAD.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
