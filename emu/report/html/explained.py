"""Parts of the page that compare: with what would help, and with the simulation."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from emu.analysis.critical_path import critical_path
from emu.analysis.divergence import divergences
from emu.analysis.explanation import apart_rows
from emu.analysis.optimality_gap import placement_gap, placement_line
from emu.analysis.task_moves import task_moves
from emu.analysis.what_if import Change, changes_of, rank
from emu.analysis.what_if_placement import placement_changes
from emu.report.explanation_tables import placement_text, shorter
from emu.report.html.markup import table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from emu.runs.recorded_run import RecordedRun

#: Flows between machines above which the page does not look for what would help.
MOST_FLOWS = 30_000
#: How long a report looks for a lower bound over all placements.
BOUND_SECONDS = 2.0
#: Improvements that are shown; ``emu explain`` has all.
SHOWN = 10
#: Shares of the makespan below which a difference is rounding.
_NOTHING = 1e-9


def which_task(run: RecordedRun | None) -> str:
    """Return the moves and swaps of single tasks that help, and the best placement.

    Empty without a run, and where simulating takes too long.

    Raises
    ------
    DataError
        When no schedule of the run could be read.
    """
    if run is None or len(run.best.flows()) > MOST_FLOWS:
        return ""
    base = Change("", "as it is", run.best.problem, run.realization, run.policy)
    moves = task_moves(base)
    makespan = moves.found[0].makespan + moves.found[0].gain if moves.found else 0.0
    helping = moves.helping(makespan)
    gap = placement_gap(base.problem, base.realization, makespan, seconds=BOUND_SECONDS)
    left = f"<p>{escape(placement_line(gap))}.</p>"
    if not helping:
        said = f"None of {len(moves.found)} moves and swaps of single tasks helps."
        return f"<p>{said}</p>{left}"
    rows = [
        [
            str(move.near),
            format_duration(move.makespan, 6),
            shorter(move.gain / makespan),
            move.why,
        ]
        for move in helping[:SHOWN]
    ]
    text = escape(placement_text(helping[0].problem))
    return (
        table(["change", ">makespan", ">gain", "why"], rows)
        + "<details><summary>The placement after the first one</summary>"
        + f"<pre>{text}</pre></details>"
        + left
    )


def would_help(run: RecordedRun) -> str:
    """Return the changes that shorten the run most, each simulated; or why not.

    Raises
    ------
    DataError
        When no schedule of the run could be read.
    """
    flows = len(run.best.flows())
    if flows > MOST_FLOWS:
        return (
            f"<p>Not looked for: the run has {flows:,} flows, more than {MOST_FLOWS:,}."
            " <code>emu explain</code> takes the time it needs.</p>"
        )
    base = Change("", "as it is", run.best.problem, run.realization, run.policy)
    chain = critical_path(run.best)
    found = rank(base, [*changes_of(base, chain), *placement_changes(base)])
    makespan = found[0].makespan + found[0].gain if found else 0.0
    helping = [i for i in found if i.gain > _NOTHING * makespan]
    if not helping:
        return "<p>Nothing that was tried.</p>"
    return table(
        ["change", ">makespan", ">gain"],
        [
            [
                improvement.change.what,
                format_duration(improvement.makespan, 6),
                format_ratio(-improvement.gain / makespan),
            ]
            for improvement in helping[:SHOWN]
        ],
    )


def parted(run: RecordedRun) -> str:
    """Return emulated minus simulated along the emulated chain, by cause and sum.

    Empty when one of the two is missing.
    """
    if run.emulated is None or run.simulated is None:
        return ""
    apart = divergences(run.emulated, run.simulated)
    base = run.simulated.makespan
    rows = [
        [row["cause"], row["what"], *_difference(row["seconds"], base)]
        for row in apart_rows(run.problem, apart)
        if abs(row["seconds"]) > _NOTHING * base
    ]
    whole = _difference(run.emulated.makespan - base, base)
    return table(
        ["along the chain", "of", ">apart", ">of the makespan"],
        [*rows, ["sum", "", *whole]],
    )


def budget(result: dict[str, Any]) -> str:
    """Return the error budget of result.json, what the host added; empty without."""
    base = float(result["replayed_makespan"]) if "error_budget" in result else 0.0
    rows = [
        [cause, *_difference(float(seconds), base)]
        for cause, seconds in result.get("error_budget", {}).items()
        if seconds
    ]
    return table(["cause", ">apart", ">of the makespan"], rows) if rows else ""


def _difference(seconds: float, base: float) -> tuple[str, str]:
    sign = "-" if seconds < 0 else "+"
    share = format_ratio(seconds / base) if base else "-"
    return f"{sign}{format_duration(abs(seconds))}", share
