"""Attempts at a job: each begins with the last cut that an earlier one has kept."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.coordinator import Observer, Observers
from emu.coordinator.cuts import CutPlan
from emu.errors import DeadlineExceeded, NodeLost
from emu.runs.checkpoints import Cut, digest_of, newest_cut, write_cut
from emu.scenario.realize import noted
from emu.systems.registry import system_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from emu.coordinator import EmulatedRun
    from emu.errors import RunError
    from emu.scenario import Experiment
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
    """Wall seconds from the first sign until the attempt was given up."""
    restart: float
    """Wall seconds from there until run time 0 of the next attempt, or its end."""
    error: str
    """The error that the run would have ended with."""


def lost_seconds(ended: Sequence[Ended]) -> dict[str, float]:
    """Return the seconds that attempts have lost, by what they were lost to.

    Detection and restart are wall seconds of this host, one for one: as with measured
    work, they would be others with each time scale otherwise.
    """
    kinds = ("detection", "restart", "again")
    return {kind: math.fsum(getattr(one, kind) for one in ended) for kind in kinds}


def recovery_of(
    ended: Sequence[Ended], makespan: float, predicted: float
) -> dict[str, Any]:
    """Return ``recovery`` of result.json; nothing where no attempt has ended early.

    Parameters
    ----------
    makespan, predicted
        Of the last attempt, emulated and simulated beforehand.
    """
    if not ended:
        return {}
    before = math.fsum(one.ran + one.detection + one.restart for one in ended)
    content = {
        "makespan": before + makespan,
        "predicted_makespan": before + predicted,
        "lost": lost_seconds(ended),
        "attempts": [asdict(one) for one in ended],
    }
    return {"recovery": content}


class Progress(Observer):
    """Progress of an attempt, for what its end has lost."""

    def __init__(self, experiment: Experiment) -> None:
        self._first = experiment.first
        job = experiment.problem.job
        names = [task.name for task in job.tasks]
        self._of_cuts = {names.index(name) for name in _begins(experiment)}
        self._scale = experiment.scenario.emulation.stated_time_scale
        self._started: dict[int, float] = {}
        self.zero = math.nan
        """Run time 0 on this host's clock; NaN before."""

    @override
    def zeroed(self, start: float) -> None:
        self.zero = start

    @override
    def task_started(self, message: RunTask) -> None:
        if message.task in self._of_cuts:
            before = self._started.get(message.iteration, 0.0)
            self._started[message.iteration] = max(before, message.start)

    def ended(self, error: RunError, cut: Cut) -> Ended:
        """Return the attempt that an error has ended; its restart is not known yet.

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
            0.0,
            str(error),
        )


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
    given_up = math.nan  # when the attempt before was, on this host's clock
    while True:
        progress = Progress(experiment)
        both = Observers([observer, progress])
        try:
            done = once(experiment, start, both, ended)
        except (NodeLost, DeadlineExceeded) as error:
            if ended:
                begun = progress.zero
                begun = error.noticed if math.isnan(begun) else begun
                ended[-1] = replace(ended[-1], restart=begun - given_up)
            if len(ended) == limit:
                raise _exhausted(error, limit) from error
            start = kept_cut(experiment, run, observer.notified)
            ended.append(progress.ended(error, start))
            given_up = error.noticed
            experiment = experiment.beginning_at(start.iteration)
            observer.restarting(str(error), start.iteration)
        else:
            if ended:
                restart = progress.zero - given_up
                ended[-1] = replace(ended[-1], restart=restart)
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
    stated, begins = experiment.scenario.checkpoint, _begins(experiment)
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
    needed = (name for names in _begins(experiment).values() for name in names)
    return newest_cut(run, _digest(experiment), {*needed}, notify)


def _begins(experiment: Experiment) -> Mapping[str, tuple[str, ...]]:
    job = experiment.problem.job
    system = system_of(job.settings)
    return {} if system is None or system.cuts is None else system.cuts(job)


def _digest(experiment: Experiment) -> str:
    return digest_of(noted(experiment.scenario).to_json())
