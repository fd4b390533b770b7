"""Evidence that guards examine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.problem import Schedule

    Floats = NDArray[np.float64]

#: Wall seconds by which the clocks of two hosts, or two readings of one, may differ.
CLOCKS = 0.001


@dataclass(frozen=True, eq=False)
class Evidence:
    """Records and figures that a run reported."""

    schedule: Schedule
    """As the tasks and receivers reported it, emulated seconds and bytes."""
    sent: NDArray[np.void]
    received: NDArray[np.void]
    """Rows of `emu.wire.frame_rows` by senders and by receivers."""
    told: Floats | None
    """Arrivals of (edge, iteration) as notified to the scheduler, seconds; NaN where
    none was notified, None in runs of an earlier emu."""
    statistics: Mapping[str, Mapping[str, Any]]
    """Counts of every process, made by itself; the coordinator adds ``heard``."""
    time_scale: float
    byte_scale: float
    """Wall seconds per emulated second, real bytes per emulated byte."""
    lead: float
    """Wall seconds by which a last byte may legally be ahead of its flow's end."""
    stale: float
    """The longest that a sender did not know of a new rate, wall seconds: it may be
    ahead by what an old one gave."""
    stall: float
    """The longest that anything stood still, or that a sender does not look at its
    rate, wall seconds: it catches up."""
    catch_up: float | None = None
    """Emulated seconds that a sender which stood still may catch up; None: all."""
    burst: tuple[float, float] = (0.0, 0.0)
    """Amount that both NICs of the kernel on a flow's way let go at once after a pause:
    wall seconds of their rates, or real bytes where these are more."""
    times: Floats | None = None
    """Stated times of (task, iteration), which no task may undercut; None where tasks
    take the time that they take."""
    volumes: Floats | None = None
    """Stated bytes of (edge, iteration) where they are exact, else None."""

    def at_once(self, capacity: float) -> float:
        """Return the bytes that a link lets go at once after a pause, emulated ones.

        Parameters
        ----------
        capacity
            Bytes per second.
        """
        seconds, size = self.burst
        return max(capacity * seconds / self.time_scale, size / self.byte_scale)

    def grid(self, rows: NDArray[np.void], column: str) -> Floats:
        """Return a column of ``rows`` by (edge, iteration), NaN where there is no row.

        Rows of edges or iterations that the job does not have are left out.
        """
        values = np.full(self.schedule.flow_end.shape, np.nan)
        edges, iterations = self.schedule.flow_end.shape
        edge, iteration = rows["edge"], rows["iteration"]
        known = (edge < edges) & (iteration < iterations)
        values[edge[known], iteration[known]] = rows[known][column]
        return values
