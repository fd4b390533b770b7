"""Credit windows: how far a job may run ahead of who trains."""

from __future__ import annotations

from collections.abc import Iterator

from emu.problem import Job, Schedule
from emu.problem.workloads.all_reduce import ALL_REDUCE
from emu.trust.guards.evidence import Evidence
from emu.trust.violation import Finding, task_name

WINDOW = "window"
#: Share of its time by which a start may seem early: rounding.
_ROUNDING = 1e-6


def window(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first start that the credit window of a scenario does not allow.

    With window K, iteration n of what begins a mini-batch starts only after iteration
    n - K of every worker that it reaches. Which edges a job has for that does not
    enter: they may be the mistake.
    """
    job = evidence.schedule.problem.job
    for prefix, most in evidence.windows:
        for first, last in _first_and_last_tasks(job, prefix):
            early = _find_early_start(
                evidence.schedule,
                first=first,
                last=last,
                most=most,
            )
            if early is not None:
                yield early
                return


def _find_early_start(
    schedule: Schedule,
    first: int,
    last: int,
    most: int,
) -> Finding | None:
    """Return the first start of task ``first`` more than a window before ``last``."""
    job = schedule.problem.job
    # A worker with fewer iterations bounds fewer starts.
    last_bound = most + job.rounds[last]
    rounds = min(job.rounds[first], job.iterations, last_bound)
    # The first K iterations wait for no worker.
    for n in range(most, rounds):
        awaited = n - most
        start = schedule.task_start[first, n]
        bound = schedule.task_end[last, awaited]
        if start < bound - _ROUNDING * bound:
            name = task_name(job, first, n)
            name_awaited = task_name(job, last, awaited)
            sentence = (
                f"{name} started at {start:.6g} s, before {name_awaited} ended at "
                f"{bound:.6g} s: the credit window is {most}"
            )
            return Finding(WINDOW, float(start), sentence)
    return None


def _first_and_last_tasks(job: Job, prefix: str) -> Iterator[tuple[int, int]]:
    """Yield the tasks that begin a mini-batch of a job, each with a worker it feeds."""
    members = _list_members(job, prefix)
    inner = []
    for edge in job.edges:
        is_inner = edge.source in members and edge.destination in members
        if is_inner and edge.lag == 0:
            inner.append(edge)

    feeds = {task: {task} for task in members}
    turns = {task: turn for turn, task in enumerate(job.order)}
    # From the last task back: what a task feeds is complete before its sources take it.
    last_first = sorted(inner, key=lambda edge: -turns[edge.source])
    for edge in last_first:
        reached = feeds[edge.destination]
        feeds[edge.source] |= reached

    sources = {edge.source for edge in inner}
    destinations = {edge.destination for edge in inner}
    first_tasks = sorted(members - destinations)
    # Where there are graph stores, they begin the mini-batches.
    stores = [task for task in first_tasks if job.tasks[task].kind == "graph_store"]
    workers = {task for task in members if job.tasks[task].kind == "worker"}
    last_tasks = workers or members - sources
    for first in stores or first_tasks:
        reached = feeds[first] & last_tasks
        reached.discard(first)
        for last in sorted(reached):
            yield first, last


def _list_members(job: Job, prefix: str) -> set[int]:
    """Return the tasks of a job's mini-batches: names begin with ``prefix``."""
    gate = f"{prefix}release"
    members = set()
    for position, task in enumerate(job.tasks):
        if not task.name.startswith(prefix) or task.name == gate:
            continue
        # Sums over workers come behind a mini-batch: no window waits for them.
        if task.kind != ALL_REDUCE:
            members.add(position)
    return members
