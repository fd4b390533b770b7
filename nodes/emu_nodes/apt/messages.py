"""Shares of mini-batches as they travel.

``gdp`` and ``nfp``: ids of all inputs and edges as two places, 8 #S_0 + 8 #E_1 bytes.
``snp``: ids of destinations, and edges as one number each, of the source's id and the
place of the end. ``dnp``: ids of destinations alone, whose owner draws the edges.
"""

from __future__ import annotations

import numpy as np

from emu.array_types import SmallInts
from emu.errors import NodeMisbehaved
from emu.graph_data import SampledBatch, sample_neighbours
from emu.graph_data.sampling import Ids, relabel
from emu.systems.apt.shares import Share
from emu_nodes.dgtp.job_data import JobData
from emu_nodes.program import EdgeSpec, Payload, tensor


def share_tensors(strategy: str, share: Share) -> Payload:
    """Return the tensors of a share, as the module says."""
    if strategy == "dnp":
        return {"destinations": share.destinations}
    if strategy == "snp":
        # One number per edge: there are as many ends as destinations.
        edges = share.sources * len(share.destinations) + share.ends
        return {"destinations": share.destinations, "edges": edges.astype(np.int64)}
    inputs, places = share.inputs
    count = len(share.destinations)
    return {
        "destinations": inputs[:count],
        "further": inputs[count:],
        "source": places,
        "ends": share.ends.astype(np.int32),
    }


def read_share(
    payload: Payload,
    sender: EdgeSpec,
    data: JobData,
    machine: int,
    batch: tuple[int, int],
) -> Share:
    """Return what `share_tensors` states, copied out of pooled memory.

    ``batch``: sampler and iteration. Raises NodeMisbehaved when tensors are missing or
    name what is not there.
    """
    owner = np.asarray(data.dataset.owner)
    destinations = _read_ids(
        payload,
        sender,
        "destinations",
        len(owner),
    )
    if "further" in payload:
        further = _read_ids(
            payload,
            sender,
            "further",
            len(owner),
        )
        inputs = np.concatenate([destinations, further])
        source = _checked(tensor(payload, "source", sender), sender, len(inputs))
        sources = inputs[source]
        ends = tensor(payload, "ends", sender).astype(np.int64)
        adds_own = np.ones(len(destinations), np.bool_)
    else:
        adds_own = owner[destinations] == machine
        if "edges" in payload:
            packed = tensor(payload, "edges", sender)
            sources, ends = np.divmod(packed, max(len(destinations), 1))
            _checked(sources, sender, len(owner))
        else:
            sources, ends = _draw(data, destinations, *batch)

    _checked(ends, sender, len(destinations))
    if np.any(np.diff(ends) < 0):
        raise NodeMisbehaved(f"{sender.peer}: edges of a share are out of order")
    return Share(
        destinations,
        sources,
        ends,
        adds_own,
    )


def _draw(
    data: JobData,
    destinations: Ids,
    sampler: int,
    iteration: int,
) -> tuple[Ids, Ids]:
    """Return the edges of layer 1 into some vertices, as the sampler would draw them.

    Their sources, and places of their ends.
    """
    hop = len(data.plan.fanouts)
    sources, drawn_for = sample_neighbours(
        data.dataset.structure,
        destinations,
        fanout=data.plan.hop_fanout(hop),
        stream=data.plan.stream(sampler, iteration),
        hop=hop,
    )
    _, places = relabel(destinations, drawn_for)
    return sources, places.astype(np.int64)


def _read_ids(
    payload: Payload,
    sender: EdgeSpec,
    name: str,
    vertices: int,
) -> Ids:
    ids = tensor(payload, name, sender).copy()
    return _checked(ids, sender, vertices)


def _checked(
    numbers: Ids,
    sender: EdgeSpec,
    count: int,
) -> Ids:
    is_there = (numbers >= 0) & (numbers < count)
    if not is_there.all():
        raise NodeMisbehaved(f"{sender.peer}: a share names what is not there")
    return numbers


def upper_batch(batch: SampledBatch) -> SampledBatch:
    """Return a batch without the block of its first layer."""
    return SampledBatch(
        vertices=batch.vertices[: batch.sizes[1]],
        sizes=batch.sizes[1:],
        edges=batch.edges[1:],
    )


def with_empty_block(batch: SampledBatch) -> SampledBatch:
    """Return a batch whose first layer has no edges: its sums are computed apart."""
    nothing: SmallInts = np.empty(0, np.int32)
    return SampledBatch(
        vertices=batch.vertices,
        sizes=(batch.sizes[0], *batch.sizes),
        edges=((nothing, nothing), *batch.edges),
    )
