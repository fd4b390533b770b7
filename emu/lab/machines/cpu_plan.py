"""Compute the share of a core by which a machine computes as fast as it states.

Pure arithmetic: cores of a machine and a time scale become quotas per period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Microseconds of a quota: the least that the kernel takes. What a program has not used
#: of a period is a gift after a pause, as at full speed: tasks of 10 ms of CPU behind
#: pauses took 3.5 times as long with a quarter of a core; of 5 ms in 20 ms, 2.0 times.
QUOTA = 1000
#: Microseconds of a period: below 2 ms the kernel's own timer is late, above 100 ms a
#: program stands still for longer than its peers wait.
SHORTEST, LONGEST = 2000, 100_000
#: Share of this computer's cores that `scale_for` hands out: packets, and who reads
#: their headers, take of the rest.
HANDED_OUT = 0.5


@dataclass(frozen=True)
class CpuQuota:
    """CPU time that a machine may take per period, both in microseconds."""

    quota: int
    period: int

    @property
    def cores(self) -> float:
        """Cores of this computer that it is at most."""
        return self.quota / self.period


def plan_cpu(cores: float, time_scale: float) -> CpuQuota:
    """Return the quota of a machine of so many cores, in dilated time.

    Raises ValueError when it would have less than 1 ms of the longest period.
    """
    share = cores / time_scale
    period = max(SHORTEST, QUOTA / share)
    # Half a microsecond of 1 ms may be missing to what is held to be enough.
    if not round(period) <= LONGEST:
        raise ValueError(
            f"{cores:g} cores at time scale {time_scale:g} are {1000 * share:.3g} ms "
            f"per second of a core, a quota has {1e6 * QUOTA / LONGEST / 1e3:g} ms at "
            "least: state more cores, or a smaller time scale"
        )
    return CpuQuota(round(share * period), round(period))


def scale_for(machines: Sequence[float], cores: float) -> float:
    """Return the least time scale at which a part of a computer's cores is enough."""
    return max(1.0, sum(machines) / (HANDED_OUT * cores))
