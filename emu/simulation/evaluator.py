"""Makespans for search: arrays made once, then many placements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emu.scheduling.compiled import compiled, spliced
from emu.scheduling.compiled_problem import (
    Floats,
    Ints,
    JobArrays,
    job_arrays,
    lay_out,
    plain,
)
from emu.scheduling.policies import rate_policy
from emu.scheduling.rates import expectation
from emu.scheduling.state import new_state
from emu.simulation.events import new_recorder, run

if TYPE_CHECKING:
    from emu.problem import Cluster, Job, Realization


@spliced
def run_makespan(
    arrays: JobArrays,
    machine_of: Ints,
    reference: Floats,
    volumes: Floats,
    limit: float,
) -> float:
    """Return the makespan of a placement, infinity if it is longer than ``limit``.

    ``reference`` times are those of no machine in particular. Nothing is checked:
    callable from compiled code, see `MakespanEvaluator`.
    """
    times = _taken(arrays, machine_of, reference)
    layout = lay_out(arrays, machine_of)
    state = new_state(layout, expectation(layout, times, volumes), 0)
    return run(layout, state, times, volumes, limit, 0.0, new_recorder(0, -1))


@compiled
def _taken(arrays: JobArrays, machine_of: Ints, reference: Floats) -> Floats:
    """Return the times that the machines of a placement take."""
    times = np.empty(reference.shape)
    for task in range(reference.shape[0]):
        slowness = 1.0
        if arrays.slowness.shape[0] > 0:
            slowness = arrays.slowness[task, machine_of[task]]
        for iteration in range(reference.shape[1]):
            times[task, iteration] = reference[task, iteration] * slowness
    return times


@spliced
def run_ends(
    arrays: JobArrays,
    machine_of: Ints,
    reference: Floats,
    volumes: Floats,
    limit: float,
) -> Floats:
    """Return the end of every task's last iteration; parameters of `run_makespan`.

    Infinity of all of them where the makespan is longer than ``limit``.
    """
    times = _taken(arrays, machine_of, reference)
    layout = lay_out(arrays, machine_of)
    state = new_state(layout, expectation(layout, times, volumes), arrays.iterations)
    end = run(layout, state, times, volumes, limit, 0.0, new_recorder(0, -1))
    ends = np.full(times.shape[0], np.inf)
    if end < np.inf:
        for task in range(ends.size):
            ends[task] = state.log.task_end[task, arrays.rounds[task] - 1]
    return ends


class MakespanEvaluator:
    """Evaluates placements of one job on one cluster.

    Parameters
    ----------
    job, cluster
        Tasks to place, and machines.
    policy
        Name of the rate policy.

    Attributes
    ----------
    arrays
        Arguments of `run_makespan` from compiled code.

    Raises
    ------
    ValueError
        When there is no such policy, or it is the portfolio.
    """

    def __init__(self, job: Job, cluster: Cluster, policy: str = "oes") -> None:
        self._job = job
        self._machines = len(cluster.machines)
        self.arrays = job_arrays(job, cluster, rate_policy(policy))

    def makespan(
        self, machine_of: Ints, realization: Realization, limit: float = math.inf
    ) -> float:
        """Return the makespan in seconds, infinity if it is longer than ``limit``.

        Parameters
        ----------
        realization
            With reference times, see `emu.problem.slowness`.

        Raises
        ------
        ValueError
            When ``machine_of`` or ``realization`` does not fit the job.
        """
        self._check(machine_of, realization)
        return float(
            run_makespan(
                self.arrays,
                machine_of,
                plain(realization.times),
                plain(realization.volumes),
                limit,
            )
        )

    def _check(self, machine_of: Ints, realization: Realization) -> None:
        realization.check_shapes(self._job)
        if machine_of.dtype != np.int64 or machine_of.shape != (len(self._job.tasks),):
            raise ValueError(
                f"machine_of must be int64 of shape ({len(self._job.tasks)},), "
                f"not {machine_of.dtype} of {machine_of.shape}"
            )
        if not ((machine_of >= 0) & (machine_of < self._machines)).all():
            raise ValueError(f"machine_of names a machine beyond {self._machines - 1}")
