"""A job in words and tables: how fast it is, where it stands, results of an audit."""

from __future__ import annotations

import math
import re
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.text import Text

from emu.analysis.throughput import pipeline_depth
from emu.placement import resource_loads
from emu.report.terminal import plain_table, terminal
from emu.units import format_duration, format_money, format_rate, format_size
from emu.workloads import window_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console
    from rich.table import Table

    from emu.analysis.throughput import JobTime
    from emu.placement import ResourceLoad
    from emu.problem import Job, Problem
    from emu.simulation.attempts import Attempts
    from emu.trust.violation import AuditReport


#: Ranges of a trace that are listed.
_RANGES = 12


def ranges_table(ranges: Mapping[str, NDArray[np.float64]]) -> Table:
    """Return the ranges of a trace in its order, each with a bar of its time in all."""
    shown = plain_table("ranges of the trace", "range", ">times", ">mean", "in all")
    longest = max((seconds.sum() for seconds in ranges.values()), default=0.0) or 1.0
    for name, seconds in [*ranges.items()][:_RANGES]:
        bar = Text("█" * round(30 * float(seconds.sum() / longest)), style="blue")
        mean = format_duration(float(seconds.mean()))
        shown.add_row(name, f"{len(seconds):,}", mean, bar)
    if len(ranges) > _RANGES:
        shown.caption = f"and {len(ranges) - _RANGES} shorter ones"
    return shown


def training_table(training: Sequence[Mapping[str, float]]) -> Table:
    """Return loss and validation accuracy over time, where that was looked at."""
    shown = plain_table("training", ">step", ">time", ">loss", ">validation accuracy")
    looks = [row for row in training if "accuracy" in row]
    for row in looks or training[-1:]:
        accuracy = f"{row['accuracy']:.2%}" if looks else "no such vertices"
        time = format_duration(row["time"], 5)
        shown.add_row(f"{row['iteration']:.0f}", time, f"{row['loss']:.4g}", accuracy)
    return shown


def job_line(
    job: Job,
    policy: str = "",
    window: object = None,
    pins: Collection[str] = (),
) -> str:
    """Return iterations, credit window, and the number of pinned tasks.

    A pipeline has more iterations than mini-batches, the number that a scenario states.

    Parameters
    ----------
    policy
        Rate policy, where one alone is meant.
    window
        The credit window as stated; where it is not known, that of the credit edges.
    pins
        Tasks and processes that the scenario pins; those that the system of the job
        pins by itself, as stores to their partitions, are not among them.
    """
    window = window or window_of(job) or "without effect"
    length = f"{job.iterations} iterations"
    if depth := pipeline_depth(job):
        length = f"{job.iterations - depth} mini-batches in {length}"
    parts = [length, f"credit window {window}"]
    fixed = sum(bool({task.name, task.process_name} & {*pins}) for task in job.tasks)
    if fixed:
        parts.append(f"{fixed} of {len(job.tasks)} tasks pinned")
    return ", ".join([*parts, *([f"rates by {policy}"] if policy else [])])


def placing_line(placing: Mapping[str, Any]) -> str:
    """Return the method of the placement of tasks.

    Parameters
    ----------
    placing
        As in result.json.
    """
    policy = placing["policy"]
    said = f"placed by {policy}"
    if policy == "explicit":
        said = "placed as the scenario states"
    if placing["candidates"]:
        most = f"at most {placing['budget']:,} candidates"
        said += f" ({most}, seed {placing['seed']})"
    return said + (", no placement is better" if placing["optimal"] else "")


def unclaimed_line(placing: Mapping[str, Any]) -> str:
    """Return a warning of resources that limit nothing; empty where all are demanded.

    Parameters
    ----------
    placing
        As in result.json.
    """
    idle = placing["unclaimed"]
    verb = "limits" if len(idle) == 1 else "limit"
    said = f"warning: {', '.join(idle)} {verb} nothing: no task demands any"
    return said if idle else ""


def recovery_lines(recovery: Attempts, without: float) -> Iterator[str]:
    """Yield what kills have lost, and where the job went on after each.

    Parameters
    ----------
    without
        Makespan of the job that is not killed.
    """
    if recovery.killed:
        count, said = len(recovery.killed), lost_line(recovery.lost)
        length, times = format_duration(without, 10), f"{count} times"
        yield f"killed {times if count > 1 else 'once'}, lost {said}; {length} without"
    for one in recovery.killed:
        yield f"{one.error}: goes on at iteration {one.next_iteration}"


def lost_line(lost: Mapping[str, float]) -> str:
    """Return the seconds that deaths have lost, by what they were lost to."""
    return ", ".join(f"{format_duration(time)} {kind}" for kind, time in lost.items())


def print_placing(placing: Mapping[str, Any], console: Console) -> None:
    """Print how tasks were placed; a warning of resources in vain to standard error."""
    console.print(placing_line(placing))
    if not console.quiet:
        warn_unclaimed({"": placing})


def warn_unclaimed(placings: Mapping[str, Mapping[str, Any]]) -> None:
    """Print to standard error what limits nothing, once with the names it is true of.

    Parameters
    ----------
    placings
        By a name, of a system say; ``""`` where there is one alone.
    """
    names: dict[str, list[str]] = {}
    for name, placing in placings.items():
        names.setdefault(unclaimed_line(placing), []).append(name)
    for line, of in names.items():
        if line:
            said = f" ({', '.join(of)})" if any(of) else ""
            terminal(sys.stderr).print(line + said)


