"""One scenario emulated beside its simulation: a point of proof for fidelity."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from emu.errors import EmulatorError
from emu.experiment.auto_scale import stating, with_byte_scale, with_scales
from emu.experiment.dry_run import dry_run
from emu.experiment.run_experiment import carry_out, emulation_settings
from emu.experiment.run_result import RunResult
from emu.experiment.scale_search import ScaleChoice
from emu.problem import Job
from emu.runs.array_files import read_weights
from emu.runs.retraining import list_training
from emu.runs.run_directory import RunDirectory
from emu.scenario import Experiment, Scenario
from emu.scenario.run_sections import AUTO
from emu.scenario.scenario_file import loads
from emu.systems.system import trainer_of, updates_missed
from emu.trust.lateness import FlowCompletion, flow_completion


@dataclass(frozen=True)
class Trial:
    """One run and what came of it; a row of most studies.

    Parameters
    ----------
    case
        ``SCENARIO@VARIANT/NUMBER``: variants of a scenario are what a study compares
        (time scales, neighbours, networks), the number is that of a repeat, or of a
        placement or policy.
    expected
        Makespan that was simulated before the run, seconds.
    seconds
        Wall time from the first process to the last file, with retries.
    replay_error
        Emulated over simulated makespan with the same times and volumes, minus 1; NaN
        when the run could not be finished.
    makespan_error
        The same against the simulation before the run.
    flow_error
        How much longer flows took than in the simulation, 95th percentile, as a share
        of their length there or of 0.2 s of wall time: 2 ms count as 1 %.
    trust, guards, bound
        Of the verdict; ``failed`` when there is none, with the ``problem``. Names of
        the guards that fired, with a comma between them.
    retries
        Runs before this one that were not to be trusted.
    system, shape
        ``dgtp`` (``oneshot`` or ``multiround``) or ``custom`` (``training`` or
        ``graph``).
    startup
        Wall seconds until all processes were ready.
    peak_rate
        Real bytes per wall second of all flows together, at most, in the simulation.
    tries, tries_cost
        Trials of time scales before the run, and their wall seconds.
    predicted_error, predicted_late
        What the trial at the time scale taken showed: share of the makespan moved,
        share of late flows; NaN where the scale was stated, or no trial met the aims.
    sensitivity
        Share by which the slightest delays move the simulated makespan.
    cpu_busy, cpu_steal, loop_lag, pacer_lag
        Of the host during the run: shares, and the longest lags in wall seconds.
    finishes, kept
        Flows whose fluid has an end, and those of them that arrived within
        max(1 % of their length, 2 ms of wall time) of it.
    finish_p50, finish_p95, finish_max
        Receiver's end against the fluid's, wall seconds, either way.
    finish_share_p95
        The same over the flow's length.
    finish_excess_p95
        The same over what it may be.
    received
        Real bytes of all payloads, as they arrived.
    weights
        Largest distance of a weight from that of the same training in one process, as a
        share of the largest one there; NaN of jobs that do not train.
    note
        Anything else that a study has to show.
    """

    case: str
    policy: str
    processes: int
    machines: int
    time_scale: float
    byte_scale: float
    expected: float = math.nan
    seconds: float = 0.0
    retries: int = 0
    flows: int = 0
    emulated: float = math.nan
    replay_error: float = math.nan
    makespan_error: float = math.nan
    flow_error: float = math.nan
    trust: str = "failed"
    guards: str = ""
    bound: float = math.nan
    wall: float = 0.0
    problem: str = ""
    system: str = ""
    shape: str = ""
    startup: float = math.nan
    peak_rate: float = math.nan
    tries: int = 0
    tries_cost: float = 0.0
    predicted_error: float = math.nan
    predicted_late: float = math.nan
    sensitivity: float = math.nan
    cpu_busy: float = math.nan
    cpu_steal: float = math.nan
    loop_lag: float = math.nan
    pacer_lag: float = math.nan
    finishes: int = 0
    kept: int = 0
    finish_p50: float = math.nan
    finish_p95: float = math.nan
    finish_max: float = math.nan
    finish_share_p95: float = math.nan
    finish_excess_p95: float = math.nan
    received: float = math.nan
    weights: float = math.nan
    note: str = ""

    @property
    def scenario(self) -> str:
        """The case without its variant and number."""
        return self.case.partition("@")[0]

    @property
    def variant(self) -> str:
        """What a study compares; empty where there is none."""
        return self.case.partition("@")[2].rpartition("/")[0]

    @property
    def worst_error(self) -> float:
        """How far it is off either simulation, as a share, whichever is more.

        A task that a host prolonged is replayed as long as it was.
        """
        return max(abs(self.replay_error), abs(self.makespan_error))

    @override
    def __str__(self) -> str:
        """Return one line on it."""
        again = f" after {self.retries} more" if self.retries else ""
        return (
            f"{self.case:24} {self.policy:14} {self.machines:2} machines "
            f"{self.processes:3} processes {self.flows:5} flows  "
            f"makespan {100 * self.makespan_error:+8.3f} % of {self.expected:.4g} s, "
            f"replay {100 * self.replay_error:+8.3f} %, scale {self.time_scale:.4g}  "
            f"{self.seconds:5.1f} s  {self.trust}{again} {self.problem or self.note}"
        ).rstrip()


def scenario_of(content: dict[str, Any]) -> Scenario:
    """Return a scenario as the loader sees it.

    Raises what the loader raises.
    """
    return loads(json.dumps(content), name=content["name"])


def prepared(
    scenario: Scenario,
    wall: float,
    *,
    per_event: float = 0.0,
    most_rate: float = math.inf,
) -> Experiment:
    """Return the experiment with the time scale that makes it take ``wall`` seconds.

    Parameters
    ----------
    per_event
        Wall seconds for every end of a task or flow, at least: a run of many takes
        longer than ``wall``.
    most_rate
        Real bytes per wall second of all flows together, at most; payloads that are
        made up shrink where there would be more.

    Raises
    ------
    EmulatorError
        What preparing it raises.
    """
    experiment = prepared_at(scenario, 1.0)
    schedule = experiment.simulate()
    events = schedule.task_end.size + len(schedule.flows())
    wall = max(wall, per_event * events)
    fitted = prepared_at(experiment.scenario, float(f"{wall / schedule.makespan:.3g}"))
    return _thinned(fitted, most_rate)


def prepared_auto(scenario: Scenario) -> tuple[Experiment, ScaleChoice | None]:
    """Return the experiment with the time scale that trials choose now.

    Raises what preparing it and the trials raise.
    """
    return with_scales(stating(scenario, time_scale=AUTO))


def _thinned(experiment: Experiment, most_rate: float) -> Experiment:
    """Return the experiment with smaller payloads where they would be too fast."""
    scenario = experiment.scenario
    if scenario.job.system != "custom" or math.isinf(most_rate):
        return experiment
    peak = dry_run(experiment).peak_traffic
    if peak is None or peak <= most_rate:
        return experiment
    byte_scale = scenario.emulation.stated_byte_scale * most_rate / peak
    thinner = stating(scenario, byte_scale=float(f"{byte_scale:.3g}"))
    return prepared_at(thinner, scenario.emulation.stated_time_scale)


def prepared_at(scenario: Scenario, time_scale: float) -> Experiment:
    """Return the experiment at a time scale, whatever the scenario states.

    Raises what preparing it raises.
    """
    return with_byte_scale(stating(scenario, time_scale=time_scale))


def attempt(
    case: str,
    experiment: Experiment,
    runs: Path,
    *,
    retries: int = 0,
    slower: float = 1.0,
    keep: bool = False,
    carry: Callable[..., RunResult] = carry_out,
    choice: ScaleChoice | None = None,
) -> Trial:
    """Emulate an experiment; again, up to ``retries`` times, while it is untrusted.

    Parameters
    ----------
    slower
        Factor of the time scale from one time to the next.
    runs
        Directory that takes the run directories; those of runs that failed stay, others
        if ``keep``.
    carry
        Carries the experiment out: `carry_out`, or what wraps or stands for it.
    choice
        How its time scale was chosen, where trials have.

    Raises
    ------
    ValueError
        When ``retries`` is negative.
    """
    began = time.monotonic()
    for tried in range(retries + 1):
        if tried and slower != 1.0:
            scale = experiment.scenario.emulation.stated_time_scale
            experiment = prepared_at(experiment.scenario, slower * scale)
        directory = RunDirectory.create(experiment.scenario.name, runs)
        trial = _once(case, experiment, directory, carry, choice)
        if trial.trust != "failed" and not keep:
            shutil.rmtree(directory.path)
        if trial.trust == "trusted" or tried == retries:
            seconds = time.monotonic() - began
            return replace(trial, retries=tried, seconds=seconds)
    raise ValueError(f"retries is {retries}; it must be 0 or more")


def _once(
    case: str,
    experiment: Experiment,
    directory: RunDirectory,
    carry: Callable[..., RunResult],
    choice: ScaleChoice | None,
) -> Trial:
    scenario, problem = experiment.scenario, experiment.problem
    settings = emulation_settings(scenario)
    stated: dict[str, Any] = {
        "case": case,
        "policy": experiment.policy,
        "processes": len(problem.job.processes),
        "machines": len(problem.cluster.machines),
        "time_scale": settings.time_scale,
        "byte_scale": settings.byte_scale,
        "expected": experiment.simulate().makespan,
        "system": scenario.job.system,
        "shape": shape_of(problem.job),
        **_expected(experiment, choice),
    }
    try:
        outcome = carry(experiment, settings, directory)
    except EmulatorError as error:
        return Trial(**stated, problem=str(error))
    volumes = outcome.run.realization.volumes
    return Trial(
        **stated,
        **_found(outcome, settings.time_scale),
        received=float(volumes.sum() * settings.byte_scale),
        weights=weights_off(directory.path, problem.job),
    )


def _found(outcome: RunResult, time_scale: float) -> dict[str, Any]:
    """Return the fields of `Trial` that a run has when it has ended."""
    result, verdict = outcome.content, outcome.content["verdict"]
    host, schedule = verdict["host"], outcome.run.schedule
    ended: dict[str, Any] = {}
    if schedule.rates is not None:  # no process has assigned any on kernel NICs
        ended = finish_figures(flow_completion(schedule, time_scale))
    return ended | {
        "flows": len(schedule.flows()),
        "emulated": result["makespan"],
        "replay_error": result["replay_error"],
        "makespan_error": result["makespan_error"],
        "flow_error": flow_error(outcome, 0.2 / time_scale),
        "trust": verdict["trust"],
        "guards": ",".join(found["guard"] for found in verdict["guards"]),
        "bound": verdict["shift"],
        "wall": result["wall_seconds"],
        "startup": result["startup"]["seconds"],
        "cpu_busy": host["cpu_busy"],
        "cpu_steal": host["cpu_steal"],
        "loop_lag": host["loop_lag_max"],
        "pacer_lag": host["pacer_lag_max"],
    }


def weights_off(run: Path, job: Job) -> float:
    """Return the largest distance of a run's weights from those of one process.

    That is a share of the largest weight there; NaN where the job does not train alone,
    or where both diverge.
    """
    jobs = list(list_training(job))
    if len(jobs) != 1:
        return math.nan
    (_, settings), *_ = jobs
    train = trainer_of(settings)
    alone, _ = train(settings, job.iterations, updates_missed(job))
    parts = [part.ravel() for part in read_weights(run).values()]
    weights = np.concatenate(parts)
    if not np.isfinite(alone).all():
        return math.inf if np.isfinite(weights).all() else math.nan
    apart = np.abs(weights - alone)
    return float(apart.max() / np.abs(alone).max())


def shape_of(job: Job) -> str:
    """Return ``oneshot`` or ``multiround`` of DGTP jobs, ``training`` or ``graph``."""
    kinds = {task.kind for task in job.tasks}
    if "sampler_hop" in kinds:
        return "multiround"
    if "graph_store" not in kinds:
        return "graph"
    timed = {task.program for task in job.tasks} == {"emu_nodes.timed:Timed"}
    return "training" if timed else "oneshot"


def _expected(experiment: Experiment, choice: ScaleChoice | None) -> dict[str, float]:
    """Return what the simulation and the trials of the time scale showed before."""
    known = dry_run(experiment)
    peak = known.peak_traffic
    stated: dict[str, float] = {"sensitivity": known.sensitivity}
    if peak is not None:
        stated["peak_rate"] = peak
    if choice is None:
        return stated
    stated |= {
        "tries": len(choice.trials),
        "tries_cost": sum(trial.cost for trial in choice.trials),
    }
    if choice.taken is None:
        return stated
    return stated | {
        "predicted_error": choice.taken.error,
        "predicted_late": choice.taken.late_share,
    }


def finish_figures(finish: FlowCompletion) -> dict[str, Any]:
    """Return the fields of `Trial` on flows' finishes."""
    excess = finish.excess
    found: dict[str, Any] = {
        "finishes": len(excess),
        "kept": int((excess <= 1).sum()),
    }
    if not len(excess):
        return found
    error, share = np.abs(finish.error), finish.share
    for p in (50, 95):
        found[f"finish_p{p}"] = float(np.percentile(error, p, method="higher"))
    found["finish_max"] = float(error.max())
    found["finish_share_p95"] = float(np.percentile(share, 95, method="higher"))
    found["finish_excess_p95"] = float(np.percentile(excess, 95))
    return found


def flow_error(outcome: RunResult, shortest: float) -> float:
    """Return how far flows' lengths are from simulated ones: 95th percentile, relative.

    ``shortest``: emulated seconds; shorter flows are held against that length.
    """
    emulated, simulated = outcome.run.schedule, outcome.replayed
    at = tuple(emulated.flows().T)
    lengths = (simulated.flow_end - simulated.flow_start)[at]
    apart = np.abs((emulated.flow_end - emulated.flow_start)[at] - lengths)
    if not len(apart):
        return 0.0
    return float(np.percentile(apart / np.maximum(lengths, shortest), 95))
