"""From an experiment to a run directory: emulate, replay, predict, write down."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import math
import platform
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.coordinator import EmulatedRun, Observer, emulate
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.launch.ssh import is_here
from emu.emulation.shaping import pace_at
from emu.emulation.wire.frame_layout import ROWS
from emu.errors import NodeLost
from emu.experiment.attempts import (
    Ended,
    cut_plan,
    foreseen,
    run_attempts,
    with_outages,
)
from emu.experiment.observations import observe
from emu.experiment.run_result import (
    Parts,
    PreparedRun,
    RunResult,
    by_mini_batch,
    learnt,
)
from emu.experiment.scale_search import ScaleChoice
from emu.host.input_file import read_json
from emu.host.this_host import version_of_emu
from emu.lab.kernel_network import burst_of, check_network, emulate_on_kernel
from emu.lab.machines.nic import Sharing
from emu.prediction.analysis import critical_path, error_budget
from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Kill, Schedule
from emu.problem.job import Cut
from emu.runs.array_files import REALIZATION, REPORTS, SCHEDULED, write_weights
from emu.runs.audit_inputs import (
    has_one_clock,
    list_windows,
    margins,
    real_volumes,
)
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import read_manifest
from emu.runs.result import VERSION, Result
from emu.runs.retraining import list_training
from emu.runs.run_directory import SETUP, RunDirectory, write_scenario
from emu.scenario import Experiment, Scenario
from emu.scenario.realize import model_programs, with_figures
from emu.scenario.setup import setup_rows, setup_to_run
from emu.systems.system import system_guards
from emu.trust import lateness
from emu.trust.guards import Evidence, examine
from emu.trust.prediction import judge_prediction
from emu.trust.verdict import Verdict, decide, host_figures
from emu.units import format_size


def judgement(
    prepared: PreparedRun, run: EmulatedRun, replayed: Schedule
) -> tuple[Verdict, dict[str, float]]:
    """Return the verdict on a run, and the seconds by cause that it parted by."""
    settings = prepared.settings
    schedule = run.schedule
    chain = critical_path.critical_path(schedule)
    figures = host_figures(run.statistics)
    off = abs(schedule.length - replayed.length) / max(replayed.length, 1e-12)
    subject = schedule
    first = {}
    held_up = 0.0
    if prepared.by_kernel:  # no sender was to keep to rates
        subject = replace(schedule, rates=None)
        figures = replace(figures, late_sends=0, max_behind=0.0)
        first = _first_bytes(run)
        # By waits for a core, at most what it is off: who agrees was not held up. Nor
        # by delays of its own: behind a full queue they cost nothing, 4.5 % of an
        # incast that was off by 0.2 %.
        held_up = min(_share_of_waits(prepared, run, replayed, chain), off)

    logs = (counts["flows"] for counts in run.statistics.values())
    sends = error_budget.send_rows(logs)
    budget = error_budget.error_budget(subject, replayed, rows=sends, first=first)
    if dead_seconds := schedule.outages.seconds - replayed.outages.seconds:
        budget["attempts that ended"] = dead_seconds
    own_delay = error_budget.before_first_bytes(budget, replayed.length)
    verdict = decide(
        _effect_of(prepared, run, replayed, chain),
        lateness.chain_lateness(subject, run.late),
        figures,
        time_scale=settings.time_scale,
        max_error=prepared.emulation.max_error,
        processes=len(prepared.experiment.problem.job.processes),
        compute=settings.compute,
        sensitivity=lateness.effect_of_slight_delays(
            run.realization,
            policy=prepared.policy,
            profile=prepared.experiment.expected,
            schedule=replayed,
        ),
        findings=examine(evidence(prepared, run), system_guards()),
        by_kernel=prepared.by_kernel,
        # As with waits for a core: who agrees lost nothing by it.
        own_delay=min(own_delay, off),
        held_up=held_up,
    )
    return verdict, budget


def _first_bytes(run: EmulatedRun) -> dict[tuple[int, int], float]:
    """Return when the first byte of each frame left, by edge and iteration."""
    rows = run.sent[["edge", "iteration", "first"]].tolist()
    return {(edge, iteration): instant for edge, iteration, instant in rows}


def _share_of_waits(
    prepared: PreparedRun,
    run: EmulatedRun,
    replayed: Schedule,
    chain: critical_path.CriticalPath,
) -> float:
    """Return the share of the makespan in which what decides it waited for a core."""
    settings = prepared.settings
    waits = {}
    for process, counts in run.statistics.items():
        waits[process] = counts["host_metrics"]["waited"]
    seconds = lateness.seconds_of_waits(
        run.schedule,
        waits,
        settings.time_scale,
        chain,
        works=settings.compute != "timed",
    )
    return seconds / max(replayed.length, 1e-12)


def _effect_of(
    prepared: PreparedRun,
    run: EmulatedRun,
    replayed: Schedule,
    chain: critical_path.CriticalPath,
) -> lateness.HostEffect:
    """Return by how much the host has moved the end of the whole job.

    What kernel NICs made of the makespan is the finding there, no fault of this
    computer. Of attempts that ended no record is left: what they moved is of the host,
    unless kernel NICs or measured work may have done it.
    """
    experiment = prepared.experiment
    settings = prepared.settings
    schedule = replayed if prepared.by_kernel else run.schedule
    clocks = lateness.clock_uncertainty(chain, experiment.problem, run.hosts)
    effect = lateness.host_effect(
        experiment.problem.following(run.schedule),
        prepared.policy,
        experiment.expected,
        emulated=schedule.length,
        simulated=replayed.length,
        measured=run.realization,
        perturbed=run.perturbed,
        late=run.late_work,
        clocks=clocks / settings.time_scale,
    )
    subject = replayed if settings.compute == "real" else schedule
    return effect.after(subject.outages, replayed.outages)


def evidence(prepared: PreparedRun, run: EmulatedRun) -> Evidence:
    """Return the guards' evidence; measured work may not undercut its CPU time."""
    scenario = prepared.experiment.scenario
    settings = prepared.settings
    realization = prepared.experiment.realization
    times = realization.times
    if settings.compute == "real":
        # Measured on this host, for machines that are so many times as fast.
        times = run.cpu / prepared.experiment.problem.speeds[:, None]

    return Evidence(
        schedule=run.schedule,
        **{name: getattr(run, name) for name in ROWS},
        notified=run.arrivals,
        began=run.began,
        board=run.board,
        one_clock=has_one_clock(run.hosts),
        statistics=run.statistics,
        burst=burst_of(scenario),
        times=times,
        late=run.late_work,
        sends=_sends(run),
        volumes=real_volumes(scenario, realization, settings.byte_scale),
        windows=list_windows(scenario),
        **margins(settings, run.statistics),
    )


