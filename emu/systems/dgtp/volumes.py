"""Bytes of the flows of a DGTP job, and times of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from emu.array_types import Ints
from emu.graph_data import Dataset, count_job
from emu.problem import Job
from emu.problem.workloads import SampleCounts, model_shapes, shard_sizes
from emu.problem.workloads.all_reduce import (
    ALL_REDUCE,
    RECEIVE,
    STEP,
    elements_sent,
)
from emu.systems import Floats
from emu.systems.training_section import (
    count_parameters,
    feature_bytes,
    number_bytes,
)


class _Samples:
    """Counts of one sampler's samples, an entry per iteration."""

    def __init__(self, batches: Sequence[SampleCounts]) -> None:
        self._batches = batches
        owned = np.array([batch.owned for batch in batches])
        self.inputs: Ints = owned.sum(axis=1)
        self.edges: Ints = np.array([batch.edges for batch in batches])
        self.seeds: Ints = np.array([batch.seeds for batch in batches])
        self._sent = owned - _by_store([batch.hits for batch in batches], owned)
        self._ahead = _by_store([batch.ahead for batch in batches], owned)

    def sent(self, store: int) -> Ints:
        """Return the rows that a store sends, as of `SampleCounts.sent`."""
        rows: Ints = self._sent[:, store]
        return rows

    def sent_ahead(self, store: int) -> Ints:
        """Return the rows that it sends for the next window of a cache."""
        rows: Ints = self._ahead[:, store]
        return rows

    @cached_property
    def frontier_owned(self) -> Ints:
        """Vertices by hop, store and iteration, as of `SampleCounts`."""
        counts = np.array([batch.frontier_owned for batch in self._batches])
        return np.moveaxis(counts, 0, -1)

    @cached_property
    def answered(self) -> Ints:
        """Edges likewise."""
        counts = np.array([batch.answered for batch in self._batches])
        return np.moveaxis(counts, 0, -1)


def _by_store(counts: Sequence[tuple[int, ...]], owned: Ints) -> Ints:
    """Return counts of batches by store, of which those that are empty are zeros."""
    nothing = (0,) * owned.shape[1]
    return np.array([of_batch or nothing for of_batch in counts])


def _list_carriers(job: Job) -> list[int]:
    """Return the edges that may carry bytes: no credits, and of rings no order."""
    is_ring = np.array([task.kind == ALL_REDUCE for task in job.tasks])
    sends = np.array([task.program == STEP for task in job.tasks])
    takes = np.array([task.program == RECEIVE for task in job.tasks])
    columns = job.columns
    source = columns.source
    destination = columns.destination
    in_ring = is_ring[source] | is_ring[destination]
    carries = sends[source] & takes[destination]
    carriers = np.flatnonzero(~columns.credit & (carries | ~in_ring))
    return carriers.tolist()


def _edge_bytes(
    kind: str,
    place: Mapping[str, int],
    counts: _Samples,
    row: int,
) -> Ints:
    """Return the bytes that a kind of task sends; a row of features has ``row``."""
    match kind:
        case "graph_store":
            return row * counts.sent(place["store"])
        case "sampler":
            # Two int32 per edge: positions within the block, not numbers of vertices.
            edges = model_shapes.BLOCK_EDGE_BYTES * counts.edges
            labels = model_shapes.LABEL_BYTES * counts.seeds
            return row * counts.inputs + edges + labels
        case "sampler_fetch":
            # An id for each row that the store sends back, behind their number.
            store = place["store"]
            ids = counts.sent(store) + counts.sent_ahead(store)
            head = model_shapes.COUNT_BYTES * place.get("counts", 0)
            return head + model_shapes.VERTEX_ID_BYTES * ids
        case "sampler_hop":
            hop = place["hop"] - 1
            frontier: Ints = counts.frontier_owned[hop, place["store"]]
            return model_shapes.VERTEX_ID_BYTES * frontier
        case "graph_store_hop":
            hop = place["hop"] - 1
            answers: Ints = counts.answered[hop, place["store"]]
            return model_shapes.ANSWERED_EDGE_BYTES * answers
        case _:
            raise ValueError(f"a {kind} sends nothing that was sampled")


def dgtp_volumes(
    job: Job,
    counts: Sequence[Sequence[SampleCounts]],
    *,
    feature_length: int,
    parameters: int,
    itemsize: int = 4,
    row_itemsize: int | None = None,
) -> Floats:
    """Return real bytes of (edge, iteration) of a DGTP job; credits carry 0.

    ``counts``: of each sampler, of each iteration; ``parameters``: of the model,
    sharded over the servers or summed by an all-reduce; ``itemsize``: bytes of a
    parameter, and of a number of a feature unless ``row_itemsize`` says other ones.
    Raises ValueError when an edge is not one of a DGTP job.
    """
    servers = count_servers(job)
    shards = shard_sizes(parameters, servers) if servers else ()
    samples = [_Samples(batches[: job.iterations]) for batches in counts]
    features = (row_itemsize or itemsize) * feature_length
    shape = (len(job.edges), job.iterations)
    volumes = np.zeros(shape)
    for number in _list_carriers(job):
        row = volumes[number]
        edge = job.edges[number]
        source, destination = job.ends(edge)

        if ALL_REDUCE in (source.kind, destination.kind):
            elements = elements_sent(source, destination, parameters)
            row[:] = itemsize * elements
            continue
        place = {**destination.settings, **source.settings}  # the source's hop
        # To a server as from it: a gradient is as long as the shard that it is of.
        if "server" in place:
            server = place["server"]
            row[:] = itemsize * shards[server]
            continue

        of_sampler = samples[place["sampler"]]
        if source.kind == "graph_store" and edge.lag:
            rows = of_sampler.sent_ahead(place["store"])
            row[:] = features * rows
        else:
            row[:] = _edge_bytes(
                source.kind,
                place,
                counts=of_sampler,
                row=features,
            )
    return volumes


def count_servers(job: Job) -> int:
    """Return the number of parameter servers of a job."""
    return sum(task.kind == "parameter_server" for task in job.tasks)


def realize_volumes(job: Job, dataset: Dataset) -> Floats:
    """Return the real bytes of (edge, iteration), exactly those that programs send."""
    settings = job.settings
    return dgtp_volumes(
        job,
        counts=count_job(settings, dataset, job.iterations),
        feature_length=dataset.feature_length,
        parameters=count_parameters(settings, dataset),
        itemsize=number_bytes(settings),
        row_itemsize=feature_bytes(settings),
    )
