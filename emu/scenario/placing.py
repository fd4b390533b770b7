"""The placement that a scenario asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.placement import (
    place_distdgl,
    place_explicit,
    place_ifs,
    place_random,
    place_round_robin,
)

if TYPE_CHECKING:
    from emu.problem import Cluster, Job, Placement
    from emu.scenario.scenario import Scenario

#: Random stream of the scenario's seed; draws from the profile have another.
_PLACE_STREAM = 2


def place(scenario: Scenario, job: Job, cluster: Cluster) -> Placement:
    """Return the placement of ``job`` by the scenario's policy, from its seed.

    Raises
    ------
    PlacementError
        When the stated placement breaks a constraint; `InfeasiblePlacement` when the
        cluster is too small.
    ScenarioError, DataError
        ``etp`` only: when there is nothing to simulate with, see `profile_of`.
    """
    section = scenario.placement
    rng = np.random.default_rng([scenario.seed, _PLACE_STREAM])
    match section.policy:
        case "explicit":
            return place_explicit(job, cluster, section.tasks)
        case "ifs":
            return place_ifs(job, cluster, rng)
        case "distdgl":
            return place_distdgl(job, cluster)
        case "random":
            return place_random(job, cluster, rng)
        case "round_robin":
            return place_round_robin(job, cluster)
        case "etp":
            raise NotImplementedError