#: Libraries whose version may change a number, or how fast a run is.
_VERSIONS = ("numpy", "torch", "pymetis", "uvloop", "msgpack")


def emulation_settings(scenario: Scenario, **overrides: Any) -> RunSettings:
    """Return the settings with which a scenario is emulated.

    ``overrides`` are fields that the command line decides; they win. ``allow`` is added
    to: the scenario's own models may run.
    """
    emulation = scenario.emulation
    models = [model.name for model in model_programs(scenario)]
    fields = {**vars(emulation.settings), "host_of": emulation.hosts, **overrides}
    fields["allow"] = (*overrides.get("allow", ()), *models)
    return RunSettings(**fields)


def carry_out(
    experiment: Experiment,
    settings: RunSettings,
    directory: RunDirectory,
    observer: Observer | None = None,
    choice: ScaleChoice | None = None,
    start: Cut | None = None,
) -> RunResult:
    """Emulate an experiment, simulate it twice, and write everything down.

    ``choice`` says how trials have chosen its time scale. It begins with the cut
    ``start``, in the directory of the run that has kept it. Raises ScenarioError when
    kernel NICs are asked for under a policy that they do not carry out, or this host is
    to be killed; RunError when the run could not be finished; the directory then holds
    its beginning; DataError when the directory cannot be written.
    """
    scenario = experiment.scenario
    check_network(scenario)
    _check_coordinator(scenario)
    experiment = _without_ties(experiment)
    observer = observer or Observer()
    path = directory.path
    is_resumption = start is not None

    def once(
        left: Experiment,
        cut: Cut | None,
        observers: Observer,
        ended: Sequence[Ended],
    ) -> tuple[PreparedRun, EmulatedRun]:
        again = is_resumption or bool(ended)
        # First of all: where the prediction fails, the directory has this.
        _write_beginning(left, settings, directory, choice, again=again)
        prepared = PreparedRun.of(left, settings, choice)
        observers.on_prediction(prepared.predicted)
        cuts = cut_plan(left, path, cut)
        return prepared, _emulate_experiment(prepared, directory, observers, cuts)

    with directory.claim():
        if not is_resumption:
            _carry_out_setup(experiment, settings, path, observer)
        setup = setup_figures(experiment, path)  # raises before anything is run
        _, outcome, ends = run_attempts(experiment, start, path, observer, once)
        # An audit foresees the same deaths from these.
        if ends:
            content = read_manifest(path / "manifest.json")
            content["attempts"] = [*map(asdict, ends)]
            directory.write_json("manifest.json", content)

        prepared, run = outcome
        training, weights = learnt(prepared.experiment, run, prepared.policy)
        before = foreseen(experiment, ends)
        result = result_of(
            prepared,
            run=run,
            training=training | setup,
            ended=ends,
            before=before,
        )
        write_down(directory, result, weights)
    return result


