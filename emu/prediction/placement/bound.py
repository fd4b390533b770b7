"""Compute a lower bound over all placements: none can be better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import product

import numpy as np

from emu.prediction.placement.candidates import Candidates, lower_bound
from emu.prediction.placement.packing import Row, minimise, stands_once
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Job, Realization

#: Variables of the program for which it is solved: 64 machines of DGTP's testbed,
#: 71,000, took 13 s of CPU and left 80 % to gain, as the run with free transfers does.
LARGEST = 50_000
#: Column of t, the variable that is minimised.
_TIME = 0


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
    edge between units the bytes that must leave or enter a machine. Branching raises it
    towards the best whole placement: on the paper's testbed from 65 to 99 % of the
    makespan of the placement that ETP finds, in 4 s.

    Parameters
    ----------
    realization
        With reference times, see `emu.problem.placement`.
    nodes, seconds
        Limits on branching, each 0 for no limit of this kind; without either it is the
        linear program alone.

    Raises
    ------
    ValueError
        The realization does not fit the job.
    """
    space = Space(job, cluster, apart=True)
    candidates = Candidates(space, realization, "oes")
    if not space.units:
        return lower_bound(candidates, space.fixed)
    if not (candidates.sent > 0).any():
        return candidates.least
    program = _PortProgram(space, candidates)
    if program.columns > LARGEST:
        return candidates.least
    return max(candidates.least, program.solve(nodes, seconds))


class _PortProgram:
    """Minimise t: variables are t, x[u, m], then out[e, m] and in[e, m].

    x is the part of unit u on machine m; out and in are the parts of a movable edge
    that leave and enter m, at least x[source, m] - x[destination, m] and the reverse.
    """

    def __init__(self, space: Space, candidates: Candidates) -> None:
        self.space = space
        self.sent = candidates.sent
        self.units = len(space.units)
        self.machines = len(space.cluster.machines)

        # Of every edge both ends: units, and machines of pinned tasks; -1 for none.
        job = candidates.job
        tasks = np.column_stack([job.source, job.destination])
        unit_of = [space.unit_of.get(task, -1) for task in range(len(space.fixed))]
        self.ends = np.array(unit_of)[tasks]
        self.fixed = space.fixed[tasks]
        is_between = (self.ends >= 0).all(axis=1)
        is_between &= self.ends[:, 0] != self.ends[:, 1]
        self.between = np.flatnonzero(is_between & (self.sent > 0)).tolist()

        # A port is busy neither before the first flow of all, nor behind the last.
        is_sent = self.sent > 0
        shortest_head = candidates.head[is_sent].min()
        shortest_tail = candidates.tail[is_sent].min()
        self.idle = float(shortest_head + shortest_tail)

        # t; of every unit a part per machine; of every edge one that leaves, and one
        # that enters.
        parts_per_machine = self.units + 2 * len(self.between)
        self.columns = 1 + self.machines * parts_per_machine
        self.rows: list[Row] = []

    def _part(self, unit: int, machine: int) -> int:
        """Return the column of the part of a unit on a machine."""
        return 1 + unit * self.machines + machine

    def _crossing(self, position: int, machine: int, direction: int) -> int:
        """Return the column of the part of an edge between units that crosses a NIC."""
        index = (2 * position + direction) * self.machines + machine
        return 1 + self.units * self.machines + index

    def _bound(self, terms: Iterable[tuple[int, float]], upper: float) -> None:
        """Have a sum of columns times factors be at most ``upper``."""
        factors: defaultdict[int, float] = defaultdict(float)
        # The solver refuses a row that names a column twice.
        for column, factor in terms:
            factors[column] += factor
        row = Row(
            columns=[*factors],
            factors=[*factors.values()],
            least=-np.inf,
            most=upper,
        )
        self.rows.append(row)

    def solve(self, nodes: int, seconds: float) -> float:
        """Return the least t, or a lower bound of it when nodes or time ran out."""
        self._bound_crossings()
        self._bound_ports()
        self._bound_room()
        for unit in range(self.units):
            first = self._part(unit, 0)
            self.rows.append(stands_once(first, self.machines))

        parts_of_units = slice(self._part(0, 0), self._part(self.units, 0))
        upper = np.full(self.columns, np.inf)
        upper[parts_of_units] = 1.0
        is_whole = np.zeros(self.columns, dtype=bool)
        is_whole[parts_of_units] = bool(nodes or seconds)
        costs = np.zeros(self.columns)
        costs[_TIME] = 1.0
        solution = minimise(
            costs,
            upper,
            is_whole,
            self.rows,
            nodes=nodes,
            seconds=seconds,
        )
        # The solver is exact to about 1e-7; the bound must not be above the truth.
        return max(solution.bound, 0.0) * (1.0 - 1e-6)

    def _bound_crossings(self) -> None:
        """Have edges cross where one end stands and the other does not."""
        sides = [*product(range(self.machines), (0, 1))]
        for position, edge in enumerate(self.between):
            ends = self.ends[edge].tolist()
            for machine, direction in sides:
                inner = self._part(ends[direction], machine)
                outer = self._part(ends[1 - direction], machine)
                crossing = self._crossing(position, machine, direction)
                # The part that stands here without its partner has to cross.
                self._bound([(inner, 1.0), (outer, -1.0), (crossing, -1.0)], 0.0)

    def _bound_ports(self) -> None:
        for machine, direction in product(range(self.machines), (0, 1)):
            # A NIC that some route leaves out bounds nothing of its machine.
            if self.space.cluster.links.always_crossed(machine, direction):
                self._bound_port(machine, direction)

    def _bound_port(self, machine: int, direction: int) -> None:
        """Bytes of a port <= capacity * (t - least head - least tail)."""
        links = self.space.cluster.links
        nic = links.nic[machine, direction]
        capacity = links.steps.most[nic]  # the bound holds whatever events give it

        terms = []
        for position, edge in enumerate(self.between):
            crossing = self._crossing(position, machine, direction)
            volume = float(self.sent[edge])
            terms.append((crossing, volume))

        # Bytes of edges with a pinned end: of some all that cross is known.
        constant = 0.0
        sides = [direction, 1 - direction]
        for edge in np.flatnonzero(self.sent > 0).tolist():
            volume = float(self.sent[edge])
            inner, outer = self.ends[edge, sides].tolist()
            inner_fixed, outer_fixed = self.fixed[edge, sides].tolist()
            if inner >= 0 and outer < 0 and outer_fixed != machine:
                terms.append((self._part(inner, machine), volume))
            elif inner < 0 and inner_fixed == machine:
                if outer >= 0:  # the part of its partner that stands here, too, stays
                    terms.append((self._part(outer, machine), -volume))
                if outer_fixed != machine:  # -1 of one that is not pinned
                    constant += volume

        seconds = [(column, volume / capacity) for column, volume in terms]
        known_seconds = constant / capacity
        self._bound([(_TIME, -1.0), *seconds], -self.idle - known_seconds)

    def _bound_room(self) -> None:
        """Have the demands of units fit into machines, where these state a capacity."""
        room = self.space.free + self.space.slack
        for machine, resource in np.argwhere(np.isfinite(room)).tolist():
            demand = self.space.demand[:, resource].tolist()
            terms = [
                (self._part(unit, machine), demand[unit]) for unit in range(self.units)
            ]
            self._bound(terms, float(room[machine, resource]))
