"""Compute a lower bound over all placements: none can be better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from typing import TypeAlias

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
#: Columns and their factors, which are summed.
_Terms: TypeAlias = Iterable[tuple[int, float]]


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
    has_bytes = candidates.sent > 0
    if not has_bytes.any():
        return candidates.least
    program = _PortProgram(space, candidates)
    if program.columns > LARGEST:
        return candidates.least
    least_of_ports = program.solve(nodes, seconds)
    return max(candidates.least, least_of_ports)


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
        directions = (0, 1)
        sides = product(range(self.machines), directions)
        self.sides = list(sides)  # of all NICs

        # Of every edge both ends: units, and machines of pinned tasks; -1 for none.
        unit_of_task = np.full_like(space.fixed, -1)
        for task, unit in space.unit_of.items():
            unit_of_task[task] = unit
        job = candidates.job
        tasks = np.column_stack([job.source, job.destination])
        self.ends = unit_of_task[tasks]
        self.fixed = space.fixed[tasks]

        self.is_sent = self.sent > 0
        source_unit, destination_unit = self.ends.T
        is_movable = self.ends >= 0
        can_move = is_movable.all(axis=1)
        is_between = can_move & (source_unit != destination_unit)
        between = np.flatnonzero(is_between & self.is_sent)
        self.between = between.tolist()

        # A port is busy neither before the first flow of all, nor behind the last.
        heads = candidates.head[self.is_sent]
        tails = candidates.tail[self.is_sent]
        idle = heads.min() + tails.min()
        self.idle = float(idle)

        # t; of every unit a part per machine; of every edge one that leaves, and one
        # that enters.
        crossings = 2 * len(self.between)
        parts_per_machine = self.units + crossings
        self.columns = 1 + self.machines * parts_per_machine
        self.rows: list[Row] = []

    def _part(self, unit: int, machine: int) -> int:
        """Return the column of the part of a unit on a machine."""
        return 1 + unit * self.machines + machine

    def _crossing(self, position: int, machine: int, direction: int) -> int:
        """Return the column of the part of an edge between units that crosses a NIC."""
        first_crossing = self._part(self.units, 0)
        row = 2 * position + direction
        return first_crossing + row * self.machines + machine

    def _bound(self, terms: _Terms, upper: float) -> None:
        """Have a sum of columns times factors be at most ``upper``."""
        factors = defaultdict[int, float](float)
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
            row = stands_once(first, self.machines)
            self.rows.append(row)

        first_part = self._part(0, 0)
        end_of_parts = self._part(self.units, 0)
        parts_of_units = slice(first_part, end_of_parts)
        upper = np.full(self.columns, np.inf)
        upper[parts_of_units] = 1.0
        is_whole = np.zeros(self.columns, dtype=bool)
        branches = bool(nodes or seconds)
        is_whole[parts_of_units] = branches

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
        least = max(solution.bound, 0.0)
        # The solver is exact to about 1e-7; the bound must not be above the truth.
        return least * (1.0 - 1e-6)

    def _bound_crossings(self) -> None:
        """Have edges cross where one end stands and the other does not."""
        for position, edge in enumerate(self.between):
            ends = self.ends[edge].tolist()

            for machine, direction in self.sides:
                inner_unit = ends[direction]
                outer_unit = ends[1 - direction]
                inner_part = self._part(inner_unit, machine)
                outer_part = self._part(outer_unit, machine)
                crossing = self._crossing(position, machine, direction)
                # The part that stands here without its partner has to cross.
                terms = [
                    (inner_part, 1.0),
                    (outer_part, -1.0),
                    (crossing, -1.0),
                ]
                self._bound(terms, upper=0.0)

    def _bound_ports(self) -> None:
        links = self.space.cluster.links
        for machine, direction in self.sides:
            # A NIC that some route leaves out bounds nothing of its machine.
            if links.always_crossed(machine, direction):
                self._bound_port(machine, direction)

    def _bound_port(self, machine: int, direction: int) -> None:
        """Bytes of a port <= capacity * (t - least head - least tail)."""
        links = self.space.cluster.links
        nic = links.nic[machine, direction]
        capacity = links.steps.most[nic]  # the bound holds whatever events give it

        volumes = []
        for position, edge in enumerate(self.between):
            crossing = self._crossing(position, machine, direction)
            volume = float(self.sent[edge])
            volumes.append((crossing, volume))

        # Bytes of edges with a pinned end: of some all that cross is known.
        known_volume = 0.0
        inner_and_outer = [direction, 1 - direction]
        sent_edges = np.flatnonzero(self.is_sent)
        for edge in sent_edges.tolist():
            volume = float(self.sent[edge])
            units = self.ends[edge, inner_and_outer]
            pins = self.fixed[edge, inner_and_outer]
            inner, outer = units.tolist()
            inner_fixed, outer_fixed = pins.tolist()
            inner_moves = inner >= 0
            outer_moves = outer >= 0
            is_outside = outer_fixed != machine  # -1 of one that is not pinned
            if inner_moves and not outer_moves and is_outside:
                part = self._part(inner, machine)
                volumes.append((part, volume))
            elif not inner_moves and inner_fixed == machine:
                if outer_moves:  # the part of its partner that stands here, too, stays
                    part = self._part(outer, machine)
                    volumes.append((part, -volume))
                if is_outside:
                    known_volume += volume

        terms = [(_TIME, -1.0)]
        for column, volume in volumes:
            seconds = volume / capacity
            terms.append((column, seconds))
        known_seconds = known_volume / capacity
        upper = -self.idle - known_seconds
        self._bound(terms, upper)

    def _bound_room(self) -> None:
        """Have the demands of units fit into machines, where these state a capacity."""
        space = self.space
        room = space.free + space.slack
        is_limited = np.isfinite(room)
        limits = np.argwhere(is_limited)
        for machine, resource in limits.tolist():
            terms = []
            demands = space.demand[:, resource].tolist()
            for unit, demand in enumerate(demands):
                part = self._part(unit, machine)
                terms.append((part, demand))
            most = float(room[machine, resource])
            self._bound(terms, upper=most)
