"""A job and its explanation in words and tables of at most 100 columns."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from emu.prediction.analysis import explanation as analysis
from emu.prediction.analysis.critical_path import Drift
from emu.prediction.analysis.task_moves import NO_MOVES, TaskMoves, write_placement
from emu.prediction.analysis.throughput import JobTime, pipeline_depth
from emu.prediction.analysis.what_if import Improvement
from emu.prediction.placement import resource_loads
from emu.prediction.placement.packing import ResourceLoad
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Job, Problem, Schedule
from emu.problem.fields.section import SIZES
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
        mean = format_duration(float(seconds.mean()))
        share = Text("█" * round(30 * float(seconds.sum() / longest)), style="blue")
        grid.add_row(name, f"{len(seconds):,}", mean, share)
    if len(ranges) > _RANGES:
        grid.caption = f"and {len(ranges) - _RANGES} shorter ones"
    return grid


def times_lines(
    times: Iterable[tuple[str, Any]], rest: Mapping[str, float]
) -> list[str]:
    """Return the keys of ``job.times`` above 0, and kinds of task that have none."""
    lines = []
    for key, time in times:
        parts = time if isinstance(time, tuple) else (time or 0.0,)
        if any(parts):
            lines.append(f"  {key}: {', '.join(map(format_duration, parts))}")
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
    batches = "" if mini_batches == iterations else f"{mini_batches} mini-batches in "
    return f"{batches}{iterations} iterations"


def job_line(
    job: Job, policy: str = "", window: object = None, pins: Collection[str] = ()
) -> str:
    """Return iterations, credit window, and the number of pinned tasks.

    ``policy`` is given where one alone is meant; ``window`` as stated, where it is not
    known it is that of the credit edges. ``pins``: what the scenario pins, without what
    the system of the job pins by itself, as stores to their partitions.
    """
    window = window or window_of(job) or "without effect"
    length = length_text(job.iterations, job.iterations - pipeline_depth(job))
    count = sum(bool({task.name, task.process_name} & {*pins}) for task in job.tasks)
    line = f"{length}, credit window {window}"
    line += f", {count} of {len(job.tasks)} tasks pinned" if count else ""
    return line + (f", rates by {policy}" if policy else "")


def placing_line(placing: Row) -> str:
    """Return the method of the placement of tasks, and on which machines they stand."""
    by = f"by {placing['policy']}"
    where = machines_words(placing)
    line = f"placed {'as the scenario states' if by == 'by explicit' else by}"
    line += f" {where}" if where else ""
    if placing["candidates"]:
        most = f"at most {placing['budget']:,} candidates"
        line += f" ({most}, seed {placing['seed']})"
    best = "no placement there is better" if where else "no placement is better"
    return line + (f", {best}" if placing["optimal"] else "")


def warn_of_unclaimed(placing: Row) -> str:
    """Return a warning of resources that limit nothing; empty where there are none."""
    if not (idle := placing["unclaimed"]):
        return ""
    verb = "limits" if len(idle) == 1 else "limit"
    return f"warning: {', '.join(idle)} {verb} nothing: no task demands any"


def recovery_lines(recovery: Attempts, without: float) -> Iterator[str]:
    """Yield what kills have lost, and where the job went on after each.

    ``without`` is the makespan of the job that is not killed, seconds.
    """
    if recovery.killed:
        count = len(recovery.killed)
        loss = dict(recovery.lost)
        # What was under way at the cut is not: batches travel to idle workers anew.
        rest = recovery.makespan - without - math.fsum(loss.values())
        if format_duration(rest) != "0 us":
            loss["starting up"] = rest
        often = f"{count} times" if count > 1 else "once"
        length = format_duration(without, 10)
        yield f"killed {often}, lost {write_loss(loss)}; {length} without"
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


def print_placing(placing: Row, console: Console, hint: str = "") -> None:
    """Print how tasks were placed, and a hint where there is one.

    A warning of resources in vain goes to standard error.
    """
    console.print(placing_line(placing))
    if hint:
        console.print(hint)
    if not console.quiet:
        warn_unclaimed({"": placing})


def warn_unclaimed(placings: Mapping[str, Row]) -> None:
    """Print to standard error what limits nothing, once with the names it is true of.

    One placing alone has the name ``""``.
    """
    names = defaultdict[str, list[str]](list)
    for name, placing in placings.items():
        if line := warn_of_unclaimed(placing):
            names[line].append(name)
    for line, of in names.items():
        note = f" ({', '.join(of)})" if any(of) else ""
        terminal(sys.stderr).print(line + note)


def pace_rows(pace: Row) -> list[tuple[str, str, str]]:
    """Return (what, how much, of what); ``pace`` is that of result.json, or empty."""
    rows = []
    if (seconds := pace.get("iteration_seconds")) is not None:
        rows = [("iteration time", format_duration(seconds), "mean between their ends")]
    if (samples := pace.get("samples_per_second")) is not None:
        speed = f"{format_number(samples, 4)} per s"
        rows.append(("samples", speed, "seeds of all workers"))
    if (busy := pace.get("busy")) is not None:
        rows.append(
            ("workers busy", f"{busy:.0%}", "of the makespan, the mean over workers")
        )
    shares = pace.get("critical_path", {}).items()
    if first := [f"{name} {share:.0%}" for name, share in shares]:
        rows.append(("critical path", first[0], ", ".join(first[1:])))
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
        length = format_duration(run["seconds"], 4)
        size = format_size(run["bytes"])
        text += f"; emulated {length} ({format_ratio(run['error'])}), {size} arrived, "
        text += run["trust"]
    return format_duration(setup["seconds"], 4), f"before time 0: {text}"


def cost_row(cost: Row) -> tuple[str, str]:
    """Return the dollars of a run in all, and what they are for with its value."""
    whats = ("servers", "lambdas", "parameter_servers")
    parts = [f"{w.replace('_', ' ')} {format_money(cost[w])}" for w in whats if cost[w]]
    if "lost" in cost:
        parts.append(f"{format_money(cost['lost'])} of lambdas without an answer")
    if cost["value"] is not None:
        parts.append(f"value {cost['value']:.4g} / (s $)")
    return format_money(cost["total"]), ", ".join(parts)


def model_rows(models: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Return the measurements of models that are programs: one row each."""
    rows = []
    for one in models:
        note = f"{one['program']}, {one['flops'] / 1e9:.3g} GFLOP"
        if one.get("seconds_used", True):
            note += f" and {format_duration(one['seconds'], 3)} of CPU"
        parameters = f"{one['parameters']:,} parameters"
        rows.append(("model", parameters, f"{note} per batch of a worker"))
    return rows


