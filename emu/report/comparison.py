"""Several policies or placements of one scenario, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.report.terminal import plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


@dataclass(frozen=True)
class Candidate:
    """One row of a comparison.

    Parameters
    ----------
    makespan
        Seconds.
    moved
        Share of the bytes that crossed between machines.
    """

    placement: str
    policy: str
    makespan: float
    moved: float


def comparison_table(candidates: Sequence[Candidate]) -> Table:
    """Return one row per candidate; the change is against the first one."""
    table = plain_table(
        "Simulated", "placement", "policy", ">makespan", ">change", ">bytes moved"
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
            style="bold" if candidate.makespan == best else "",
        )
    return table
