"""Lines on a Dorylus schedule: ages of its reads, versions of weights, quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.problem import Schedule
from emu.systems.dorylus.deaths import ANSWERS, DIES, LATE
from emu.units import format_duration


def figures(schedule: Schedule) -> dict[str, Any]:
    """Return ``relaunches`` of result.json, where lambdas were launched again."""
    again = relaunches(schedule)
    return {"relaunches": again} if again else {}


def read_lines(schedules: Mapping[str, Schedule], _policy: str) -> Iterator[str]:
    """Yield lines per schedule: ages of what gathers read, live versions, quotas."""
    for how, schedule in schedules.items():
        line = (
            f"{how}: versions of a layer's weights at a time: {live_versions(schedule)}"
        )
        ages = ages_of_reads(schedule)
        if len(ages):
            line += (
                f", {np.mean(ages == 0):.0%} of the values that gathers read are of "
                f"their epoch, the oldest {ages.max()} before it"
            )
        yield line
        yield from (f"{how}: {went}" for went in quota_lines(schedule))
        if again := relaunches(schedule):
            wait = format_duration(again["seconds"], 4)
            yield (
                f"{how}: {again['count']} lambdas launched again, {again['late']} of "
                f"them for one that answered too late, {wait} waited for them"
            )


def relaunches(schedule: Schedule) -> dict[str, Any]:
    """Return how many lambdas were launched again, and how long they were waited for.

    ``late`` of the lambdas before them answered after all and were dropped; ``seconds``
    are of timeouts and launches, of all intervals. Empty where none may die.
    """
    again = {"count": 0, "late": 0, "seconds": 0.0}
    for j, task in enumerate(schedule.problem.job.tasks):
        if task.kind in {"recall", "held"}:
            ends = {LATE} if task.kind == "held" else {ANSWERS, DIES, LATE}
            epochs = [n for n, end in enumerate(task.settings["ends"]) if end in ends]
            epochs = [n for n in epochs if n < schedule.task_end.shape[1]]
            if task.kind == "held":
                again["late"] += len(epochs)
                continue
            again["count"] += len(epochs)
            took = schedule.task_end[j, epochs] - schedule.task_start[j, epochs]
            again["seconds"] += float(took.sum())
    return again if again["count"] else {}


def quota_lines(schedule: Schedule) -> Iterator[str]:
    """Yield where each tuner went, its quotas weighed by the time that they held."""
    cluster = schedule.problem.cluster
    end = schedule.length
    names = dict(zip(cluster.tuners, cluster.tuned_names, strict=True))
    for tuner, name in names.items():
        pool = next(
            pool
            for pool in schedule.problem.pools
            if (pool.machine, pool.name) == (tuner.machine, tuner.pool)
        )
        since, quotas = schedule.slots_of(pool)
        spans = np.diff(np.minimum(np.append(since, end), end))
        yield (
            f"{name} tuned from {quotas[0]} to {quotas.min()} to {quotas.max()}, "
            f"{quotas @ spans / end:.1f} on average, {quotas[-1]} at last"
        )


def ages_of_reads(schedule: Schedule) -> NDArray[np.int64]:
    """Return by how many epochs every value is older than the gather that reads it.

    What no epoch has made yet is left out; none are returned where all are waited for.
    """
    job = schedule.problem.job
    ages = [np.zeros(0, np.int64)]
    for e, edge in enumerate(job.edges):
        source = job.tasks[edge.source].kind
        to = job.tasks[edge.destination].kind
        gathers = to != "ghosts" and source in {"ghosts", "scatter", "scatter_back"}
        if schedule.reads is not None and edge.latest and gathers:
            epochs = np.flatnonzero(schedule.reads[e] >= 0)
            ages.append(epochs - schedule.reads[e, epochs])
    return np.concatenate(ages)


def live_versions(schedule: Schedule) -> int:
    """Return how many versions of one layer's weights were needed at a time at most.

    A version is needed from its update on until a newer one is there and the backward
    passes that use it have their weights: S + 2 or fewer with one parameter server.
    """
    job = schedule.problem.job
    until: dict[int, NDArray[np.float64]] = {}
    for e, edge in enumerate(job.edges):
        kinds = job.tasks[edge.source].kind, job.tasks[edge.destination].kind
        if kinds != ("weight_update", "apply"):
            continue
        ends = until.setdefault(edge.source, np.zeros(job.iterations + 1))
        uses = _use_ends(schedule, edge.destination)
        epochs = np.arange(job.iterations)
        versions = epochs - edge.lag
        if edge.latest and schedule.reads is not None:
            versions = schedule.reads[e]
        np.maximum.at(ends, np.maximum(versions, -1) + 1, uses)
    most = 0
    for update, ends in until.items():
        starts = np.concatenate([[0.0], schedule.task_end[update]])
        last = np.maximum(ends, np.append(starts[1:], np.inf))
        alive = (starts[None, :] <= starts[:, None]) & (last[None, :] > starts[:, None])
        most = max(most, int(alive.sum(axis=1).max()))
    return most


def _use_ends(schedule: Schedule, apply: int) -> NDArray[np.float64]:
    """Return when the weights of every epoch's apply were needed no more."""
    job = schedule.problem.job
    ends: NDArray[np.float64] = schedule.task_end[apply]
    for e in job.out_edges(apply):
        to = job.edges[e].destination
        if job.tasks[to].kind == "stash":
            ends = np.maximum(ends, schedule.task_end[to])
        elif job.tasks[to].kind == "apply":  # the second half of a streaming lambda
            ends = np.maximum(ends, _use_ends(schedule, to))
    return ends
