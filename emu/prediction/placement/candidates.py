"""Costs of candidate placements, computed in C: bounds, penalty, makespan.

Of several jobs the longest of their times counts, or their sum. Two placements of one
search are judged by common random draws. `Candidates` is made once per search;
everything else is a function of it and of one placement, so that a search keeps no
state that could drift. Must not know: moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from emu.prediction.core import lib, new_room, pointer, room_in, structure
from emu.prediction.placement.packing import sum_edge_bytes
from emu.prediction.placement.space import Space
from emu.prediction.scheduling.compiled_problem import (
    BoundJob,
    Floats,
    Ints,
    JobArrays,
    Layout,
    check_machines,
    job_arrays,
    plain,
)
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import earliest, longest_paths
from emu.problem import Job, Profile, Realization
from emu.problem.workloads import RELEASE


def common_draws(profile: Profile, seed: int, iterations: int) -> Realization:
    """Return the run that every placement of a search with this seed is judged by.

    Common random numbers (A20): two placements differ by where tasks stand, not by
    luck, also when different algorithms found them.
    """
    return profile.draw(np.random.default_rng(_sequence(seed, 0)), iterations)


def walk_generator(seed: int, chain: int = 0) -> np.random.Generator:
    """Return the generator of one chain, independent of the draws and other chains."""
    return np.random.default_rng(_sequence(seed, 1 + chain))


def _sequence(seed: int, stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(stream,))


@dataclass(frozen=True)
class JobsCost:
    """Cost that a search minimises in place of the makespan."""

    total: bool = False
    """True where it is the sum of the times of the jobs, each from its release to its
    end; else the longest of them."""
    weights: Mapping[str, float] | None = None
    """Factor on the time of a job, positive; 1 of those not named."""


class JobCosts(NamedTuple):
    """The same as flat arrays, without any job where the makespan is what counts."""

    job: Ints
    weight: Floats
    release: Floats
    total: bool


def job_costs(job: Job, times: Floats, cost: JobsCost | None) -> JobCosts:
    """Return the arrays; ``times`` hold the releases of jobs."""
    if cost is None:
        return JobCosts(np.empty(0, np.int64), np.ones(1), np.zeros(1), False)
    names = {name: i for i, name in enumerate(job.job_names)}
    weight = np.array([(cost.weights or {}).get(name, 1.0) for name in names])
    release = np.zeros(len(names))
    for t, task in enumerate(job.tasks):
        if task.kind == RELEASE:
            release[names[task.job_name]] = times[t, 0]
    of_task = np.array([names[task.job_name] for task in job.tasks], dtype=np.int64)
    return JobCosts(of_task, weight, release, cost.total)


NORM = 16  # of `estimate`


class Units(NamedTuple):
    """Units to place, their demands, and the machines' capacities; see core.h."""

    fixed: Ints
    unit_start: Ints
    unit_task: Ints
    demand: Floats
    used: Floats
    capacity: Floats


class Transfers(NamedTuple):
    """Input of a bound, besides edges and the links that they cross; see core.h.

    ``head``, ``tail`` and ``least`` are those with every task on the machine where it
    is fastest.
    """

    capacity: Floats
    sent: Floats
    head: Floats
    tail: Floats
    least: float


class Candidates(NamedTuple):
    """A search space as flat arrays, with one realization for all placements.

    Fields as in core.h; ``core`` is what C reads, with ``room`` for one call at a time.
    The realization is the same for every candidate (common random numbers, A20).
    """

    arrays: JobArrays
    times: Floats
    volumes: Floats
    units: Units
    transfers: Transfers
    costs: JobCosts
    busy: Floats
    core: Any
    room: Any


