"""A job and its explanation in words and tables of at most 100 columns."""

from __future__ import annotations

import io
import math
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from ruamel.yaml import YAML

from emu.prediction.analysis import explanation as analysis
from emu.prediction.analysis.critical_path import Drift
from emu.prediction.analysis.task_moves import (
    NO_MOVES,
    TaskMove,
    TaskMoves,
)
from emu.prediction.analysis.throughput import JobTime, pipeline_depth
from emu.prediction.analysis.what_if import Improvement
from emu.prediction.placement import resource_loads
from emu.prediction.placement.packing import ResourceLoad
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Job, Problem, Schedule
from emu.problem.machine import format_amount
from emu.problem.workloads import window_of
from emu.report.terminal import plain_table, terminal
from emu.runs.result import Row
from emu.scenario.document import Document
from emu.scenario.error_messages import write_value
from emu.scenario.machine_choice import machines_words
from emu.scenario.overrides import apply_overrides
from emu.units import (
    format_count,
    format_duration,
    format_number,
    format_rate,
    format_ratio,
)


def length_text(iterations: int, mini_batches: int) -> str:
    """Return the length of a job, of a pipeline its mini-batches, too."""
    batches = ""
    if mini_batches != iterations:
        batches = f"{mini_batches} mini-batches in "
    return batches + format_count(iterations, "iteration")


def job_line(
    job: Job,
    policy: str = "",
    window: object = None,
    pins: Collection[str] = (),
) -> str:
    """Return iterations, credit window, and the number of pinned tasks.

    ``policy`` is given where one alone is meant; ``window`` as stated, where it is not
    known it is that of the credit edges. ``pins``: what the scenario pins, without what
    the system of the job pins by itself, as stores to their partitions.
    """
    # Where no credit edge has a lag, stating a window changes nothing.
    window = window or window_of(job) or "without effect"
    mini_batches = job.iterations - pipeline_depth(job)
    length = length_text(job.iterations, mini_batches)
    if job.is_several:
        length = "iterations of each job"
    line = f"{length}, credit window {window}"
    # A pin may name one task, or the process of several.
    names = {*pins}
    pinned_tasks = [
        task for task in job.tasks if task.name in names or task.process_name in names
    ]
    if pinned_tasks:
        line += f", {len(pinned_tasks)} of {len(job.tasks)} tasks pinned"

    if policy:
        line += f", rates by {policy}"
    return line


def placing_line(placing: Row) -> str:
    """Return the method of the placement of tasks, and on which machines they stand."""
    policy = placing["policy"]
    line = "placed as the scenario states"
    if policy != "explicit":
        line = f"placed by {policy}"
    machines = machines_words(placing)
    if machines:
        line += f" {machines}"

    if placing["candidates"]:
        line += f" (at most {placing['budget']:,} candidates, seed {placing['seed']})"
    if placing["optimal"]:
        standing = "there " if machines else ""
        line += f", no placement {standing}is better"
    return line


def warn_of_unclaimed(placing: Row) -> str:
    """Return a warning of resources that limit nothing; empty where there are none."""
    idle = placing["unclaimed"]
    if not idle:
        return ""
    names = ", ".join(idle)
    verb = "limits" if len(idle) == 1 else "limit"
    return f"warning: {names} {verb} nothing: no task demands any"


def recovery_lines(recovery: Attempts, without: float) -> Iterator[str]:
    """Yield what kills have lost, and where the job went on after each.

    ``without`` is the makespan of the job that is not killed, seconds.
    """
    if recovery.killed:
        loss = write_loss(recovery.lost)
        lost = math.fsum(recovery.lost.values())
        rest = recovery.makespan - without - lost
        # Compared as it is printed: what rounding alone leaves is no row.
        is_shown = format_duration(abs(rest)) != "0 us"
        if is_shown and rest > 0:
            # Batches travel to idle workers anew, and later events meet what follows.
            loss += f", {format_duration(rest)} as what follows takes longer"
        if is_shown and rest < 0:
            # What follows comes later: it may meet fewer events, or emptier NICs.
            loss += f", less {format_duration(-rest)} as what follows goes faster"

        count = len(recovery.killed)
        times = f"{count} times" if count > 1 else "once"
        length = format_duration(without, 10)
        yield (
            f"killed {times}, lost {loss}; {length} without: of that job are tables, "
            "path and pace"
        )

    for kill in recovery.killed:
        yield f"{kill.error}: goes on at iteration {kill.next_iteration}"


