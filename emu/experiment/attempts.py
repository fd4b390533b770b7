"""Attempts at a job: each begins with the last cut that an earlier one has kept.

The first of a run that was cut off begins with the last cut in its directory.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from emu.emulation.coordinator import EmulatedRun, Observer, Observers
from emu.emulation.coordinator.cuts import CutPlan
from emu.emulation.wire.messages import RunTask
from emu.errors import DataError, DeadlineExceeded, NodeLost, RunError, ScenarioError
from emu.experiment.scale_search import ScaleChoice
from emu.host.input_file import one_error
from emu.prediction.simulation import attempts
from emu.problem import Due, Kill, Outages, Schedule
from emu.problem.job import Cut
from emu.problem.workloads import copies_of
from emu.runs import run_directory
from emu.runs.recorded_run import read_manifest
from emu.runs.result import Result, Row
from emu.scenario import Experiment, Scenario, prepare
from emu.scenario.realize import with_figures
from emu.scenario.run_sections import UntilSection
from emu.systems.system import tasks_with_state_of, updates_missed
from emu.training.looks import Look

Done = TypeVar("Done")

#: Carries one attempt out, with what is left, the cut that it begins with, and
#: the attempts before it.
Once = Callable[[Experiment, Cut | None, Observer, Sequence["Ended"]], Done]


@dataclass(frozen=True)
class Ended:
    """An attempt that a death has ended."""

    first_iteration: int
    """Iteration of the whole job with which it began."""
    next_iteration: int
    """Iteration with which the next attempt began: all before it are done."""
    ran: float
    """Run seconds until the first sign of the death; 0 where it had not begun."""
    again: float
    """Run seconds of them after the cut that the next attempt began with."""
    detection: float
    """Wall seconds of this host from the first sign until the attempt was given up: no
    part of what is emulated."""
    recovery: float
    """Emulated seconds from the death until the next attempt: as the scenario states,
    not as this host takes."""
    error: str
    """The error that the run would have ended with."""
    began: float = 0.0
    """Emulated seconds since the whole job began."""
    killed: bool = False
    """True where the scenario has killed."""
    took: float = 0.0
    """Wall seconds of this host from the first sign until run time 0 of the next
    attempt, or its end: no part of what is emulated, either."""
    clock: tuple[float, ...] = ()
    """Readings of this host's clock, wall seconds: at run time 0 (that of the sign
    where it had not begun), at the first sign, and when it was given up. Empty in runs
    of an earlier emu."""
    victims: tuple[str, ...] = ()
    """Processes that died by themselves, where that is known."""


def sum_losses(ended: Sequence[Ended]) -> dict[str, float]:
    """Return the seconds that attempts have lost, by what they were lost to."""
    return {
        # Exact sums, as the simulation takes them: both agree to the last digit.
        "recovery": math.fsum(attempt.recovery for attempt in ended),
        "again": math.fsum(attempt.again for attempt in ended),
    }


def recovery_of(
    ended: Sequence[Ended],
    makespan: float,
    predicted: float,
    foreseen: attempts.Attempts | None = None,
) -> Result:
    """Return ``recovery`` of result.json; nothing where no attempt has ended early.

    Makespans are of all attempts; ``foreseen`` is None where they cannot be simulated.
    """
    if not ended:
        return {}
    content: Result = {
        "makespan": makespan,
        "predicted_makespan": predicted,
        "lost": sum_losses(ended),
        "attempts": [*map(asdict, ended)],
    }
    if foreseen is not None:
        if foreseen.stated is not None:
            content["foreseen_makespan"] = foreseen.stated
        content["predicted_lost"] = foreseen.lost
        content["predicted_attempts"] = [*map(asdict, foreseen.killed)]

    return {"recovery": content}


def foreseen(
    experiment: Experiment, ended: Sequence[Ended]
) -> attempts.Attempts | None:
    """Return the simulated attempts at the whole job that a run was of.

    What died by itself dies there at the same time, and goes on from the cut that the
    simulation has by then; ``stated`` is of the scenario's kills alone. None where
    nothing dies in either, or it dies too often.
    """
    if not ended and not experiment.kills:
        return None
    deaths = _list_deaths(experiment, ended)
    kills = (*experiment.kills, *deaths)

    whole = replace(experiment, kills=kills)
    if ended:
        first = ended[0]
        # A resumed run began with a cut, and so do the attempts that are foreseen.
        whole = whole.beginning_at(first.first_iteration, first.began)
    as_it_came = _attempts_at(whole)
    as_stated = as_it_came
    if whole.kills != experiment.kills:
        stated_part = replace(whole, kills=experiment.kills)
        as_stated = _attempts_at(stated_part)
    if as_it_came is None or as_stated is None:
        return as_it_came
    return replace(as_it_came, stated=as_stated.makespan)


def _list_deaths(experiment: Experiment, ended: Sequence[Ended]) -> list[Kill]:
    """Return what died by itself, as kills that a file might state."""
    job_count = len(experiment.problem.job.job_names)
    kills = []
    for attempt in ended:
        if attempt.killed:
            continue

        # What died before run time 0 died in the attempt, and not before it.
        sign = attempt.began + attempt.ran
        death = math.nextafter(sign, math.inf)
        # Of no process where that is not known, as when an agent died: whatever has
        # ended by then, this has ended the attempt. With several jobs a process takes
        # all along, which only a death of no process does.
        victims: tuple[str, ...] = ()
        if job_count == 1:
            victims = tuple(attempt.victims)
        name = ", ".join(victims) or attempt.error
        kills.append(Kill(death, name, victims))
    return kills


def _attempts_at(experiment: Experiment) -> attempts.Attempts | None:
    """Return the simulated attempts; None where a kill ends them, or is of one job."""
    try:
        return experiment.attempts()
    except (NodeLost, ScenarioError):
        # A kill so near to the end that the run had ended; or one of several jobs.
        return None


def outages_of(ended: Sequence[Ended]) -> Outages:
    """Return what deaths have added to a run."""
    recovery = sum_losses(ended)["recovery"]
    ran = math.fsum(attempt.ran for attempt in ended)
    return Outages(ran + recovery, recovery)


def with_outages(
    run: EmulatedRun,
    simulated: tuple[Schedule, Schedule],
    ended: Sequence[Ended],
    foreseen: attempts.Attempts | None,
) -> tuple[EmulatedRun, tuple[Schedule, Schedule]]:
    """Return the last attempt and its simulations as parts of the whole job.

    ``simulated`` is by what was expected, and by the run's own times and volumes.
    """
    prediction, replay = simulated
    outages = outages_of(ended)
    foreseen_outages = outages
    if foreseen is not None:
        foreseen_outages = foreseen.outages(prediction.length)
    schedule = replace(run.schedule, outages=outages)
    parted_run = replace(run, schedule=schedule)
    parted_prediction = replace(prediction, outages=foreseen_outages)
    # The replay is of the last attempt alone: what deaths add is the prediction's.
    parted_replay = replace(replay, outages=foreseen_outages)
    return parted_run, (parted_prediction, parted_replay)


class Progress(Observer):
    """Progress of an attempt, for what its end has lost."""

    def __init__(self, experiment: Experiment) -> None:
        job = experiment.problem.job
        self._experiment = experiment
        self._scale = experiment.scenario.emulation.stated_time_scale
        self._of_cuts = {job.index(name) for name in tasks_with_state_of(job)}
        self._copies = {*copies_of(job).values()}
        self._started: dict[int, float] = {}
        self.due = Due()
        """Kills of the scenario that have come in it."""
        self.came: set[int] = set()
        """Copies to which the state has come that the attempt began with."""
        self.zero = math.nan
        """Run time 0 on this host's clock; NaN before."""

    @property
    @override
    def watches(self) -> bool:
        # Where a death ends the job, what it has lost is not needed.
        goes_on = self._experiment.scenario.restarts > 0
        has_states = bool(self._of_cuts or self._copies)
        return goes_on and has_states

    @override
    def on_zero(self, start: float) -> None:
        self.zero = start

    @override
    def killing(self, due: Due) -> None:
        self.due = due

    @override
    def task_started(self, message: RunTask) -> None:
        iteration = message.iteration
        if message.task in self._of_cuts:
            latest = self._started.get(iteration, 0.0)
            # A cut is taken when the last of its keepers begins the iteration.
            self._started[iteration] = max(latest, message.start)
        if message.task in self._copies:
            misses = updates_missed(self._experiment.problem.job)
            # The state is on its way for as many iterations as weights lack updates.
            if iteration == misses:
                self.came.add(message.task)

    def ran(self, error: RunError) -> float:
        """Return the run seconds until the first sign of the death."""
        if math.isnan(self.zero):
            return 0.0
        wall_seconds = max(error.seen - self.zero, 0.0)
        return wall_seconds / self._scale

    def fallen(self, error: RunError) -> tuple[float, tuple[Kill, ...]]:
        """Return how long the job is down, and all kills of the scenario until then."""
        experiment = self._experiment
        idle = self.due.idle
        coming = [kill for kill in experiment.kills if kill not in idle]
        death = experiment.began + self.ran(error)
        recovery = experiment.scenario.recovery_time
        deaths = self.due.now
        if not deaths and error.processes:
            # A state and its copy are lost with their processes, whoever killed them.
            deaths = (Kill(death, str(error), error.processes),)
        return attempts.time_down(coming, now=deaths, died=death, otherwise=recovery)

    def end_attempt(self, error: RunError, cut: Cut) -> Ended:
        """Return the attempt that an error has ended before the next begins at ``cut``.

        `Ended.took` is not known yet.
        """
        experiment = self._experiment
        ran = self.ran(error)
        count = cut.iteration - experiment.first
        # What ran beyond the cut has to be done again.
        start = 0.0
        if count > 0:
            start = self._started.get(count, 0.0)
        recovery, _ = self.fallen(error)
        zero = self.zero
        if math.isnan(zero):
            zero = error.seen

        is_stated = bool(self.due.now)
        victims: tuple[str, ...] = ()
        if not is_stated:
            victims = error.processes
        return Ended(
            first_iteration=experiment.first,
            next_iteration=cut.iteration,
            ran=ran,
            again=max(ran - start, 0.0),
            detection=error.noticed - error.seen,
            recovery=recovery,
            error=str(error),
            began=experiment.began,
            killed=is_stated,
            clock=(zero, error.seen, error.noticed),
            victims=victims,
        )

    def after(self, ended: Ended, error: RunError) -> Experiment:
        """Return what is left to do after the attempt."""
        restart = ended.began + ended.ran + ended.recovery
        rest = self._experiment.beginning_at(ended.next_iteration, restart)
        _, kills = self.fallen(error)
        over = {*kills, *self.due.idle}
        kills_left = attempts.kills_after(rest.kills, over, restart)
        return replace(rest, kills=kills_left)


