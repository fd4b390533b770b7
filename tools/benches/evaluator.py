"""Makespans of many placements of one job, as a search has them, one call each."""

from __future__ import annotations

import math

from emu.prediction.core import lib, new_room, pointer, room_in
from emu.prediction.scheduling import rate_policy
from emu.prediction.scheduling.compiled_problem import (
    BoundJob,
    Ints,
    check_machines,
    job_arrays,
    plain,
)
from emu.problem import Cluster, Job, Realization


class MakespanEvaluator:
    """Evaluates placements of one job on one cluster.

    Parameters
    ----------
    job, cluster
        Tasks to place, and machines.
    policy
        Name of the rate policy.

    Raises
    ------
    ValueError
        When there is no such policy, or it is the portfolio.
    """

    def __init__(self, job: Job, cluster: Cluster, policy: str = "oes") -> None:
        self._job = job
        self._machines = len(cluster.machines)
        self._arrays = job_arrays(job, cluster, rate_policy(policy))
        self._bound = BoundJob(self._arrays)
        self._memory = new_room(lib.room_of_run(self._bound.c, False))
        self._room = room_in(self._memory)

    def makespan(
        self, machine_of: Ints, realization: Realization, limit: float = math.inf
    ) -> float:
        """Return the makespan in seconds, infinity if it is longer than ``limit``.

        Parameters
        ----------
        realization
            With reference times, see `emu.problem.placement`.

        Raises
        ------
        ValueError
            When ``machine_of`` or ``realization`` does not fit the job.
        """
        realization.check_shapes(self._job)
        check_machines(machine_of, len(self._job.tasks), self._machines)
        times, volumes = plain(realization.times), plain(realization.volumes)
        span = lib.run_makespan(
            self._bound.c, pointer(machine_of), pointer(times), pointer(volumes),
            limit, self._room,
        )  # fmt: skip
        self._arrays.check()
        return float(span)
