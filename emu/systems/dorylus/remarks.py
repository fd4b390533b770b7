"""Lines on a Dorylus schedule: ages of its reads, versions of weights, quotas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from emu.array_types import Ints
from emu.problem import Schedule
from emu.systems import Floats
from emu.systems.dorylus.deaths import Relaunches, relaunches
from emu.units import format_duration

#: Kinds of task whose rows gathers read.
_SENDERS = {"ghosts", "scatter", "scatter_back"}


def figures(schedule: Schedule) -> dict[str, Relaunches]:
    """Return ``relaunches`` of result.json, where lambdas were launched again."""
    counts = relaunches(schedule)
    if counts is None:
        return {}
    return {"relaunches": counts}


def read_lines(schedules: Mapping[str, Schedule], _policy: str) -> Iterator[str]:
    """Yield lines per schedule: ages of what gathers read, live versions, quotas."""
    for name, schedule in schedules.items():
        versions = live_versions(schedule)
        line = f"{name}: versions of a layer's weights at a time: {versions}"
        ages = ages_of_reads(schedule)
        if len(ages):
            line += (
                f", {np.mean(ages == 0):.0%} of the values that gathers read are of "
                f"their epoch, the oldest {ages.max()} before it"
            )
        yield line
        for quotas in quota_lines(schedule):
            yield f"{name}: {quotas}"

        if counts := relaunches(schedule):
            wait = format_duration(counts["seconds"], 4)
            yield (
                f"{name}: {counts['count']} lambdas launched again, {counts['late']} "
                f"of them for one that answered too late, {wait} waited for them"
            )


def quota_lines(schedule: Schedule) -> Iterator[str]:
    """Yield where each tuner went, its quotas weighed by the time that they held."""
    cluster = schedule.problem.cluster
    end = schedule.length
    pools = {}
    for pool in schedule.problem.pools:
        pools[pool.machine, pool.name] = pool
    named_tuners = zip(cluster.tuners, cluster.tuned_names, strict=True)
    for tuner, name in named_tuners:
        pool = pools[tuner.machine, tuner.pool]
        since, quotas = schedule.slots_of(pool)
        # The last quota holds to the end, and those behind the end for no time.
        bounds = np.append(since, end)
        bounds = np.minimum(bounds, end)
        spans = np.diff(bounds)
        mean = quotas @ spans / end
        yield (
            f"{name} tuned from {quotas[0]} to {quotas.min()} to {quotas.max()}, "
            f"{mean:.1f} on average, {quotas[-1]} at last"
        )


def ages_of_reads(schedule: Schedule) -> Ints:
    """Return by how many epochs every value is older than the gather that reads it.

    What no epoch has made yet is left out; none are returned where all are waited for.
    """
    job = schedule.problem.job
    no_ages = np.zeros(0, np.int64)
    if schedule.reads is None:
        return no_ages

    ages = [no_ages]
    for position, edge in enumerate(job.edges):
        sender = job.tasks[edge.source].kind
        reader = job.tasks[edge.destination].kind
        # What a receiving task takes in is not read yet: the gather behind it reads.
        gathers = reader != "ghosts" and sender in _SENDERS
        if edge.latest and gathers:
            reads = schedule.reads[position]
            # -1 is before the first epoch: no value was there, so none has an age.
            epochs = np.flatnonzero(reads >= 0)
            ages_of_epochs = epochs - reads[epochs]
            ages.append(ages_of_epochs)
    return np.concatenate(ages)


def live_versions(schedule: Schedule) -> int:
    """Return how many versions of one layer's weights were needed at a time at most.

    A version is needed from its update on until a newer one is there and the backward
    passes that use it have their weights: S + 2 or fewer with one parameter server.
    """
    job = schedule.problem.job
    use_ends: dict[int, Floats] = {}  # of updates: by version, from -1
    for position, edge in enumerate(job.edges):
        sender = job.tasks[edge.source].kind
        reader = job.tasks[edge.destination].kind
        if (sender, reader) != ("weight_update", "apply"):
            continue
        # Where nothing was read as the newest, the lag alone says which version it is.
        versions = np.arange(job.iterations) - edge.lag
        if edge.latest and schedule.reads is not None:
            versions = schedule.reads[position]
        # Version -1, the first weights, has place 0.
        places = np.maximum(versions, -1) + 1
        ends_of_apply = _use_ends(schedule, edge.destination)
        nothing = np.zeros(job.iterations + 1)
        ends_of_update = use_ends.setdefault(edge.source, nothing)
        np.maximum.at(ends_of_update, places, ends_of_apply)

    most = 0
    for update, ends in use_ends.items():
        update_ends = schedule.task_end[update]
        starts = np.append(0.0, update_ends)
        # The last version stays: nothing replaces it.
        next_starts = np.append(update_ends, np.inf)
        last = np.maximum(ends, next_starts)
        # Most are there when one of them begins.
        moments = starts[:, None]
        is_there = starts[None, :] <= moments
        is_needed = last[None, :] > moments
        is_live = is_there & is_needed
        counts = is_live.sum(axis=1)
        most_of_layer = int(counts.max())
        most = max(most, most_of_layer)
    return most


def _use_ends(schedule: Schedule, apply: int) -> Floats:
    """Return when the weights of every epoch's apply were needed no more."""
    job = schedule.problem.job
    ends: Floats = schedule.task_end[apply]
    for edge in job.out_edges(apply):
        reader = job.edges[edge].destination
        kind = job.tasks[reader].kind
        if kind == "stash":
            stash_end = schedule.task_end[reader]
            ends = np.maximum(ends, stash_end)
        elif kind == "apply":  # the second half of a streaming lambda
            # It uses the same version, later.
            later_ends = _use_ends(schedule, reader)
            ends = np.maximum(ends, later_ends)
    return ends