def most_failing(drawn: Mapping[str, int]) -> str:
    """Return what failed most often of the failures that were drawn: ``m0 3, m1 1``."""
    names = sorted(drawn, key=lambda name: -drawn[name])
    parts = [f"{name} {drawn[name]}" for name in names[:4]]
    rest = len(names) - 4
    if rest > 0:
        parts.append(f"{rest} others")
    return ", ".join(parts)


def write_loss(lost: Mapping[str, float]) -> str:
    """Return the seconds that deaths have lost, by what they were lost to."""
    parts = [f"{format_duration(time)} {kind}" for kind, time in lost.items()]
    return ", ".join(parts)


def print_placing(placing: Row, console: Console, hint: str = "") -> None:
    """Print how tasks were placed, and a hint where there is one.

    A warning of resources in vain goes to standard error.
    """
    console.print(placing_line(placing))
    if hint:
        console.print(hint)
    # A quiet console is beside JSON, which has the same as ``unclaimed``.
    if not console.quiet:
        warn_unclaimed({"": placing})


def warn_unclaimed(placings: Mapping[str, Row]) -> None:
    """Print to standard error what limits nothing, once with the names it is true of.

    One placing alone has the name ``""``.
    """
    names_by_line = defaultdict[str, list[str]](list)
    for name, placing in placings.items():
        line = warn_of_unclaimed(placing)
        if line:
            names_by_line[line].append(name)
    for line, names in names_by_line.items():
        note = ""
        if any(names):
            all_names = ", ".join(names)
            note = f" ({all_names})"
        terminal(sys.stderr).print(line + note)


#: More jobs are shown by the worst of them.
MOST_JOBS = 20
#: Jobs that are shown then, below the means of all.
_WORST = 10


def job_table(jobs: Iterable[JobTime]) -> Table:
    """Return a row per job; of many the most slowed down, below how all of them do."""
    # Kept as a list, since it is walked twice; below, another list of rows means that
    # some of the jobs are left out.
    jobs = [*jobs]
    rows = jobs
    title = "Jobs"
    if len(jobs) > MOST_JOBS:
        title = f"The {_WORST} most slowed down of {len(jobs)} jobs"
        slowest_first = sorted(jobs, key=lambda job: -job.slowdown)
        rows = slowest_first[:_WORST]
    columns = ["job", ">released", ">ended", ">took", ">alone", ">slowdown"]
    if any(job.samples_per_second is not None for job in jobs):
        columns.append(">samples per s")

    table = plain_table(title, *columns)
    if rows is not jobs:
        seconds_of_all = [job.seconds for job in jobs]
        # Of many jobs the slowest would tell of themselves alone, so that all stand
        # above.
        slowdowns = [job.slowdown for job in jobs]
        figures = np.array([seconds_of_all, slowdowns])
        figures_of_all = {
            "mean of all": figures.mean(axis=1),
            "median of all": np.median(figures, axis=1),
            "95 % within": np.percentile(figures, 95, axis=1),
        }
        for name, (seconds, slowdown) in figures_of_all.items():
            length = format_duration(float(seconds), 4)
            table.add_row(name, "", "", length, "", f"{slowdown:.3f}")
    for job in rows:
        times = (job.release, job.end, job.seconds, job.alone)
        cells = [format_duration(seconds, 4) for seconds in times]
        cells.append(f"{job.slowdown:.3f}")
        if job.samples_per_second is not None:
            cells.append(format_number(job.samples_per_second, 4))
        table.add_row(job.job, *cells)
    return table


def placement_table(problem: Problem) -> Table:
    """Return one row per machine: NIC, used/capacity of every resource, processes."""
    job = problem.job
    cluster = problem.cluster
    loads = resource_loads(job, cluster, problem.placement)
    resources = sorted({load.resource for load in loads})
    resource_columns = [f">{name}" for name in resources]
    table = plain_table(
        "Placement",
        "machine",
        ">NIC",
        *resource_columns,
        "processes",
    )

    machine_of = problem.placement.machine_of
    for position, machine in enumerate(cluster.machines):
        cells = {
            load.resource: load_words(load, "/", "")
            for load in loads
            if load.machine == machine.name
        }
        nic = "none"
        if machine.has_nic:
            nic = format_rate(machine.bandwidth_out)
        if machine.bandwidth_in != machine.bandwidth_out:
            inward = format_rate(machine.bandwidth_in)
            nic = f"{inward} in, {nic} out"
        processes = [
            name
            # Tasks of one process stand together, so that its first tells where it is.
            for name, tasks in job.units.items()
            if machine_of[tasks[0]] == position
        ]
        amounts = [cells[resource] for resource in resources]
        process_names = " ".join(ranges(processes))
        table.add_row(machine.name, nic, *amounts, process_names)
    return table


