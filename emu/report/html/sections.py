"""The parts of the page that are text: headline, chain, placement and tables."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from emu.analysis.critical_path import MOVING, Cause, critical_path
from emu.analysis.error_budget import divergences
from emu.analysis.optimality_gap import placement_gap, placement_line
from emu.analysis.task_moves import NO_MOVES
from emu.placement import resource_loads
from emu.report.explanation_tables import (
    apart,
    improvements,
    moves_line,
    moves_table,
    placement_text,
)
from emu.report.flows import flow_table, payload_line
from emu.report.html.markup import figure, meter, table
from emu.report.job_tables import load_words, pace_rows
from emu.report.many_runs import schedules_of
from emu.report.run_tables import budget_table, flow_ends_note, host_error, times_note
from emu.report.terminal import plain_table
from emu.runs.result import port_rows
from emu.units import format_duration, format_rate, format_ratio

if TYPE_CHECKING:
    from emu.analysis.critical_path import ChainLink
    from emu.analysis.explanation import Explanation
    from emu.problem import Problem, Schedule
    from emu.runs.recorded_run import RecordedRun


_DIGITS = 6


def headline(result: dict[str, Any]) -> str:
    """Return the six numbers that the run was for, and the others folded below."""
    pace = [figure(*row) for row in pace_rows(result.get("pace", {}))]

    def duration(key: str, label: str, note: str = "") -> str:
        if not isinstance(result.get(key), int | float):
            return ""
        value = format_duration(float(result[key]), _DIGITS)
        return figure(label, value, note, name=key)

    def ratio(key: str, label: str, note: str) -> str:
        if not isinstance(result.get(key), int | float):
            return ""
        return figure(label, format_ratio(float(result[key])), note, name=key)

    first = [
        duration("makespan", "emulated makespan", flow_ends_note(result)),
        duration("predicted_makespan", "predicted makespan", "before the run"),
        ratio("makespan_error", "makespan error", times_note(result)),
        _verdict(result.get("verdict")),
        duration("bound", "lower bound", "no schedule is shorter"),
        *pace[:1],
    ]
    others = [
        duration("replayed_makespan", "replayed makespan", "the run's times, volumes"),
        ratio("replay_error", "replay error", "emulated / replayed - 1"),
        ratio("gap", "gap", "makespan above the bound"),
        *pace[1:],
        duration("wall_seconds", "wall time", "on this computer"),
    ]
    more = f"<div class=figures>{''.join(others)}</div>"
    return (
        f"<div class=figures>{''.join(first)}</div>"
        f"<details class=more><summary>Further figures</summary>{more}</details>"
    )


def _verdict(verdict: dict[str, Any] | None) -> str:
    """Return the verdict on the run; `emu.trust.verdict` has the keys."""
    if verdict is None:
        return ""
    note = host_error(verdict)
    return figure("verdict", str(verdict["trust"]), note, name="verdict")


def verdict_reasons(verdict: dict[str, Any] | None) -> str:
    """Return why a run is not trusted, and what to do; nothing when it is."""
    if verdict is None:
        return ""
    shown = ""
    for title, key in (("Reasons", "reasons"), ("What to do", "remedies")):
        items = "".join(f"<li>{escape(str(text))}</li>" for text in verdict[key])
        if items:
            shown += f"<h3>{title}</h3><ul>{items}</ul>"
    return shown


def chain_table(run: RecordedRun) -> str:
    """Return the time of the critical path by cause, emulated beside simulated."""
    schedules = schedules_of(run)
    sums = [
        critical_path(schedule).sums(lambda link: cause_of(run.problem, link))
        for schedule in schedules.values()
    ]
    causes = dict.fromkeys(cause for one in sums for cause in one)
    if not causes:
        return ""
    shown = plain_table("", "cause", *(f">{name}" for name in schedules))
    for cause in causes:
        spent = [
            _seconds(one.get(cause, 0.0), made.makespan)
            for one, made in zip(sums, schedules.values(), strict=True)
        ]
        shown.add_row(cause, *spent)
    total = (f"{math.fsum(one.values()):.4f} s" for one in sums)
    shown.add_row("sum = makespan", *total)
    return table(shown)


def _seconds(spent: float, makespan: float) -> str:
    return f"{spent:.4f} s ({spent / makespan if makespan else 0.0:.1%})"


def story(schedule: Schedule) -> str:
    """Return one sentence: what most of the makespan was spent on."""
    chain = critical_path(schedule)
    shares = chain.sums(_cause)
    if not shares or not schedule.makespan:
        return ""
    cause = next(iter(shares))
    parts = chain.sums(lambda link: (_cause(link), _where(schedule.problem, link)))
    where = next(name for kind, name in parts if kind is cause)
    text = f"{shares[cause] / schedule.makespan:.0%} of the time {_TOLD[cause]}"
    if where:
        text += f", most of it {'at' if cause is Cause.TRANSFER else 'by a'} {where}"
    return f"<p class=story>{escape(text)}.</p>"


def _cause(link: ChainLink) -> Cause:
    """Return the cause; whatever moves is a transfer, as on the cards."""
    return Cause.TRANSFER if link.cause in MOVING else link.cause


def _where(problem: Problem, link: ChainLink) -> str:
    """Return the kind of task or the port that a link is about; empty in a gap."""
    if link.cause is Cause.GAP:
        return ""
    if link.task >= 0:
        return problem.job.tasks[link.task].kind
    return problem.links[link.port].name


_TOLD = {
    Cause.COMPUTE: "the job waited for tasks that compute",
    Cause.TRANSFER: "the job waited for transfers",
    Cause.SLOT: "tasks waited for slots that others held",
    Cause.CREDIT: "tasks waited for the credit of their consumers",
    Cause.GAP: "nothing of the schedule happened: messages and wake-ups",
}


def cause_of(problem: Problem, link: ChainLink) -> str:
    """Return the cause of a link with the kind of task or the port it is about."""
    return f"{link.cause.value}: {_where(problem, link) or 'messages and wake-ups'}"


def placement_cards(problem: Problem, schedule: Schedule | None) -> str:
    """Return a card per machine: tasks, resources, and the mean use of its NIC."""
    loads = resource_loads(problem.job, problem.cluster, problem.placement)
    through = [] if schedule is None else port_rows(schedule)
    cards = []
    for position, machine in enumerate(problem.cluster.machines):
        members = [
            task
            for task, place in zip(
                problem.job.tasks, problem.placement.machine_of, strict=True
            )
            if place == position
        ]
        chips = "".join(
            f'<span class=chip title="{escape(task.kind)}">{escape(task.name)}</span>'
            for task in members
        )
        meters = [
            meter(
                load.resource, load.fraction, load_words(load, " of ", " of no limit")
            )
            for load in loads
            if load.machine == machine.name and (load.used or load.fraction)
        ]
        for port in problem.links.of_machine(position) if through else ():
            link, used = problem.links[port], through[port]["used"]
            said = f"{used:.0%} of {format_rate(link.capacity)}"
            meters.append(meter(f"NIC {link.direction}", used, said))
        cards.append(
            f"<div class=card><h3>{escape(machine.name)}</h3>"
            f"<div class=chips>{chips}</div>{''.join(meters)}</div>"
        )
    return f"<div class=cards>{''.join(cards)}</div>"


def edges_section(result: dict[str, Any]) -> str:
    """Return the bytes over the network: per kind of payload, and per kind of edge."""
    said = payload_line(result.get("payloads", {}))
    line = f"<p class=remark>{escape(said)}.</p>" if said else ""
    return line + table(flow_table(result["edges"]))


#: Flows between machines above which the page does not look for what would help.
MOST_FLOWS = 30_000
#: Seconds that a report looks for a lower bound over all placements.
BOUND_SECONDS = 2.0
#: Improvements that are shown; ``emu explain`` has all.
SHOWN = 10


def explained(run: RecordedRun | None) -> Explanation | None:
    """Return why a run took so long and what would help, as ``emu explain`` does.

    Without what would help where simulating takes too long; None without a schedule.
    """
    if run is None or (run.emulated or run.simulated) is None:
        return None
    return run.explain(helpful=len(run.best.flows()) <= MOST_FLOWS)


def which_task(found: Explanation) -> str:
    """Return the moves to the best placement found; empty where none was sought."""
    if found.moves is NO_MOVES:
        return ""
    problem, length = found.schedule.problem, found.replayed_makespan
    gap = placement_gap(problem, found.realization, length, seconds=BOUND_SECONDS)
    line = f"<p>{escape(moves_line(found))}</p>"
    left = f"<p>{escape(placement_line(gap))}.</p>"
    if not found.moves.steps:
        return line + left
    text = escape(placement_text(found.moves.steps[-1].problem))
    return (
        line
        + table(moves_table(found.moves))
        + "<details><summary>The placement after them</summary>"
        + f"<pre>{text}</pre></details>"
        + left
    )


def would_help(found: Explanation) -> str:
    """Return the changes that shorten the run most, each simulated; or why not."""
    if found.moves is NO_MOVES:
        flows = len(found.schedule.flows())
        return (
            f"<p>Not looked for: the run has {flows:,} flows, more than {MOST_FLOWS:,}."
            " <code>emu explain</code> takes the time it needs.</p>"
        )
    shown = improvements(found, SHOWN)
    return table(shown) if shown.row_count else "<p>Nothing that was tried.</p>"


def parted(run: RecordedRun, found: Explanation) -> str:
    """Return emulated minus simulated along the emulated chain, by cause and sum.

    Empty when one of the two is missing.
    """
    if run.emulated is None or run.simulated is None:
        return ""
    parts = divergences(run.emulated, run.simulated, found.chain)
    return table(apart(run.emulated, run.simulated, parts))


def budget(result: dict[str, Any]) -> str:
    """Return the error budget of result.json, what the host added; empty without."""
    if not any(result.get("error_budget", {}).values()):
        return ""
    return table(budget_table(result))
