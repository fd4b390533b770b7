"""Scenarios that leave their scales to emu: ``auto`` for time or byte scale."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from emu.calibration.host_demand import load_of
from emu.calibration.prediction import predict
from emu.calibration.sampling_work import sampling_work
from emu.calibration.scale_search import choose_byte_scale, choose_time_scale
from emu.scenario import build_job, open_data, prepare, realize
from emu.scenario.run_sections import AUTO

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from emu.calibration.host import HostProfile
    from emu.calibration.host_demand import Load
    from emu.calibration.prediction import Prediction
    from emu.scenario import Experiment, Scenario


def fit(
    scenario: Scenario, host: Callable[[], HostProfile], *, foresee: bool = False
) -> tuple[Experiment, Prediction | None]:
    """Prepare a scenario for emulation, with numbers where it says ``auto``.

    Parameters
    ----------
    host
        Returns the profile of this host; called only where it is needed.
    foresee
        Whether a prediction is wanted even where both scales are stated.

    Raises
    ------
    EmulatorError
        What `emu.scenario.prepare` and ``host`` raise.
    """
    if scenario.emulation.byte_scale == AUTO:
        scenario = stating(scenario, byte_scale=_byte_scale(scenario))
    experiment = prepare(scenario)
    open_data(experiment.problem.job)
    chosen = scenario.emulation.time_scale
    if chosen != AUTO and not foresee:
        return experiment, None
    load = demanded(experiment)
    byte_scale = scenario.emulation.stated_byte_scale
    if chosen != AUTO:
        scale = scenario.emulation.stated_time_scale
        return experiment, predict(
            load, host(), time_scale=scale, byte_scale=byte_scale
        )
    found = choose_time_scale(
        load,
        host(),
        max_error=scenario.emulation.max_error,
        max_late_flows=scenario.emulation.max_late_flows,
        byte_scale=byte_scale,
        least=1.0 if scenario.emulation.compute != "timed" else 0.01,
    )
    fitted = stating(scenario, time_scale=found.time_scale)
    return dataclasses.replace(experiment, scenario=fitted), found


def demanded(experiment: Experiment) -> Load:
    """Return what an experiment asks of its host.

    Raises
    ------
    DataError
        When the job's data set cannot be used.
    """
    return load_of(
        experiment.problem,
        experiment.realization,
        experiment.chosen_policy(),
        profile=experiment.expected,
        work=_real_work(experiment),
        flow_ends=experiment.scenario.emulation.flow_ends,
    )


def _real_work(experiment: Experiment) -> NDArray[np.float64] | None:
    """Return the CPU seconds of every (task, iteration), None where nothing is done.

    Where tasks compute, their times are what that takes; timed ones still sample.
    """
    scenario = experiment.scenario
    if scenario.emulation.compute != "timed":
        return experiment.realization.times
    if scenario.job.system == "custom":
        return None
    return sampling_work(experiment.problem.job)


def _byte_scale(scenario: Scenario) -> float:
    """Return the byte scale of a job whose payloads are made up; others have theirs."""
    if scenario.job.system != "custom":
        return 1.0
    realization = realize(scenario, build_job(scenario))
    volumes: list[float] = np.unique(realization.volumes).tolist()
    return choose_byte_scale(volumes)


def stating(scenario: Scenario, **scales: float | str) -> Scenario:
    """Return the scenario with these keys of ``emulation`` stated."""
    emulation = scenario.emulation.model_copy(update=scales)
    return scenario.model_copy(update={"emulation": emulation})