#: More jobs are shown by the worst of them.
MOST_JOBS = 20
_WORST = 10


def job_table(jobs: Iterable[JobTime]) -> Table:
    """Return a row per job; of many the most slowed down, below how all of them do."""
    jobs = [*jobs]
    columns = ["job", ">released", ">ended", ">took", ">alone", ">slowdown"]
    with_samples = any(one.samples_per_second is not None for one in jobs)
    title = "Jobs"
    rows = jobs
    if len(jobs) > MOST_JOBS:
        title = f"The {_WORST} most slowed down of {len(jobs)} jobs"
        rows = sorted(jobs, key=lambda one: -one.slowdown)[:_WORST]
    table = plain_table(title, *columns, *[">samples per s"] * with_samples)
    if rows is not jobs:
        took = np.array([[o.seconds for o in jobs], [o.slowdown for o in jobs]])
        for name, (seconds, slowdown) in {
            "mean of all": took.mean(axis=1),
            "median of all": np.median(took, axis=1),
            "95 % within": np.percentile(took, 95, axis=1),
        }.items():
            cells = [name, "", "", format_duration(float(seconds), 4), ""]
            table.add_row(*cells, f"{slowdown:.3f}", *[""] * with_samples)
    for one in rows:
        times = (one.release, one.end, one.seconds, one.alone)
        cells = [one.job, *(format_duration(time, 4) for time in times)]
        speed = one.samples_per_second
        cell = "" if speed is None else format_number(speed, 4)
        table.add_row(*cells, f"{one.slowdown:.3f}", *[cell] * with_samples)
    return table


def placement_table(problem: Problem) -> Table:
    """Return one row per machine: NIC, used/capacity of every resource, processes."""
    job = problem.job
    cluster = problem.cluster
    loads = resource_loads(job, cluster, problem.placement)
    resources = sorted({load.resource for load in loads})
    columns = (f">{name}" for name in resources)
    table = plain_table("Placement", "machine", ">NIC", *columns, "processes")
    for position, machine in enumerate(cluster.machines):
        of_machine = {
            load.resource: load_words(load, "/", "")
            for load in loads
            if load.machine == machine.name
        }
        nic = format_rate(machine.bandwidth_out) if machine.has_nic else "none"
        if machine.bandwidth_in != machine.bandwidth_out:
            nic = f"{format_rate(machine.bandwidth_in)} in, {nic} out"
        machine_of = problem.placement.machine_of
        names = [p for p, of in job.units.items() if machine_of[of[0]] == position]
        loads_shown = (of_machine[name] for name in resources)
        table.add_row(machine.name, nic, *loads_shown, " ".join(ranges(names)))
    return table


