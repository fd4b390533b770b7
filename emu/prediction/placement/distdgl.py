"""The DistDGL baseline: as many samplers as possible beside their worker, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice, pairwise, product
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from emu.errors import PlacementError
from emu.prediction.placement.baselines import fill
from emu.prediction.placement.packing import (
    Counts,
    Packing,
    Row,
    infeasibility,
    minimise,
    stands_once,
)
from emu.prediction.placement.space import Space
from emu.prediction.scheduling.compiled_problem import Floats, Ints
from emu.problem import Cluster, Job, Placement


def colocate(space: Space, pairs: Sequence[tuple[int, int]]) -> Ints | None:
    """Return the machine of every unit such that most pairs share one.

    Parameters
    ----------
    space
        Units and machines.
    pairs
        (sampler, worker) as positions in ``Job.tasks``; either may be pinned.

    Returns
    -------
    Ints or None
        Shape (units,); None when nothing fits. Among equals, units stand on early
        machines.
    """
    units = len(space.units)
    machines = len(space.free)
    if (space.free < -space.slack).any():
        return None
    if not units:
        return np.empty(0, dtype=np.int64)

    # Variables: unit u on machine m at u * machines + m, then pair p likewise.
    rows = [stands_once(unit * machines, machines) for unit in range(units)]
    unit_of = space.unit_of
    count = units
    for ends in pairs:
        if set(ends) <= unit_of.keys():
            for machine, end in product(range(machines), ends):
                pair_column = count * machines + machine
                end_column = unit_of[end] * machines + machine
                # A pair is on a machine only where both its ends are.
                row = Row(
                    columns=[pair_column, end_column],
                    factors=[1.0, -1.0],
                    least=-np.inf,
                    most=0.0,
                )
                rows.append(row)
            count += 1
    rows += _room_rows(space)

    worth = np.ones(count * machines)
    worth[: units * machines] = _single_worth(space, pairs)
    is_whole = np.ones(worth.size, dtype=bool)
    solution = minimise(-worth, np.ones(worth.size), is_whole, rows)
    if solution.x is None:
        return None
    choice = solution.x[: units * machines].reshape(units, machines)
    # The solver's ones and zeros are such within its tolerance: the largest is the one.
    return np.asarray(choice.argmax(axis=1), dtype=np.int64)


def _room_rows(space: Space) -> Iterator[Row]:
    """Yield the rows by which units fit every machine that states a capacity."""
    machines = len(space.free)
    columns = np.arange(len(space.units)) * machines
    room = space.free + space.slack

    for machine, resource in np.argwhere(np.isfinite(room)).tolist():
        # As shares of the capacity: tolerances of the solver are absolute.
        capacity = float(space.capacity[machine, resource]) or 1.0
        shares = space.demand[:, resource] / capacity
        yield Row(
            columns=(columns + machine).tolist(),
            factors=shares.tolist(),
            least=-np.inf,
            most=float(room[machine, resource]) / capacity,
        )


def _single_worth(space: Space, pairs: Sequence[tuple[int, int]]) -> Floats:
    """Return the worth of unit u on machine m, at u * machines + m.

    One per pair whose other end is pinned there, less a little for late machines: all
    of it together is less than one pair.
    """
    units = len(space.units)
    machines = len(space.free)
    lateness = np.arange(machines) / (2.0 * units * machines)
    worth = np.tile(-lateness, (units, 1))
    for ends in pairs:
        movable = [space.unit_of[task] for task in ends if task in space.unit_of]
        pinned = [space.fixed[task] for task in ends if task not in space.unit_of]
        if len(movable) == 1:
            worth[movable, pinned] += 1.0
    return worth.ravel()


def place_distdgl(job: Job, cluster: Cluster) -> Placement:
    """Return the placement that keeps most (worker, sampler) pairs on one machine.

    Exact: with a workers of k samplers each and b samplers, a machine holds at most
    min(a k, b) pairs, and names can always be given so that it does; the dynamic
    program of IFS maximises the sum. Where workers or samplers are pinned or not alike,
    an integer program does. Among equals the first machines are filled first (workers
    before samplers); everything else, the parameter servers, comes last, each to the
    machine where one more flow would get the largest rate.

    Raises PlacementError when tasks can move but no workers have samplers, and
    InfeasiblePlacement when no placement exists.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, VI-A: DistDGL "maximally colocates each worker
       with its associated samplers". Ties are left open there.
    """
    space = Space(job, cluster)
    pairs = sampler_pairs(job)
    if space.units and not pairs:
        raise PlacementError("distdgl needs workers with samplers; the job has none")
    teams = sampler_groups(space, pairs) if pairs else None
    machines = colocate(space, pairs) if teams is None else _deal_teams(space, teams)
    if machines is None:
        raise infeasibility(space)
    for unit in np.nonzero(machines < 0)[0].tolist():
        _place_on_best_share(space, machines, unit)
    return space.placement(machines)


def _deal_teams(space: Space, teams: Teams) -> Ints | None:
    """Return machines of workers and samplers, -1 of others; None when nothing fits."""
    counts = _count(space, teams)
    if counts is None:
        return None

    machines: Ints = np.full(len(space.units), -1, dtype=np.int64)
    surplus: list[int] = []
    orphans: list[int] = []
    workers_left = iter(teams)
    for machine, (worker_count, sampler_count) in enumerate(counts):
        workers = list(islice(workers_left, worker_count))
        machines[workers] = machine
        mates = [sampler for worker in workers for sampler in teams[worker]]
        # Each machine's samplers of its own workers first: that leaves it either
        # without surplus samplers or without wants, so that surplus ones never
        # split a pair that could be together.
        machines[mates[:sampler_count]] = machine
        orphans += mates[sampler_count:]
        surplus += [machine] * (sampler_count - len(mates))

    machines[orphans] = surplus
    return machines


def sampler_pairs(job: Job) -> list[tuple[int, int]]:
    """Return the edges from a task of kind ``sampler`` to one of kind ``worker``."""
    pairs = dict[tuple[int, int], None]()  # an edge per layer joins the same pair
    for edge in job.edges:
        kinds = job.tasks[edge.source].kind, job.tasks[edge.destination].kind
        if kinds == ("sampler", "worker") and not edge.credit:
            pairs[edge.source, edge.destination] = None
    return list(pairs)


#: Unit of a worker -> units of its samplers, both rising.
Teams = dict[int, list[int]]


def sampler_groups(space: Space, pairs: Sequence[tuple[int, int]]) -> Teams | None:
    """Return the workers with their samplers, None when they are not all alike.

    Alike are movable ones of equal demands, each worker with as many samplers, each
    sampler with one worker.
    """
    unit_of = space.unit_of
    teams: Teams = {}
    for sampler, worker in pairs:
        if not {sampler, worker} <= unit_of.keys():
            return None
        teams.setdefault(unit_of[worker], []).append(unit_of[sampler])

    workers = sorted(teams)
    samplers = [sampler for team in teams.values() for sampler in team]
    for units in (workers, samplers):
        if (space.demand[units] != space.demand[units[0]]).any():
            return None
    has_one_worker_each = len({*samplers, *workers}) == len(samplers) + len(workers)
    if not has_one_worker_each or len({*map(len, teams.values())}) > 1:
        return None
    return {worker: sorted(teams[worker]) for worker in workers}


class _Option(NamedTuple):
    """Counts that fit a machine, the pairs that they make, and the states around."""

    workers: int
    samplers: int
    pairs: int
    before: tuple[slice, ...]
    after: tuple[slice, ...]
    """Parts of all states before and after it was taken."""


def _list_options(packing: Packing, machine: int) -> Iterator[_Option]:
    samplers_each = packing.sizes[1] // packing.sizes[0]
    for counts in packing.options(machine).tolist():
        workers, samplers, *_ = counts
        sizes_left = [size - n for size, n in zip(packing.sizes, counts, strict=True)]
        yield _Option(
            workers=workers,
            samplers=samplers,
            pairs=min(samplers_each * workers, samplers),
            before=tuple(slice(0, size + 1) for size in sizes_left),
            after=tuple(slice(count, None) for count in counts),
        )


#: Pairs where none can be added: below 0 with those of any one machine.
_IMPOSSIBLE = -(1 << 30)


def _count(space: Space, teams: Teams) -> list[tuple[int, int]] | None:
    """Return (workers, samplers) of every machine, or None when nothing fits.

    The dynamic program, over states of (workers, samplers, others...) in all.
    """
    if (space.free < -space.slack).any():
        return None

    samplers = [sampler for team in teams.values() for sampler in team]
    groups = [list(teams), samplers]
    team_units = {*teams, *samplers}
    for group in space.groups:
        others_of_kind = [unit for unit in group if unit not in team_units]
        if others_of_kind:
            groups.append(others_of_kind)

    packing = Packing(
        demand=space.demand[[group[0] for group in groups]],
        sizes=tuple(map(len, groups)),
        free=space.free + space.slack,
    )

    options = [[*_list_options(packing, m)] for m in range(len(space.free))]
    best = _most_pairs(packing.sizes, options)
    if best[0][(0,) * len(groups)] < 0:
        return None
    return _largest_counts(options, best)


def _most_pairs(sizes: Counts, options: list[list[_Option]]) -> list[Ints]:
    """Return the most pairs that machines m.. can add to each state, for all m.

    One array more than machines: the last is of none.
    """
    best: Ints = np.full([size + 1 for size in sizes], _IMPOSSIBLE, dtype=np.int32)
    best[sizes] = 0
    tables = [best]
    for machine_options in reversed(options):
        rest = tables[-1]
        most = np.full_like(rest, _IMPOSSIBLE)
        for option in machine_options:
            pairs = rest[option.after] + option.pairs
            np.maximum(most[option.before], pairs, out=most[option.before])
        # Set anew, or pairs of many machines would lift what cannot be above 0.
        tables.append(np.where(most < 0, _IMPOSSIBLE, most))
    return tables[::-1]


def _largest_counts(
    options: list[list[_Option]], best: list[Ints]
) -> list[tuple[int, int]]:
    """Return the largest (workers, samplers) on an optimal way, machine by machine.

    Whatever the others are, which find their machines later. All states at once: of 14
    tasks that all differ a machine has 16,384 options and as many states, one by one
    over a minute.
    """
    states = np.zeros(best[0].shape, dtype=bool)
    states[(0,) * states.ndim] = True

    rows = []
    for machine_options, (most, rest) in zip(options, pairwise(best), strict=True):
        pairs = int(most[states].max())
        # Options ascend: the first here that lies on an optimal way has the largest
        # counts.
        descending = reversed(machine_options)
        for counts, alike in groupby(descending, key=itemgetter(0, 1)):
            next_states = np.zeros_like(states)
            for option in alike:
                pairs_left = rest[option.after]
                is_best = (pairs_left >= 0) & (pairs_left + option.pairs == pairs)
                next_states[option.after] |= states[option.before] & is_best
            if next_states.any():
                rows.append(counts)
                states = next_states
                break
    return rows


def _place_on_best_share(space: Space, machines: Ints, unit: int) -> None:
    """Put ``unit`` where one more flow would get most, min(Bin, Bout) / (flows + 1).

    Only where the units after it can still be placed.
    """
    machine_of = space.expand(machines)
    flows = np.zeros((len(space.free), 2))
    for edge, control in zip(space.job.edges, space.job.control, strict=True):
        source = machine_of[edge.source]
        destination = machine_of[edge.destination]
        is_placed = min(source, destination) >= 0
        if not control and is_placed and source != destination:
            flows[source, 0] += 1
            flows[destination, 1] += 1

    nics = [(m.bandwidth_out, m.bandwidth_in) for m in space.cluster.machines]
    bandwidth = np.array(nics)
    bandwidth[bandwidth == 0] = np.inf  # no NIC is in the way
    shares = bandwidth / (flows + 1)
    share = shares.min(axis=1)
    order = list(range(len(space.free)))
    for machine in np.argsort(-share, kind="stable").tolist():
        machines[unit] = machine
        if fill(space, order, placed=machines) is not None:
            return
    raise AssertionError  # the dynamic program made sure of a place
