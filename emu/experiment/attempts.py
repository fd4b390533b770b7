"""Attempts at a job: each begins with the last cut that an earlier one has kept."""

from __future__ import annotations

import gc
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.coordinator import Observer, Observers
from emu.coordinator.cuts import CutPlan
from emu.errors import DeadlineExceeded, NodeLost
from emu.runs.run_directory import Cut, digest_of, newest_cut, write_cut
from emu.scenario.realize import noted
from emu.simulation.attempts import recovery_after, without
from emu.systems.system import held_by

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from emu.coordinator import EmulatedRun
    from emu.errors import RunError
    from emu.problem import Kill
    from emu.scenario import Experiment
    from emu.simulation.attempts import Attempts
    from emu.wire.messages import RunTask

    #: Carries one attempt out, with what is left, the cut that it begins with, and
    #: the attempts before it.
    Once = Callable[[Experiment, Cut | None, Observer, Sequence["Ended"]], EmulatedRun]


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


def lost_seconds(ended: Sequence[Ended]) -> dict[str, float]:
    """Return the seconds that attempts have lost, by what they were lost to.

    Recovery is what the scenario states: nothing runs meanwhile, and this host would
    take others with each load and scale.
    """
    kinds = ("recovery", "again")
    return {kind: math.fsum(getattr(one, kind) for one in ended) for kind in kinds}


def recovery_of(
    ended: Sequence[Ended],
    makespan: float,
    predicted: float,
    foreseen: Attempts | None = None,
) -> dict[str, Any]:
    """Return ``recovery`` of result.json; nothing where no attempt has ended early.

    Parameters
    ----------
    makespan, predicted
        Of the last attempt, emulated and simulated beforehand.
    foreseen
        All attempts, simulated, where the scenario kills and nothing else did.
    """
    if not ended:
        return {}
    before = math.fsum(one.ran + one.recovery for one in ended)
    content = {
        "makespan": before + makespan,
        "predicted_makespan": before + predicted,
        "lost": lost_seconds(ended),
        "attempts": [asdict(one) for one in ended],
    }
    if foreseen is not None:
        content["predicted_makespan"] = foreseen.makespan
        content["predicted_lost"] = foreseen.lost
        content["predicted_attempts"] = [asdict(one) for one in foreseen.killed]
    return {"recovery": content}


def foreseen(experiment: Experiment, ended: Sequence[Ended]) -> Attempts | None:
    """Return the simulated attempts at what a run was of; None for deaths by others.

    Parameters
    ----------
    experiment
        Of the whole job.
    """
    if not ended or not all(one.killed for one in ended):
        return None
    first = ended[0]
    try:
        return experiment.beginning_at(first.first_iteration, first.began).attempts()
    except NodeLost:  # of a kill so near to the end that the run had ended by then
        return None


class Progress(Observer):
    """Progress of an attempt, for what its end has lost."""

    def __init__(self, experiment: Experiment) -> None:
        self._first, self._began = experiment.first, experiment.began
        self.killed: tuple[Kill, ...] = ()
        """Kills of the scenario that have come in it."""
        job = experiment.problem.job
        names = [task.name for task in job.tasks]
        self._of_cuts = {names.index(name) for name in held_by(job)}
        self._scale = experiment.scenario.emulation.stated_time_scale
        self._recovery = experiment.scenario.recovery_time
        self._started: dict[int, float] = {}
        self.zero = math.nan
        """Run time 0 on this host's clock; NaN before."""

    @override
    def zeroed(self, start: float) -> None:
        self.zero = start

    @override
    def killing(self, kills: Sequence[Kill]) -> None:
        self.killed = tuple(kills)

    @override
    def task_started(self, message: RunTask) -> None:
        if message.task in self._of_cuts:
            before = self._started.get(message.iteration, 0.0)
            self._started[message.iteration] = max(before, message.start)

    def ended(self, error: RunError, cut: Cut) -> Ended:
        """Return the attempt that an error has ended; `Ended.took` is not known yet.

        Parameters
        ----------
        cut
            With which the next attempt begins.
        """
        ran = 0.0
        if not math.isnan(self.zero):
            ran = max(error.seen - self.zero, 0.0) / self._scale
        kept = self._started.get(cut.iteration - self._first, 0.0)
        if cut.iteration <= self._first:
            kept = 0.0
        return Ended(
            self._first,
            cut.iteration,
            ran,
            max(ran - kept, 0.0),
            error.noticed - error.seen,
            recovery_after(self.killed, self._recovery),
            str(error),
            self._began,
            bool(self.killed),
        )


def after(experiment: Experiment, ended: Ended, killed: Collection[Kill]) -> Experiment:
    """Return what is left to do after an attempt, in which some were killed."""
    left = experiment.beginning_at(
        ended.next_iteration, ended.began + ended.ran + ended.recovery
    )
    return replace(left, kills=without(left.kills, killed))


def attempted(
    experiment: Experiment,
    start: Cut | None,
    run: Path,
    observer: Observer,
    once: Once,
) -> tuple[Experiment, EmulatedRun, list[Ended]]:
    """Return the attempt that lasted, with its part of the job, and those before it.

    Parameters
    ----------
    start
        Cut that the first begins with; None before iteration 0.
    run
        Directory that keeps the cuts.

    Raises
    ------
    RunError
        When the scenario restarts nothing, or as often as it allows.
    """
    ended: list[Ended] = []
    limit = experiment.scenario.restarts
    died = math.nan  # when the attempt before did, on this host's clock
    while True:
        if ended:
            # The attempt before is a cycle of objects, frozen meanwhile: it would stay
            # until a collection that 60 restarts did not bring, 24 MB of each.
            gc.collect()
        progress = Progress(experiment)
        both = Observers([observer, progress])
        try:
            done = once(experiment, start, both, ended)
        except (NodeLost, DeadlineExceeded) as error:
            if ended:
                begun = progress.zero
                begun = error.noticed if math.isnan(begun) else begun
                ended[-1] = replace(ended[-1], took=begun - died)
            if len(ended) == limit:
                raise _exhausted(error, limit) from error
            start = kept_cut(experiment, run, observer.notified)
            ended.append(progress.ended(error, start))
            died = error.seen
            experiment = after(experiment, ended[-1], progress.killed)
            observer.restarting(str(error), start.iteration)
        else:
            if ended:
                ended[-1] = replace(ended[-1], took=progress.zero - died)
            return experiment, done, ended


def _exhausted(error: RunError, limit: int) -> RunError:
    if not limit:
        return error
    said = f"{error}; there were {limit} restarts before (max_restarts: {limit})"
    return NodeLost(said)


def cut_plan(
    experiment: Experiment, run: Path, start: Cut | None = None
) -> CutPlan | None:
    """Return the cuts that an attempt takes into a run directory; None for none.

    Parameters
    ----------
    start
        The cut that it begins with; None before iteration 0.
    """
    stated, begins = experiment.scenario.checkpoint, held_by(experiment.problem.job)
    if stated is None:
        return None
    keep = partial(write_cut, run, _digest(experiment))
    return CutPlan(begins, stated.every, keep, start or Cut(0, {}))


def kept_cut(experiment: Experiment, run: Path, notify: Callable[[str], object]) -> Cut:
    """Return the last cut that a run directory keeps of an experiment.

    Raises
    ------
    DataError
        As `newest_cut`.
    """
    begins = held_by(experiment.problem.job)
    needed = (name for names in begins.values() for name in names)
    return newest_cut(run, _digest(experiment), {*needed}, notify)


def _digest(experiment: Experiment) -> str:
    return digest_of(noted(experiment.scenario).to_json())
