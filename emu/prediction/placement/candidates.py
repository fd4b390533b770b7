"""Costs of candidate placements, computed in C: bounds, penalty, makespan.

Of several jobs the longest of their times counts, or their sum. Two placements of one
search are judged by common random draws. `Candidates` is made once per search;
everything else is a function of it and of one placement, so that a search keeps no
state that could drift. Must not know: moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.array_types import Floats, Ints
from emu.prediction.core import lib, new_room, pointer, room_in, structure
from emu.prediction.placement.packing import sum_edge_bytes
from emu.prediction.placement.space import Space
from emu.prediction.scheduling.compiled_problem import (
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
    # A key of its own: however many numbers a walk takes, the run stays the same.
    rng = _generator(seed, key=0)
    return profile.draw(rng, iterations)


def walk_generator(seed: int) -> np.random.Generator:
    """Return the generator of a search, independent of the draws."""
    return _generator(seed, key=1)


def _generator(seed: int, key: int) -> np.random.Generator:
    sequence = np.random.SeedSequence(seed, spawn_key=(key,))
    return np.random.default_rng(sequence)


@dataclass(frozen=True)
class JobsCost:
    """Cost that a search minimises in place of the makespan."""

    total: bool = False
    """True where it is the sum of the times of the jobs, each from its release to its
    end; else the longest of them."""
    weights: Mapping[str, float] | None = None
    """Factor on the time of a job, positive; 1 of those not named."""


NORM = 16  # of `estimate`
_ROUNDING = 1e-9  # relative; a bound exceeds a limit by more to reject anything


class Candidates:
    """A search space with one realization for all placements (A20), as the core has it.

    Raises ValueError when there is no such rate policy, or the realization does not fit
    the job.

    Attributes
    ----------
    space
        The units, their demands, and the machines' capacities.
    job
        Arrays of the job and the cluster.
    sent, head, tail
        Bytes of every edge in the whole run, and the least seconds before its first
        flow and after its last one, with every task on the machine where it is fastest.
    least
        Makespan if all transfers were free, seconds.
    core
        The structure, with room for one call at a time.
    """

    def __init__(
        self,
        space: Space,
        realization: Realization,
        policy: str,
        cost: JobsCost | None = None,
    ) -> None:
        realization.check_shapes(space.job)
        self.space = space
        rule = rate_policy(policy)
        self.job = job_arrays(space.job, space.cluster, rule)
        times = plain(realization.times)
        slowness = _factors(self.job, len(times))
        fastest = _least_slowness(space, slowness)
        self.sent = sum_edge_bytes(space.job, realization)
        self._bound_transfers(times * fastest[:, None])

        busy = times.sum(axis=1)
        self.core = structure(
            "Candidates",
            arrays=self.job.core,
            times=times,
            volumes=plain(realization.volumes),
            busy=busy[:, None] * slowness,
            units={
                "count": len(space.units),
                "resources": len(space.resources),
                "fixed": space.fixed,
                "unit_start": space.unit_start,
                "unit_task": space.unit_task,
                "demand": space.demand,
                "used": space.used,
                "capacity": space.capacity,
            },
            transfers={
                # The most that a link ever has: a bound must hold whatever events do.
                "capacity": space.cluster.links.steps.most,
                "sent": self.sent,
                "head": self.head,
                "tail": self.tail,
                "least": self.least,
            },
            costs=_job_costs(space.job, times, cost),
        )
        room_size = lib.room_of_candidates(self.core)
        self._room = new_room(room_size)
        self.core.room = room_in(self._room)

    def _bound_transfers(self, times: Floats) -> None:
        """Set head and tail of every edge, and the makespan, if transfers were free.

        As they are where all tasks are on one machine.
        """
        job = self.job
        tasks, iterations = times.shape
        edges = len(job.source)
        one_machine = np.zeros(tasks, dtype=np.int64)
        layout = Layout(job, one_machine)
        no_bytes = np.zeros((edges, iterations))
        _, ends = earliest(layout, times, no_bytes)
        rests, _ = longest_paths(layout, times, no_bytes)

        # An edge is followed by no less than the last iteration of its destination.
        last_iteration = job.rounds[job.destination] - 1
        self.head = ends[job.source, 0]
        self.tail = rests[job.destination, last_iteration]
        self.least = float(ends.max(initial=0.0))


def _factors(job: JobArrays, tasks: int) -> Floats:
    """Return factors on reference times, shape (tasks, machines)."""
    slowness: Floats = job.slowness
    if len(slowness):
        return slowness
    machines = slowness.shape[1]
    return np.ones((tasks, machines))


def _least_slowness(space: Space, slowness: Floats) -> Floats:
    """Return the factor of every task on the machine where it is fastest.

    A bound may assume the best machine for who can move, not for who is pinned.
    """
    fastest: Floats = slowness.min(axis=1)
    fixed = np.flatnonzero(space.fixed >= 0)
    fixed_machines = space.fixed[fixed]
    fastest[fixed] = slowness[fixed, fixed_machines]
    return fastest


def _job_costs(job: Job, times: Floats, cost: JobsCost | None) -> dict[str, Any]:
    """Return the fields of core.h; ``times`` hold the releases of jobs."""
    if cost is None:  # the makespan is that of a job of weight 1, released at 0
        return {
            "weight": np.ones(1),
            "release": np.zeros(1),
        }

    names = job.job_names
    numbers = {name: number for number, name in enumerate(names)}
    job_of_task = []
    release = np.zeros(len(names))
    for position, task in enumerate(job.tasks):
        number = numbers[task.job_name]
        job_of_task.append(number)
        if task.kind == RELEASE:
            release[number] = times[position, 0]

    stated_weights = cost.weights or {}
    weights = [stated_weights.get(name, 1.0) for name in names]
    return {
        "jobs": len(names),
        "job": np.array(job_of_task, dtype=np.int64),
        "weight": np.array(weights),
        "release": release,
        "total": cost.total,
    }


def lower_bound(candidates: Candidates, machine_of: Ints) -> float:
    """Return a cost that no schedule of this placement beats, seconds.

    The cost of several jobs follows from the makespan.

    Raises ValueError when ``machine_of`` does not fit the job.
    """
    machines = _pointer(candidates, machine_of)
    return float(lib.lower_bound(candidates.core, machines))


def cannot_beat(candidates: Candidates, machines: Ints, limit: float) -> bool:
    """Return True where no placement costs ``limit`` seconds or less.

    Of all that have units on ``machines``, and those on -1 anywhere. A simulation of
    them is never as short: ports need longer for the bytes between the other tasks.

    Raises ValueError when ``machines`` does not fit the space.
    """
    space = candidates.space
    has_one_each = machines.shape == (len(space.units),)
    if not has_one_each or (machines >= len(space.free)).any():
        raise ValueError("a machine of every unit is wanted, or -1")
    machine_of = space.expand(machines)
    bound = lib.settled_bound(candidates.core, pointer(machine_of))
    return bool(bound > limit * (1.0 + _ROUNDING))


def estimate(candidates: Candidates, machine_of: Ints) -> float:
    """Return a mean, by a norm, of the times that ports and tasks ask for.

    Seconds, at a hundredth of a simulation's cost; candidates.c has the formula.

    Raises ValueError when ``machine_of`` does not fit the job.
    """
    machines = _pointer(candidates, machine_of)
    return float(lib.estimate(candidates.core, machines))


def placement_cost(candidates: Candidates, machine_of: Ints, limit: float) -> float:
    """Return makespan or cost, seconds; beyond ``limit`` that or infinity.

    Infinity too where tasks wait for slots forever, or more are given back than taken.

    Raises ValueError when ``machine_of`` does not fit the job.
    """
    machines = _pointer(candidates, machine_of)
    cost = lib.placement_cost(candidates.core, machines, limit)
    candidates.job.check()
    return float(cost)


def units_cost(candidates: Candidates, machines: Ints, limit: float = np.inf) -> float:
    """Return the same for the machine of every unit.

    Raises ValueError as `placement_cost` does.
    """
    machine_of = candidates.space.expand(machines)
    return placement_cost(candidates, machine_of, limit)


def _pointer(candidates: Candidates, machine_of: Ints) -> Any:
    tasks = len(candidates.job.rounds)
    machines = len(candidates.space.free)
    check_machines(machine_of, tasks, machines)
    return pointer(machine_of)
