"""Bytes of a DGTP job's flows, as functions of what was sampled.

Formulas of the paper's implementation: features and parameters in the precision of the
job, labels int32, block edges as two int32, vertex ids and structure on request int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.workloads.all_reduce import ALL_REDUCE, elements_sent
from emu.workloads.shards import shard_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from emu.problem import Job, Task

LABEL_BYTES = 4
BLOCK_EDGE_BYTES = 8
VERTEX_ID_BYTES = 8
ANSWERED_EDGE_BYTES = 16


@dataclass(frozen=True)
class SampleCounts:
    """What one sampler sampled in one iteration."""

    owned: tuple[int, ...]
    """#(S_0 ∩ owned(g)): input vertices that each store owns."""
    edges: int
    """Sum of #E_l over the blocks."""
    seeds: int
    """B_s."""
    outputs: int = 0
    first_edges: int = 0
    """#S_1 and #E_1: destinations and edges of the first layer's block."""
    frontier_owned: tuple[tuple[int, ...], ...] = ()
    answered: tuple[tuple[int, ...], ...] = ()
    """Only multi-round sampling, per hop and store: vertices of the hop's frontier that
    the store owns, edges that it answers."""

    @property
    def inputs(self) -> int:
        """#S_0: every input vertex has one owner."""
        return sum(self.owned)

    def batch_bytes(self, feature_length: int, itemsize: int) -> int:
        """Return the bytes of the assembled mini-batch, sampler to worker."""
        return (
            itemsize * feature_length * self.inputs
            + BLOCK_EDGE_BYTES * self.edges
            + LABEL_BYTES * self.seeds
        )


def _edge_bytes(
    source: Task,
    destination: Task,
    counts: SampleCounts,
    feature_length: int,
    itemsize: int,
) -> int:
    place: dict[str, int] = {
        **destination.settings,
        **source.settings,
    }  # the hop is the source's
    match source.kind:
        case "graph_store":
            return itemsize * feature_length * counts.owned[place["store"]]
        case "sampler":
            return counts.batch_bytes(feature_length, itemsize)
        case "sampler_fetch":
            return VERTEX_ID_BYTES * counts.owned[place["store"]]
        case "sampler_hop":
            frontier = counts.frontier_owned[place["hop"] - 1]
            return VERTEX_ID_BYTES * frontier[place["store"]]
        case "graph_store_hop":
            answered = counts.answered[place["hop"] - 1]
            return ANSWERED_EDGE_BYTES * answered[place["store"]]
        case kind:
            raise ValueError(f"a {kind} sends nothing that was sampled")


def dgtp_volumes(
    job: Job,
    counts: Sequence[Sequence[SampleCounts]],
    *,
    feature_length: int,
    parameters: int,
    itemsize: int = 4,
) -> NDArray[np.float64]:
    """Return real bytes of (edge, iteration) for a job of `dgtp_job`; credits carry 0.

    Parameters
    ----------
    counts
        Of each sampler, of each iteration of the job.
    feature_length
        F.
    parameters
        Parameters of the model, sharded over the servers or summed by an all-reduce.
    itemsize
        Bytes of a feature and of a parameter: 4 in float32, 8 in float64.

    Raises
    ------
    ValueError
        When an edge is not one of a DGTP job.
    """
    servers = sum(task.kind == "parameter_server" for task in job.tasks)
    shards = shard_sizes(parameters, servers) if servers else ()
    volumes = np.zeros((len(job.edges), job.iterations))
    for row, edge in zip(volumes, job.edges, strict=True):
        source, destination = job.tasks[edge.source], job.tasks[edge.destination]
        if edge.credit:
            continue
        if ALL_REDUCE in (source.kind, destination.kind):
            row[:] = itemsize * elements_sent(source, destination, parameters)
            continue
        ends = {**destination.settings, **source.settings}
        if "server" in ends:
            row[:] = itemsize * shards[ends["server"]]
            continue
        row[:] = [
            _edge_bytes(source, destination, sampled, feature_length, itemsize)
            for sampled in counts[ends["sampler"]][: job.iterations]
        ]
    return volumes
