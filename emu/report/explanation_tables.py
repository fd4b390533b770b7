"""An explanation as tables of at most 100 columns."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from emu.analysis.explanation import apart_rows, cause_rows, port_rows
from emu.analysis.task_moves import NO_MOVES, pasted
from emu.report.job_tables import job_line
from emu.report.terminal import WIDTH, plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rich.console import RenderableType
    from rich.table import Table

    from emu.analysis.error_budget import Drift
    from emu.analysis.explanation import Explanation
    from emu.analysis.task_moves import TaskMoves
    from emu.analysis.what_if import Improvement
    from emu.problem import Problem, Schedule

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

    Parameters
    ----------
    shown
        Rows of what would help.
    window
        The credit window as stated, where it is known.
    pins
        Tasks and processes that the scenario pins.
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
        emulated, simulated = explanation.schedule, explanation.simulated
        parts += ["", apart(emulated, simulated, explanation.apart)]
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
    text.append(f", {job_line(job, window=window, pins=pins)}")
    text.append(
        f"; the critical path has {len(explanation.chain.links)} links, each begins "
        "when the one before ends"
    )
    return text


def moves_line(explanation: Explanation) -> str:
    """Return the gain of the moves to the best placement found, in one line."""
    moves = explanation.moves
    if not moves.steps:
        return "No better placement was found: no task needs to move."
    before, after = moves.before, moves.makespan
    count = f"These {moves.count} moves" if moves.count > 1 else "This move"
    shorter = (
        f"{_percent(1 - after / before)} shorter, {format_duration(before, 6)} ->"
        if before < math.inf
        else "an end,"
    )
    return f"{count}: {shorter} {format_duration(after, 6)}"


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def moves_table(moves: TaskMoves) -> Table:
    """Return a row per step on the way to the best placement found."""
    why = ["why"] if any(step.why for step in moves.steps) else []
    table = plain_table(QUESTION, "move", ">makespan then", ">in all", *why)
    for step in moves.steps:
        share = format_ratio(step.makespan / moves.before - 1)
        row = str(step.near), format_duration(step.makespan, 6), share
        table.add_row(*row, *([step.why] if why else []))
    return table


def placement_text(problem: Problem) -> str:
    """Return where ``problem`` stands as the lines of a scenario file."""
    section = pasted(problem)
    stated = [f"{name}: {on}" for name, on in section["tasks"].items()]
    tasks = textwrap.fill(
        f"  tasks: {{{', '.join(stated)}}}",
        WIDTH,
        subsequent_indent=" " * 4,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"placement:\n  policy: {section['policy']}\n{tasks}"


def causes(explanation: Explanation) -> Table:
    """Return the causes and their sum."""
    problem, chain = explanation.schedule.problem, explanation.chain
    table = plain_table(
        "Why this long", "cause", "of", "held back by", ">time", ">share", ">links"
    )
    total = chain.seconds or 1.0
    for row in cause_rows(problem, chain):
        table.add_row(
            row["cause"],
            row["what"],
            row["port"] or row["pool"],
            format_duration(row["seconds"]),
            f"{100 * row['seconds'] / total:.1f} %",
            str(row["links"]),
        )
    total_time = format_duration(chain.seconds, 6)
    links = str(len(chain.links))
    table.add_row("sum", "", "", total_time, "100.0 %", links, style="bold")
    return table


def ports(explanation: Explanation) -> Table:
    """Return the ports of the chain."""
    table = plain_table("Ports on the chain", "port", ">time", ">share", "")
    total = explanation.chain.seconds or 1.0
    for row in port_rows(explanation.schedule.problem, explanation.chain):
        share = row["seconds"] / total
        table.add_row(
            row["port"],
            format_duration(row["seconds"]),
            f"{100 * share:.1f} %",
            "█" * round(30 * share),
        )
    return table


def apart(emulated: Schedule, simulated: Schedule, parts: tuple[Drift, ...]) -> Table:
    """Return where emulation and simulation parted, and the sum."""
    table = plain_table(
        "Emulated minus simulated, along the chain", "cause", "of", ">apart", ">share"
    )
    base = simulated.makespan or 1.0
    for row in apart_rows(emulated.problem, parts):
        if abs(row["seconds"]) >= _NOTHING * base:
            table.add_row(row["cause"], row["what"], *difference(row["seconds"], base))
    whole = difference(emulated.makespan - simulated.makespan, base)
    table.add_row("sum", "", *whole, style="bold")
    return table


def improvements(explanation: Explanation, shown: int) -> Table:
    """Return the changes that would help, best first, and a line about the rest.

    Measured after the moves where some help: a move saves a purchase. Changes of one
    kind that are worth the same share a row.
    """
    moves = explanation.moves
    found = explanation.improvements_then or explanation.improvements
    base = (moves.makespan if moves.steps else explanation.replayed_makespan) or 1.0
    title = "What would help" + " after these moves" * bool(moves.steps)
    edits = any(one.change.edit for one in found)
    columns = [">makespan", ">gain", "as" if edits else ""]
    table = plain_table(f"{title} (each line is simulated)", "change", *columns)
    helping = [one for one in found if one.gain > _NOTHING * base]
    folded: dict[tuple[str, str], list[Improvement]] = defaultdict(list)
    for one in helping:
        if one.change.edit is not None or not edits:
            folded[one.change.kind, f"{one.makespan:.9g}"].append(one)
    for one, *same in [*folded.values()][:shown]:
        what = one.change.what + (f" (or {len(same)} more)" if same else "")
        gain = one.gain / base
        last = edit_text(one.change.edit) if edits else "█" * round(20 * gain)
        makespan = format_duration(one.makespan, 6)
        table.add_row(what, makespan, format_ratio(-gain), last)
    unseen = max(0, len(folded) - shown)
    more = f"{unseen} more would help, " if unseen else ""
    table.caption = f"{more}{len(found) - len(helping)} changes would not"
    if edits:
        table.caption += "; --json has all keys"
    return table


def edit_text(edit: Mapping[str, Any] | None) -> str:
    """Return an edit as ``--set`` takes it, without where the tasks stand, in a line.

    One that is too long for it is shown by its first key.
    """
    shown = {k: v for k, v in (edit or {}).items() if not k.endswith(_STANDING)}
    if not shown:
        return ""
    (key, value), *others = shown.items()
    text = f"{key}={_inline(value)}"
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
)


def _inline(value: object) -> str:
    """Return a value as YAML writes it in one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_inline(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return "null" if value is None else str(value)


def difference(seconds: float, base: float) -> tuple[str, str]:
    """Return a time with its sign, and as a share of ``base`` seconds."""
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{format_duration(abs(seconds))}", format_ratio(seconds / base)
