"""A simulator that carries the bytes left of every flow, fast enough for workload B.

As the oracle it knows no groups, clocks or heaps, but numpy answers its questions for
all edges at once. It agrees with the oracle where that is fast enough to be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem, Realization

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class FlatRun:
    """One run under ``oes`` or ``maxmin``; what is over is in the two tables."""

    def __init__(self, problem: Problem, realization: Realization, policy: str) -> None:
        job = problem.job
        self.realization, self.iterations = realization, job.iterations
        self.capacity = problem.capacities
        self.rates = {"oes": self._oes, "maxmin": self._maxmin}[policy]
        self.source = np.array([e.source for e in job.edges], dtype=np.int64)
        self.destination = np.array([e.destination for e in job.edges], dtype=np.int64)
        self.lag = np.array([e.lag for e in job.edges], dtype=np.int64)
        self.local = np.array([not hops for hops in problem.hops], dtype=bool)
        pairs = [hops or (0, 0) for hops in problem.hops]
        self.hops = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        self.started = np.zeros(len(job.tasks), dtype=np.int64)
        self.due = np.full(len(job.tasks), np.inf)
        self.ready = np.zeros(len(job.edges), dtype=np.int64)
        self.delivered = np.zeros(len(job.edges), dtype=np.int64)
        self.left = np.full(len(job.edges), np.inf)
        self.task_end = np.full(realization.times.shape, np.nan)
        self.flow_end = np.full(realization.volumes.shape, np.nan)

    def run(self) -> None:
        """Run to the end."""
        now = 0.0
        while True:
            while self._deliver_at_once(now) or self._start(now):
                self._end_tasks(now)
            active = np.flatnonzero(np.isfinite(self.left))
            rate = self.rates(self.hops[:, active])
            ends = now + self.left[active] / rate
            later = min(ends.min(initial=np.inf), self.due.min())
            if later == np.inf:
                return
            self.left[active] -= rate * (later - now)
            now = later
            volume = self.realization.volumes[active, self.delivered[active]]
            self._deliver(active[self.left[active] <= 1e-11 * volume], now)
            self._end_tasks(now)

    def _deliver(self, edges: Ints, now: float) -> None:
        self.flow_end[edges, self.delivered[edges]] = now
        self.delivered[edges] += 1
        self.left[edges] = np.inf

    def _deliver_at_once(self, now: float) -> bool:
        """Open what is pending; tell whether anything arrived without taking time."""
        pending = np.flatnonzero((self.ready > self.delivered) & (self.left == np.inf))
        volume = self.realization.volumes[pending, self.delivered[pending]]
        at_once = self.local[pending] | (volume == 0)
        self.left[pending[~at_once]] = volume[~at_once]
        self._deliver(pending[at_once], now)
        return bool(at_once.any())

    def _start(self, now: float) -> bool:
        """Start all tasks that have their inputs; tell whether there were any."""
        lacking = self.delivered + self.lag <= self.started[self.destination]
        able = (self.started < self.iterations) & (self.due == np.inf)
        able[self.destination[lacking]] = False
        tasks = np.flatnonzero(able)
        self.due[tasks] = now + self.realization.times[tasks, self.started[tasks]]
        self.started[tasks] += 1
        return bool(tasks.size)

    def _end_tasks(self, now: float) -> None:
        over = self.due <= now * (1 + 1e-12)
        iteration = self.started - 1
        self.task_end[over, iteration[over]] = now
        self.due[over] = np.inf
        awaited = iteration[self.source] + self.lag < self.iterations
        self.ready += over[self.source] & awaited

    def _oes(self, hops: Ints) -> Floats:
        degree = np.bincount(hops.ravel(), minlength=self.capacity.size)
        share: Floats = np.min(self.capacity[hops] / degree[hops], axis=0)
        return share

    def _maxmin(self, hops: Ints) -> Floats:
        rate, rising = np.zeros(hops.shape[1]), np.ones(hops.shape[1], dtype=bool)
        free, ports = self.capacity.copy(), self.capacity.size
        while rising.any():
            flows = np.bincount(hops[:, rising].ravel(), minlength=ports)
            level = np.where(flows, free / np.maximum(flows, 1), np.inf)
            port = int(np.argmin(level))
            full = rising & (hops == port).any(axis=0)
            rate[full] = level[port]
            rising &= ~full
            given = np.bincount(hops[:, full].ravel(), minlength=ports) * level[port]
            free = np.maximum(free - given, 0.0)
        return rate