def load_words(load: ResourceLoad, between: str, without: str) -> str:
    """Return the use of a resource, ``between``, and its capacity."""
    amount = format_size if load.resource in SIZES else "{:g}".format
    most = without if math.isinf(load.capacity) else between + amount(load.capacity)
    return amount(load.used) + most


def ranges(names: Sequence[str]) -> list[str]:
    """Return ``names`` with runs of numbers joined: s0 s1 s2 w1 -> s0-2 w1."""
    texts: list[str] = []

    def run(item: tuple[int, str]) -> tuple[str, int]:
        match = re.fullmatch(r"(.*?)(\d+)", item[1])
        return (match[1], int(match[2]) - item[0]) if match else (item[1], 0)

    for (stem, _), members in groupby(enumerate(names), key=run):
        first, *rest = [name for _, name in members]
        texts.append(f"{first}-{rest[-1].removeprefix(stem)}" if rest else first)
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
    explanation: analysis.Explanation,
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
    schedule = explanation.schedule
    simulation = explanation.simulated
    makespan = format_duration(schedule.makespan, 6)
    text = Text.assemble((makespan, "bold"), " from start to end")
    if simulation is not None:
        text.append(f", simulated {format_duration(explanation.replayed_makespan, 6)}")
    text.append(
        f", {job_line(schedule.problem.job, window=window, pins=pins)}; the critical "
        f"path has {len(explanation.chain.links)} links, each begins when the one "
        "before ends"
    )
    parts += [text, ""]
    if explanation.moves.steps:
        last = Text(placement_text(explanation.moves.steps[-1].problem), style="dim")
        parts += [moves_table(explanation.moves), last, ""]
    parts.append(causes(explanation))
    if any(link.port >= 0 for link in explanation.chain.links):
        parts += ["", ports(explanation)]
    if simulation is not None:
        parts += ["", apart(schedule, simulation, explanation.apart)]
    if explanation.improvements:
        parts += ["", improvements(explanation, shown)]
    parts += [Text(f"note: {note}", style="yellow") for note in explanation.notes]
    return Group(*parts)


def moves_line(explanation: analysis.Explanation) -> str:
    """Return the gain of the moves to the best placement found, in one line."""
    moves = explanation.moves
    if not moves.steps:
        return "No better placement was found: no task needs to move."
    before = moves.before
    after = moves.makespan
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
    whole_words = textwrap.TextWrapper(
        WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    tasks = whole_words.fill(f"  tasks: {{{text}}}")
    return f"placement:\n  policy: {section['policy']}\n{tasks}"


def causes(explanation: analysis.Explanation) -> Table:
    """Return the causes and their sum."""
    schedule = explanation.schedule
    chain = explanation.chain
    columns = ("cause", "of", "held back by", ">time", ">share", ">links")
    table = plain_table("Why this long", *columns)
    seconds = chain.seconds + schedule.outages.seconds
    total = seconds or 1.0
    rows = analysis.cause_rows(schedule.problem, chain)
    for row in [*rows, *analysis.death_rows(schedule)]:
        cells = [row["cause"], row["what"], row["port"] or row["pool"]]
        cells.append(format_duration(row["seconds"]))
        share = f"{100 * row['seconds'] / total:.1f} %"
        table.add_row(*cells, share, str(row["links"]))
    whole = format_duration(seconds, 6), "100.0 %", str(len(chain.links))
    table.add_row("sum", "", "", *whole, style="bold")
    return table


def ports(explanation: analysis.Explanation) -> Table:
    """Return the ports of the chain."""
    table = plain_table("Ports on the chain", "port", ">time", ">share", "")
    total = explanation.chain.seconds or 1.0
    for row in analysis.port_rows(explanation.schedule.problem, explanation.chain):
        share = row["seconds"] / total
        time = format_duration(row["seconds"])
        cells = row["port"], time, f"{100 * share:.1f} %"
        table.add_row(*cells, "█" * round(30 * share))
    return table


def apart(emulated: Schedule, simulated: Schedule, parts: tuple[Drift, ...]) -> Table:
    """Return where emulation and simulation parted, and the sum."""
    title = "Emulated minus simulated, along the chain"
    table = plain_table(title, "cause", "of", ">apart", ">share")
    base = simulated.length or 1.0
    for row in analysis.apart_rows(emulated.problem, parts):
        if abs(row["seconds"]) >= _NOTHING * base:
            table.add_row(row["cause"], row["what"], *difference(row["seconds"], base))
    whole = difference(emulated.length - simulated.length, base)
    table.add_row("sum", "", *whole, style="bold")
    return table


def improvements(explanation: analysis.Explanation, shown: int) -> Table:
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
