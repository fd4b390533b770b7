"""The DistDGL baseline: as many samplers as possible beside their worker, exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
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
)
from emu.prediction.placement.space import Space
from emu.prediction.scheduling.compiled_problem import Floats, Ints
from emu.problem import Cluster, Job, Placement


def colocate(space: Space, pairs: Sequence[tuple[int, int]]) -> Ints | None:
    """Return the machine of every unit such that most pairs share one.

    ``pairs``: (sampler, worker) as positions in ``Job.tasks``; either may be pinned.

    Shape (units,); None when nothing fits. Among equals, units stand on early machines.
    """
    units = len(space.units)
    machines = len(space.free)
    if (space.free < -space.slack).any():
        return None
    if not units:
        return np.empty(0, dtype=np.int64)
    unit_of = space.unit_of
    both = [(unit_of[s], unit_of[w]) for s, w in pairs if {s, w} <= unit_of.keys()]
    worth = np.concatenate([_single_worth(space, pairs), np.ones(len(both) * machines)])
    once = [1.0] * machines
    rows = [
        Row([unit * machines + m for m in range(machines)], once, 1.0, 1.0)
        for unit in range(units)
    ]
    rows += [  # a pair is on a machine only where both its ends are
        Row([(units + p) * machines + m, end * machines + m], [1.0, -1.0], -np.inf, 0.0)
        for p, ends in enumerate(both)
        for m in range(machines)
        for end in ends
    ]
    room = space.free + space.slack
    for m, r in np.argwhere(np.isfinite(room)).tolist():  # as shares of capacities
        whole = float(space.capacity[m, r]) or 1.0
        at = [u * machines + m for u in range(units)]
        shares = (space.demand[:, r] / whole).tolist()
        rows.append(Row(at, shares, -np.inf, float(room[m, r]) / whole))
    solution = minimise(
        -worth, np.ones(worth.size), np.ones(worth.size, dtype=bool), rows
    )
    if solution.x is None:
        return None
    choice = solution.x[: units * machines].reshape(units, machines)
    return np.asarray(choice.argmax(axis=1), dtype=np.int64)


def _single_worth(space: Space, pairs: Sequence[tuple[int, int]]) -> Floats:
    """Return the worth of unit u on machine m, at u * machines + m.

    One per pair whose other end is pinned there, less a little for late machines: all
    of it together is less than one pair.
    """
    units = len(space.units)
    machines = len(space.free)
    unit_of = space.unit_of
    worth = -np.tile(np.arange(machines) / (2.0 * units * machines), units)
    for ends in pairs:
        movable = [unit_of[task] for task in ends if task in unit_of]
        if len(movable) == 1:
            (machine,) = (
                int(space.fixed[task]) for task in ends if task not in unit_of
            )
            worth[movable[0] * machines + machine] += 1.0
    return worth


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
    groups = sampler_groups(space, pairs) if pairs else None
    if groups is None:
        machines = colocate(space, pairs)
    elif (counts := _count(space, groups)) is None:
        machines = None
    else:
        machines = np.full(len(space.units), -1, dtype=np.int64)
        surplus: list[int] = []
        orphans: list[int] = []
        workers_left = iter(groups)
        for machine, (workers, samplers) in enumerate(counts):
            own = list(islice(workers_left, workers))
            machines[own] = machine
            mates = [s for worker in own for s in groups[worker]]
            # Each machine's samplers of its own workers first: that leaves it either
            # without surplus samplers or without wants, so that surplus ones never
            # split a pair that could be together.
            machines[mates[:samplers]] = machine
            orphans += mates[samplers:]
            surplus += [machine] * (samplers - len(mates))
        machines[orphans] = surplus
    if machines is None:
        raise infeasibility(space)
    for unit in np.nonzero(machines < 0)[0].tolist():
        _place_on_best_share(space, machines, unit)
    return space.placement(machines)


def sampler_pairs(job: Job) -> list[tuple[int, int]]:
    """Return the edges from a task of kind ``sampler`` to one of kind ``worker``."""
    return list(
        dict.fromkeys(
            (edge.source, edge.destination)
            for edge in job.edges
            if not edge.credit
            and job.tasks[edge.source].kind == "sampler"
            and job.tasks[edge.destination].kind == "worker"
        )
    )


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
    samplers = [s for team in teams.values() for s in team]
    alike = all(
        (space.demand[units] == space.demand[units[0]]).all()
        for units in (workers, samplers)
    )
    one_each = len({*samplers, *workers}) == len(samplers) + len(workers)
    if not (alike and one_each and len({len(team) for team in teams.values()}) == 1):
        return None
    return {worker: sorted(teams[worker]) for worker in workers}


class _Option(NamedTuple):
    """Counts that fit a machine: what they bring, and the states around them."""

    workers: int
    samplers: int
    pairs: int
    before: tuple[slice, ...]
    after: tuple[slice, ...]
    """Parts of all states before and after it was taken."""


def _list_options(packing: Packing, machine: int) -> Iterator[_Option]:
    each = packing.sizes[1] // packing.sizes[0]
    for option in packing.options(machine).tolist():
        workers, samplers, *_ = option
        both = zip(packing.sizes, option, strict=True)
        before = tuple(slice(0, size + 1 - count) for size, count in both)
        after = tuple(slice(count, None) for count in option)
        pairs = min(each * workers, samplers)
        yield _Option(workers, samplers, pairs, before, after)


#: Pairs where none can be added: below 0 with those of any one machine.
_IMPOSSIBLE = -(1 << 30)


def _count(space: Space, teams: Teams) -> list[tuple[int, int]] | None:
    """Return (workers, samplers) of every machine, or None when nothing fits.

    The dynamic program, over states of (workers, samplers, others...) in all.
    """
    samplers = [s for team in teams.values() for s in team]
    others = [[u for u in g if u not in {*teams, *samplers}] for g in space.groups]
    groups = [list(teams), samplers, *filter(None, others)]
    sizes: Counts = tuple(map(len, groups))
    if (space.free < -space.slack).any():
        return None
    demand = space.demand[[group[0] for group in groups]]
    packing = Packing(demand, sizes, space.free + space.slack)
    machines = [[*_list_options(packing, m)] for m in range(len(space.free))]
    # The most pairs that machines m.. can add to a state, the last first.
    best = [np.full([size + 1 for size in sizes], _IMPOSSIBLE, dtype=np.int32)]
    best[0][sizes] = 0
    for options in reversed(machines):
        most = np.full_like(best[0], _IMPOSSIBLE)
        rest = best[-1]
        for option in options:
            further = rest[option.after] + option.pairs
            np.maximum(most[option.before], further, out=most[option.before])
        best.append(np.where(most < 0, _IMPOSSIBLE, most))
    states = np.zeros(best[0].shape, dtype=bool)
    states[(0,) * len(sizes)] = True
    if best[-1][states].item() < 0:
        return None
    # The largest (workers, samplers) on an optimal way, whatever the others are, which
    # find their machines later. All states at once: of 14 tasks that all differ a
    # machine has 16,384 options and as many states, one by one over a minute.
    rows = []
    for options, most, rest in zip(machines, best[:0:-1], best[-2::-1], strict=True):
        pairs = int(most[states].max())
        for counts, alike in groupby(reversed(options), key=itemgetter(0, 1)):
            next_states = np.zeros_like(states)
            for option in alike:
                further = rest[option.after]
                on_way = (further >= 0) & (further + option.pairs == pairs)
                next_states[option.after] |= states[option.before] & on_way
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
        if control or source == destination or min(source, destination) < 0:
            continue
        flows[source, 0] += 1
        flows[destination, 1] += 1
    nics = [(m.bandwidth_out, m.bandwidth_in) for m in space.cluster.machines]
    bandwidth = np.array(nics)
    bandwidth[bandwidth == 0] = np.inf  # no NIC is in the way
    shares = (bandwidth / (flows + 1)).min(axis=1)
    for machine in np.argsort(-shares, kind="stable").tolist():
        machines[unit] = machine
        if fill(space, list(range(len(space.free))), placed=machines) is not None:
            return
    raise AssertionError  # the dynamic program made sure of a place
