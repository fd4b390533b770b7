"""Credit windows: what bounds how far the start of a job may run ahead of its end.

The paper lets graph stores run ahead without bound; real systems crash then, so they
bound it. With window K, iteration n of a graph store waits for the end of iteration
n - K of every worker that its data reaches: credit edges worker -> store with lag K.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.problem import Edge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.problem import Job, Task


def window_of(job: Job) -> int | None:
    """Return the credit window K that the credit edges of ``job`` keep; None: none.

    Those without lag order the steps of a ring.
    """
    lags = (edge.lag for edge in job.edges if edge.credit and edge.lag > 0)
    return min(lags, default=None)


def _reachable(start: int, followers: list[list[int]]) -> set[int]:
    seen = {start}
    frontier = [start]
    while frontier:
        for task in followers[frontier.pop()]:
            if task not in seen:
                seen.add(task)
                frontier.append(task)
    return seen


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
    pairs = {
        (end, start)
        for start in stores or sources
        for end in _reachable(start, followers).intersection(ends) - {start}
    }
    return tuple(
        Edge(end, start, lag=window, credit=True) for end, start in sorted(pairs)
    )