def run_attempts(
    experiment: Experiment,
    start: Cut | None,
    run: Path,
    observer: Observer,
    once: Once[Done],
) -> tuple[Experiment, Done, list[Ended]]:
    """Return the last attempt's part of the job, what ``once`` made of it, the others.

    The first begins with the cut ``start``, by default before iteration 0; ``run`` is
    the directory that keeps the cuts. Raises RunError when the scenario restarts
    nothing, or as often as it allows.
    """
    ends: list[Ended] = []
    limit = experiment.scenario.restarts
    holders = attempts.Holders(experiment.problem.job)
    death = math.nan  # when the attempt before did, on this host's clock
    while True:
        if ends:
            # The attempt before is a cycle of objects, frozen meanwhile: it would stay
            # until a collection that 60 restarts did not bring, 24 MB of each.
            gc.collect()
        progress = Progress(experiment)
        observers = Observers([observer, progress])
        try:
            outcome = once(experiment, start, observers, ends)
        # A process that stands still is as good as a dead one.
        except (NodeLost, DeadlineExceeded) as error:
            if ends:
                # An attempt that never began has taken until it was given up.
                zero = error.noticed if math.isnan(progress.zero) else progress.zero
                ends[-1] = replace(ends[-1], took=zero - death)
            if len(ends) == limit:
                if not limit:
                    raise
                note = f"there were {limit} restarts before (max_restarts: {limit})"
                raise NodeLost(f"{error}; {note}") from error

            newest = read_last_cut(experiment, run, observer.on_notice)
            start = _cut_left(newest, experiment, holders, progress, error)
            # No process holds those cuts any more: all that was done is lost.
            if start.iteration < newest.iteration:
                run_directory.drop_cuts(run)
                ends = [replace(attempt, again=attempt.ran) for attempt in ends]
            ends.append(progress.end_attempt(error, start))
            death = error.seen
            experiment = progress.after(ends[-1], error)
            observer.restarting(str(error), start.iteration)
        else:
            if ends:
                took = progress.zero - death
                ends[-1] = replace(ends[-1], took=took)
            return experiment, outcome, ends


