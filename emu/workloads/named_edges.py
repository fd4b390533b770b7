"""Edges by the names of their tasks, with what their flows carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from emu.problem import Edge, Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from emu.problem import Task


@dataclass(frozen=True)
class NamedEdge:
    """An edge by the names of its tasks, with what its flow carries."""

    source: str
    destination: str
    lag: int = 0
    credit: bool = False
    carries: str = ""
    """What a formula of volumes calls it; empty for an edge without bytes."""
    place: tuple[int, ...] = ()
    """What else the formula needs to know: ranks, the number of a chunk."""


def phase_of(kind: str) -> str:
    """Return ``Task.phase`` of a kind that several systems have."""
    if kind.startswith(("graph_store", "sampler")):
        return "sampling"
    return "training" if kind == "worker" else ""


def named_job(
    tasks: Iterable[Task],
    edges: Iterable[NamedEdge],
    iterations: int,
    settings: Mapping[str, Any],
) -> Job:
    """Return the job of these tasks and edges, in their order.

    Tasks without a phase have that of their kind.

    Raises
    ------
    ValueError
        As `Job`.
    """
    tasks = tuple(
        replace(task, phase=task.phase or phase_of(task.kind)) for task in tasks
    )
    positions = {task.name: position for position, task in enumerate(tasks)}
    built = tuple(
        Edge(
            positions[edge.source],
            positions[edge.destination],
            edge.lag,
            credit=edge.credit,
        )
        for edge in edges
    )
    return Job(tasks, built, iterations, settings=settings)
