"""Completion times of coflows that a job names, and how long each takes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from emu.prediction.scheduling.compiled_problem import Floats, Ints
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
        # The mean of quotients, as papers on coflows report it: each coflow counts the
        # same, however large it is.
        slowdown = self.seconds[has_bytes] / self.alone[has_bytes]
        return {
            "count": len(self.names),
            "mean": float(self.seconds.mean()),
            "p95": float(np.percentile(self.seconds, 95)),
            "slowdown": float(slowdown.mean()) if len(slowdown) else 1.0,
        }


def coflow_times(schedule: Schedule) -> CoflowTimes | None:
    """Return the times of the coflows that have a name, None where none has one.

    Flows of one name that serve one iteration are a coflow, as rules of rates see them.
    Handoffs within a machine are no flows.
    """
    edges = schedule.problem.job.edges
    # In the order of the job, so that the figures of two runs stand in one order.
    names = [*dict.fromkeys(edge.coflow for edge in edges if edge.coflow)]
    numbers = {name: number for number, name in enumerate(names)}
    name_of_edge = np.array([numbers.get(edge.coflow, -1) for edge in edges], np.int64)

    edge, iteration = schedule.flows().T
    # Flows of no bytes end at once and are never active (A15): no coflow begins or ends
    # with one.
    has_bytes = schedule.flow_bytes[edge, iteration] > 0
    belongs = has_bytes & (name_of_edge[edge] >= 0)
    if not belongs.any():
        return None
    edge = edge[belongs]
    iteration = iteration[belongs]

    # By the iteration that is served, not by that of the source: edges of one coflow
    # may have different lags.
    lags = np.array([stated.lag for stated in edges])
    served = iteration + lags[edge]
    labels = np.stack([name_of_edge[edge], served])
    coflows, coflow = np.unique(labels, axis=1, return_inverse=True)
    count = coflows.shape[1]

    # From ready and not from start: what a flow waits behind others of its edge is time
    # that the coflow takes.
    ready = schedule.flow_ready[edge, iteration]
    starts = np.full(count, np.inf)
    np.minimum.at(starts, coflow, ready)
    arrival = schedule.flow_end[edge, iteration]
    ends = np.full(count, -np.inf)
    np.maximum.at(ends, coflow, arrival)

    sizes = schedule.flow_bytes[edge, iteration]
    return CoflowTimes(
        names=[(names[number], serves) for number, serves in coflows.T.tolist()],
        seconds=ends - starts,
        alone=_times_alone(schedule.problem, edge, sizes, coflow),
    )


def _times_alone(problem: Problem, edge: Ints, sizes: Floats, coflow: Ints) -> Floats:
    """Return the seconds that the busiest link of each coflow needs for its bytes.

    ``edge``, ``sizes``, ``coflow``: edge, bytes and number of the coflow of each flow.
    """
    # A row per flow and link that it crosses.
    hops = [problem.hops[position] for position in edge.tolist()]
    hop_counts = [len(links) for links in hops]
    link = np.fromiter(chain.from_iterable(hops), np.int64)
    size = np.repeat(sizes, hop_counts)
    owner = np.repeat(coflow, hop_counts)

    # One code per coflow and link that it crosses: its bytes there are one sum.
    # A table of coflows by links would be mostly empty: codes name the pairs in use.
    capacities = problem.links.capacities
    codes, code_of = np.unique(owner * len(capacities) + link, return_inverse=True)
    crossed_link = codes % len(capacities)
    seconds = np.bincount(code_of, size) / capacities[crossed_link]

    alone = np.zeros(int(coflow.max()) + 1)
    np.maximum.at(alone, codes // len(capacities), seconds)
    return alone
