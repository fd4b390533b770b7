"""Expected runs, for rules that look ahead and for bounds.

The rules themselves are the core's: sharing.c, max_min.c, priorities.c, coflows.c,
shortest_remaining.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.core import lib, pointer
from emu.scheduling.policies import OES_CP, WEIGHTED_MAXMIN

if TYPE_CHECKING:
    from emu.problem import Job, Profile
    from emu.scheduling.compiled_problem import Floats, Layout


def means(values: Floats) -> Floats:
    """Return the mean of every row as a column."""
    column = np.zeros((len(values), 1))
    lib.means(pointer(values), *values.shape, pointer(column))
    return column


def longest_paths(
    layout: Layout, times: Floats, volumes: Floats
) -> tuple[Floats, Floats]:
    """Return the longest paths from each task's start and each flow's end.

    Along a path tasks take their times, flows between machines the time they would take
    alone, and iterations of a task or an edge follow one another: constraints (7)-(11).

    Parameters
    ----------
    times, volumes
        As in `Realization`; fewer columns are repeated (one column: the means).

    Returns
    -------
    from_task
        Seconds from the start of (task, iteration) to the end of the job.
    after_flow
        Seconds from the end of (edge, iteration) to the end of the job.

    Raises
    ------
    ValueError
        When the two have not as many columns, or not a row per task and edge.
    """
    job, columns = layout.job.arrays, times.shape[1]
    rows = len(job.rounds), len(job.source)
    if times.shape != (rows[0], columns) or volumes.shape != (rows[1], columns):
        raise ValueError(f"times of {times.shape}, volumes of {volumes.shape}")
    from_task = np.zeros((rows[0], job.iterations))
    after_flow = np.zeros((rows[1], job.iterations))
    lib.longest_paths(
        layout.c, pointer(times), pointer(volumes), columns,
        pointer(from_task), pointer(after_flow),
    )  # fmt: skip
    return from_task, after_flow


def earliest(layout: Layout, times: Floats, volumes: Floats) -> tuple[Floats, Floats]:
    """Return when each flow can be active, and each task end, at the earliest, seconds.

    Were all other flows free, ``times`` and ``volumes`` being those of `Realization`.
    The results have the same shapes; what flows within a machine is left out.
    """
    ready, arrived = np.zeros((2, *volumes.shape))
    ended = np.zeros(times.shape)
    lib.earliest_ready(layout.c, *map(pointer, (times, volumes, ready, arrived, ended)))
    return ready, ended


def expectation(layout: Layout, times: Floats, volumes: Floats) -> Floats:
    """Return `State.after` for runs like this one; empty if the policy does not look.

    Parameters
    ----------
    times, volumes
        Those of iterations that were seen, as in `Profile`; only their means are used.
    """
    if layout.job.arrays.policy in (OES_CP, WEIGHTED_MAXMIN):
        return longest_paths(layout, means(times), means(volumes))[1]
    return np.zeros((0, 0))


def check_rows(job: Job, profile: Profile) -> None:
    """Raise ValueError unless ``profile`` has a row for every task and edge."""
    rows = profile.times.shape[0], profile.volumes.shape[0]
    if rows != (len(job.tasks), len(job.edges)):
        raise ValueError(
            f"a profile of {rows[0]} tasks and {rows[1]} edges does not fit a job "
            f"of {len(job.tasks)} and {len(job.edges)}"
        )
