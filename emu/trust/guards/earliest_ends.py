"""When tasks can end at the earliest, whatever the schedule: what a run is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from emu.array_types import Floats
from emu.trust.guards.evidence import list_hops, list_latencies, most_stated

if TYPE_CHECKING:
    from emu.problem import Problem


def earliest_ends(
    problem: Problem,
    times: Floats,
    volumes: Floats,
    *,
    at_once: Callable[[float], float] = lambda _: 0.0,
) -> Floats:
    """Return when every (task, iteration) can end at the earliest, seconds.

    ``times`` and ``volumes``: seconds of (task, iteration), bytes of (edge, iteration).
    ``at_once``: bytes that a link of some capacity lets go at once after a pause.
    """
    job = problem.job
    # Plain lists: single numbers of arrays are read far slower in a loop.
    seconds = times.tolist()
    seconds_alone = _seconds_alone(problem, volumes, at_once).tolist()
    task_shape = (len(job.tasks), job.iterations)
    flow_shape = (len(job.edges), job.iterations)
    task_ends = np.zeros(task_shape).tolist()
    flow_ends = np.zeros(flow_shape).tolist()
    tasks = range(len(job.tasks))
    incoming = [*map(job.in_edges, tasks)]
    outgoing = [*map(job.out_edges, tasks)]
    lags = [edge.lag for edge in job.edges]
    latencies = list_latencies(problem)
    counts = job.flow_counts  # a source may have fewer iterations than its destination
    # Edges without lag run along this order: every input is known when it is needed.
    order = job.order
    for n in range(job.iterations):
        for task in order:
            start = task_ends[task][n - 1] if n else 0.0
            for edge in incoming[task]:
                sent = n - lags[edge]
                if 0 <= sent < counts[edge]:
                    landed = flow_ends[edge][sent] + latencies[edge]
                    start = max(start, landed)
            end = start + seconds[task][n]
            task_ends[task][n] = end
            for edge in outgoing[task]:
                # Flows of an edge go one by one (11).
                previous_end = flow_ends[edge][n - 1] if n else 0.0
                begin = max(end, previous_end)
                flow_ends[edge][n] = begin + seconds_alone[edge][n]
    return np.array(task_ends)


def _seconds_alone(
    problem: Problem,
    volumes: Floats,
    at_once: Callable[[float], float],
) -> Floats:
    """Return the seconds that (edge, iteration) needs with every link for itself."""
    narrowest = list_widths(problem)
    free = []
    for width in narrowest:
        # What a link lets go at once takes no time: a bound must hold for that, too.
        first_bytes = at_once(width) if width < np.inf else 0.0
        free.append(first_bytes)
    paced_bytes = volumes - np.reshape(free, (-1, 1))
    paced_bytes = np.maximum(paced_bytes, 0.0)
    # Edges without links are infinitely wide, and take no time.
    seconds: Floats = paced_bytes / np.reshape(narrowest, (-1, 1))
    return seconds


def list_widths(problem: Problem) -> list[float]:
    """Return bytes per second of the narrowest link of every edge, as wide as it gets.

    Edges without links are infinitely wide.
    """
    most = most_stated(problem)
    widths = []
    for hops in list_hops(problem):
        capacities = [most[link] for link in hops]
        width = min(capacities, default=np.inf)
        widths.append(width)
    return widths
