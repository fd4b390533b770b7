"""Several policies or placements of one scenario, side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from emu.report.statistics import Interval, compared, interval, paired, paired_text
from emu.report.terminal import plain_table
from emu.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from emu.placement.neighbours import Move


@dataclass(frozen=True)
class Candidate:
    """One row of a comparison.

    Parameters
    ----------
    makespans
        Seconds by seed, of one or more seeds.
    moved
        Share of the bytes that crossed between machines, with the first seed.
    moves
        What stands elsewhere than in the scenario as it is, likewise.
    """

    placement: str
    policy: str
    makespans: Mapping[int, float]
    moved: float
    moves: tuple[Move, ...] = ()

    @property
    def spread(self) -> Interval:
        """Mean over the seeds, seconds, with its interval."""
        return interval([*self.makespans.values()])

    @property
    def makespan(self) -> float:
        """Mean over the seeds, seconds."""
        return self.spread.mean

    def beside(self, other: Candidate) -> Candidate:
        """Return the candidate with the makespans of other seeds as well."""
        return replace(self, makespans={**self.makespans, **other.makespans})

    def to_json(self, first: Candidate) -> dict[str, Any]:
        """Return the fields by name, in seconds and shares.

        ``change`` is against the first candidate, the mean of the seeds' changes; with
        half the width of its 95 % interval, and whether that holds 0.
        """
        return {
            "placement": self.placement,
            "policy": self.policy,
            **compared(self.makespans, first.makespans),
            "moved": self.moved,
            "moves": [asdict(move) for move in self.moves],
        }


#: Moves that are listed below the table; beyond, only their number says much.
_LISTED = 6


def comparison_table(candidates: Sequence[Candidate], job: str = "") -> Table:
    """Return one row per candidate; the change is against the first, seed by seed.

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
        ">± (95 %)",
        ">change",
        ">bytes moved",
        ">tasks moved",
    )
    best = min((one.makespan for one in candidates), default=0.0)
    for candidate in candidates:
        found = candidate.spread
        table.add_row(
            candidate.placement,
            candidate.policy,
            format_duration(found.mean, 6),
            format_duration(found.half) if found.half else "",
            paired_text(paired(candidate.makespans, candidates[0].makespans)),
            f"{candidate.moved:.0%}",
            str(len(candidate.moves)),
            style="bold" if found.mean == best else "",
        )
    table.caption = "\n".join(
        f"{candidate.placement}: {', '.join(map(str, candidate.moves))}"
        for candidate in candidates
        if 0 < len(candidate.moves) <= _LISTED
    )
    return table
