"""The DistDGL baseline: as many samplers as possible beside their worker, exactly."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice, pairwise, product
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask
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
from emu.problem import Cluster, Job, Placement

#: (sampler, worker), as positions in ``Job.tasks``.
Pairs: TypeAlias = Sequence[tuple[int, int]]

#: Placements that were found last, of jobs of so many edges at most: no rule of rates
#: changes them, and `best` begins with the one that it is judged beside.
_latest = deque[tuple[Job, Cluster, Placement]](maxlen=16)
_MOST_EDGES = 5_000


def colocate(space: Space, pairs: Pairs) -> Ints | None:
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
    is_too_full = space.free < -space.slack
    if is_too_full.any():
        return None
    if not units:
        return np.empty(0, dtype=np.int64)

    # Variables: unit u on machine m at u * machines + m, then pair p likewise.
    movable_pairs = []
    for sampler, worker in pairs:
        if sampler in space.unit_of and worker in space.unit_of:
            movable_pairs.append((sampler, worker))
    rows = list[Row]()
    for unit in range(units):
        row = stands_once(unit * machines, machines)
        rows.append(row)
    rows += _pair_rows(space, movable_pairs)
    rows += _room_rows(space)

    unit_columns = units * machines
    pair_columns = len(movable_pairs) * machines
    worth = np.ones(unit_columns + pair_columns)
    worth[:unit_columns] = _single_worth(space, pairs)
    upper = np.ones(worth.size)
    is_whole = np.ones(worth.size, dtype=bool)
    solution = minimise(-worth, upper, is_whole, rows)
    if solution.x is None:
        return None

    unit_parts = solution.x[:unit_columns]
    parts = unit_parts.reshape(units, machines)
    # The solver's ones and zeros are such within its tolerance: the largest is the one.
    machine_of_unit = parts.argmax(axis=1)
    return np.asarray(machine_of_unit, dtype=np.int64)


def _pair_rows(space: Space, pairs: Pairs) -> Iterator[Row]:
    """Yield the rows by which a pair is on a machine only where both its ends are."""
    units = len(space.units)
    machines = len(space.free)
    for number, pair in enumerate(pairs):
        first_column = (units + number) * machines
        for machine, task in product(range(machines), pair):
            pair_column = first_column + machine
            unit = space.unit_of[task]
            unit_column = unit * machines + machine

            yield Row(
                columns=[pair_column, unit_column],
                factors=[1.0, -1.0],
                least=-np.inf,
                most=0.0,
            )


def _room_rows(space: Space) -> Iterator[Row]:
    """Yield the rows by which units fit every machine that states a capacity."""
    units = len(space.units)
    machines = len(space.free)
    first_columns = np.arange(units) * machines
    room = space.free + space.slack

    is_limited = np.isfinite(room)
    limits = np.argwhere(is_limited)
    for machine, resource in limits.tolist():
        # As shares of the capacity: tolerances of the solver are absolute.
        capacity = float(space.capacity[machine, resource]) or 1.0
        shares = space.demand[:, resource] / capacity
        most = float(room[machine, resource]) / capacity
        columns = first_columns + machine
        yield Row(
            columns=columns.tolist(),
            factors=shares.tolist(),
            least=-np.inf,
            most=most,
        )


def _single_worth(space: Space, pairs: Pairs) -> Floats:
    """Return the worth of unit u on machine m, at u * machines + m.

    One per pair whose other end is pinned there, less a little for late machines: all
    of it together is less than one pair.
    """
    units = len(space.units)
    machines = len(space.free)
    scale = 2.0 * units * machines
    lateness = np.arange(machines) / scale
    worth = np.tile(-lateness, (units, 1))

    for sampler, worker in pairs:
        for task, partner in ((sampler, worker), (worker, sampler)):
            unit = space.unit_of.get(task)
            if unit is not None and partner not in space.unit_of:
                machine = space.fixed[partner]
                worth[unit, machine] += 1.0
    return worth.ravel()


def place_distdgl(job: Job, cluster: Cluster) -> Placement:
    """Return the placement that keeps most (worker, sampler) pairs on one machine.

    Exact: with a workers of k samplers each and b samplers, a machine holds at most
    min(a k, b) pairs, and names can always be given so that it does; the dynamic
    program of IFS maximises the sum. Where workers or samplers are pinned or not alike,
    an integer program does. Among equals the first machines are filled first (workers
    before samplers); everything else, the parameter servers, comes last, each to the
    machine where one more flow would get the largest rate.

    Equal jobs have one placement, which is kept: alter neither in place.

    Raises PlacementError when tasks can move but no workers have samplers, and
    InfeasiblePlacement when no placement exists.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, VI-A: DistDGL "maximally colocates each worker
       with its associated samplers". Ties are left open there.
    """
    # A copy, made at once: another thread may append while these are compared.
    for known_job, known_cluster, placement in tuple(_latest):
        if known_cluster == cluster and known_job == job:
            return placement

    placement = _colocate_most(job, cluster)
    if len(job.edges) <= _MOST_EDGES:
        _latest.append((job, cluster, placement))
    return placement


def _colocate_most(job: Job, cluster: Cluster) -> Placement:
    """Return what `place_distdgl` does; raises as it does."""
    space = Space(job, cluster)
    pairs = sampler_pairs(job)
    if space.units and not pairs:
        raise PlacementError("distdgl needs workers with samplers; the job has none")
    teams = sampler_groups(space, pairs) if pairs else None
    machines = colocate(space, pairs) if teams is None else _deal_teams(space, teams)
    if machines is None:
        raise infeasibility(space)

    units_left = np.flatnonzero(machines < 0)
    for unit in units_left.tolist():
        _place_on_best_share(space, machines, unit)
    return space.placement(machines)


def _deal_teams(space: Space, teams: Teams) -> Ints | None:
    """Return machines of workers and samplers, -1 of others; None when nothing fits."""
    counts = _count(space, teams)
    if counts is None:
        return None

    units = len(space.units)
    machines: Ints = np.full(units, -1, dtype=np.int64)
    surplus = list[int]()
    orphans = list[int]()
    workers_left = iter(teams)
    for machine, (worker_count, sampler_count) in enumerate(counts):
        next_workers = islice(workers_left, worker_count)
        workers = list(next_workers)
        machines[workers] = machine
        mates = []
        for worker in workers:
            mates += teams[worker]
        # Each machine's samplers of its own workers first: that leaves it either
        # without surplus samplers or without wants, so that surplus ones never
        # split a pair that could be together.
        machines[mates[:sampler_count]] = machine
        orphans += mates[sampler_count:]
        surplus_count = sampler_count - len(mates)
        surplus += [machine] * surplus_count

    machines[orphans] = surplus
    return machines


def sampler_pairs(job: Job) -> list[tuple[int, int]]:
    """Return the edges from a task of kind ``sampler`` to one of kind ``worker``."""
    pairs = dict[tuple[int, int], None]()  # an edge per layer joins the same pair
    for edge in job.edges:
        source, destination = job.ends(edge)
        is_pair = source.kind == "sampler" and destination.kind == "worker"
        if is_pair and not edge.credit:
            pairs[edge.source, edge.destination] = None
    return list(pairs)


#: Unit of a worker -> units of its samplers, both rising.
Teams = dict[int, list[int]]


def sampler_groups(space: Space, pairs: Pairs) -> Teams | None:
    """Return the workers with their samplers, None when they are not all alike.

    Alike are movable ones of equal demands, each worker with as many samplers, each
    sampler with one worker.
    """
    unit_of = space.unit_of
    teams: Teams = {}
    for sampler, worker in pairs:
        sampler_unit = unit_of.get(sampler)
        worker_unit = unit_of.get(worker)
        if sampler_unit is None or worker_unit is None:
            return None
        team = teams.setdefault(worker_unit, [])
        team.append(sampler_unit)

    workers = sorted(teams)
    samplers = _list_samplers(teams)
    for units in (workers, samplers):
        demand = space.demand[units]
        differs = demand != demand[0]
        if differs.any():
            return None

    # A sampler of two workers would stand there twice.
    all_units = [*samplers, *workers]
    if len(set(all_units)) < len(all_units):
        return None
    team_sizes = {len(team) for team in teams.values()}
    if len(team_sizes) > 1:
        return None
    return {worker: sorted(teams[worker]) for worker in workers}


def _list_samplers(teams: Teams) -> list[int]:
    return [sampler for team in teams.values() for sampler in team]


class _Option(NamedTuple):
    """Counts that fit a machine, the pairs that they make, and the states around."""

    workers: int
    samplers: int
    pairs: int
    before: tuple[slice, ...]
    after: tuple[slice, ...]
    """Parts of all states before and after it was taken."""


def _list_options(packing: Packing, machine: int) -> Iterator[_Option]:
    all_workers, all_samplers, *_ = packing.sizes
    samplers_each = all_samplers // all_workers
    for counts in packing.options(machine).tolist():
        workers, samplers, *_ = counts
        states_before = []
        states_after = []
        for size, count in zip(packing.sizes, counts, strict=True):
            most_before = size - count
            states_before.append(slice(0, most_before + 1))
            states_after.append(slice(count, None))

        yield _Option(
            workers=workers,
            samplers=samplers,
            pairs=min(samplers_each * workers, samplers),
            before=tuple(states_before),
            after=tuple(states_after),
        )


#: Pairs where none can be added: below 0 with those of any one machine.
_IMPOSSIBLE = -(1 << 30)


#: Workers and samplers of a machine.
_TeamCounts: TypeAlias = tuple[int, int]


def _count(space: Space, teams: Teams) -> list[_TeamCounts] | None:
    """Return (workers, samplers) of every machine, or None when nothing fits.

    The dynamic program, over states of (workers, samplers, others...) in all.
    """
    samplers = _list_samplers(teams)
    groups = [list(teams), samplers]
    team_units = {*teams, *samplers}
    for group in space.groups:
        others_of_kind = [unit for unit in group if unit not in team_units]
        if others_of_kind:
            groups.append(others_of_kind)

    representatives = [group[0] for group in groups]
    packing = Packing(
        demand=space.demand[representatives],
        sizes=tuple(map(len, groups)),
        free=space.free + space.slack,
    )
    options = []
    options_of_room: dict[bytes, list[_Option]] = {}
    for machine, free in enumerate(packing.free):
        room = free.tobytes()
        if room not in options_of_room:
            options_of_room[room] = list(_list_options(packing, machine))
        options.append(options_of_room[room])

    best = _most_pairs(packing.sizes, options)
    nothing_placed = (0,) * len(groups)
    if best[0][nothing_placed] < 0:
        return None
    return _largest_counts(options, best)


def _most_pairs(sizes: Counts, options: list[list[_Option]]) -> list[Ints]:
    """Return the most pairs that machines m.. can add to each state, for all m.

    One array more than machines: the last is of none.
    """
    shape = [size + 1 for size in sizes]
    best: Ints = np.full(shape, _IMPOSSIBLE, dtype=np.int32)
    best[sizes] = 0
    tables = [best]

    for machine_options in reversed(options):
        rest = tables[-1]
        most = np.full_like(rest, _IMPOSSIBLE)
        for option in machine_options:
            pairs = rest[option.after] + option.pairs
            states = most[option.before]  # a view: what is written there is in `most`
            np.maximum(states, pairs, out=states)
        # Set anew, or pairs of many machines would lift what cannot be above 0.
        most[most < 0] = _IMPOSSIBLE
        tables.append(most)
    return tables[::-1]


def _largest_counts(
    options: list[list[_Option]],
    best: list[Ints],
) -> list[_TeamCounts]:
    """Return the largest (workers, samplers) on an optimal way, machine by machine.

    Whatever the others are, which find their machines later. All states at once: of 14
    tasks that all differ a machine has 16,384 options and as many states, one by one
    over a minute.
    """
    states = np.zeros(best[0].shape, dtype=bool)
    nothing_placed = (0,) * states.ndim
    states[nothing_placed] = True

    rows = []
    tables = pairwise(best)
    for machine_options, (most, rest) in zip(options, tables, strict=True):
        pairs = int(most[states].max())
        # Options ascend: the first here that lies on an optimal way has the largest
        # counts.
        descending = reversed(machine_options)
        for counts, alike in groupby(descending, key=itemgetter(0, 1)):
            next_states = _states_after(alike, states, rest, pairs)
            if next_states.any():
                rows.append(counts)
                states = next_states
                break
    return rows


def _states_after(
    options: Iterable[_Option],
    states: Mask,
    rest: Ints,
    pairs: int,
) -> Mask:
    """Return the states to which some options lead on an optimal way.

    ``rest`` has the most pairs behind each state, ``pairs`` is what an optimal way has
    from ``states`` on.
    """
    next_states = np.zeros_like(states)
    for option in options:
        pairs_left = rest[option.after]
        is_possible = pairs_left >= 0
        is_best = pairs_left + option.pairs == pairs
        is_on_way = states[option.before] & is_possible & is_best
        next_states[option.after] |= is_on_way
    return next_states


def _place_on_best_share(space: Space, machines: Ints, unit: int) -> None:
    """Put ``unit`` where one more flow would get most, min(Bin, Bout) / (flows + 1).

    Only where the units after it can still be placed.
    """
    machine_count = len(space.free)
    flows = _count_flows(space, machines)
    bandwidth = np.empty_like(flows)
    for number, machine in enumerate(space.cluster.machines):
        bandwidth[number] = machine.bandwidth_out, machine.bandwidth_in
    bandwidth[bandwidth == 0] = np.inf  # no NIC is in the way
    shares = bandwidth / (flows + 1)
    share = shares.min(axis=1)

    order = list(range(machine_count))
    best_first = np.argsort(-share, kind="stable")
    for position in best_first.tolist():
        machines[unit] = position
        if fill(space, order, placed=machines) is not None:
            return
    raise AssertionError  # the dynamic program made sure of a place


def _count_flows(space: Space, machines: Ints) -> Floats:
    """Return the edges that leave and enter every machine, shape (machines, 2)."""
    machine_of = space.expand(machines)
    machine_count = len(space.free)
    flows = np.zeros((machine_count, 2))
    job = space.job
    for edge, control in zip(job.edges, job.control, strict=True):
        source = machine_of[edge.source]
        destination = machine_of[edge.destination]
        is_placed = min(source, destination) >= 0
        if not control and is_placed and source != destination:
            flows[source, 0] += 1
            flows[destination, 1] += 1
    return flows
