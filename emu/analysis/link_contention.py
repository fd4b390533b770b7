"""How many flows cross a port at a time, and which port holds a flow back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Schedule


class LinkContention:
    """The active flows of every port of a schedule; flows without bytes do not count.

    Parameters
    ----------
    schedule
        Finished, simulated or emulated.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._hops = schedule.problem.hops
        self._capacities = schedule.problem.capacities
        begun: list[list[NDArray[np.float64]]] = [[] for _ in self._capacities]
        ended: list[list[NDArray[np.float64]]] = [[] for _ in self._capacities]
        for edge, hops in enumerate(self._hops):
            moving = schedule.flow_bytes[edge] > 0
            for port in hops:
                begun[port].append(schedule.flow_start[edge, moving])
                ended[port].append(schedule.flow_end[edge, moving])
        self._begun = [_sorted(times) for times in begun]
        self._ended = [_sorted(times) for times in ended]

    def degree(self, port: int, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the active flows over ``port`` just after each of ``times``."""
        return np.searchsorted(self._begun[port], times, "right") - np.searchsorted(
            self._ended[port], times, "right"
        )

    @property
    def most(self) -> int:
        """The most flows that were active over one link at a time."""
        return max(
            int(self.degree(port, begun).max(initial=0))
            for port, begun in enumerate(self._begun)
        )

    def bottleneck(self, edge: int, start: float, end: float) -> int:
        """Return the port that gives the flows of ``edge`` least, -1 within a machine.

        Least is the smallest capacity per active flow, for most of the time from
        ``start`` to ``end``; of equal ports the first that the flow crosses. Under
        ``oes`` this is exactly what limits the flow (Algorithm 1 of the paper).
        """
        hops = self._hops[edge]
        if not hops:
            return -1
        changes = [np.array([start])]
        for port in hops:
            for times in (self._begun[port], self._ended[port]):
                first, last = np.searchsorted(times, [start, end], "right")
                changes.append(times[first:last])
        moments = np.unique(np.concatenate(changes))
        lengths = np.diff(np.append(moments, max(end, moments[-1])))
        share = np.array(
            [self._capacities[p] / np.maximum(self.degree(p, moments), 1) for p in hops]
        )  # (hops, moments)
        tightest = np.argmin(share, axis=0)
        held = [lengths[tightest == place].sum() for place in range(len(hops))]
        return hops[int(np.argmax(held))]


def _sorted(times: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.sort(np.concatenate(times)) if times else np.empty(0)
