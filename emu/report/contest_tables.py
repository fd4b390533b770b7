"""Tables of the worst instance that ``emu contest`` found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from emu.experiment.contest import Contest, Kind
from emu.experiment.contest.search import JITTER
from emu.report.system_tables import over_sockets
from emu.report.terminal import plain_table
from emu.runs.result import Result
from emu.units import format_duration, format_number, format_ratio

#: Flows that are shown: those that one side delivers latest.
_MOST_FLOWS = 8


def contest_json(found: Contest[Any], file: str) -> Result:
    """Return the worst instance as ``--json`` writes it, see docs/results.md."""
    sides = {"loser": found.loser, "winner": found.winner}
    answers = {"loser": found.bout.loser, "winner": found.bout.winner}
    result: Result = {
        "kind": found.loser.kind.value,
        "loss": found.loss,
        "steady_loss": found.steady_loss,
        "without": dict(found.without),
        "instance": found.instance.lines(),
        "bounds": found.instance.bounds(),
        "tries": found.tries,
        "refused": found.refused,
        "file": file,
    }
    for side, contestant in sides.items():
        row = answers[side]
        result[side] = {
            "name": contestant.name,
            "makespan": row.makespan,
            "limits": row.limits,
        }
        if row.run is not None:
            result[side]["run"] = asdict(row.run)

    return result


def contest_table(found: Contest[Any]) -> Table:
    """Return both sides on the worst instance, and what is left without its causes."""
    loser = found.loser.name
    winner = found.winner.name
    title = f"{loser} takes {_percent(found.loss)} longer than {winner}"
    if found.loser.kind is Kind.SYSTEMS:
        title = f"{loser} needs {_percent(found.loss)} more time per seed than {winner}"
    table = plain_table(title, "", ">makespan", "limited by", ">over sockets")
    sides = [(loser, found.bout.loser), (winner, found.bout.winner)]
    for name, row in sides:
        run = ""
        if row.run is not None:
            error = format_ratio(row.run.makespan_error)
            run = f"{over_sockets(row.run)}, {error}, {row.run.trust}"
        table.add_row(name, format_duration(row.makespan), row.limit, run)

    return table


def contest_lines(found: Contest[Any]) -> Iterator[str]:
    """Yield how sure the loss is, what it hangs on, and what was tried."""
    yield (
        f"with every number moved by up to {JITTER:.0%} it stays at "
        f"{_percent(found.steady_loss)} or more"
    )
    for words, loss in found.without.items():
        share_left = "refused" if loss is None else format_ratio(loss)
        yield f"with {words}: {share_left}"
    tries = f"{found.tries:,}"
    if found.refused:
        tries += f", {found.refused:,} of them refused"
    bounds = found.instance.bounds()
    yield f"worst of {tries}: {bounds}"


def flows_table(found: Contest[Any]) -> Table | None:
    """Return when the flows end on either side, the latest of the loser first.

    None where both sides do not carry the same flows.
    """
    slow = found.bout.loser.simulated
    fast = found.bout.winner.simulated
    if found.loser.kind is Kind.SYSTEMS:
        return None
    later = slow.flow_end - fast.flow_end
    flows = []
    for edge, turn in slow.flows().tolist():
        lateness = later[edge, turn]
        if lateness > 0:
            flows.append((lateness, edge, turn))
    flows.sort(reverse=True)
    if not flows:
        return None

    loser = found.loser.name
    winner = found.winner.name
    table = plain_table(
        f"flows that end later under {loser}",
        "flow",
        ">iteration",
        f">{loser}",
        f">{winner}",
        ">later by",
    )
    names = slow.problem.job.edge_names
    for delay, edge, turn in flows[:_MOST_FLOWS]:
        table.add_row(
            names[edge],
            str(turn),
            format_duration(slow.flow_end[edge, turn]),
            format_duration(fast.flow_end[edge, turn]),
            format_duration(delay),
        )
    return table


def _percent(share: float) -> str:
    return f"{format_number(100.0 * share, 3)} %"
