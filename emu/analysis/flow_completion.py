"""How far from its ideal end every flow arrived: the integral of its assigned rate.

The schedule's own rates are the ideal, whatever brought them about, so this is the
shaper's and the receiver's error alone: a flow that began late, because another ended
late, is not blamed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.lateness import fluid_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Schedule

#: What a flow may be off by: a share of its length, or so many wall seconds if longer.
SHARE, WALL = 0.01, 0.002


def tolerated(length: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how many wall seconds flows of these wall seconds may end late."""
    return np.maximum(SHARE * length, WALL)


@dataclass(frozen=True, eq=False)
class FlowCompletion:
    """Flows between machines, in wall seconds.

    Parameters
    ----------
    error
        End at the receiver less the end of the fluid, shape (flows,).
    length
        From the start of the flow to the end of its fluid, same shape.
    """

    error: NDArray[np.float64]
    length: NDArray[np.float64]

    @property
    def excess(self) -> NDArray[np.float64]:
        """Error over what is allowed: max(1 % of the length, 2 ms of wall time)."""
        return np.abs(self.error) / tolerated(self.length)

    @property
    def share(self) -> NDArray[np.float64]:
        """Error over the length; infinite for a flow that had none."""
        error = np.abs(self.error)
        found = np.full_like(error, np.inf)
        np.divide(error, self.length, out=found, where=self.length > 0)
        return found


def flow_completion(schedule: Schedule, time_scale: float) -> FlowCompletion:
    """Return the finish of every flow that was assigned rates.

    Parameters
    ----------
    schedule
        Emulated, with its rates.
    time_scale
        Wall seconds per emulated second.

    Raises
    ------
    ValueError
        When the schedule holds no rates.
    """
    at = tuple(schedule.flows().T)
    due = fluid_ends(schedule)[at]
    known = ~np.isnan(due)
    error = (schedule.flow_end[at] - due)[known]
    length = (due - schedule.flow_start[at])[known]
    return FlowCompletion(error * time_scale, length * time_scale)
