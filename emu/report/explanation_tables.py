"""An explanation as tables of at most 100 columns."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from emu.analysis.explanation import apart_rows, cause_rows, port_rows
from emu.analysis.task_moves import pasted
from emu.report.job_tables import job_line
from emu.report.terminal import WIDTH, plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from emu.analysis.error_budget import Drift
    from emu.analysis.explanation import Explanation
    from emu.analysis.task_moves import TaskMove, TaskMoves
    from emu.analysis.what_if import Improvement
    from emu.problem import Problem, Schedule

#: Moves that are shown; the JSON form has all.
MOVES_SHOWN = 5
QUESTION = "Which task should move?"
#: Share of the makespan below which a difference is rounding.
_NOTHING = 1e-9
#: Improvements that are shown; the JSON form has all.
SHOWN = 15


def explanation_tables(
    explanation: Explanation, shown: int = SHOWN, window: object = None
) -> RenderableType:
    """Return the headline, the causes, the ports, the drift and what would help.

    Parameters
    ----------
    shown
        Rows of what would help.
    window
        The credit window as stated, where it is known.
    """
    parts: list[RenderableType] = [headline(explanation, window), ""]
    if explanation.moves.feasible:
        parts += [task_moves(explanation, shown), *best_placement(explanation), ""]
    parts.append(causes(explanation))
    if any(link.port >= 0 for link in explanation.chain.links):
        parts += ["", ports(explanation)]
    if explanation.simulated is not None:
        emulated, simulated = explanation.schedule, explanation.simulated
        parts += ["", apart(emulated, simulated, explanation.apart)]
    if explanation.improvements:
        base = explanation.replayed_makespan
        parts += ["", improvements(explanation.improvements, base, shown)]
    parts += [Text(f"note: {note}", style="yellow") for note in explanation.notes]
    return Group(*parts)


def headline(explanation: Explanation, window: object = None) -> Text:
    """Return the makespan and the length of its chain."""
    makespan = format_duration(explanation.schedule.makespan, 6)
    text = Text.assemble((makespan, "bold"), " from start to end")
    if explanation.simulated is not None:
        text.append(f", simulated {format_duration(explanation.replayed_makespan, 6)}")
    job = explanation.schedule.problem.job
    text.append(f", {job_line(job, window=window)}")
    text.append(
        f"; the critical path has {len(explanation.chain.links)} links, each begins "
        "when the one before ends"
    )
    return text


def task_moves(explanation: Explanation, shown: int = MOVES_SHOWN) -> RenderableType:
    """Return the moves and swaps that help, best first."""
    base, moves = explanation.replayed_makespan, explanation.moves
    helping = moves.helping(base or 1.0)
    if not helping:
        return Text.assemble((QUESTION, "bold"), f"\n{none_helps(moves)}\n")
    table = moves_table(helping[: min(shown, MOVES_SHOWN)], base or 1.0)
    table.caption = f"{len(helping)} of {len(moves.found)} moves and swaps help"
    if moves.feasible > len(moves.found):
        table.caption += f"; of {moves.feasible:,} those with the lowest bounds"
    return table


def none_helps(moves: TaskMoves) -> str:
    """Return the sentence for a placement that no single move or swap makes better."""
    if not moves.found:
        return "There is nothing to try: pins and capacities leave no move and no swap."
    return f"None of {len(moves.found)} moves and swaps of tasks helps."


def moves_table(moves: Sequence[TaskMove], base: float) -> Table:
    """Return a row per move; gains are shares of ``base`` seconds."""
    why = ["why"] if any(move.why for move in moves) else []
    table = plain_table(QUESTION, "change", ">makespan", ">gain", *why)
    for move in moves:
        gain = f"{100 * move.gain / base:.2g} % shorter"
        row = str(move.near), format_duration(move.makespan, 6), gain
        table.add_row(*row, *([move.why] if why else []))
    return table


def best_placement(explanation: Explanation) -> list[RenderableType]:
    """Return the placement of the best move, ready to paste; nothing if none helps."""
    helping = explanation.moves.helping(explanation.replayed_makespan)
    return [Text(placement_text(move.problem), style="dim") for move in helping[:1]]


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
            row["port"],
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


def improvements(found: Sequence[Improvement], base: float, shown: int) -> Table:
    """Return what would help, best first, and a line about the rest.

    Parameters
    ----------
    base
        Makespan that the gains are shares of, seconds.
    """
    table = plain_table(
        "What would help (each line is simulated)", "change", ">makespan", ">gain", ""
    )
    base = base or 1.0
    helping = [i for i in found if i.gain > _NOTHING * base]
    for improvement in helping[:shown]:
        gain = improvement.gain / base
        table.add_row(
            improvement.change.what,
            format_duration(improvement.makespan, 6),
            format_ratio(-gain),
            "█" * round(20 * gain),
        )
    unseen = max(0, len(helping) - shown)
    more = f"{unseen} more would help, " if unseen else ""
    table.caption = f"{more}{len(found) - len(helping)} changes would not"
    return table


def difference(seconds: float, base: float) -> tuple[str, str]:
    """Return a time with its sign, and as a share of ``base`` seconds."""
    sign = "-" if seconds < 0 else "+"
    return f"{sign}{format_duration(abs(seconds))}", format_ratio(seconds / base)