def _cut_left(
    newest: Cut,
    experiment: Experiment,
    holders: attempts.Holders,
    progress: Progress,
    error: RunError,
) -> Cut:
    """Return the newest cut, or the beginning where no process holds one any more."""
    _, kills = progress.fallen(error)
    first = experiment.first
    rest = holders.left_of(
        newest.iteration,
        first=first,
        fallen=kills,
        came=progress.came,
    )
    if rest == newest.iteration:
        return newest
    return Cut(rest, {})


def cut_plan(
    experiment: Experiment, run: Path, start: Cut | None = None
) -> CutPlan | None:
    """Return the cuts that an attempt takes into a run directory; None for none.

    It begins with ``start``, by default before iteration 0.
    """
    section = experiment.scenario.checkpoint
    if section is None:
        return None
    owners = tasks_with_state_of(experiment.problem.job)
    keep = partial(run_directory.write_cut, run, _digest(experiment))
    return CutPlan(
        begins=owners,
        every=section.every,
        keep=keep,
        start=start or Cut(0, {}),
    )


def read_last_cut(
    experiment: Experiment, run: Path, notify: Callable[[str], object]
) -> Cut:
    """Return the last cut of an experiment in a run directory, as `newest_cut`."""
    holders: set[str] = set()
    states = tasks_with_state_of(experiment.problem.job)
    for names in states.values():
        holders.update(names)
    return run_directory.newest_cut(
        run,
        job=_digest(experiment),
        owners=holders,
        notify=notify,
    )


