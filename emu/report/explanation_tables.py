"""A job and its explanation in words and tables of at most 100 columns."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from emu.prediction.analysis.critical_path import Drift
from emu.prediction.analysis.explanation import (
    NO_MOVES,
    Explanation,
    TaskMoves,
    apart_rows,
    cause_rows,
    death_rows,
    port_rows,
    write_placement,
)
from emu.prediction.analysis.throughput import JobTime, pipeline_depth
from emu.prediction.analysis.what_if import Improvement
from emu.prediction.placement import resource_loads
from emu.prediction.placement.packing import ResourceLoad
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Job, Problem, Schedule
from emu.problem.workloads import window_of
from emu.report.terminal import WIDTH, plain_table, terminal
from emu.runs.result import Row
from emu.scenario.error_messages import write_value
from emu.scenario.machine_choice import machines_words
from emu.trust.violation import AuditReport
from emu.units import (
    format_duration,
    format_money,
    format_number,
    format_rate,
    format_ratio,
    format_size,
)

#: Ranges of a trace that are listed.
_RANGES = 12


def ranges_table(ranges: Mapping[str, NDArray[np.float64]]) -> Table:
    """Return the ranges of a trace in its order, each with a bar of its time in all."""
    grid = plain_table("ranges of the trace", "range", ">times", ">mean", "in all")
    longest = max((seconds.sum() for seconds in ranges.values()), default=0.0) or 1.0
    for name, seconds in [*ranges.items()][:_RANGES]:
        bar = Text("█" * round(30 * float(seconds.sum() / longest)), style="blue")
        mean = format_duration(float(seconds.mean()))
        grid.add_row(name, f"{len(seconds):,}", mean, bar)
    if len(ranges) > _RANGES:
        grid.caption = f"and {len(ranges) - _RANGES} shorter ones"
    return grid


def times_lines(
    times: Iterable[tuple[str, Any]], rest: Mapping[str, float]
) -> list[str]:
    """Return the keys of ``job.times`` above 0, and kinds of task that have none."""
    lines = []
    for key, time in times:
        listed = time if isinstance(time, tuple) else (time or 0.0,)
        if any(listed):
            lines.append(f"  {key}: {', '.join(map(format_duration, listed))}")
    for kind, seconds in rest.items():
        if seconds:
            lines.append(f"  ({kind}: {format_duration(seconds)}, no key takes it)")
    return lines


def rates_lines(
    rates: Mapping[str, Any], residuals: Mapping[str, float]
) -> Iterator[str]:
    """Yield ``job.rates``, and how far times by them are from what was measured."""
    yield from (f"  {name}: {rate}" for name, rate in rates.items())
    for kind, share in residuals.items():
        yield f"  ({kind}: {format_ratio(share)} at the furthest)"


def training_table(training: Sequence[Mapping[str, float]]) -> Table:
    """Return loss and validation accuracy over time, where that was looked at."""
    grid = plain_table("training", ">step", ">time", ">loss", ">validation accuracy")
    looks = [row for row in training if "accuracy" in row]
    for row in looks or training[-1:]:
        accuracy = f"{row['accuracy']:.2%}" if looks else "no such vertices"
        time = format_duration(row["time"], 5)
        grid.add_row(f"{row['iteration']:.0f}", time, f"{row['loss']:.4g}", accuracy)
    return grid


def length_text(iterations: int, mini_batches: int) -> str:
    """Return the length of a job, of a pipeline its mini-batches, too."""
    length = f"{iterations} iterations"
    if mini_batches == iterations:
        return length
    return f"{mini_batches} mini-batches in {length}"


def job_line(
    job: Job,
    policy: str = "",
    window: object = None,
    pins: Collection[str] = (),
) -> str:
    """Return iterations, credit window, and the number of pinned tasks.

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
    length = length_text(job.iterations, job.iterations - pipeline_depth(job))
    parts = [length, f"credit window {window}"]
    count = sum(bool({task.name, task.process_name} & {*pins}) for task in job.tasks)
    if count:
        parts.append(f"{count} of {len(job.tasks)} tasks pinned")
    return ", ".join([*parts, *([f"rates by {policy}"] if policy else [])])


