"""Attempts at a job: each begins with the last cut that an earlier one has kept."""

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
from emu.errors import DeadlineExceeded, NodeLost, RunError, ScenarioError
from emu.prediction.simulation.attempts import Attempts, Holders, kills_after, time_down
from emu.problem import Due, Kill, Outages, Schedule
from emu.problem.cut import Cut
from emu.problem.workloads import copies_of
from emu.runs.run_directory import digest_of, drop_cuts, newest_cut, write_cut
from emu.scenario import Experiment
from emu.scenario.realize import with_figures
from emu.systems.system import tasks_with_state_of, updates_missed

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


def sum_losses(ended: Sequence[Ended]) -> dict[str, float]:
    """Return the seconds that attempts have lost, by what they were lost to."""
    kinds = ("recovery", "again")
    return {kind: math.fsum(getattr(one, kind) for one in ended) for kind in kinds}


def recovery_of(
    ended: Sequence[Ended],
    makespan: float,
    predicted: float,
    foreseen: Attempts | None = None,
) -> dict[str, Any]:
    """Return ``recovery`` of result.json; nothing where no attempt has ended early.

    Makespans are of all attempts; ``foreseen`` is None where they cannot be simulated.
    """
    if not ended:
        return {}
    content: dict[str, Any] = {"makespan": makespan, "predicted_makespan": predicted}
    content["lost"] = sum_losses(ended)
    content["attempts"] = [asdict(one) for one in ended]
    if foreseen is not None:
        content["predicted_lost"] = foreseen.lost
        content["predicted_attempts"] = [asdict(one) for one in foreseen.killed]
    return {"recovery": content}


def foreseen(experiment: Experiment, ended: Sequence[Ended]) -> Attempts | None:
    """Return the simulated attempts at the whole job that a run was of.

    What died by itself dies there at the same time, and goes on from the cut that the
    simulation has by then. None where nothing dies in either, or it dies too often.
    """
    if not ended and not experiment.kills:
        return None
    others = (e for e in ended if not e.killed)
    kills = (Kill(one.began + one.ran, one.error, ()) for one in others)
    whole = replace(experiment, kills=(*experiment.kills, *kills))
    if ended:
        whole = whole.beginning_at(ended[0].first_iteration, ended[0].began)
    try:
        return whole.attempts()
    except (NodeLost, ScenarioError):
        # A kill so near to the end that the run had ended; or one of several jobs.
        return None


def outages_of(ended: Sequence[Ended]) -> Outages:
    """Return what deaths have added to a run."""
    recovery = sum_losses(ended)["recovery"]
    return Outages(math.fsum(one.ran for one in ended) + recovery, recovery)


def with_deaths(
    run: EmulatedRun,
    simulated: tuple[Schedule, Schedule],
    ended: Sequence[Ended],
    foreseen: Attempts | None,
) -> tuple[EmulatedRun, tuple[Schedule, Schedule]]:
    """Return the last attempt and its simulations as parts of the whole job.

    ``simulated`` is by what was expected, and by the run's own times and volumes.
    """
    mine = outages_of(ended)
    theirs = mine if foreseen is None else foreseen.outages(simulated[0].length)
    prediction, replay_run = (replace(one, outages=theirs) for one in simulated)
    whole = replace(run, schedule=replace(run.schedule, outages=mine))
    return whole, (prediction, replay_run)


