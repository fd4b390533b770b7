"""Several policies or placements of one scenario, side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from emu.report.terminal import plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from emu.placement.neighbours import Move


@dataclass(frozen=True)
class Candidate:
    """One row of a comparison.

    Parameters
    ----------
    makespan
        Seconds.
    moved
        Share of the bytes that crossed between machines.
    moves
        What stands elsewhere than in the scenario as it is.
    """

    placement: str
    policy: str
    makespan: float
    moved: float
    moves: tuple[Move, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name; seconds and shares."""
        return asdict(self)


#: Moves that are listed below the table; beyond, only their number says much.
_LISTED = 6


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first one.

    Parameters
    ----------
    job
        What job it was, in a line.
    """
    table = plain_table(
        f"Simulated, {job}" if job else "Simulated",
        "placement",
        "policy",
        ">makespan",
        ">change",
        ">bytes moved",
        ">tasks moved",
    )
    first = candidates[0].makespan if candidates else 0.0
    best = min((candidate.makespan for candidate in candidates), default=0.0)
    for candidate in candidates:
        change = candidate.makespan / first - 1 if first else 0.0
        table.add_row(
            candidate.placement,
            candidate.policy,
            format_duration(candidate.makespan, 6),
            format_ratio(change),
            f"{candidate.moved:.0%}",
            str(len(candidate.moves)),
            style="bold" if candidate.makespan == best else "",
        )
    table.caption = "\n".join(
        f"{candidate.placement}: {', '.join(map(str, candidate.moves))}"
        for candidate in candidates
        if 0 < len(candidate.moves) <= _LISTED
    )
    table.caption_justify = "left"
    return table