def placing_line(placing: Row) -> str:
    """Return the method of the placement of tasks, and on which machines they stand."""
    by, where = f"by {placing['policy']}", machines_words(placing)
    line = f"placed {'as the scenario states' if by == 'by explicit' else by}"
    line += f" {where}" if where else ""
    if placing["candidates"]:
        most = f"at most {placing['budget']:,} candidates"
        line += f" ({most}, seed {placing['seed']})"
    best = "no placement there is better" if where else "no placement is better"
    return line + (f", {best}" if placing["optimal"] else "")


def warn_of_unclaimed(placing: Row) -> str:
    """Return a warning of resources that limit nothing; empty where there are none."""
    idle = placing["unclaimed"]
    verb = "limits" if len(idle) == 1 else "limit"
    line = f"warning: {', '.join(idle)} {verb} nothing: no task demands any"
    return line if idle else ""


def recovery_lines(recovery: Attempts, without: float) -> Iterator[str]:
    """Yield what kills have lost, and where the job went on after each.

    ``without`` is the makespan of the job that is not killed, seconds.
    """
    if recovery.killed:
        count, loss = len(recovery.killed), recovery.lost
        # What was under way at the cut is not: batches travel to idle workers anew.
        rest = recovery.makespan - without - math.fsum(loss.values())
        anew = {"starting up": rest} if format_duration(rest) != "0 us" else {}
        line = write_loss({**loss, **anew})
        length, times = format_duration(without, 10), f"{count} times"
        yield f"killed {times if count > 1 else 'once'}, lost {line}; {length} without"
    for one in recovery.killed:
        yield f"{one.error}: goes on at iteration {one.next_iteration}"


def most_failing(drawn: Mapping[str, int]) -> str:
    """Return what failed most often of the failures that were drawn: ``m0 3, m1 1``."""
    most = sorted(drawn, key=lambda name: -drawn[name])
    others = [f"{len(most) - 4} others"] if most[4:] else []
    return ", ".join([*(f"{name} {drawn[name]}" for name in most[:4]), *others])


def write_loss(lost: Mapping[str, float]) -> str:
    """Return the seconds that deaths have lost, by what they were lost to."""
    return ", ".join(f"{format_duration(time)} {kind}" for kind, time in lost.items())


def print_placing(placing: Row, console: Console) -> None:
    """Print how tasks were placed; a warning of resources in vain to standard error."""
    console.print(placing_line(placing))
    if not console.quiet:
        warn_unclaimed({"": placing})


def warn_unclaimed(placings: Mapping[str, Row]) -> None:
    """Print to standard error what limits nothing, once with the names it is true of.

    One placing alone has the name ``""``.
    """
    names: dict[str, list[str]] = {}
    for name, placing in placings.items():
        names.setdefault(warn_of_unclaimed(placing), []).append(name)
    for line, of in names.items():
        if line:
            said = f" ({', '.join(of)})" if any(of) else ""
            terminal(sys.stderr).print(line + said)


def pace_rows(pace: Row) -> list[tuple[str, str, str]]:
    """Return (what, how much, of what); ``pace`` is that of result.json, or empty."""
    if not pace:
        return []
    seconds, samples = pace["iteration_seconds"], pace["samples_per_second"]
    rows = []
    if seconds is not None:
        rows = [("iteration time", format_duration(seconds), "mean between their ends")]
    if samples is not None:
        speed = f"{format_number(samples, 4)} per s"
        rows.append(("samples", speed, "seeds of all workers"))
    if pace["busy"] is not None:
        note = "of the makespan, the mean over workers"
        rows.append(("workers busy", f"{pace['busy']:.0%}", note))
    shares = [f"{name} {share:.0%}" for name, share in pace["critical_path"].items()]
    if shares:
        rows.append(("critical path", shares[0], ", ".join(shares[1:])))
    return rows


def pace_line(pace: Row) -> str:
    """Return the same in one line; empty where nothing is known."""
    return ", ".join(
        f"{what} {value}{f', {note}' if what == 'critical path' and note else ''}"
        for what, value, note in pace_rows(pace)
    )


def setup_row(setup: Row) -> tuple[str, str]:
    """Return the seconds before time 0, simulated, and what is sent in them."""
    causes = setup["causes"].items()
    parts = [f"{format_size(one['bytes'])} of {cause}" for cause, one in causes]
    text = ", ".join(parts) or "nothing to send"
    if run := setup.get("measured"):
        text += (
            f"; emulated {format_duration(run['seconds'], 4)} "
            f"({format_ratio(run['error'])}), {format_size(run['bytes'])} arrived, "
            f"{run['trust']}"
        )
    return format_duration(setup["seconds"], 4), f"before time 0: {text}"


