"""Lateness of an emulated run, by its own measure: time the host added to the schedule.

A flow is due when the rates that it was assigned have carried its bytes; a task when
its profiled time is over. What comes after that, and what passes between the parts of
the critical path, is not of the schedule. Along the chain it sums to what the makespan
would have been shorter by, had the rates been the same.

A flow that is late takes nothing from the others: when its bytes have been served, its
rate is given to them (`emu.coordinator.scheduler_driver`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.critical_path import Cause, critical_path
from emu.analysis.link_load import fluid_ends

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Problem, Schedule


@dataclass(frozen=True)
class Lateness:
    """Seconds by which the critical path is longer than its schedule."""

    flows: float
    """Last bytes that arrived after their fluid."""
    tasks: float
    """Computation that took longer than its profiled time."""
    gaps: float
    """Between one part and the next."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.flows + self.tasks + self.gaps


def chain_lateness(
    schedule: Schedule, late: NDArray[np.float64], chain: CriticalPath | None = None
) -> Lateness:
    """Return the lateness of an emulated run's critical path, by cause.

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


#: Tolerance of a flow: a share of its length, or so many wall seconds if longer.
SHARE, WALL = 0.01, 0.002


def tolerated(length: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how many wall seconds flows of these wall seconds may end late."""
    return np.maximum(SHARE * length, WALL)


@dataclass(frozen=True, eq=False)
class FlowCompletion:
    """Flows between machines, in wall seconds."""

    error: NDArray[np.float64]
    """End at the receiver less the end of the fluid, shape (flows,)."""
    length: NDArray[np.float64]
    """From the start of the flow to the end of its fluid, same shape."""

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


def clock_uncertainty(
    chain: CriticalPath, problem: Problem, hosts: Sequence[Mapping[str, Any]]
) -> float:
    """Return wall seconds by which the end may be off, since clocks are not known.

    A flow between two hosts leaves by the one's clock and arrives by the other's; what
    waits for it begins by its arrival. So along the critical path every such flow adds
    what is not known of both, and the last task what is not known of its own. Within a
    host nothing is unknown: its processes read one clock.

    Parameters
    ----------
    hosts
        What is known of each: its ``machines``, and the ``uncertainty`` of its
        ``clock``, wall seconds.
    """
    unknown = {
        machine: (place, float(host.get("clock", {}).get("uncertainty", 0.0)))
        for place, host in enumerate(hosts)
        for machine in host.get("machines", ())
    }
    machines = [machine.name for machine in problem.cluster.machines]
    at = [
        unknown.get(machines[machine], (-1, 0.0))
        for machine in problem.placement.machine_of
    ]
    parts = [at[link.task][1] for link in chain.links[-1:] if link.task >= 0]
    for link in chain.links:
        if link.edge >= 0 and link.start < link.end:
            edge = problem.job.edges[link.edge]
            (one, ours), (other, theirs) = at[edge.source], at[edge.destination]
            if one != other:
                parts.append(ours + theirs)
    return math.fsum(parts)
