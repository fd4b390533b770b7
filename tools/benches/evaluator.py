"""Makespans of many placements of one job, as a search has them, and its result."""

from __future__ import annotations

import math
from dataclasses import replace

from emu.array_types import Ints
from emu.prediction.core import lib, new_room, pointer, room_in
from emu.prediction.placement.candidates import common_draws
from emu.prediction.placement.search import SearchOptions, search_run
from emu.prediction.placement.space import PlacementResult
from emu.prediction.scheduling import rate_policy
from emu.prediction.scheduling.compiled_problem import (
    check_machines,
    job_arrays,
    plain,
)
from emu.problem import Cluster, Job, Profile, Realization


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
        self._memory = new_room(lib.room_of_run(self._arrays.core, False))
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
            self._arrays.core, pointer(machine_of), pointer(times), pointer(volumes),
            limit, self._room,
        )  # fmt: skip
        self._arrays.check()
        return float(span)


def search(
    job: Job,
    cluster: Cluster,
    profile: Profile,
    *,
    seed: int = 0,
    options: SearchOptions | None = None,
) -> PlacementResult:
    """Return the result of the improved search on the draws of `search_etp`."""
    options = options or SearchOptions()
    draws = common_draws(profile, seed, options.iterations)
    job = replace(job, iterations=options.iterations)
    return search_run(job, cluster, draws, seed=seed, options=options)
