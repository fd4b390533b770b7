"""Slowness of tasks on some machines relative to others: p_j^m over p_j.

Searches and bounds have the times of no machine in particular (*reference* times), and
multiply. A `Realization` of a placed job holds what its machines take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem.cluster import Cluster
    from emu.problem.job import Job


def slowness(job: Job, cluster: Cluster) -> NDArray[np.float64]:
    """Return the factors on reference times, shape (tasks, machines)."""
    factors = np.ones((len(job.tasks), len(cluster.machines)))
    for t, task in enumerate(job.tasks):
        if task.slowness:
            for m, machine in enumerate(cluster.machines):
                factors[t, m] = task.slowness.get(machine.name, 1.0)
    return factors