class Progress(Observer):
    """Progress of an attempt, for what its end has lost."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self.due = Due()
        """Kills of the scenario that have come in it."""
        job = experiment.problem.job
        self._of_cuts = {job.index(name) for name in tasks_with_state_of(job)}
        self._copies = {*copies_of(job).values()}
        self.came: set[int] = set()
        """Copies to which the state has come that the attempt began with."""
        self._scale = experiment.scenario.emulation.stated_time_scale
        self._started: dict[int, float] = {}
        self.zero = math.nan
        """Run time 0 on this host's clock; NaN before."""

    @override
    def on_zero(self, start: float) -> None:
        self.zero = start

    @override
    def killing(self, due: Due) -> None:
        self.due = due

    @override
    def task_started(self, message: RunTask) -> None:
        if message.task in self._of_cuts:
            before = self._started.get(message.iteration, 0.0)
            self._started[message.iteration] = max(before, message.start)
        misses = updates_missed(self._experiment.problem.job)
        if message.task in self._copies and message.iteration == misses:
            self.came.add(message.task)

    def ran(self, error: RunError) -> float:
        """Return the run seconds until the first sign of the death."""
        if math.isnan(self.zero):
            return 0.0
        return max(error.seen - self.zero, 0.0) / self._scale

    def fallen(self, error: RunError) -> tuple[float, tuple[Kill, ...]]:
        """Return how long the job is down, and all kills of the scenario until then."""
        mine = self._experiment
        coming = [kill for kill in mine.kills if kill not in self.due.idle]
        death, otherwise = mine.began + self.ran(error), mine.scenario.recovery_time
        return time_down(coming, self.due.now, death, otherwise)

    def end_attempt(self, error: RunError, cut: Cut) -> Ended:
        """Return the attempt that an error has ended before the next begins at ``cut``.

        `Ended.took` is not known yet.
        """
        mine, ran = self._experiment, self.ran(error)
        done = cut.iteration - mine.first
        start = self._started.get(done, 0.0) if done > 0 else 0.0
        again, detection = max(ran - start, 0.0), error.noticed - error.seen
        lost = ran, again, detection, self.fallen(error)[0]
        is_kill = bool(self.due.now)
        return Ended(mine.first, cut.iteration, *lost, str(error), mine.began, is_kill)

    def after(self, ended: Ended, error: RunError) -> Experiment:
        """Return what is left to do after the attempt."""
        up = ended.began + ended.ran + ended.recovery
        rest = self._experiment.beginning_at(ended.next_iteration, up)
        kills = {*self.fallen(error)[1], *self.due.idle}
        return replace(rest, kills=kills_after(rest.kills, kills, up))


def run_attempts(
    experiment: Experiment,
    start: Cut | None,
    run: Path,
    observer: Observer,
    once: Once[Done],
) -> tuple[Experiment, Done, list[Ended]]:
    """Return the last attempt's part of the job, what ``once`` made of it, the others.

    The first begins with the cut ``start``, by default before iteration 0; ``run`` is
    the directory that keeps the cuts.

    Raises RunError when the scenario restarts nothing, or as often as it allows.
    """
    ends: list[Ended] = []
    limit, holders = experiment.scenario.restarts, Holders(experiment.problem.job)
    death = math.nan  # when the attempt before did, on this host's clock
    while True:
        if ends:
            # The attempt before is a cycle of objects, frozen meanwhile: it would stay
            # until a collection that 60 restarts did not bring, 24 MB of each.
            gc.collect()
        progress = Progress(experiment)
        both = Observers([observer, progress])
        try:
            done = once(experiment, start, both, ends)
        except (NodeLost, DeadlineExceeded) as error:
            if ends:
                zero = progress.zero
                zero = error.noticed if math.isnan(zero) else zero
                ends[-1] = replace(ends[-1], took=zero - death)
            if len(ends) == limit:
                if not limit:
                    raise
                before = f"there were {limit} restarts before (max_restarts: {limit})"
                raise NodeLost(f"{error}; {before}") from error
            newest = read_last_cut(experiment, run, observer.on_notice)
            fallen, came = progress.fallen(error)[1], progress.came
            rest = holders.left_of(newest.iteration, experiment.first, fallen, came)
            # The beginning, where nobody is left who holds a state of the newest.
            start = newest if rest == newest.iteration else Cut(rest, {})
            if rest < newest.iteration:
                drop_cuts(run)
                ends = [replace(one, again=one.ran) for one in ends]
            ends.append(progress.end_attempt(error, start))
            death = error.seen
            experiment = progress.after(ends[-1], error)
            observer.restarting(str(error), start.iteration)
        else:
            if ends:
                ends[-1] = replace(ends[-1], took=progress.zero - death)
            return experiment, done, ends


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
    keep = partial(write_cut, run, _digest(experiment))
    return CutPlan(owners, section.every, keep, start or Cut(0, {}))


def read_last_cut(
    experiment: Experiment, run: Path, notify: Callable[[str], object]
) -> Cut:
    """Return the last cut of an experiment in a run directory, as `newest_cut`."""
    owners = tasks_with_state_of(experiment.problem.job)
    needed = (name for names in owners.values() for name in names)
    return newest_cut(run, _digest(experiment), {*needed}, notify)


def _digest(experiment: Experiment) -> str:
    return digest_of(with_figures(experiment.scenario).to_json())
