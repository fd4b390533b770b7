"""One scenario emulated beside its simulation: a point of proof for fidelity."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.calibration.fitting import fit, stating
from emu.coordinator.experiment import carry_out, emulation_settings
from emu.errors import EmulatorError
from emu.report.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emu.coordinator.experiment import ExperimentOutcome
    from emu.scenario import Experiment, Scenario


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Parameters
    ----------
    fidelity
        Emulated over simulated makespan with the same times and volumes, minus 1; NaN
        when the run could not be finished.
    prediction
        The same against the simulation before the run.
    flow_error
        How much longer flows took than in the simulation, 95th percentile, as a share
        of their length there or of 0.2 s of wall time: 2 ms count as 1 %.
    trust, bound
        Of the verdict; ``failed`` when there is none, with the ``problem``.
    retries
        Runs before this one that were not to be trusted.
    """

    scenario: str
    policy: str
    processes: int
    machines: int
    time_scale: float
    byte_scale: float
    retries: int = 0
    flows: int = 0
    simulated: float = math.nan
    emulated: float = math.nan
    fidelity: float = math.nan
    prediction: float = math.nan
    flow_error: float = math.nan
    trust: str = "failed"
    bound: float = math.nan
    wall: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def prepared(scenario: Scenario, wall: float) -> Experiment:
    """Return the experiment with the time scale that makes it take ``wall`` seconds.

    Raises
    ------
    EmulatorError
        What preparing it raises.
    """
    experiment, _ = fit(stating(scenario, time_scale=1.0), _no_host)
    scale = float(f"{wall / experiment.simulate().makespan:.3g}")
    fitted, _ = fit(stating(experiment.scenario, time_scale=scale), _no_host)
    return fitted


def _no_host() -> Any:
    raise RuntimeError("scales are stated: no host needs to be measured")


def attempt(
    experiment: Experiment,
    runs: Path,
    *,
    retries: int = 0,
    carry: Callable[..., ExperimentOutcome] = carry_out,
) -> Trial:
    """Emulate an experiment; again, up to ``retries`` times, while it is untrusted.

    Parameters
    ----------
    runs
        Directory that takes the run directories.
    carry
        Carries the experiment out; `carry_out` but in tests.
    """
    for tried in range(retries + 1):
        trial = _once(experiment, runs, tried, carry)
        if trial.trust == "trusted" or tried == retries:
            return trial
    raise ValueError(f"retries is {retries}; it must be 0 or more")


def _once(
    experiment: Experiment,
    runs: Path,
    retries: int,
    carry: Callable[..., ExperimentOutcome],
) -> Trial:
    scenario, problem = experiment.scenario, experiment.problem
    directory = RunDirectory.create(scenario.name, runs)
    settings = emulation_settings(scenario)
    stated: dict[str, Any] = {
        "scenario": scenario.name,
        "policy": experiment.policy,
        "processes": len(problem.job.processes),
        "machines": len(problem.cluster.machines),
        "time_scale": settings.time_scale,
        "byte_scale": settings.byte_scale,
        "retries": retries,
    }
    try:
        outcome = carry(experiment, settings, directory)
    except EmulatorError as error:
        return Trial(**stated, problem=str(error))
    result = outcome.result
    return Trial(
        **stated,
        flows=len(outcome.run.schedule.flows()),
        simulated=result["simulated_makespan"],
        emulated=result["makespan"],
        fidelity=result["fidelity"],
        prediction=result["prediction_error"],
        flow_error=flow_error(outcome, 0.2 / settings.time_scale),
        trust=result["verdict"]["trust"],
        bound=result["verdict"]["error"],
        wall=result["wall_seconds"],
    )


def flow_error(outcome: ExperimentOutcome, shortest: float) -> float:
    """Return how far flows' lengths are from simulated ones: 95th percentile, relative.

    Parameters
    ----------
    shortest
        Emulated seconds; shorter flows are held against that length.
    """
    emulated, simulated = outcome.run.schedule, outcome.replayed
    at = tuple(emulated.flows().T)
    lengths = (simulated.flow_end - simulated.flow_start)[at]
    apart = np.abs((emulated.flow_end - emulated.flow_start)[at] - lengths)
    if not len(apart):
        return 0.0
    return float(np.percentile(apart / np.maximum(lengths, shortest), 95))
