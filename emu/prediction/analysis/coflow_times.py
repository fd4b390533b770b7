"""Completion times of coflows that a job names, and how long each takes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.array_types import Floats, Ints
from emu.problem import Problem, Schedule


@dataclass(frozen=True, eq=False)
class CoflowTimes:
    """Seconds of every coflow of a run, shape (coflows,)."""

    names: Sequence[tuple[str, int]]
    """Name, and iteration that it serves."""
    seconds: Floats
    """From the end of the first task that sends to the arrival of the last byte."""
    alone: Floats
    """Seconds that the busiest link needs for its bytes, as links are stated."""

    def to_json(self) -> dict[str, float]:
        """Return their count and times; `slowdown` is the mean of ``seconds / alone``.

        Coflows without bytes over a link have no slowdown; without others it is 1.
        """
        has_bytes = self.alone > 0
        slowdown = 1.0
        if has_bytes.any():
            # The mean of quotients, as papers on coflows report it: each coflow counts
            # the same, however large it is.
            slowdowns = self.seconds[has_bytes] / self.alone[has_bytes]
            slowdown = float(slowdowns.mean())

        return {
            "count": len(self.names),
            "mean": float(self.seconds.mean()),
            "p95": float(np.percentile(self.seconds, 95)),
            "slowdown": slowdown,
        }


def coflow_times(schedule: Schedule) -> CoflowTimes | None:
    """Return the times of the coflows that have a name, None where none has one.

    Flows of one name that serve one iteration are a coflow, as rules of rates see them.
    Handoffs within a machine are no flows.
    """
    edges = schedule.problem.job.edges
    # In the order of the job, so that the figures of two runs stand in one order.
    numbers: dict[str, int] = {}
    number_of_edge = np.full(len(edges), -1, np.int64)
    for position, stated in enumerate(edges):
        name = stated.coflow
        if name:
            numbers.setdefault(name, len(numbers))
            number_of_edge[position] = numbers[name]

    edge, iteration = schedule.flows().T
    # Flows of no bytes end at once and are never active (A15): no coflow begins or ends
    # with one.
    has_bytes = schedule.flow_bytes[edge, iteration] > 0
    has_name = number_of_edge[edge] >= 0
    belongs = has_bytes & has_name
    if not belongs.any():
        return None
    edge = edge[belongs]
    iteration = iteration[belongs]

    # By the iteration that is served, not by that of the source: edges of one coflow
    # may have different lags.
    lags = np.array([stated.lag for stated in edges])
    served = iteration + lags[edge]
    number = number_of_edge[edge]
    labels = np.stack([number, served])
    coflows, coflow = np.unique(labels, axis=1, return_inverse=True)
    all_names = [*numbers]
    names = []
    for number_of_coflow, turn in coflows.T.tolist():
        name = all_names[number_of_coflow]
        names.append((name, turn))

    # From ready and not from start: what a flow waits behind others of its edge is time
    # that the coflow takes.
    ready = schedule.flow_ready[edge, iteration]
    starts = np.full(len(names), np.inf)
    np.minimum.at(starts, coflow, ready)
    arrival = schedule.flow_end[edge, iteration]
    ends = np.full(len(names), -np.inf)
    np.maximum.at(ends, coflow, arrival)

    sizes = schedule.flow_bytes[edge, iteration]
    return CoflowTimes(
        names=names,
        seconds=ends - starts,
        alone=_times_alone(schedule.problem, edge, sizes, coflow),
    )


def _times_alone(
    problem: Problem,
    edge: Ints,
    sizes: Floats,
    coflow: Ints,
) -> Floats:
    """Return the seconds that the busiest link of each coflow needs for its bytes.

    ``edge``, ``sizes``, ``coflow``: edge, bytes and number of the coflow of each flow.
    """
    # A row per flow and link that it crosses.
    crossed_links: list[int] = []
    hop_counts = []
    for position in edge.tolist():
        hops = problem.hops[position]
        crossed_links += hops
        hop_counts.append(len(hops))
    link = np.array(crossed_links, np.int64)
    size = np.repeat(sizes, hop_counts)
    owner = np.repeat(coflow, hop_counts)

    # One code per coflow and link that it crosses: its bytes there are one sum.
    # A table of coflows by links would be mostly empty: codes name the pairs in use.
    capacities = problem.links.capacities
    links = len(capacities)
    code = owner * links + link
    codes, position_of_code = np.unique(code, return_inverse=True)
    link_of_code = codes % links
    coflow_of_code = codes // links
    total = np.bincount(position_of_code, size)
    seconds = total / capacities[link_of_code]

    last_coflow = int(coflow.max())
    alone = np.zeros(last_coflow + 1)
    np.maximum.at(alone, coflow_of_code, seconds)
    return alone
