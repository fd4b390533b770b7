"""Completion times of coflows that a job names, and how long each takes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.prediction.scheduling.compiled_problem import Floats
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
        """Return how all of them do; `slowdown` is the mean of ``seconds / alone``."""
        moving = self.alone > 0
        slowdown = self.seconds[moving] / self.alone[moving]
        return {
            "count": len(self.names),
            "mean": float(self.seconds.mean()),
            "p95": float(np.percentile(self.seconds, 95)),
            "slowdown": float(slowdown.mean()) if moving.any() else 1.0,
        }


def coflow_times(schedule: Schedule) -> CoflowTimes | None:
    """Return the times of the coflows that have a name, None where none has one.

    Flows of one name that serve one iteration are a coflow, as rules of rates see them.
    Handoffs within a machine are no flows.
    """
    edges = schedule.problem.job.edges
    names = [*dict.fromkeys(edge.coflow for edge in edges if edge.coflow)]
    number = {name: place for place, name in enumerate(names)}
    of_edge = np.array([number.get(edge.coflow, -1) for edge in edges], dtype=np.int64)
    flows = schedule.flows()
    flows = flows[(of_edge[flows[:, 0]] >= 0) & (schedule.flow_bytes[*flows.T] > 0)]
    if not len(flows):
        return None
    edge, iteration = flows.T
    serves = iteration + np.array([one.lag for one in edges])[edge]
    keys, group = np.unique(
        np.stack([of_edge[edge], serves]), axis=1, return_inverse=True
    )
    starts, ends = np.full((2, keys.shape[1]), [[np.inf], [-np.inf]])
    np.minimum.at(starts, group, schedule.flow_ready[edge, iteration])
    np.maximum.at(ends, group, schedule.flow_end[edge, iteration])
    # The busiest link of each, by the bytes of its flows that cross a link.
    hops = [[*hops] for hops in schedule.problem.hops]
    counts = np.array([len(hops[e]) for e in edge.tolist()])
    port = np.array([p for e in edge.tolist() for p in hops[e]])
    size = np.repeat(schedule.flow_bytes[edge, iteration], counts)
    rates = np.array([link.capacity for link in schedule.problem.links])
    codes, place = np.unique(
        np.repeat(group, counts) * len(rates) + port, return_inverse=True
    )
    alone = np.zeros(keys.shape[1])
    seconds = np.bincount(place, size) / rates[codes % len(rates)]
    np.maximum.at(alone, codes // len(rates), seconds)
    labels = [(names[of], serves) for of, serves in keys.T.tolist()]
    return CoflowTimes(labels, ends - starts, alone)