def _digest(experiment: Experiment) -> str:
    # With measured figures of its models, as the manifest has it: a resumed run reads
    # its scenario there, and has to find its own cuts.
    measured_scenario = with_figures(experiment.scenario)
    return run_directory.digest_of(measured_scenario.to_json())


@dataclass(frozen=True, eq=False)
class Beginning:
    """An experiment that is ready to be run, or what is left of it."""

    experiment: Experiment
    choice: ScaleChoice | None
    """Choice of its time scale, where trials have made one."""
    directory: run_directory.RunDirectory | None = None
    start: Cut | None = None
    """Directory of the run that was cut off, and the cut that it goes on from."""


def resume_run(
    run: Path, stated: Callable[[], Scenario] | None, notify: Callable[[str], object]
) -> Beginning:
    """Return what is left to do of a run directory.

    ``stated`` loads the scenario as it is now; None takes it from the directory.
    ``notify`` gets a sentence on where it goes on, and on every checkpoint that is
    passed over. Raises ScenarioError when the scenario is another one now; names the
    keys that differ; DataError when it is no run that was cut off, keeps no
    checkpoints, or none of those that were committed can be used.
    """
    _check_unfinished(run)
    path = run / "manifest.json"
    manifest = read_manifest(path)
    with one_error(str(path)):
        noted_scenario = Scenario.model_validate(manifest["scenario"])
        scale = manifest.get("auto_scale")
        choice = None
        if scale is not None:
            choice = ScaleChoice.from_json(scale)

    now = run_directory.read_scenario(run, manifest) if stated is None else stated()
    # An accuracy may have decided the length, which the text does not state.
    now = _as_long(now, noted_scenario, manifest.get("until"))
    if different := run_directory.apart(now, manifest["scenario"]):
        problem = f"cannot go on with another scenario: {different[0]}"
        raise ScenarioError(problem, file=f"--resume {run}")
    if noted_scenario.checkpoint is None:
        problem = "its scenario states no checkpoint, so nothing was kept: run it anew"
        raise DataError(problem, path=path)

    whole = with_until(prepare(noted_scenario), manifest)
    start = read_last_cut(whole, run, notify)
    iterations = whole.problem.job.iterations
    place = f"goes on at iteration {start.iteration} of {iterations}"
    # It was cut off between its last cut and its result, of which no record is left.
    if start.iteration >= iterations:
        raise DataError(place, path=run)
    notify(place)
    with one_error(str(path)):
        first = manifest.get("first_iteration", 0)
        began = manifest.get("began", 0)
        before = whole.beginning_at(first, began)

    cut_time = before.time_of_cut(start.iteration)
    # Those have come, and are not to come again.
    killed = {*manifest.get("killed", ())}
    coming = [kill for number, kill in enumerate(whole.kills) if number not in killed]
    rest = whole.beginning_at(start.iteration, cut_time)
    kills = attempts.later(coming, rest.first, cut_time)
    directory = run_directory.RunDirectory(run)
    return Beginning(
        experiment=replace(rest, kills=kills),
        choice=choice,
        directory=directory,
        start=start,
    )


def _check_unfinished(run: Path) -> None:
    """Raise DataError where a directory holds no run, or one that has ended."""
    if not run.is_dir():
        raise DataError("is not a run directory", path=run)
    if (run / "result.json").exists():
        problem = "holds a result.json: this run has ended, nothing is left to do"
        raise DataError(problem, path=run)


def _as_long(now: Scenario, noted: Scenario, until: Any) -> Scenario:
    """Return a scenario with the length that ``until`` gave the noted one.

    It keeps its own where that is another.
    """
    if now.until is None or until is None:
        return now
    length: dict[str, int | None] = {}
    for key in ("iterations", "epochs"):
        if key in type(noted.job).model_fields:
            length[key] = getattr(noted.job, key)
    job = now.job.model_copy(update=length)
    target = now.until.model_dump(mode="json", exclude_none=True)
    end = None if target == until else now.until
    return now.model_copy(update={"until": end, "job": job})


def with_until(experiment: Experiment, manifest: Row) -> Experiment:
    """Return an experiment with the accuracy that decided its length, if one did.

    ``manifest`` is that of its run: the scenario there has the length alone.
    """
    section = manifest.get("until")
    if not section:
        return experiment
    until = UntilSection.model_validate(section)
    facts = manifest.get("reached")
    looks = (Look(**facts),) if isinstance(facts, dict) else ()
    return replace(experiment, until=until, looks=looks)
