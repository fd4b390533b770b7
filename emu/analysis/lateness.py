"""How late an emulated run was by its own measure: what the host added to the schedule.

A flow is due when the rates that it was assigned have carried its bytes; a task when
its profiled time is over. What comes after that, and what passes between the parts of
the critical path, is not of the schedule. Along the chain it sums to what the makespan
would have been shorter by, had the rates been the same.

A flow that is late takes nothing from the others: when its bytes have been served, its
rate is given to them (`emu.coordinator.scheduler_driver`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.critical_path import Cause, critical_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Schedule


@dataclass(frozen=True)
class Lateness:
    """Seconds by which the critical path is longer than its schedule.

    Parameters
    ----------
    flows
        Last bytes that arrived after their fluid.
    tasks
        Computation that took longer than its profiled time.
    gaps
        Between one part and the next.
    """

    flows: float
    tasks: float
    gaps: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.flows + self.tasks + self.gaps


def fluid_ends(schedule: Schedule) -> NDArray[np.float64]:
    """Return when the assigned rates had carried each flow's bytes.

    Returns
    -------
    ndarray
        Seconds, shape (edges, iterations); NaN for what has no rates (handoffs, flows
        of no bytes) and where the rates never carried all of it.

    Raises
    ------
    ValueError
        When the schedule holds no rates.
    """
    rates = schedule.rates
    if rates is None:
        raise ValueError("the schedule holds no rates")
    ends: NDArray[np.float64] = np.full_like(schedule.flow_end, np.nan)
    if not len(rates.time):
        return ends
    flow = rates.edge * ends.shape[1] + rates.iteration
    order = np.lexsort((rates.time, flow))
    flow, time, rate = flow[order], rates.time[order], rates.rate[order]
    first = np.flatnonzero(np.append(True, flow[1:] != flow[:-1]))
    last = np.append(first[1:] - 1, len(flow) - 1)
    until = np.append(time[1:], np.inf)
    until[last] = np.inf
    carried = np.append(rate[:-1] * np.diff(time), 0.0)
    carried[last] = 0.0
    before = np.cumsum(carried) - carried
    before -= np.repeat(before[first], last - first + 1)
    missing = np.maximum(schedule.flow_bytes.ravel()[flow] - before, 0.0)
    moving = rate > 0
    reached = np.full(len(flow), np.inf)
    reached[moving] = time[moving] + missing[moving] / rate[moving]
    # Rounding of a long sum must not push the end into the next piece, or out of all.
    found = np.flatnonzero(reached <= until + 1e-9 * np.abs(time))
    found = found[np.isfinite(reached[found])][::-1]  # the earliest piece wins
    ends.ravel()[flow[found]] = reached[found]
    return ends


def chain_lateness(
    schedule: Schedule, late: NDArray[np.float64], chain: CriticalPath | None = None
) -> Lateness:
    """Return how late the critical path of an emulated run was, by cause.

    Parameters
    ----------
    schedule
        With its rates; without any, no flow is late.
    late
        Seconds of (task, iteration) after the profiled end.
    chain
        Of ``schedule``, where it is known already.
    """
    chain = chain or critical_path(schedule)
    due = schedule.flow_end if schedule.rates is None else fluid_ends(schedule)
    behind = np.nan_to_num(np.maximum(schedule.flow_end - due, 0.0))
    parts = {
        (link.task, link.edge, link.iteration)
        for link in chain.links
        if link.cause is not Cause.GAP
    }
    flows = [(edge, n) for _, edge, n in parts if edge >= 0]
    return Lateness(
        flows=float(sum(behind[at] for at in flows)),
        tasks=float(sum(late[task, n] for task, edge, n in parts if edge < 0)),
        gaps=chain.sums(lambda link: link.cause).get(Cause.GAP, 0.0),
    )
