"""Edges by the names of their tasks, with what their flows carry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from emu.problem import Edge, Job

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from emu.problem import Task


# Credit windows. The paper lets graph stores run ahead without bound; real systems
# crash then, so they bound it. With window K, iteration n of a graph store waits for
# the end of iteration n - K of every worker that its data reaches: edges worker ->
# store of lag K.
def window_of(job: Job) -> int | None:
    """Return the credit window K that the credit edges of ``job`` keep; None: none.

    Those without lag order the steps of a ring.
    """
    lags = (edge.lag for edge in job.edges if edge.credit and edge.lag > 0)
    return min(lags, default=None)


def _reached(followers: list[list[int]], ends: Sequence[int]) -> list[int]:
    """Return per task a whole number whose bit i means that it reaches ``ends[i]``.

    A set of tasks each took 9 s where 21,000 tasks have 42,000 edges. What lies on a
    cycle reaches nothing: no job may have one.
    """
    waiting = [len(some) for some in followers]
    sources: list[list[int]] = [[] for _ in followers]
    for task, some in enumerate(followers):
        for follower in some:
            sources[follower].append(task)
    reached = [0] * len(followers)
    for bit, end in enumerate(ends):
        reached[end] |= 1 << bit
    last = [task for task, count in enumerate(waiting) if count == 0]
    for task in last:  # grows while it is walked
        for source in sources[task]:
            reached[source] |= reached[task]
            waiting[source] -= 1
            if waiting[source] == 0:
                last.append(source)
    return reached


def credit_edges(
    tasks: Sequence[Task], edges: Sequence[Edge], window: int | None
) -> tuple[Edge, ...]:
    """Return the credit edges of ``window``, worker-major, in the order of the tasks.

    They end at the tasks that start an iteration: every ``graph_store`` without an
    in-edge of lag 0 or, where there is none such (multi-round sampling starts at the
    samplers; a custom job may have no stores), every task without one. They come from
    every ``worker`` reachable from there over edges of lag 0 or, where no task is
    called so, from every reachable task without an out-edge of lag 0.

    Parameters
    ----------
    window
        K, at least 1, or None for unlimited: no edges.

    Raises
    ------
    ValueError
        When the window is less than 1.
    """
    if window is None:
        return ()
    if window < 1:
        raise ValueError(f"a credit window of {window} would let nothing start")
    followers: list[list[int]] = [[] for _ in tasks]
    for edge in edges:
        if edge.lag == 0:
            followers[edge.source].append(edge.destination)
    fed = {task for reached in followers for task in reached}
    sources = [task for task in range(len(tasks)) if task not in fed]
    stores = [task for task in sources if tasks[task].kind == "graph_store"]
    workers = [j for j, task in enumerate(tasks) if task.kind == "worker"]
    ends = workers or [j for j in range(len(tasks)) if not followers[j]]
    reached = _reached(followers, ends)
    return tuple(
        Edge(end, start, lag=window, credit=True)
        for bit, end in enumerate(ends)
        for start in stores or sources
        if reached[start] >> bit & 1 and start != end
    )


@dataclass(frozen=True)
class NamedEdge:
    """An edge by the names of its tasks, with what its flow carries."""

    source: str
    destination: str
    lag: int = 0
    credit: bool = False
    carries: str = ""
    """Its name in a formula of volumes; empty for an edge without bytes."""
    place: tuple[int, ...] = ()
    """Further input of the formula: ranks, the number of a chunk."""


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
