"""Result of a placement algorithm: the placement, and figures of the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.html_table import html_table

if TYPE_CHECKING:
    from emu.problem import Placement


@dataclass(frozen=True)
class PlacementResult:
    """A placement and what is known about it."""

    placement: Placement
    """Feasible."""
    policy: str
    """Name of the placement policy that found it."""
    makespan: float | None = None
    """Simulated makespan of the search's iterations, seconds, or what several jobs cost
    there (`JobsCost`); None when nothing was simulated."""
    start_makespan: float | None = None
    """The same of the placement that the search began with."""
    candidates: int = 0
    """Placements that were looked at."""
    budget: int = 0
    """Candidates that it might look at, in each of its walks."""
    accepted: int = 0
    """Candidates taken as the next placement of a chain."""
    evaluations: int = 0
    """Candidates simulated; the others were settled by a bound."""
    iterations: int = 0
    """Iterations that were simulated for a makespan."""
    history: tuple[tuple[int, float], ...] = ()
    """(candidates so far, best makespan) at the start and at every improvement."""
    optimal: bool = False
    """True where no feasible placement is better under the same draws."""

    def _repr_html_(self) -> str:
        """Return the fields but the placement and the history, for notebooks."""
        hidden = {"placement", "history"}
        rows = [
            (key, told)
            for key, told in vars(self).items()
            if key not in hidden and told
        ]
        return html_table(f"placement by {self.policy}", (), rows)
