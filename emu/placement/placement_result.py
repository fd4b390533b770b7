"""What a placement algorithm returns besides the placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.problem import Placement


@dataclass(frozen=True)
class PlacementResult:
    """A placement and what is known about it.

    Parameters
    ----------
    placement
        Feasible.
    policy
        Name of the placement policy that found it.
    makespan
        Simulated makespan of the search's iterations, seconds, or what several jobs
        cost there (`JobsCost`); None when nothing was simulated.
    start_makespan
        The same of the placement that the search began with.
    bound
        Lower bound on the makespan of every feasible placement under the same draws,
        seconds; None when none was computed.
    candidates
        Placements that were looked at.
    accepted
        Of these, taken as the next placement of a chain.
    iterations
        Iterations that were simulated for a makespan.
    evaluations
        Of these, simulated; the others were settled by a bound.
    history
        (candidates so far, best makespan) at the start and at every improvement.
    optimal
        Whether no feasible placement is better under the same draws.
    """

    placement: Placement
    policy: str
    makespan: float | None = None
    start_makespan: float | None = None
    bound: float | None = None
    candidates: int = 0
    accepted: int = 0
    evaluations: int = 0
    iterations: int = 0
    history: tuple[tuple[int, float], ...] = ()
    optimal: bool = False

    @property
    def gap(self) -> float | None:
        """How far the makespan may be from the best possible, relative to the bound."""
        if self.makespan is None or self.bound is None or self.bound <= 0:
            return None
        return self.makespan / self.bound - 1.0