def load_words(load: ResourceLoad, between: str, without: str) -> str:
    """Return the use of a resource, ``between``, and its capacity."""
    used = format_amount(load.used, load.resource)
    if math.isinf(load.capacity):
        return f"{used}{without}"
    capacity = format_amount(load.capacity, load.resource)
    return f"{used}{between}{capacity}"


def ranges(names: Sequence[str]) -> list[str]:
    """Return ``names`` with runs of numbers joined: s0 s1 s2 w1 -> s0-2 w1."""

    def run_of(item: tuple[int, str]) -> tuple[str, int]:
        """Return stem and first number of the run that a name is of."""
        position, name = item
        # The stem is as short as it can be: s10 is s and 10, not s1 and 0.
        match = re.fullmatch(r"(.*?)(\d+)", name)
        if not match:
            return name, 0
        # In a run the number grows with the position.
        return match[1], int(match[2]) - position

    texts = []
    runs = groupby(enumerate(names), key=run_of)
    for (stem, _), members in runs:
        first, *rest = [name for _, name in members]
        text = first
        if rest:
            last = rest[-1].removeprefix(stem)
            text += f"-{last}"
        texts.append(text)
    return texts


#: Title of the moves, on the terminal and on the page.
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
    schedule = explanation.schedule
    simulation = explanation.simulated
    moves = explanation.moves
    parts: list[RenderableType] = []
    if moves is not NO_MOVES:
        # Moves come first: they cost nothing, where most other changes buy something.
        headline = Text(moves_line(explanation), style="bold")
        parts += [headline, ""]

    length = format_duration(schedule.makespan, 6)
    text = Text.assemble((length, "bold"), " from start to end")
    if simulation is not None:
        replayed = format_duration(explanation.replayed_makespan, 6)
        text.append(f", simulated {replayed}")
    job_text = job_line(schedule.problem.job, window=window, pins=pins)
    links = len(explanation.chain.links)
    text.append(
        f", {job_text}; the critical path has {links} links, each begins when the one "
        "before ends"
    )
    parts += [text, ""]
    if moves.steps:
        last_step = moves.steps[-1]
        parts += [moves_table(moves)]
        if lines := placement_text(last_step):
            parts += [Text(lines, style="dim")]
        parts += [""]

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
    first_makespan = moves.before
    last_makespan = moves.makespan

    count = f"These {moves.count} moves" if moves.count > 1 else "This move"
    shorter = "an end,"
    # A job that never ends where it stands has no length to be a share of.
    if first_makespan < math.inf:
        percent = 100 * (1 - last_makespan / first_makespan)
        share = f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
        first_length = format_duration(first_makespan, 6)
        shorter = f"{share} shorter, {first_length} ->"
    last_length = format_duration(last_makespan, 6)
    return f"{count}: {shorter} {last_length}"


def moves_table(moves: TaskMoves) -> Table:
    """Return a row per step on the way to the best placement found."""
    has_reasons = any(step.why for step in moves.steps)
    columns = ["move", ">makespan then", ">in all"]
    if has_reasons:
        columns.append("why")

    table = plain_table(QUESTION, *columns)
    for step in moves.steps:
        change = step.makespan / moves.before - 1
        cells = [
            str(step.near),
            format_duration(step.makespan, 6),
            format_ratio(change),
        ]
        if has_reasons:
            cells.append(step.why)
        table.add_row(*cells)
    return table


#: Characters of a line to paste, which also a narrow terminal leaves whole.
_PASTED_WIDTH = 74


def placement_text(step: TaskMove) -> str:
    """Return where tasks stand after a step as the lines of a scenario file.

    Empty where no scenario is known, so that no file could take them.
    """
    if step.edit is None:
        return ""
    content: dict[str, Any] = {}
    if any(key.startswith("jobs[") for key in step.edit):
        names = step.problem.job.job_names
        content["jobs"] = [{"name": name} for name in names]
    document = Document("", content)
    apply_overrides(document, step.edit)

    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = None  # a line per task would be too long to look at
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment] # ruamel documents False
    writer.width = _PASTED_WIDTH
    text = io.StringIO()
    writer.dump(content, text)
    return text.getvalue().rstrip()


