"""Measure the rounding in a makespan: the effect of the last digits of its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Realization
from emu.simulation.simulate import makespan

if TYPE_CHECKING:
    from emu.problem import Problem, Profile

#: Relative change of every time and volume: some thousand last bits.
NUDGE = 1e-12
#: Runs with other last digits: a choice, not measured.
NUDGES = 4


def sensitivity(
    problem: Problem,
    realization: Realization,
    policy: str = "oes",
    *,
    profile: Profile | None = None,
) -> float:
    """Return by how many seconds the last digits of times and volumes move a makespan.

    Every time and volume is changed by up to 1e-12 of itself, at random with a fixed
    seed, a few times over; the largest change of the makespan counts. In a job that
    chains many ties a last digit decides the order, and may move the makespan by a
    percent: two placements that are closer than this are equally good.

    Parameters
    ----------
    realization, policy, profile
        As of `simulate`.

    Raises
    ------
    ValueError, SchedulingError
        As `simulate`.
    """
    rng = np.random.default_rng(0)
    before = makespan(problem, realization, policy, profile=profile)
    most = 0.0
    for _ in range(NUDGES):
        nudged = Realization(
            *(
                values * (1.0 + NUDGE * rng.uniform(-1.0, 1.0, values.shape))
                for values in (realization.times, realization.volumes)
            )
        )
        after = makespan(problem, nudged, policy, profile=profile)
        most = max(most, abs(after - before))
    return most
