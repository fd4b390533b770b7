"""Longest remaining paths, for policies that look ahead and for bounds.

Along a path tasks take their times, flows between machines the time they would take
alone, and iterations of a task or an edge follow one another: constraints (7)-(11).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emu.scheduling.compiled import compiled, inlined

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Layout


@inlined
def alone(layout: Layout, capacity: Floats, group: int) -> float:
    """Return the rate that a flow of ``group`` has alone, bytes per second."""
    rate = math.inf
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        rate = min(rate, capacity[layout.hop[i]])
    return rate


@compiled
def means(values: Floats) -> Floats:
    """Return the mean of every row as a column."""
    rows, columns = values.shape
    column = np.zeros((rows, 1))
    for row in range(rows):
        for i in range(columns):
            column[row, 0] += values[row, i] / columns
    return column


@compiled
def longest_paths(
    layout: Layout, times: Floats, volumes: Floats
) -> tuple[Floats, Floats]:
    """Return the longest paths from each task's start and each flow's end.

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
    """
    iterations, columns = layout.iterations, times.shape[1]
    from_task = np.zeros((times.shape[0], iterations))
    after_flow = np.zeros((volumes.shape[0], iterations))
    for n in range(iterations - 1, -1, -1):
        for task in layout.order[::-1]:
            if n >= layout.rounds[task]:
                continue
            longest = from_task[task, n + 1] if n + 1 < iterations else 0.0
            for i in range(layout.out_start[task], layout.out_start[task + 1]):
                edge = layout.out_edge[i]
                arrival = n + layout.lag[edge]
                if n >= layout.sent[edge]:
                    continue
                path = from_task[layout.destination[edge], arrival]
                if layout.group[edge] >= 0:
                    rate = alone(layout, layout.capacity, layout.group[edge])
                    if n + 1 < layout.sent[edge]:
                        behind = volumes[edge, (n + 1) % columns] / rate
                        path = max(path, behind + after_flow[edge, n + 1])
                    after_flow[edge, n] = path
                    path += volumes[edge, n % columns] / rate
                longest = max(longest, path)
            from_task[task, n] = times[task, n % columns] + longest
    return from_task, after_flow
