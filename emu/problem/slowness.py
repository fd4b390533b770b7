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
    """Return the factors on reference times, shape (tasks, machines).

    No rows where all are 1: of 45,000 tasks on 3,200 machines they would take 1.2 GB.
    """
    rows = len(job.tasks) if any(task.slowness for task in job.tasks) else 0
    factors = np.ones((rows, len(cluster.machines)))
    for t, task in enumerate(job.tasks):
        if task.slowness:
            for m, machine in enumerate(cluster.machines):
                factors[t, m] = task.slowness.get(machine.name, 1.0)
    return factors