def cost_row(cost: Row) -> tuple[str, str]:
    """Return the dollars of a run in all, and what they are for with its value."""
    parts = [
        f"{key.replace('_', ' ')} {format_money(cost[key])}"
        for key in ("servers", "lambdas", "parameter_servers")
        if cost[key]
    ]
    if "lost" in cost:
        parts.append(f"{format_money(cost['lost'])} of lambdas without an answer")
    if cost["value"] is not None:
        parts.append(f"value {cost['value']:.4g} / (s $)")
    return format_money(cost["total"]), ", ".join(parts)


def model_rows(models: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Return the measurements of models that are programs: one row each."""
    rows = []
    for one in models:
        took = f" and {format_duration(one['seconds'], 3)} of CPU"
        took = took if one.get("seconds_used", True) else ""
        note = f"{one['flops'] / 1e9:.3g} GFLOP{took} per batch of a worker"
        parameters = f"{one['parameters']:,} parameters"
        rows.append(("model", parameters, f"{one['program']}, {note}"))
    return rows


#: More jobs are shown by the worst of them.
MOST_JOBS, _WORST = 20, 10
_DISTRIBUTION: tuple[tuple[str, Callable[[list[float]], Any]], ...] = (
    ("mean of all", np.mean),
    ("median of all", np.median),
    ("95 % within", partial(np.percentile, q=95)),
)


def job_table(jobs: Iterable[JobTime]) -> Table:
    """Return a row per job; of many the most slowed down, below how all of them do."""
    jobs = [*jobs]
    columns = ["job", ">released", ">ended", ">took", ">alone", ">slowdown"]
    with_samples = any(one.samples_per_second is not None for one in jobs)
    title, rows = "Jobs", jobs
    if len(jobs) > MOST_JOBS:
        title = f"The {_WORST} most slowed down of {len(jobs)} jobs"
        rows = sorted(jobs, key=lambda one: -one.slowdown)[:_WORST]
    table = plain_table(title, *columns, *[">samples per s"] * with_samples)
    took = [one.seconds for one in jobs], [one.slowdown for one in jobs]
    for name, part in _DISTRIBUTION if rows is not jobs else ():
        seconds, slowdown = (part(values) for values in took)
        cells = [name, "", "", format_duration(float(seconds), 4), ""]
        table.add_row(*cells, f"{slowdown:.3f}", *[""] * with_samples)
    for one in rows:
        seconds = (one.release, one.end, one.seconds, one.alone)
        cells = [one.job, *(format_duration(value, 4) for value in seconds)]
        speed = one.samples_per_second
        cell = "" if speed is None else format_number(speed, 4)
        table.add_row(*cells, f"{one.slowdown:.3f}", *[cell] * with_samples)
    return table


def placement_table(problem: Problem) -> Table:
    """Return one row per machine: NIC, used/capacity of every resource, processes."""
    job, cluster = problem.job, problem.cluster
    loads = resource_loads(job, cluster, problem.placement)
    resources = sorted({load.resource for load in loads})
    used = (f">{name}" for name in resources)
    table = plain_table("Placement", "machine", ">NIC", *used, "processes")
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
    texts: list[str] = []

    def run(item: tuple[int, str]) -> tuple[str, int]:
        match = re.fullmatch(r"(.*?)(\d+)", item[1])
        return (match[1], int(match[2]) - item[0]) if match else (item[1], 0)

    for _, members in groupby(enumerate(names), key=run):
        first, *rest = [name for _, name in members]
        number = re.search(r"\d+$", rest[-1]) if rest else None
        texts.append(f"{first}-{number[0]}" if number else first)
    return texts


def audit_table(report: AuditReport) -> Table:
    """Return one row per constraint: comparisons, violations, the first of them."""
    table = plain_table("Audit", "constraint", ">checked", ">broken", "first")
    for name, count in report.checked.items():
        of = name.split(",")
        broken = [str(v) for v in report.violations if v.constraint in of]
        table.add_row(name, f"{count:,}", f"{len(broken):,}", *broken[:1])
    return table


def accuracy_table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """Return one row per job and split; one job alone has no name."""
    several = [*found] != [""]
    table = plain_table("", *["job"] * several, "split", ">accuracy")
    for job, splits in found.items():
        for split, share in splits.items():
            table.add_row(*[job] * several, split, f"{share:.2%}")
    return table


QUESTION = "Which tasks should move?"
#: Share of the makespan below which a difference is rounding.
_NOTHING = 1e-9
#: Improvements that are shown; the JSON form has all.
SHOWN = 15


def explanation_tables(
    explanation: Explanation,
    shown: int = SHOWN,
    window: object = None,
    pins: Collection[str] = (),
) -> RenderableType:
    """Return the headline, the causes, the ports, the drift and what would help.

    ``shown`` rows of that; ``window`` and ``pins`` as in `job_line`.
    """
    parts: list[RenderableType] = []
    if explanation.moves is not NO_MOVES:
        parts += [Text(moves_line(explanation), style="bold"), ""]
    parts += [headline(explanation, window, pins), ""]
    if explanation.moves.steps:
        last = Text(placement_text(explanation.moves.steps[-1].problem), style="dim")
        parts += [moves_table(explanation.moves), last, ""]
    parts.append(causes(explanation))
    if any(link.port >= 0 for link in explanation.chain.links):
        parts += ["", ports(explanation)]
    if explanation.simulated is not None:
        schedule, simulation = explanation.schedule, explanation.simulated
        parts += ["", apart(schedule, simulation, explanation.apart)]
    if explanation.improvements:
        parts += ["", improvements(explanation, shown)]
    parts += [Text(f"note: {note}", style="yellow") for note in explanation.notes]
    return Group(*parts)


def headline(
    explanation: Explanation, window: object = None, pins: Collection[str] = ()
) -> Text:
    """Return the makespan and the length of its chain."""
    makespan = format_duration(explanation.schedule.makespan, 6)
    text = Text.assemble((makespan, "bold"), " from start to end")
    if explanation.simulated is not None:
        text.append(f", simulated {format_duration(explanation.replayed_makespan, 6)}")
    job = explanation.schedule.problem.job
    return text.append(
        f", {job_line(job, window=window, pins=pins)}; the critical path has "
        f"{len(explanation.chain.links)} links, each begins when the one before ends"
    )


def moves_line(explanation: Explanation) -> str:
    """Return the gain of the moves to the best placement found, in one line."""
    moves = explanation.moves
    if not moves.steps:
        return "No better placement was found: no task needs to move."
    before, after = moves.before, moves.makespan
    count = f"These {moves.count} moves" if moves.count > 1 else "This move"
    shorter = "an end,"
    if before < math.inf:
        percent = 100 * (1 - after / before)
        share = f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
        shorter = f"{share} shorter, {format_duration(before, 6)} ->"
    return f"{count}: {shorter} {format_duration(after, 6)}"


def moves_table(moves: TaskMoves) -> Table:
    """Return a row per step on the way to the best placement found."""
    why = any(step.why for step in moves.steps)
    columns = ["move", ">makespan then", ">in all", *["why"] * why]
    table = plain_table(QUESTION, *columns)
    for step in moves.steps:
        share = format_ratio(step.makespan / moves.before - 1)
        row = str(step.near), format_duration(step.makespan, 6), share
        table.add_row(*row, *[step.why] * why)
    return table


def placement_text(problem: Problem) -> str:
    """Return where ``problem`` stands as the lines of a scenario file."""
    section = write_placement(problem)
    text = ", ".join(f"{name}: {on}" for name, on in section["tasks"].items())
    how: Any = {"break_long_words": False, "break_on_hyphens": False}
    tasks = textwrap.fill(
        f"  tasks: {{{text}}}", WIDTH, subsequent_indent="    ", **how
    )
    # DistDGL has this as its default, an explicit placement has another.
    near = problem.job.settings.get("epoch") == "local"
    note = "# and job.epoch: local, as it was trained\n" if near else ""
    return f"{note}placement:\n  policy: {section['policy']}\n{tasks}"


def causes(explanation: Explanation) -> Table:
    """Return the causes and their sum."""
    schedule, chain = explanation.schedule, explanation.chain
    columns = ("cause", "of", "held back by", ">time", ">share", ">links")
    table = plain_table("Why this long", *columns)
    seconds = chain.seconds + schedule.outages.seconds
    total = seconds or 1.0
    for row in [*cause_rows(schedule.problem, chain), *death_rows(schedule)]:
        table.add_row(
            row["cause"],
            row["what"],
            row["port"] or row["pool"],
            format_duration(row["seconds"]),
            f"{100 * row['seconds'] / total:.1f} %",
            str(row["links"]),
        )
    whole = format_duration(seconds, 6), "100.0 %", str(len(chain.links))
    table.add_row("sum", "", "", *whole, style="bold")
    return table


def ports(explanation: Explanation) -> Table:
    """Return the ports of the chain."""
    table = plain_table("Ports on the chain", "port", ">time", ">share", "")
    total = explanation.chain.seconds or 1.0
    for row in port_rows(explanation.schedule.problem, explanation.chain):
        share, time = row["seconds"] / total, format_duration(row["seconds"])
        bar = "█" * round(30 * share)
        table.add_row(row["port"], time, f"{100 * share:.1f} %", bar)
    return table


def apart(emulated: Schedule, simulated: Schedule, parts: tuple[Drift, ...]) -> Table:
    """Return where emulation and simulation parted, and the sum."""
    title = "Emulated minus simulated, along the chain"
    table = plain_table(title, "cause", "of", ">apart", ">share")
    base = simulated.length or 1.0
    for row in apart_rows(emulated.problem, parts):
        if abs(row["seconds"]) >= _NOTHING * base:
            table.add_row(row["cause"], row["what"], *difference(row["seconds"], base))
    whole = difference(emulated.length - simulated.length, base)
    table.add_row("sum", "", *whole, style="bold")
    return table


def improvements(explanation: Explanation, shown: int) -> Table:
    """Return the changes that would help, best first, and a line about the rest.

    Measured after the moves where some help: a move saves a purchase. Changes of one
    kind that are worth the same share a row.
    """
    moves = explanation.moves
    rows = explanation.improvements_then or explanation.improvements
    base = (moves.makespan if moves.steps else explanation.replayed_makespan) or 1.0
    title = "What would help" + " after these moves" * bool(moves.steps)
    edits = any(one.change.edit for one in rows)
    columns = [">makespan", ">gain", "as" if edits else ""]
    table = plain_table(f"{title} (each line is simulated)", "change", *columns)
    helping = [one for one in rows if one.gain > _NOTHING * base]
    groups: dict[tuple[str, str], list[Improvement]] = defaultdict(list)
    for one in helping:
        if one.change.edit is not None or not edits:
            groups[one.change.kind, f"{one.makespan:.9g}"].append(one)
    for one, *same in [*groups.values()][:shown]:
        what = one.change.what + (f" (or {len(same)} more)" if same else "")
        gain = one.gain / base
        last = edit_text(one.change.edit) if edits else "█" * round(20 * gain)
        makespan = format_duration(one.makespan, 6)
        table.add_row(what, makespan, format_ratio(-gain), last)
    unseen = max(0, len(groups) - shown)
    more = f"{unseen} more would help, " if unseen else ""
    table.caption = f"{more}{len(rows) - len(helping)} changes would not"
    if edits:
        table.caption += "; --json has all keys"
    return table


def edit_text(edit: Row | None) -> str:
    """Return an edit as ``--set`` takes it, without where the tasks stand, in a line.

    One that is too long for it is shown by its first key.
    """
    keys = {k: v for k, v in (edit or {}).items() if not k.endswith(_STANDING)}
    if len(keys) > 1:  # another change, on the machines as they are chosen
        keys.pop("job.machines", None)
    if not keys:
        return ""
    (key, value), *others = keys.items()
    text = f"{key}={write_value(value)}"
    if not others and len(text) <= _EDIT_WIDTH:
        return text
    return f"{key}, {len(others)} more" if others else key


#: Columns for an edit.
_EDIT_WIDTH = 36
#: Ends of keys that are the same in every edit.
_STANDING = (
    "placement",
    "place_jobs",
    "joint_cost",
    "placement.policy",
    "placement.tasks",
    "job.demands.graph_store.memory",
)


def difference(seconds: float, base: float) -> tuple[str, str]:
    """Return a time with its sign, and as a share of ``base`` seconds."""
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{format_duration(abs(seconds))}", format_ratio(seconds / base)
