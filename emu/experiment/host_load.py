"""Load on this host while nothing of a run goes on: it makes measured times longer.

CPU time does not count what others do, but their work shares caches, memory and the
clock rate: a profile taken beside them was 50 % too long, without a word of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emu.emulation.launch.host_report import usable_cores
from emu.errors import RunUntrusted
from emu.host.this_host import cpu_times

#: Shares above which load is a warning, and above which nothing is measured.
WARNED, REFUSED = 0.05, 0.20
#: Wall seconds of a measurement.
_LENGTH = 0.25
#: Steps of a loop that takes some 2 ms: long against the clock's resolution, short
#: against a scheduler's slice.
_STEPS = 20_000


@dataclass(frozen=True)
class HostLoad:
    """Load of a host, as shares."""

    others: float
    """Cores that other programs had, of all."""
    waits: float
    """Wall time in which a loop that only computes had no core."""
    steal: float
    """Time of the cores that a hypervisor kept."""
    clock: float
    """CPU time by which the same work took longer than at its best, at the median."""

    @property
    def worst(self) -> float:
        """The largest of the shares."""
        return max(self.others, self.waits, self.steal, self.clock)

    def causes(self) -> list[str]:
        """Return what is above the limit of warnings, the worst first."""
        shares = [
            (self.others, "other programs had {:.0%} of the cores"),
            (self.waits, "work waited for a core {:.0%} of the time"),
            (self.steal, "the hypervisor kept {:.0%} of the cores' time"),
            (self.clock, "the same work took {:.0%} longer than at its best"),
        ]
        shares.sort(key=lambda one: -one[0])
        return [text.format(share) for share, text in shares if share > WARNED]


def host_load(length: float = _LENGTH) -> HostLoad:
    """Measure the load of this host for some wall seconds, with one busy loop."""
    before, cpu, wall = cpu_times(), time.process_time(), time.monotonic()
    own, loops = time.thread_time(), []
    while time.monotonic() < wall + length:
        began, total = time.thread_time(), 0
        for number in range(_STEPS):
            total += number
        loops.append(time.thread_time() - began)
    own, seconds = time.thread_time() - own, time.monotonic() - wall
    after, cores = cpu_times(), usable_cores()
    cpu = time.process_time() - cpu
    idle = after.idle - before.idle
    steal = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    busy = max(sum(after) - sum(before) - idle - steal - cpu, 0.0)
    return HostLoad(
        others=min(busy / (seconds * cores), 1.0),
        waits=max(1.0 - own / seconds, 0.0),
        steal=min(max(steal, 0.0) / (seconds * cores), 1.0),
        clock=float(np.median(loops)) / min(loops) - 1.0,
    )


def check_load(load: HostLoad, warn: Callable[[str], None], *, force: bool) -> None:
    """Say that measured times will be too long, or refuse to measure them.

    Raises RunUntrusted when a share is above 20 % and ``force`` is not stated.
    """
    line = f"this host is under load: {'; '.join(load.causes())}"
    if load.worst > REFUSED and not force:
        raise RunUntrusted(
            f"{line}: measured times would be too long; end what else runs on it, or "
            "write --force"
        )
    if load.worst > WARNED:
        warn(f"{line}; measured times are too long")
