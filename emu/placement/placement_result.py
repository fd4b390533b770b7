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
    candidates: int = 0
    accepted: int = 0
    evaluations: int = 0
    iterations: int = 0
    history: tuple[tuple[int, float], ...] = ()
    optimal: bool = False
