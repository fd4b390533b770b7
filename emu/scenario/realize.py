"""Times and volumes of a scenario's job: stated, profiled, or counted in its graph.

The seam to `emu.graph_data`: everything about a data set that a simulation needs goes
through this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.errors import ScenarioError
from emu.problem import Profile, Realization
from emu.scenario.custom_section import CustomJobSection
from emu.scenario.profile_file import read_profile

if TYPE_CHECKING:
    from emu.problem import Job
    from emu.scenario.scenario import Scenario

#: Random streams of one scenario seed; placement has its own.
_DRAW_STREAM = 1


def build_job(scenario: Scenario, *, emulated: bool = False) -> Job:
    """Return the job, opening its data set only where it counts in epochs.

    Raises
    ------
    DataError
        When the data set is missing or damaged.
    """
    job = scenario.job
    if isinstance(job, CustomJobSection) or job.epochs is None:
        return scenario.to_job(emulated=emulated)
    raise ScenarioError("epochs need the data set", key="job.epochs")


def realize(scenario: Scenario, job: Job) -> Realization:
    """Return the times and volumes that ``job`` is predicted to have.

    Those stated in a custom job; else drawn from the profile, with the scenario's seed;
    else the stated times of each kind of task, and volumes from sampling the data set.

    Parameters
    ----------
    job
        From `build_job`.

    Raises
    ------
    ScenarioError
        When a kind of task has no time and there is no profile.
    DataError
        When the profile or the data set is missing, damaged, or of another job.
    """
    if scenario.profile is not None:
        rng = np.random.default_rng([scenario.seed, _DRAW_STREAM])
        return profile_of(scenario, job).draw(rng, job.iterations)
    if isinstance(scenario.job, CustomJobSection):
        return scenario.job.realize(job)
    raise ScenarioError("a profile is needed", key="profile")


def profile_of(scenario: Scenario, job: Job) -> Profile:
    """Return the distributions that placement search draws from.

    The profile file; without one, the iterations of `realize`.

    Raises
    ------
    ScenarioError, DataError
        As `realize`.
    """
    if scenario.profile is not None:
        return read_profile(scenario.profile).profile(job)
    realization = realize(scenario, job)
    return Profile(realization.times, realization.volumes)