def _check_coordinator(scenario: Scenario) -> None:
    """Refuse to kill this host: no process would be left to restart the job."""
    hosts = scenario.emulation.hosts.values()
    for number, event in enumerate(scenario.events):
        if event.kill in hosts and is_here(str(event.kill)):
            problem = (
                f"{event.kill} is this host, and the run is coordinated here: name "
                "another host, or machines"
            )
            raise scenario.origin.error(("events", number, "kill"), problem)


def _carry_out_setup(
    experiment: Experiment,
    settings: RunSettings,
    path: Path,
    observer: Observer,
) -> None:
    """Run what comes before time 0 of the training, in a directory of its own."""
    setup = setup_to_run(experiment)
    if setup is not None:
        size = format_size(setup.realization.volumes.sum())
        observer.on_notice(f"setup: {size} before time 0 of the training")
        # Its payloads are made up; its processes are others than the job's.
        timed_settings = replace(settings, compute="timed", company=None)
        carry_out(setup, timed_settings, RunDirectory(path / SETUP))


def _without_ties(experiment: Experiment) -> Experiment:
    """Return it without kills that come as what they kill has just ended.

    Clocks of a run are late by a little: it would die of what comes to nothing.
    """
    ties: Collection[Kill] = ()
    if experiment.kills:
        with contextlib.suppress(NodeLost):  # it ends the run, when it comes
            ties = experiment.attempts().ties
    kills = tuple(kill for kill in experiment.kills if kill not in ties)
    return replace(experiment, kills=kills)


def setup_figures(experiment: Experiment, path: Path) -> Result:
    """Return ``setup`` of result.json in a run directory, measured where it was run."""
    rows = setup_rows(experiment)
    if not rows:
        return {}

    file = path / SETUP / "result.json"
    if file.exists():
        run = read_json(file)
        rows["measured"] = {
            "seconds": run["makespan"],
            "error": run["makespan_error"],
            "bytes": sum(run["payloads"].values()),  # as receivers read them
            "trust": run["verdict"]["trust"],
        }
    return {"setup": rows}


