"""What a scheduler would know of flows whose rates change all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tools.benchmarks.flows import Flows


class RandomRates:
    """Draws every rate anew, starts flows where none is, notes when each arrived.

    In ``errors`` after the time from which its last bytes might leave, in ``finishes``
    after its fluid. A rate is 0 in 15 % of the draws.

    Parameters
    ----------
    mean_rate
        Bytes per second of a flow.
    """

    def __init__(self, flows: Flows, mean_rate: float) -> None:
        self._flows, self._mean_rate = flows, mean_rate
        self._rng = np.random.default_rng(1)
        count = flows.edges
        self._iteration = np.full(count, -1)
        self._volume, self._served, self._rate = np.zeros((3, count))
        self._due, self._end = np.full((2, count), np.inf)
        self._active = np.zeros(count, dtype=bool)
        self._since = 0.0
        self.errors: list[float] = []
        self.finishes: list[float] = []

    def change(self) -> None:
        """Note what has ended, start what is idle, draw and publish every rate."""
        flows, rng = self._flows, self._rng
        for edge, arrived in flows.arrivals():
            self.errors.append(arrived - self._due[edge])
            self.finishes.append(arrived - self._end[edge])
            self._active[edge] = False
        now = flows.now()
        served = self._served + self._rate * (now - self._since)
        idle = ~self._active
        for edge in np.flatnonzero(idle).tolist():
            self._iteration[edge] += 1
            self._volume[edge] = round(self._mean_rate * rng.uniform(0.05, 0.2))
            flows.send(edge, int(self._iteration[edge]), int(self._volume[edge]))
        # Over, or over before a new line is on the board: keeps its line. So does a
        # flow that was not counted (NaN): it has ended, though nobody has said so yet.
        kept = self._active & ~(self._due >= now + 0.001)
        drawn = rng.uniform(0.2, 1.8, flows.edges) * self._mean_rate
        drawn[rng.random(flows.edges) < 0.15] = 0.0
        self._rate = np.where(kept, self._rate, drawn)
        self._served = np.where(idle, 0.0, np.minimum(served, self._volume))
        self._since, self._active[:] = now, True
        new = np.flatnonzero(~kept)
        flows.board.publish(
            new, self._iteration[new], self._served[new], self._rate[new], now
        )
        flows.tell(new[self._rate[new] > 0].tolist())
        with np.errstate(divide="ignore", invalid="ignore"):
            end = now + (self._volume - self._served) / self._rate
        # A flow that left by its old line while the new one was being published is
        # neither early nor late: not counted.
        raced = ~idle & (self._due < flows.now())
        due = np.maximum(end - flows.lead, now)
        self._due = np.where(kept, self._due, np.where(raced, np.nan, due))
        self._end = np.where(kept, self._end, np.where(raced, np.nan, end))


class SharedPort:
    """Splits one port among flows that never end, anew at every draw.

    Parameters
    ----------
    port
        Bytes per second: what the rates add up to at any time.
    volume
        Bytes of each flow, more than it will be given.
    """

    def __init__(self, flows: Flows, port: float, volume: int) -> None:
        self._flows, self._port = flows, port
        self._rng = np.random.default_rng(2)
        self._served, self._rate = np.zeros((2, flows.edges))
        self._since = flows.now()
        for edge in range(flows.edges):
            flows.send(edge, 0, volume)

    def change(self) -> None:
        """Draw and publish every rate; 15 % of the flows get nothing."""
        count, now = self._flows.edges, self._flows.now()
        share = self._rng.uniform(0.2, 1.8, count)
        share[self._rng.random(count) < 0.15] = 0.0
        if not share.any():
            share[0] = 1.0
        self._served += self._rate * (now - self._since)
        self._rate, self._since = self._port * share / share.sum(), now
        self._flows.board.publish(
            np.arange(count), np.zeros(count, int), self._served, self._rate, now
        )
        self._flows.tell(np.flatnonzero(self._rate).tolist())
