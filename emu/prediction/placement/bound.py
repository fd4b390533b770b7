"""Compute a lower bound over all placements: none can be better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product

import numpy as np

from emu.prediction.placement.candidates import Candidates, lower_bound
from emu.prediction.placement.packing import Row, minimise
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Job, Realization

#: Variables of the program for which it is solved: 64 machines of DGTP's testbed,
#: 71,000, took 13 s of CPU and left 80 % to gain, as the run with free transfers does.
LARGEST = 50_000


def placement_bound(
    job: Job,
    cluster: Cluster,
    realization: Realization,
    *,
    nodes: int = 0,
    seconds: float = 0.0,
) -> float:
    """Return a time that no schedule of any feasible placement beats, seconds.

    The larger of two bounds: the run with free transfers, and, unless that takes over
    50,000 variables, the least possible time of the busiest port. The second is a
    linear program over fractions of units on machines: capacities (1), (2), and per
    edge between units what must leave or enter a machine. Branching raises it towards
    the best whole placement: on the paper's testbed from 65 to 99 % of the makespan of
    the placement that ETP finds, in 4 s.

    Raises ValueError when the realization does not fit the job.

    ``realization``: with reference times, see `emu.problem.placement`. ``nodes``,
    ``seconds``: limits on branching, each 0 for no limit of this kind; without either
    it is the linear program alone.
    """
    space = Space(job, cluster, apart=True)
    c = Candidates(space, realization, "oes")
    if not space.units:
        return lower_bound(c, space.fixed)
    if not (c.sent > 0).any():
        return c.least
    program = _PortProgram(space, c)
    if program.columns > LARGEST:
        return c.least
    return max(c.least, program.solve(nodes, seconds))


class _PortProgram:
    """Minimise t: variables are t, x[u, m], then out[e, m] and in[e, m].

    x is the part of unit u on machine m; out and in are the parts of a movable edge
    that leave and enter m, at least x[source, m] - x[destination, m] and the reverse.
    """

    def __init__(self, space: Space, c: Candidates) -> None:
        self.space = space
        self.c = c
        self.units = len(space.units)
        self.machines = len(space.cluster.machines)
        # Of every edge both ends: units, and machines of pinned tasks; -1 for none.
        tasks = np.column_stack([c.job.source, c.job.destination])
        unit_of = [space.unit_of.get(task, -1) for task in range(len(space.fixed))]
        self.ends = np.array(unit_of)[tasks]
        self.fixed = space.fixed[tasks]
        between = (self.ends >= 0).all(axis=1) & (self.ends[:, 0] != self.ends[:, 1])
        self.between = np.flatnonzero(between & (c.sent > 0)).tolist()
        self.columns = 1 + self.machines * (self.units + 2 * len(self.between))
        self.rows: list[Row] = []

    def _x(self, unit: int, machine: int) -> int:
        return 1 + unit * self.machines + machine

    def _crossing(self, position: int, machine: int, direction: int) -> int:
        index = (2 * position + direction) * self.machines + machine
        return 1 + self.units * self.machines + index

    def _row(self, terms: Sequence[tuple[int, float]], upper: float) -> None:
        factors: defaultdict[int, float] = defaultdict(float)
        for column, value in terms:
            factors[column] += value
        self.rows.append(Row([*factors], [*factors.values()], -np.inf, upper))

    def _add_port(self, m: int, direction: int) -> None:
        """Bytes of a port <= capacity * (t - least head - least tail)."""
        links = self.space.cluster.links
        sizes = self.c.sent
        capacity = links.steps.most[links.nic[m, direction]]
        is_sent = sizes > 0
        idle = float(self.c.head[is_sent].min() + self.c.tail[is_sent].min())
        terms = [
            (self._crossing(p, m, direction), float(sizes[edge]))
            for p, edge in enumerate(self.between)
        ]
        constant = 0.0
        sides = [direction, 1 - direction]
        for edge in np.flatnonzero(is_sent).tolist():
            near, far = self.ends[edge, sides].tolist()
            near_fixed, far_fixed = self.fixed[edge, sides].tolist()
            volume = float(sizes[edge])
            if near >= 0 and far < 0 and far_fixed != m:
                terms.append((self._x(near, m), volume))
            elif near < 0 and near_fixed == m:
                if far >= 0:
                    terms.append((self._x(far, m), -volume))
                constant += volume if far >= 0 or far_fixed != m else 0.0
        terms_scaled = [(column, value / capacity) for column, value in terms]
        self._row([(0, -1.0), *terms_scaled], -idle - constant / capacity)

    def solve(self, nodes: int, seconds: float) -> float:
        """Return the least t, or a lower bound of it when nodes or time ran out."""
        space = self.space
        units = range(self.units)
        room = space.free + space.slack
        sides = [*product(range(self.machines), (0, 1))]
        for p, edge in enumerate(self.between):
            ends = self.ends[edge].tolist()
            for m, direction in sides:
                here, there = (self._x(ends[k], m) for k in (direction, direction - 1))
                crossing = self._crossing(p, m, direction)
                self._row([(here, 1.0), (there, -1.0), (crossing, -1.0)], 0.0)
        for m, direction in sides:
            # A NIC that some route leaves out bounds nothing of its machine.
            if space.cluster.links.always_crossed(m, direction):
                self._add_port(m, direction)
        for m, r in np.argwhere(np.isfinite(room)).tolist():
            demand = space.demand[:, r].tolist()
            self._row([(self._x(u, m), demand[u]) for u in units], float(room[m, r]))
        for u in units:  # every unit stands once
            parts = range(self._x(u, 0), self._x(u + 1, 0))
            self.rows.append(Row(parts, [1.0] * self.machines, 1.0, 1.0))
        parts_of_units = slice(self._x(0, 0), self._x(self.units, 0))
        upper = np.full(self.columns, np.inf)
        upper[parts_of_units] = 1.0
        whole = np.zeros(self.columns, dtype=bool)
        whole[parts_of_units] = bool(nodes or seconds)
        costs = np.eye(1, self.columns)[0]
        solution = minimise(
            costs, upper, whole, self.rows, nodes=nodes, seconds=seconds
        )
        # The solver is exact to about 1e-7; the bound must not be above the truth.
        return max(solution.bound, 0.0) * (1.0 - 1e-6)