def _write_beginning(
    experiment: Experiment,
    settings: RunSettings,
    directory: RunDirectory,
    choice: ScaleChoice | None,
    *,
    again: bool,
) -> None:
    """Write what is known before a run, or before the rest of one."""
    content = manifest(experiment.scenario, settings, choice)
    if again:
        # The text stands there already, and this
        # experiment is a part of what it states.
        source = read_manifest(directory.path / "manifest.json").get("source", {})
    else:
        source = write_scenario(directory, experiment.scenario)

    if experiment.first or experiment.began:
        content["first_iteration"] = experiment.first
        content["began"] = experiment.began
    content |= experiment.cause_of_length  # the scenario has the length alone
    if experiment.whole is not None:
        coming = experiment.kills
        kills = enumerate(experiment.whole.kills)
        content["killed"] = [number for number, kill in kills if kill not in coming]
    directory.write_json("manifest.json", content | {"source": source})
    directory.write_json("problem.json", problem_to_json(experiment.problem))


def _emulate_experiment(
    prepared: PreparedRun,
    directory: RunDirectory,
    observer: Observer,
    cuts: CutPlan | None,
) -> EmulatedRun:
    """Emulate an attempt, on the network that its scenario asks for."""
    experiment = prepared.experiment
    emulation = prepared.emulation
    settings = replace(
        prepared.settings, cuts=cuts, kills=experiment.kills, began=experiment.began
    )

    def import_torch() -> None:  # where it does not import, who needs it says so
        with contextlib.suppress(ImportError, OSError):
            importlib.import_module("torch")

    if obstacle_to_staying(experiment, settings):
        settings = replace(settings, company=None)
    if [*list_training(experiment.problem.job)]:  # accuracy takes torch at the end
        settings = replace(settings, meanwhile=import_torch)
    start = emulate
    if prepared.by_kernel:
        start = partial(
            emulate_on_kernel,
            sharing=Sharing(emulation.sharing),
            max_nic_error=emulation.max_nic_error,
        )
    return start(
        experiment.problem,
        prepared.policy,
        settings,
        experiment.realization,
        log=directory.path / "agent.log",
        observer=observer,
    )


def obstacle_to_staying(experiment: Experiment, settings: RunSettings) -> str:
    """Return why the processes of a run cannot serve a further one; else nothing."""
    if experiment.scenario.emulation.network == "kernel":
        return "kernel NICs and TCP beside them keep what they have learnt"
    if experiment.kills:
        return "its deaths take processes along"
    if settings.allow:
        return f"{settings.allow[0]} may keep what no run before it had"
    return ""


def replay(experiment: Experiment, run: EmulatedRun, policy: str) -> Schedule:
    """Return the simulation of what was measured, with the quotas of the run.

    It reads what the run did: what is read changes no time.
    """
    schedule = run.schedule
    problem = experiment.problem.following(schedule)
    simulation = simulate(problem, run.realization, policy, profile=experiment.expected)
    return replace(simulation, reads=schedule.reads)


def result_of(
    prepared: PreparedRun,
    run: EmulatedRun,
    training: Result,
    ended: Sequence[Ended] = (),
    before: Attempts | None = None,
) -> RunResult:
    """Return a run with its verdicts, beside the simulations before and after it.

    ``training`` is the first result of `learnt`, and `setup_figures`; ``ended`` are the
    attempts before the run, ``before`` all of them simulated.
    """
    emulation = prepared.emulation
    simulation = replay(prepared.experiment, run, prepared.policy)
    schedules = (prepared.predicted, simulation)
    run, (predicted, simulation) = with_outages(
        run,
        simulated=schedules,
        ended=ended,
        foreseen=before,
    )
    verdict, budget = judgement(prepared, run, simulation)
    prediction = judge_prediction(
        run.schedule,
        predicted,
        simulation,
        threshold=emulation.max_difference,
        policy=prepared.policy,
        observed=observe(prepared, run),
        chance=verdict.chance,
    )

    return RunResult(
        **vars(prepared) | {"predicted": predicted},
        run=run,
        replayed=simulation,
        verdict=verdict,
        prediction=prediction,
        error_budget=budget,
        training=training,
        ended=tuple(ended),
        foreseen=before,
    )


