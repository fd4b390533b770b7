"""From what crossed between the processes of a lab to a job that a scenario can state.

`conversations` tells requests, answers and an all-reduce apart, `iterations` cuts them
into iterations or makes one of all, `fitted_job` writes what was found as a custom job.
Pure: what it gets is `emu.prediction.analysis.traffic.Traffic`. Must not know: files,
labs, simulations.
"""

from emu.lab.fitting.causes import FittedSteps, overtaken
from emu.lab.fitting.conversations import Unfittable
from emu.lab.fitting.fitted_job import write_fit
from emu.lab.fitting.iterations import (
    FittedIterations,
    Template,
    fit_iterations,
    fit_traffic,
    mean_iterations,
)
from emu.lab.fitting.steps import ALL, describe_ends

__all__ = [
    "ALL",
    "FittedIterations",
    "FittedSteps",
    "Template",
    "Unfittable",
    "describe_ends",
    "fit_iterations",
    "fit_traffic",
    "mean_iterations",
    "overtaken",
    "write_fit",
]