def candidates(
    space: Space, realization: Realization, policy: str, cost: JobsCost | None = None
) -> Candidates:
    """Return the arrays of a search in ``space`` under one realization.

    Raises ValueError when there is no such rate policy, or the realization does not fit
    the job.
    """
    realization.check_shapes(space.job)
    arrays = job_arrays(space.job, space.cluster, rate_policy(policy))
    job = BoundJob(arrays)
    times = plain(realization.times)
    # Factors on reference times, and those on the machine where each task is fastest.
    slowness = arrays.slowness
    if not len(slowness):
        slowness = np.ones((len(times), slowness.shape[1]))
    is_fixed = space.fixed >= 0
    fastest = slowness.min(axis=1)
    # A bound may assume the best machine for who can move, not for who is pinned.
    fastest[is_fixed] = slowness[is_fixed, space.fixed[is_fixed]]
    head, tail, least = _without_transfers(job, np.asarray(times * fastest[:, None]))
    sizes = [len(unit.tasks) for unit in space.units]
    choices = Candidates(
        arrays,
        times,
        plain(realization.volumes),
        Units(
            space.fixed,
            np.cumsum([0, *sizes], dtype=np.int64),
            np.array([t for unit in space.units for t in unit.tasks], dtype=np.int64),
            space.demand,
            space.used,
            space.capacity,
        ),
        Transfers(
            space.cluster.links.steps.most,
            sum_edge_bytes(space.job, realization),
            head,
            tail,
            float(least),
        ),
        job_costs(space.job, times, cost),
        times.sum(axis=1)[:, None] * slowness,
        core=None,
        room=None,
    )
    return _in_c(choices, job)


def _in_c(c: Candidates, job: BoundJob) -> Candidates:
    """Return the candidates with what C reads."""
    jobs = len(c.costs.weight) if len(c.costs.job) else 0
    count, resources = c.units.demand.shape
    core = structure(
        "Candidates",
        arrays=job.c,
        times=c.times,
        volumes=c.volumes,
        busy=c.busy,
        units={"count": count, "resources": resources, **c.units._asdict()},
        transfers=c.transfers._asdict(),
        costs={"jobs": jobs, **c.costs._asdict()},
    )
    # The structure points into the arrays above; its room is for one call at a time.
    room = new_room(lib.room_of_candidates(core))
    core.room = room_in(room)
    return c._replace(core=core, room=room)


def _without_transfers(job: BoundJob, times: Floats) -> tuple[Floats, Floats, float]:
    """Return head and tail of every edge and the makespan if transfers were free.

    As they are where all tasks are on one machine.
    """
    a = job.arrays
    layout = Layout(job, np.zeros(len(times), dtype=np.int64))
    nothing = np.zeros((len(a.source), times.shape[1]))
    ends = earliest(layout, times, nothing)[1]
    rests = longest_paths(layout, times, nothing)[0]
    last = a.rounds[a.destination] - 1
    head, tail = ends[a.source, 0], rests[a.destination, last]
    return head, tail, float(ends.max(initial=0.0))


def expand(u: Units, machines: Ints) -> Ints:
    """Return the machine of every task for units on ``machines``."""
    machine_of = u.fixed.copy()
    machine_of[u.unit_task] = np.repeat(machines, np.diff(u.unit_start))
    return machine_of


def lower_bound(c: Candidates, machine_of: Ints) -> float:
    """Return a cost that no schedule of this placement beats, seconds.

    The cost of several jobs follows from the makespan.

    Raises ValueError when ``machine_of`` does not fit the job.
    """
    return float(lib.lower_bound(c.core, _check_slots(c, machine_of)))


def estimate(c: Candidates, machine_of: Ints) -> float:
    """Return the mean of what ports and tasks ask for, as a norm, and when crowded.

    Seconds, for a hundredth of a simulation's time; see candidates.c.

    Raises ValueError when ``machine_of`` does not fit the job.
    """
    return float(lib.estimate(c.core, _check_slots(c, machine_of)))


def placement_cost(c: Candidates, machine_of: Ints, limit: float) -> float:
    """Return makespan or cost, seconds; beyond ``limit`` that or infinity.

    Infinity too where tasks wait for slots forever, or more are given back than taken.

    Raises ValueError when ``machine_of`` does not fit the job.
    """
    cost = lib.placement_cost(c.core, _check_slots(c, machine_of), limit)
    c.arrays.check()
    return float(cost)


def _check_slots(c: Candidates, machine_of: Ints) -> Any:
    check_machines(machine_of, *c.busy.shape)
    return pointer(machine_of)