def manifest(
    scenario: Scenario, settings: RunSettings, choice: ScaleChoice | None = None
) -> Result:
    """Return all that is needed to run this again."""
    versions = dict[str, str | None]()
    for library in _VERSIONS:
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            versions[library] = None  # torch, where no job trains

    return {
        "version": VERSION,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "scenario": with_figures(scenario).to_json(),
        "emulation": {
            **settings.to_json(),
            "bucket_bytes": pace_at(settings.time_scale).lead_bytes,
            "hosts": settings.hosts,
            "burst": burst_of(scenario),
        },
        "emu": version_of_emu(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": versions,
        **({} if choice is None else {"auto_scale": choice.to_json()}),
        **scenario.job.manifest(),
    }


def write_down(directory: RunDirectory, result: RunResult, weights: Parts) -> None:
    """Write everything that the run left; result.json last, so that it means all."""
    run = result.run
    if weights:
        write_weights(directory.path, weights)
    directory.write_json("simulated.json", result.replayed.to_json())
    statistics = {}
    for process, counts in run.statistics.items():
        # Only the error budget reads the log of flows.
        totals = {key: value for key, value in counts.items() if key != "flows"}
        statistics[process] = totals
    processes = {
        "hosts": run.hosts,
        "tuning": run.tuning,
        "startup": run.startup,
        "wall_seconds": run.wall,
        "statistics": statistics,
    }
    directory.write_json("processes.json", processes)

    if run.schedule.rates is not None:
        directory.write_arrays("rates.npz", **vars(run.schedule.rates))
    directory.write_arrays(REALIZATION, **vars(run.realization))
    directory.write_arrays(REPORTS, **reports(run))
    # Every frame by its sender, by its receiver, and its arrival as it was reported;
    # when the tasks that had it began, and when the coordinator was at work.
    directory.write_arrays(
        "frames.npz",
        **{name: getattr(run, name) for name in ROWS},
        notified=run.arrivals,
        began=run.began,
        board=run.board,
        turns=run.turns,
    )
    directory.write_lines("training.csv", training_lines(run))
    # Into the content itself, so that --json prints what the file holds.
    result.content["records"] = directory.digests()
    directory.write_json("result.json", result.content)


def reports(run: EmulatedRun) -> dict[str, NDArray[Any]]:
    """Return the arrays of reports.npz: what result.json is computed again from."""
    schedule = run.schedule
    arrays = {}
    for name in SCHEDULED:
        column = getattr(schedule, name)
        if column is not None:
            arrays[name] = column
    reads = schedule.reads
    # An empty array for none: no npz file holds None.
    arrays["reads"] = np.empty((0, 0), np.int64) if reads is None else reads
    arrays["late"] = run.late
    arrays["cpu"] = run.cpu

    arrays["sends"] = _sends(run)
    return arrays


def _sends(run: EmulatedRun) -> NDArray[np.float64]:
    logs = b"".join(counts["flows"] for counts in run.statistics.values())
    return np.frombuffer(logs, "<f8")


def training_lines(run: EmulatedRun) -> list[str]:
    """Return the lines of training.csv: run time, task, iteration, figure, value."""
    lines = ["time,task,iteration,figure,value"]
    reports = by_mini_batch(run.schedule.problem.job, run.reports)
    for instant, task, iteration, figures in reports:
        for figure, value in figures.items():
            if figure == "loss" and np.isnan(value):
                value = math.inf  # noqa: PLW2901 -- readers drop NaN, and with it steps
            if figure == "loss" or np.isfinite(value):
                number = float(value)
                lines.append(f"{instant!r},{task},{iteration},{figure},{number!r}")
    return lines