def causes(explanation: analysis.Explanation) -> Table:
    """Return the causes and their sum."""
    schedule = explanation.schedule
    chain = explanation.chain
    table = plain_table(
        "Why this long", "cause", "of", "held back by", ">time", ">share", ">links"
    )

    # The chain is of a part without deaths: these have rows of their own.
    seconds = chain.seconds + schedule.outages.seconds
    total = seconds or 1.0
    rows = analysis.cause_rows(schedule.problem, chain)
    for row in [*rows, *explanation.death_rows()]:
        percent = 100 * row["seconds"] / total
        table.add_row(
            row["cause"],
            row["what"],
            row["port"] or row["pool"],
            format_duration(row["seconds"]),
            f"{percent:.1f} %",
            str(row["links"]),
        )

    length = format_duration(seconds, 6)
    links = str(len(chain.links))
    table.add_row("sum", "", "", length, "100.0 %", links, style="bold")
    return table


def ports(explanation: analysis.Explanation) -> Table:
    """Return the ports of the chain."""
    table = plain_table("Ports on the chain", "port", ">time", ">share", "")

    seconds = explanation.chain.seconds + explanation.schedule.outages.seconds
    total = seconds or 1.0
    rows = analysis.port_rows(explanation.schedule.problem, explanation.chain)
    for row in rows:
        share = row["seconds"] / total
        signs = round(30 * share)
        table.add_row(
            row["port"],
            format_duration(row["seconds"]),
            f"{100 * share:.1f} %",
            "█" * signs,
        )
    return table


def apart(
    emulated: Schedule,
    simulated: Schedule,
    parts: tuple[Drift, ...],
) -> Table:
    """Return where emulation and simulation parted, and the sum."""
    title = "Emulated minus simulated, along the chain"
    table = plain_table(title, "cause", "of", ">apart", ">share")
    base = simulated.length or 1.0
    for row in analysis.apart_rows(emulated.problem, parts):
        if abs(row["seconds"]) >= _NOTHING * base:
            distance = difference(row["seconds"], base)
            table.add_row(row["cause"], row["what"], *distance)
    seconds = emulated.length - simulated.length
    total = difference(seconds, base)
    table.add_row("sum", "", *total, style="bold")
    return table


def improvements(explanation: analysis.Explanation, shown: int) -> Table:
    """Return the changes that would help, best first, and a line about the rest.

    Measured after the moves where some help: a move saves a purchase. Changes of one
    kind that are worth the same share a row.
    """
    moves = explanation.moves
    rows = explanation.improvements_then or explanation.improvements
    makespan = moves.makespan if moves.steps else explanation.replayed_makespan
    base = makespan or 1.0
    has_edits = any(row.change.edit for row in rows)
    title = "What would help (each line is simulated)"
    if moves.steps:
        title = "What would help after these moves (each line is simulated)"
    last_column = "as" if has_edits else ""
    table = plain_table(title, "change", ">makespan", ">gain", last_column)

    helping = [row for row in rows if row.gain > _NOTHING * base]
    groups = defaultdict[tuple[str, str], list[Improvement]](list)
    for row in helping:
        # Where edits are known, a change without one cannot be made in the file.
        if row.change.edit is not None or not has_edits:
            # Nine digits, as `_NOTHING` has it: equal changes differ by rounding alone.
            worth = (row.change.kind, f"{row.makespan:.9g}")
            groups[worth].append(row)
    for first, *rest in islice(groups.values(), shown):
        change = first.change.what
        if rest:
            change += f" (or {len(rest)} more)"
        gain = first.gain / base
        if has_edits:
            last = edit_text(first.change.edit)
        else:
            signs = round(20 * gain)
            last = "█" * signs
        table.add_row(
            change,
            format_duration(first.makespan, 6),
            format_ratio(-gain),
            last,
        )

    unseen = max(0, len(groups) - shown)
    unseen_words = f"{unseen} more would help, " if unseen else ""
    useless = len(rows) - len(helping)
    changes = "change" if useless == 1 else "changes"
    table.caption = f"{unseen_words}{useless} {changes} would not"
    if has_edits:
        table.caption += "; --json has all keys"
    return table


def edit_text(edit: Row | None) -> str:
    """Return an edit as ``--set`` takes it, without where the tasks stand, in a line.

    One that is too long for it is shown by its first key.
    """
    stated = edit or {}
    keys = {key: value for key, value in stated.items() if not key.endswith(_STANDING)}
    if len(keys) > 1:  # another change, on the machines as they are chosen
        keys.pop("job.machines", None)
    if not keys:
        return ""

    (key, value), *rest = keys.items()
    text = f"{key}={write_value(value)}"
    if not rest and len(text) <= _EDIT_WIDTH:
        return text
    if rest:
        return f"{key}, {len(rest)} more"
    return key


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
    length = format_duration(abs(seconds))
    share = format_ratio(seconds / base)
    return f"{sign}{length}", share
