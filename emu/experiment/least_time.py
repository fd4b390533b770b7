"""Bound how fast a training can be, before a mini-batch of it is drawn."""

from __future__ import annotations

import numpy as np

from emu.prediction.scheduling.compiled_problem import Layout, job_arrays
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import earliest
from emu.scenario import Scenario, build_job
from emu.scenario.virtual_training import seeds_seen
from emu.systems.training_section import TrainingSection


def least_seconds(scenario: Scenario) -> float:
    """Return seconds per seed that no schedule of a training beats; 0 where not known.

    Its tasks take the times that the file states, and its flows none.

    Raises ScenarioError, DataError as `build_job`.
    """
    section = scenario.job
    if scenario.jobs or not isinstance(section, TrainingSection):
        return 0.0
    # Each of them decides over times or lengths: they are not as stated.
    deciders = (scenario.profile, scenario.until, scenario.checkpoint)
    if any(decider is not None for decider in deciders):
        return 0.0
    job = build_job(scenario)
    times = section.stated_seconds(job)
    # Where tasks may move, or take longer on some machines, placement decides.
    is_slower = any(task.slowness for task in job.tasks)
    if times is None or is_slower or not job.fixed:
        return 0.0

    # Handoffs within a machine take no time: so none of its flows does on a single one.
    arrays = job_arrays(job, scenario.to_cluster(), rate_policy("oes"))
    layout = Layout(arrays, np.zeros(len(job.tasks), np.int64))
    no_bytes = np.zeros((len(job.edges), job.iterations))
    _, ends = earliest(layout, times, no_bytes)
    seeds = seeds_seen(job) or 1
    return float(ends.max()) / seeds
