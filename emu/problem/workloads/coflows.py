"""Names for coflows: the flows of a job that are of use together only."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from emu.problem.edges import Edge
from emu.problem.job import Job

#: What flows have in common that are a coflow: their task, its kind, or the job alone.
Coflow: TypeAlias = Literal["task", "stage", "job"]


def with_coflows(job: Job, by: Coflow) -> Job:
    """Return ``job`` with a name for the coflow of every edge that has none.

    By ``task``: none; flows to one task are a coflow without a name. By ``stage``: the
    kinds of both ends, and the layer that a task works for where it has one: what
    DGTP's authors call a coflow of a job of several stages (section IV), a gather of
    DGCL, the pulls of P3, the ghosts of a layer of Dorylus. By ``job``: all.
    """
    if by == "task":
        return job
    edges = []
    for edge in job.edges:
        name = edge.coflow
        if not name:
            name = "job"
            if by == "stage":
                name = _stage_of(job, edge)
        named_edge = replace(edge, coflow=name)
        edges.append(named_edge)
    return replace(job, edges=tuple(edges))


def _stage_of(job: Job, edge: Edge) -> str:
    source, destination = job.ends(edge)
    name = f"{source.kind}->{destination.kind}"
    # A task without a layer serves that of the other end.
    layer = destination.settings.get("layer")
    if layer is None:
        layer = source.settings.get("layer")
    if layer is None:
        return name
    return f"{name} of layer {layer}"
