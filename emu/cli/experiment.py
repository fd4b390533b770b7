"""A scenario made ready to simulate: job, placement, times and volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.problem import Problem, Realization
from emu.scenario import Scenario, build_job, load, place, realize
from emu.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from emu.schedule import Schedule


@dataclass(frozen=True)
class Experiment:
    """Everything that a simulation of ``scenario`` needs."""

    scenario: Scenario
    problem: Problem
    realization: Realization

    def simulate(self) -> Schedule:
        """Return the schedule under the scenario's rate policy."""
        policy = self.scenario.schedule.policy
        return simulate(self.problem, self.realization, policy)


def prepare(file: Path, overrides: Sequence[str]) -> Experiment:
    """Load, build, place and realize a scenario file.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As each step says.
    """
    scenario = load(file, overrides)
    cluster, job = scenario.to_cluster(), build_job(scenario)
    problem = Problem(cluster, job, place(scenario, job, cluster).placement)
    return Experiment(scenario, problem, realize(scenario, job))
