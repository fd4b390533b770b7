"""From an experiment to a run directory: emulate, replay, predict, write down."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.link_load import fluid_ends
from emu.analysis.optimality_gap import optimality
from emu.analysis.payloads import kinds_between_machines
from emu.analysis.throughput import pace
from emu.coordinator import EmulatedRun, Observer, emulate
from emu.coordinator.settings import EmulationSettings
from emu.experiment.assessment import judgement
from emu.experiment.training_results import by_mini_batch, learnt
from emu.lab.kernel_network import burst_of, check_network, emulate_on_kernel
from emu.machines import Sharing
from emu.network import pace_at
from emu.runs.array_files import write_realization
from emu.runs.result import (
    VERSION,
    flow_error,
    flow_rows,
    port_rows,
    relative_error,
    task_rows,
)
from emu.runs.weights_file import write_weights
from emu.scenario.realize import model_programs, noted
from emu.simulation import simulate
from emu.trust.lateness import flow_completion

if TYPE_CHECKING:
    from emu.experiment.scale_search import ScaleChoice
    from emu.experiment.training_results import Parts
    from emu.problem import Schedule
    from emu.runs.run_directory import RunDirectory
    from emu.scenario import Experiment, Scenario

_VERSIONS = ("numpy", "torch", "pymetis", "uvloop", "msgpack", "numba")


def emulation_settings(scenario: Scenario, **overrides: Any) -> EmulationSettings:
    """Return the settings with which a scenario is emulated.

    Parameters
    ----------
    overrides
        Fields of `EmulationSettings` that the command line decides; they win.
        ``allow`` is added to: the scenario's own models may run.
    """
    own = [model.name for model in model_programs(scenario)]
    overrides["allow"] = (*overrides.get("allow", ()), *own)
    emulation = scenario.emulation
    stated: dict[str, Any] = {
        "time_scale": emulation.stated_time_scale,
        "byte_scale": emulation.stated_byte_scale,
        "compute": emulation.compute,
        "flow_ends": emulation.flow_ends,
        "catch_up": emulation.stated_catch_up,
        "deadline": emulation.deadline,
        "silence": emulation.silence,
        "tls": emulation.tls,
        "host_of": emulation.hosts,
    }
    if emulation.memory_limit is not None:
        stated["memory_limit"] = emulation.memory_limit
    return EmulationSettings(**{**stated, **overrides})


@dataclass(frozen=True, eq=False)
class ExperimentOutcome:
    """An emulated run, the two simulations beside it, and the numbers of all three."""

    experiment: Experiment
    run: EmulatedRun
    replayed: Schedule
    predicted: Schedule
    result: dict[str, Any]


def carry_out(
    experiment: Experiment,
    settings: EmulationSettings,
    directory: RunDirectory,
    observer: Observer | None = None,
    choice: ScaleChoice | None = None,
) -> ExperimentOutcome:
    """Emulate an experiment, simulate it twice, and write everything down.

    Parameters
    ----------
    choice
        How its time scale was chosen, where trials have chosen it.

    Raises
    ------
    ScenarioError
        When kernel NICs are asked for under a policy that they do not carry out.
    RunError
        When the run could not be finished; the directory then holds its beginning.
    DataError
        When the directory cannot be written.
    """
    problem, policy = experiment.problem, experiment.chosen_policy()
    expected = experiment.realization
    check_network(experiment.scenario)
    directory.write_json("manifest.json", manifest(experiment.scenario, settings))
    directory.write_problem(problem)
    observer = observer or Observer()
    observer.predicted(predicted := experiment.simulate())
    emulation, log = experiment.scenario.emulation, directory.path / "agent.log"
    if emulation.network == "kernel":
        run = emulate_on_kernel(
            problem,
            policy,
            settings,
            expected,
            sharing=Sharing(emulation.sharing),
            log=log,
            observer=observer,
        )
    else:
        run = emulate(problem, policy, settings, expected, log=log, observer=observer)
    replayed = replace(  # what is read changes no time: it reads what the run did
        simulate(problem, run.realization, policy, profile=experiment.expected),
        reads=run.schedule.reads,
    )
    result = summary(experiment, run, replayed, predicted, settings.time_scale)
    result |= optimality(run.schedule, run.realization, policy)
    result |= judgement(experiment, settings, run, replayed)
    result["policy"] = policy
    result["pace"] = pace(run.schedule).to_json()
    result["payloads"] = kinds_between_machines(
        problem, run.statistics, settings.byte_scale
    )
    if choice is not None:
        result["auto_scale"] = choice.to_json() | choice.beside(
            predicted.makespan * settings.time_scale, run.wall, result
        )
    figures, weights = learnt(experiment, run, policy)
    result |= figures
    write_down(directory, run, replayed, result, weights)
    return ExperimentOutcome(experiment, run, replayed, predicted, result)


def manifest(scenario: Scenario, settings: EmulationSettings) -> dict[str, Any]:
    """Return all that is needed to run this again."""
    return {
        "version": VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "scenario": noted(scenario).to_json(),
        "emulation": {
            "time_scale": settings.time_scale,
            "byte_scale": settings.byte_scale,
            "compute": settings.compute,
            "flow_ends": settings.flow_ends,
            "catch_up": settings.catch_up if math.isfinite(settings.catch_up) else None,
            "bucket_bytes": pace_at(settings.time_scale)[1].lead_bytes,
            "hosts": settings.hosts,
            "burst": burst_of(scenario),
        },
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {name: _version(name) for name in _VERSIONS},
        **scenario.job.manifest(),
    }


def summary(
    experiment: Experiment,
    run: EmulatedRun,
    replayed: Schedule,
    predicted: Schedule,
    time_scale: float,
) -> dict[str, Any]:
    """Return the content of result.json; docs/results.md documents its keys."""
    problem, emulated = experiment.problem, run.schedule
    return {
        "version": VERSION,
        "scenario": experiment.scenario.name,
        "placement": experiment.scenario.placed_by,
        "placing": experiment.placing,
        "iterations": problem.job.iterations,
        "credit_window": experiment.scenario.job.credit_window,
        "processes": len(problem.job.processes),
        "network": experiment.scenario.emulation.network,
        "sharing": experiment.scenario.emulation.sharing,
        "replayed_makespan": replayed.makespan,
        "replay_error": relative_error(emulated.makespan, replayed.makespan),
        "predicted_makespan": predicted.makespan,
        "times": times_from(experiment.scenario),
        "flow_ends": experiment.scenario.emulation.flow_ends,
        "makespan_error": relative_error(emulated.makespan, predicted.makespan),
        "wall_seconds": run.wall,
        "startup": run.startup,
        "flow_end_apart": flow_error(emulated, replayed),
        "kinds": task_rows(problem, run.realization.times, run.late),
        "edges": flow_rows(emulated, replayed),
        "ports": port_rows(emulated),
        "memory": memory_figures(run),
        "transport": transport_figures(run) | arrival_figures(run, time_scale),
        **emulated.to_json(),
    }


def times_from(scenario: Scenario) -> str:
    """Return where task times come from: ``stated``, ``profiled`` or ``measured``."""
    if scenario.emulation.compute == "real":
        return "measured"
    return "stated" if scenario.profile is None else "profiled"


def memory_figures(run: EmulatedRun) -> dict[str, float]:
    """Return received bytes (real) that waited: most in one process, and the limit."""
    pools = [figures["memory"] for figures in run.statistics.values()]
    return {
        "high_water": float(max(pool["high_water"] for pool in pools)),
        "total_high_water": float(sum(pool["high_water"] for pool in pools)),
        "limit": float(min(pool["limit"] for pool in pools)),
    }


def transport_figures(run: EmulatedRun) -> dict[str, float]:
    """Return the sockets' traffic (real bytes) and its lateness at the sender (wall).

    On kernel NICs with the counts of the machines' TCP, control messages included.
    """
    sent = [edge for figures in run.statistics.values() for edge in figures["sent"]]
    return {
        "payload_bytes": float(sum(edge["payload_bytes"] for edge in sent)),
        "header_bytes": float(sum(edge["header_bytes"] for edge in sent)),
        "late_sends": int(sum(edge["late_sends"] for edge in sent)),
        "max_behind_wall_seconds": max((e["max_behind"] for e in sent), default=0.0),
        "cpu_seconds": float(sum(f["cpu_seconds"] for f in run.statistics.values())),
    } | {
        key: sum(host["tcp"][key] for host in run.hosts)
        for key in ("segments", "retransmitted", "timeouts")
        if all("tcp" in host for host in run.hosts)
    }


def arrival_figures(run: EmulatedRun, time_scale: float) -> dict[str, float]:
    """Return the lead of last bytes over the ends of their flows' fluid (wall).

    The median, how many came after it, so that the flow ended late, and how many flows
    ended later than they may.
    """
    if run.schedule.rates is None:
        return {"flows": int((~np.isnan(run.arrivals)).sum())}
    early = (fluid_ends(run.schedule) - run.arrivals) * time_scale
    early = early[~np.isnan(early)]
    return {
        "flows": int(early.size),
        "flows_past_fluid": int((early < 0).sum()),
        "late_flows": int((flow_completion(run.schedule, time_scale).excess > 1).sum()),
        "early_wall_seconds": float(np.median(early)) if early.size else 0.0,
    }


def write_down(
    directory: RunDirectory,
    run: EmulatedRun,
    replayed: Schedule,
    result: dict[str, Any],
    weights: Parts,
) -> None:
    """Write everything that the run left; result.json last, so that it means all."""
    if weights:
        write_weights(directory.path, weights)
    directory.write_json("simulated.json", replayed.to_json())
    directory.write_json(
        "processes.json",
        {"hosts": run.hosts, "tuning": run.tuning, "statistics": counted(run)},
    )
    if run.schedule.rates is not None:
        directory.write_rates(run.schedule.rates)
    write_realization(directory.path, run.realization)
    # Every frame by its sender, by its receiver, and its arrival as it was told.
    frames = {"sent": run.sent, "received": run.received, "told": run.arrivals}
    directory.write_arrays("frames.npz", **frames)
    directory.write_lines("training.csv", training_lines(run))
    directory.write_json("result.json", result)


def counted(run: EmulatedRun) -> dict[str, dict[str, Any]]:
    """Return the processes' counts, without those only for the error budget."""
    return {
        process: {key: value for key, value in figures.items() if key != "flows"}
        for process, figures in run.statistics.items()
    }


def training_lines(run: EmulatedRun) -> list[str]:
    """Return the lines of training.csv: run time, task, iteration, figure, value."""
    lines = ["time,task,iteration,figure,value"]
    reports = by_mini_batch(run.schedule.problem.job, run.reports)
    for when, task, iteration, figures in reports:
        for figure, value in figures.items():
            if np.isfinite(value):
                lines.append(f"{when:.6f},{task},{iteration},{figure},{value:.12g}")
    return lines


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None  # torch, where no job trains