def pace_rows(pace: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (what, how much, of what); ``pace`` is that of result.json, or empty."""
    if not pace:
        return []
    seconds, samples = pace["iteration_seconds"], pace["samples_per_second"]
    rows = [("iteration time", format_duration(seconds), "mean between their ends")]
    if samples is not None:
        rows.append(("samples", f"{samples:,.4g} per s", "seeds of all workers"))
    if pace["busy"] is not None:
        note = "of the makespan, the mean over workers"
        rows.append(("workers busy", f"{pace['busy']:.0%}", note))
    shares = [f"{name} {share:.0%}" for name, share in pace["critical_path"].items()]
    if shares:
        rows.append(("critical path", shares[0], ", ".join(shares[1:])))
    return rows


def pace_line(pace: Mapping[str, Any]) -> str:
    """Return the same in one line; empty where nothing is known."""
    said = [
        f"{what} {value}{f', {note}' if what == 'critical path' and note else ''}"
        for what, value, note in pace_rows(pace)
    ]
    return ", ".join(said)


def cost_row(cost: Mapping[str, Any]) -> tuple[str, str]:
    """Return the dollars of a run in all, and what they are for with its value."""
    parts = [
        f"{key.replace('_', ' ')} {format_money(cost[key])}"
        for key in ("servers", "lambdas", "parameter_servers")
        if cost[key]
    ]
    if "lost" in cost:
        parts.append(f"{format_money(cost['lost'])} of lambdas without an answer")
    value = cost["value"]
    if value is not None:
        parts.append(f"value {value:.4g} / (s $)")
    return format_money(cost["total"]), ", ".join(parts)


def model_rows(models: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the measurements of models that are programs: one row each."""
    rows = []
    for one in models:
        took = format_duration(one["seconds"], 3)
        note = f"{one['flops'] / 1e9:.3g} GFLOP and {took} of CPU per batch of a worker"
        parameters = f"{one['parameters']:,} parameters"
        rows.append(("model", parameters, f"{one['program']}, {note}"))
    return rows


def job_table(jobs: Iterable[JobTime]) -> Table:
    """Return a row per job."""
    jobs = [*jobs]
    sampled = any(one.samples_per_second is not None for one in jobs)
    columns = (">released", ">ended", ">took", ">alone", ">slowdown")
    samples = (">samples per s",) if sampled else ()
    table = plain_table("Jobs", "job", *columns, *samples)
    for one in jobs:
        seconds = (one.release, one.end, one.seconds, one.alone)
        shown = [format_duration(value, 4) for value in seconds]
        speed = one.samples_per_second
        cells = (f"{speed:,.4g}" if speed is not None else "",) if sampled else ()
        table.add_row(one.job, *shown, f"{one.slowdown:.3f}", *cells)
    return table


def placement_table(problem: Problem) -> Table:
    """Return one row per machine: NIC, used/capacity of every resource, processes."""
    job, cluster = problem.job, problem.cluster
    loads = resource_loads(job, cluster, problem.placement)
    resources = sorted({load.resource for load in loads})
    table = plain_table(
        "Placement", "machine", ">NIC", *(f">{name}" for name in resources), "processes"
    )
    for position, machine in enumerate(cluster.machines):
        of_machine = {
            load.resource: load_words(load, "/", "")
            for load in loads
            if load.machine == machine.name
        }
        nic = format_rate(machine.bandwidth_out) if machine.has_nic else "none"
        if machine.bandwidth_in != machine.bandwidth_out:
            nic = f"{format_rate(machine.bandwidth_in)} in, {nic} out"
        names = [
            process
            for process, members in job.units.items()
            if problem.placement.machine_of[members[0]] == position
        ]
        loads_shown = (of_machine[name] for name in resources)
        table.add_row(machine.name, nic, *loads_shown, " ".join(ranges(names)))
    return table


def load_words(load: ResourceLoad, between: str, without: str) -> str:
    """Return the use of a resource, ``between``, and its capacity."""
    amount = format_size if load.resource == "memory" else "{:g}".format
    most = without if math.isinf(load.capacity) else between + amount(load.capacity)
    return amount(load.used) + most


def ranges(names: Sequence[str]) -> list[str]:
    """Return ``names`` with runs of numbers joined: s0 s1 s2 w1 -> s0-2 w1."""
    shown: list[str] = []

    def run(item: tuple[int, str]) -> tuple[str, int]:
        match = re.fullmatch(r"(.*?)(\d+)", item[1])
        if match is None:
            return item[1], 0
        return match[1], int(match[2]) - item[0]

    for _, members in groupby(enumerate(names), key=run):
        first, *rest = [name for _, name in members]
        number = re.search(r"\d+$", rest[-1]) if rest else None
        shown.append(f"{first}-{number[0]}" if number else first)
    return shown


def audit_table(report: AuditReport) -> Table:
    """Return one row per constraint: comparisons, violations, the first of them."""
    table = plain_table("Audit", "constraint", ">checked", ">broken", "first")
    for name, checked in report.checked.items():
        parts = name.split(",")
        broken = [v for v in report.violations if v.constraint in parts]
        first = str(broken[0]) if broken else ""
        table.add_row(name, f"{checked:,}", f"{len(broken):,}", first)
    return table


def accuracy_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """Return one row per job and split; one job alone has no name."""
    several = [*found] != [""]
    table = plain_table("", *(["job"] if several else []), "split", ">accuracy")
    for job, splits in found.items():
        for split, share in splits.items():
            table.add_row(*([job] if several else []), split, f"{share:.2%}")
    return table
