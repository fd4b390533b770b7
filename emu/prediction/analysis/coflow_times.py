"""Completion times of coflows that a job names, and how long each takes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.prediction.scheduling.compiled_problem import Floats, Ints
from emu.problem import Schedule


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
            "slowdown": float(slowdown.mean()) if has_bytes.any() else 1.0,
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

    flows = schedule.flows()
    # Flows of no bytes end at once and are never active (A15): no coflow begins or ends
    # with one.
    is_named = name_of_edge[flows[:, 0]] >= 0
    flows = flows[is_named & (schedule.flow_bytes[*flows.T] > 0)]
    if not len(flows):
        return None

    edge, iteration = flows.T
    lags = np.array([edge.lag for edge in edges])
    keys, coflow = np.unique(
        # By the iteration that is served, not by that of the source: edges of one
        # coflow may have different lags.
        np.stack([name_of_edge[edge], iteration + lags[edge]]),
        axis=1,
        return_inverse=True,
    )
    count = keys.shape[1]
    starts = np.full(count, np.inf)
    ends = np.full(count, -np.inf)
    # From ready and not from start: what a flow waits behind others of its edge is time
    # that the coflow takes.
    np.minimum.at(starts, coflow, schedule.flow_ready[edge, iteration])
    np.maximum.at(ends, coflow, schedule.flow_end[edge, iteration])
    return CoflowTimes(
        names=[(names[number], serves) for number, serves in keys.T.tolist()],
        seconds=ends - starts,
        alone=_times_alone(schedule, flows, coflow, count),
    )


def _times_alone(schedule: Schedule, flows: Ints, coflow: Ints, count: int) -> Floats:
    """Return the seconds that the busiest link of each coflow needs for its bytes.

    ``coflow``: the number of that of each flow, below ``count``.
    """
    edge, iteration = flows.T
    hops = [schedule.problem.hops[position] for position in edge.tolist()]
    hop_counts = np.array([len(links) for links in hops])
    link = np.array([number for links in hops for number in links])
    size = np.repeat(schedule.flow_bytes[edge, iteration], hop_counts)
    capacities = np.array([link.capacity for link in schedule.problem.links])

    # One code per coflow and link that it crosses: its bytes there are one sum.
    # A table of coflows by links would be mostly empty: codes name the pairs in use.
    codes, code_of = np.unique(
        np.repeat(coflow, hop_counts) * len(capacities) + link, return_inverse=True
    )
    seconds = np.bincount(code_of, size) / capacities[codes % len(capacities)]
    alone = np.zeros(count)
    np.maximum.at(alone, codes // len(capacities), seconds)
    return alone
