"""Quotas that follow a queue: slots of one pool by how many wait for another one.

The autotuner of Dorylus (OSDI 2021, section 6): lambdas that outrun their server's
threads only wait. The paper states neither period nor steps; these are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The shortest period, seconds: a tuning is an event of the schedule.
LEAST_PERIOD = 1e-3


@dataclass(frozen=True)
class Tuner:
    """A pool of a machine whose number of slots changes while a job runs.

    It begins with the machine's slots. Every period, once nothing else happens at that
    instant, the tasks that wait for the watched pool are counted. Where the slope of
    the last five counts (least squares) is positive the quota becomes 9/10 of itself,
    rounded down and at least 1; where it is negative 11/10, rounded up. A slot that is
    held is not taken away: a smaller quota holds from when it is given back.

    Raises
    ------
    ValueError
        When the period is shorter than 1 ms or not finite, or a quota is below 1.
    """

    machine: int
    """Position of the machine."""
    pool: str
    watched: str
    """Name of the tuned pool, and of the one whose queue counts, on that machine."""
    most: int
    """The largest quota."""
    period: float = 1.0
    """Seconds between two looks, the first after one period."""
    path: tuple[int, ...] = ()
    """Quotas to set at the first looks whatever waits: those of a run to repeat."""

    def steps(self, quota: int) -> set[int]:
        """Return the quotas that one look may leave, of a quota before it."""
        return {quota, max(1, 9 * quota // 10), min(self.most, (11 * quota + 9) // 10)}

    def __post_init__(self) -> None:
        if not LEAST_PERIOD <= self.period < math.inf:
            raise ValueError(
                f"tuner of {self.pool}: a period of {self.period} s, it must be "
                f"{LEAST_PERIOD} s or more"
            )
        if min(self.most, *self.path, self.most) < 1:
            raise ValueError(f"tuner of {self.pool}: a quota must be 1 or more")
