"""From an experiment to a run directory: emulate, replay, predict, write down."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from emu.emulation.coordinator import EmulatedRun, Observer, emulate
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.coordinator.settings import RunSettings
from emu.emulation.launch.ssh import is_here
from emu.emulation.wire.frame_layout import ROWS
from emu.errors import NodeLost
from emu.experiment.attempts import (
    Ended,
    cut_plan,
    foreseen,
    run_attempts,
    with_outages,
)
from emu.experiment.dry_run import check_messages
from emu.experiment.observations import frame_starts, observe
from emu.experiment.run_files import log_of_sends, manifest, write_down
from emu.experiment.run_result import (
    PreparedRun,
    RunResult,
    learnt,
)
from emu.experiment.scale_search import ScaleChoice
from emu.host.input_file import read_json
from emu.lab.kernel_network import burst_of, check_network, emulate_on_kernel
from emu.lab.machines.nic import Sharing
from emu.prediction.analysis import critical_path, error_budget
from emu.prediction.simulation import simulate
from emu.prediction.simulation.attempts import Attempts
from emu.problem import Kill, Schedule
from emu.problem.job import Cut
from emu.runs.audit_inputs import (
    has_one_clock,
    list_windows,
    margins,
    real_volumes,
)
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import read_manifest
from emu.runs.result import Result
from emu.runs.retraining import list_training
from emu.runs.run_directory import SETUP, RunDirectory, write_scenario
from emu.scenario import Experiment, Scenario
from emu.scenario.realize import model_programs
from emu.scenario.setup import setup_rows, setup_to_run
from emu.systems.system import system_guards
from emu.trust import lateness
from emu.trust.guards import Evidence, examine
from emu.trust.prediction import judge_prediction
from emu.trust.verdict import Verdict, decide, host_figures
from emu.units import format_size


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
    kernel NICs are asked for under a policy that they do not carry out, this host is to
    be killed, or a flow is larger than a message; RunError when the run could not be
    finished; the directory then holds its beginning; DataError when the directory
    cannot be written.
    """
    scenario = experiment.scenario
    check_network(scenario)
    _check_coordinator(scenario)
    check_messages(experiment)
    experiment = _without_ties(experiment)
    observer = observer or Observer()
    path = directory.path
    is_resumption = start is not None

    def attempt(
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
        _, outcome, ends = run_attempts(experiment, start, path, observer, attempt)
        prepared, run = outcome
        _note_attempts(directory, ends)
        training, weights = learnt(prepared, run)
        result = result_of(
            prepared,
            run=run,
            training=training | setup,
            ended=ends,
            before=foreseen(experiment, ends),
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
    settings = replace(
        prepared.settings, cuts=cuts, kills=experiment.kills, began=experiment.began
    )
    if obstacle_to_staying(experiment, settings):
        settings = replace(settings, company=None)
    if [*list_training(prepared.problem.job)]:  # accuracy takes torch at the end
        settings = replace(settings, meanwhile=_import_torch)

    start = emulate
    if prepared.by_kernel:
        start = partial(
            emulate_on_kernel,
            sharing=Sharing(prepared.emulation.sharing),
            max_nic_error=prepared.emulation.max_nic_error,
        )
    return start(
        prepared.problem,
        prepared.policy,
        settings,
        experiment.realization,
        log=directory.path / "agent.log",
        observer=observer,
    )


def _import_torch() -> None:
    """Import torch, if it can be: where it is needed and cannot, that is said then."""
    with contextlib.suppress(ImportError, OSError):
        importlib.import_module("torch")


def obstacle_to_staying(experiment: Experiment, settings: RunSettings) -> str:
    """Return why the processes of a run cannot serve a further one; else nothing."""
    if experiment.scenario.emulation.network == "kernel":
        return "kernel NICs and TCP beside them keep what they have learnt"
    if experiment.kills:
        return "its deaths take processes along"
    if settings.allow:
        return f"{settings.allow[0]} may keep what no run before it had"
    return ""


def _note_attempts(directory: RunDirectory, ended: Sequence[Ended]) -> None:
    """Write down what attempts have ended: an audit foresees the same deaths."""
    if ended:
        content = read_manifest(directory.path / "manifest.json")
        content["attempts"] = [*map(asdict, ended)]
        directory.write_json("manifest.json", content)


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


def replay(experiment: Experiment, run: EmulatedRun, policy: str) -> Schedule:
    """Return the simulation of what was measured, with the quotas of the run.

    It reads what the run did: what is read changes no time.
    """
    schedule = run.schedule
    problem = experiment.problem.following(schedule)
    simulation = simulate(problem, run.realization, policy, profile=experiment.expected)
    return replace(simulation, reads=schedule.reads)


def judgement(
    prepared: PreparedRun, run: EmulatedRun, replayed: Schedule
) -> tuple[Verdict, dict[str, float]]:
    """Return the verdict on a run, and the seconds by cause that it parted by."""
    settings = prepared.settings
    schedule = run.schedule
    chain = critical_path.critical_path(schedule)
    figures = host_figures(run.statistics)
    held_up = 0.0
    if prepared.by_kernel:
        figures = replace(figures, late_sends=0, max_behind=0.0)
        waits = _share_of_waits(prepared, run, replayed, chain)
        held_up = _loss_of(waits, schedule, replayed)

    budget = _budget_of(prepared, run, replayed)
    first_bytes = error_budget.before_first_bytes(budget, replayed.length)
    own_delay = _loss_of(first_bytes, schedule, replayed)
    verdict = decide(
        _effect_of(prepared, run, replayed, chain),
        lateness.chain_lateness(_keep_binding_rates(prepared, schedule), run.late),
        figures,
        time_scale=settings.time_scale,
        max_error=prepared.emulation.max_error,
        processes=len(prepared.problem.job.processes),
        compute=settings.compute,
        sensitivity=lateness.effect_of_slight_delays(
            run.realization,
            policy=prepared.policy,
            profile=prepared.experiment.expected,
            schedule=replayed,
        ),
        findings=examine(evidence(prepared, run), system_guards()),
        by_kernel=prepared.by_kernel,
        own_delay=own_delay,
        held_up=held_up,
    )
    return verdict, budget


def _loss_of(share: float, schedule: Schedule, replayed: Schedule) -> float:
    """Return the share of a delay, at most that by which a run is off its replay.

    A run that agrees lost nothing: behind a full queue delays cost nothing, 4.5 % of an
    incast that was off by 0.2 %.
    """
    difference = abs(schedule.length - replayed.length)
    length = max(replayed.length, 1e-12)
    off = difference / length
    return min(share, off)


def _keep_binding_rates(prepared: PreparedRun, schedule: Schedule) -> Schedule:
    """Return a schedule with the rates that its senders were to keep to, if any.

    Where kernel NICs share capacities, senders keep to none.
    """
    if prepared.by_kernel:
        return replace(schedule, rates=None)
    return schedule


def _budget_of(
    prepared: PreparedRun, run: EmulatedRun, replayed: Schedule
) -> dict[str, float]:
    """Return the seconds by cause by which a run and its replay parted."""
    schedule = run.schedule
    first = frame_starts(run) if prepared.by_kernel else {}
    logs = (counts["flows"] for counts in run.statistics.values())
    budget = error_budget.error_budget(
        _keep_binding_rates(prepared, schedule),
        replayed,
        rows=error_budget.send_rows(logs),
        first=first,
    )

    dead_seconds = schedule.outages.seconds - replayed.outages.seconds
    if dead_seconds:
        budget["attempts that ended"] = dead_seconds
    return budget


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
    settings = prepared.settings
    problem = prepared.problem
    schedule = replayed if prepared.by_kernel else run.schedule
    clocks = lateness.clock_uncertainty(chain, problem, run.hosts)
    effect = lateness.host_effect(
        problem.following(run.schedule),
        prepared.policy,
        prepared.experiment.expected,
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
        times = run.cpu / prepared.problem.speeds[:, None]

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
        sends=log_of_sends(run),
        volumes=real_volumes(scenario, realization, settings.byte_scale),
        windows=list_windows(scenario),
        **margins(settings, run.statistics),
    )
