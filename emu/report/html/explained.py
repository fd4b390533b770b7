"""Parts of the page that compare: with what would help, and with the simulation."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from emu.analysis.critical_path import critical_path
from emu.analysis.divergence import divergences
from emu.analysis.optimality_gap import placement_gap, placement_line
from emu.analysis.task_moves import task_moves
from emu.analysis.what_if import Change, changes_of, rank
from emu.analysis.what_if_placement import placement_changes
from emu.report.explanation_tables import (
    apart,
    improvements,
    moves_table,
    placement_text,
)
from emu.report.html.markup import table
from emu.report.run_tables import budget_table
from emu.simulation import makespan

if TYPE_CHECKING:
    from emu.runs.recorded_run import RecordedRun

#: Flows between machines above which the page does not look for what would help.
MOST_FLOWS = 30_000
#: How long a report looks for a lower bound over all placements.
BOUND_SECONDS = 2.0
#: Improvements that are shown; ``emu explain`` has all.
SHOWN = 10


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
    length = makespan(base.problem, base.realization, base.policy)
    helping = moves.helping(length)
    gap = placement_gap(base.problem, base.realization, length, seconds=BOUND_SECONDS)
    left = f"<p>{escape(placement_line(gap))}.</p>"
    if not helping:
        said = f"None of {len(moves.found)} moves and swaps of single tasks helps."
        return f"<p>{said}</p>{left}"
    text = escape(placement_text(helping[0].problem))
    return (
        table(moves_table(helping[:SHOWN], length))
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
    shown = improvements(found, makespan, SHOWN)
    return table(shown) if shown.row_count else "<p>Nothing that was tried.</p>"


def parted(run: RecordedRun) -> str:
    """Return emulated minus simulated along the emulated chain, by cause and sum.

    Empty when one of the two is missing.
    """
    if run.emulated is None or run.simulated is None:
        return ""
    parts = divergences(run.emulated, run.simulated)
    return table(apart(run.emulated, run.simulated, parts))


def budget(result: dict[str, Any]) -> str:
    """Return the error budget of result.json, what the host added; empty without."""
    if not any(result.get("error_budget", {}).values()):
        return ""
    return table(budget_table(result))
