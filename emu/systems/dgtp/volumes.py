"""Bytes of a DGTP job's flows, as functions of what was sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.graph_data import BatchPlan, sampled_counts
from emu.systems.training_section import number_bytes
from emu.workloads import parameter_count, shard_sizes
from emu.workloads.all_reduce import ALL_REDUCE, elements_sent
from emu.workloads.model_shapes import (
    ANSWERED_EDGE_BYTES,
    VERTEX_ID_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from emu.graph_data import Dataset
    from emu.problem import Job, Task
    from emu.workloads import SampleCounts


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


def realize_volumes(job: Job, dataset: Dataset) -> NDArray[np.float64]:
    """Return the real bytes of every (edge, iteration) of a DGTP job.

    They are exactly the bytes that the node programs send. Divide by the byte scale for
    emulated bytes; credit edges carry 0.

    Returns
    -------
    volumes
        float64, shape (edges, iterations).

    Raises
    ------
    ValueError
        When the settings contradict each other, or the job is not DGTP's.
    """
    plan = BatchPlan.from_settings(job.settings)
    return dgtp_volumes(
        job,
        sampled_counts(dataset, plan, job.iterations),
        feature_length=dataset.feature_length,
        parameters=parameter_count(
            job.settings["model"], dataset.feature_length, dataset.classes
        ),
        itemsize=number_bytes(job.settings),
    )
