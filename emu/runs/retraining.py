"""The training of a run once more, in one process: its losses and its accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.problem import Job
from emu.runs.array_files import read_weights
from emu.runs.recorded_run import RecordedRun, training_frame
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, virtual_training
from emu.scenario.run_sections import UntilSection
from emu.scenario.virtual_training import progress_along
from emu.systems.system import system_of
from emu.training.looks import Progress
from emu.trust.violation import Findings, Violation

if TYPE_CHECKING:
    import pandas as pd


#: Share of a loss by which it may be off, by precision: sums of gradients differ in
#: their last digits where workers are many, and steps carry them on.
_EXACTNESS = {"float32": 1e-4, "float64": 1e-9}
#: Factor by which rounding may carry several processes farther than one.
_ROUNDING = 3
FILE = "validation.csv"


def training_audit(run: Path, job: Job) -> Findings:
    """Return the number of values computed again, and the first wrong one of a job.

    All steps are taken again in one process, where nothing is sent. A gradient or a
    parameter that arrived with other content changes the next loss, and the weights in
    the end. Sampling, models and optimisers are the same code in both: their faults
    change neither, and only their own tests find them. Of the run training.csv and
    weights.npz are read; ``job`` is that of its scenario.
    """
    count = 0
    violations = []
    frame = training_frame(run / "training.csv")
    for name, settings in list_training(job):
        mine = frame[(frame.figure == "loss") & frame.task.str.startswith(name)]
        losses = mine.groupby("iteration").value.mean()  # of all tasks
        if losses.empty:
            raise DataError("holds no losses", path=run / "training.csv")
        system = system_of(settings)
        if system is not None and system.asynchronous(settings):
            problem = "trained asynchronously: its losses follow from what was read "
            raise DataError(problem + "when, audit a run of mode: pipe", path=run)
        misses = system.updates_missed(settings) if system else 0
        parts = read_weights(run).items()
        parts_of_job = [part.ravel() for key, part in parts if key.startswith(name)]
        weights = np.concatenate([np.empty(0), *parts_of_job])
        wrong = _first_wrong(losses, weights, settings, misses)
        count += len(losses) + 1
        if wrong is not None:
            off = wrong[0]
            subject = name + wrong[1]
            words = f"{name}{wrong[1]} {wrong[2]}"
            violations.append(Violation("training", subject, off, "values", words))
    if not count:
        raise DataError("trained nothing, so no loss can be compared", path=run)
    return count, violations


def list_training(job: Job) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the prefix of task names, and the settings, of every part that trains."""
    parts = {f"{k}/": own for k, own in job.settings.get("jobs", {}).items()}
    for name, settings in (parts or {"": job.settings}).items():
        if "model" in settings and settings.get("compute") != "timed":
            yield name, settings


def _first_wrong(
    found: pd.Series[float],
    weights: NDArray[np.float64],
    settings: Mapping[str, Any],
    missed: int,
) -> tuple[float, str, str] | None:
    """Return what is wrong first, by how much, what, and in words."""
    rows = found.index
    batches = int(found.index.max()) + 1
    alone, losses = _alone(settings, batches, missed)
    if len(weights) != len(alone):
        return 1.0, "weights", f"are {len(weights)} numbers, {len(alone)} alone"
    size = np.linalg.norm
    if not (np.isfinite(losses).all() and np.isfinite(alone).all()):
        # Numbers run off before they are none, so that only where they end is compared.
        ends = ("loss", losses[rows], found.to_numpy()), ("weights", alone, weights)
        for name, expected, mine in ends:
            if np.isfinite(expected).all() != np.isfinite(mine).all():
                return 1.0, name, "diverged in one of the run and one process alone"
        return None
    off = np.append(np.abs(found.to_numpy() - losses[rows]), size(weights - alone))
    limit = np.append(np.abs(losses[rows]), size(alone))
    limit *= _EXACTNESS[settings["precision"]]
    if not (off <= limit).all() and settings["precision"] == "float32":
        # Hundreds of steps carry last digits on: at step 572 of p3_amazon to 1e-4.
        wide, exact = _alone({**settings, "precision": "float64"}, batches, missed)
        highest = np.maximum.accumulate(np.abs(losses - exact)[rows])
        limit += _ROUNDING * np.append(highest, size(alone - wide))
    wrong = ~(off <= limit)  # NaN is wrong
    if not wrong.any():
        return None
    first = int(np.argmax(wrong))
    if first == len(found):
        share = off[first] / max(float(size(alone)), 1e-300)
        return off[first], "weights", f"are {share:.2g} of them off those alone"
    words = f"is {found.iloc[first]:.6g}, {losses[rows][first]:.6g} alone"
    return off[first], f"loss[{rows[first]}]", words


def _alone(
    settings: Mapping[str, Any], batches: int, missed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the parameters and the losses of one process."""
    from emu.training import reference_training  # noqa: PLC0415 - torch, a second

    parameters, losses = reference_training(settings, batches, missed)
    return parameters.astype(np.float64), np.array(losses)


def progress_of(
    runs: Sequence[RecordedRun], watch: Callable[[int, int], None] = lambda *_: None
) -> list[Progress]:
    """Return the training of every run, and leave it in each run directory.

    Those of equal weights are trained once. ``watch``: called with steps so far and in
    all while something is trained.
    """
    curves = []
    for run in runs:
        if not trains(run):
            raise DataError("has no validation accuracy over time", path=run.path)
        scenario = Scenario.model_validate(run.manifest["scenario"])
        section = run.manifest.get("until")
        until = UntilSection.model_validate(section) if section else None
        schedule = partial(getattr, run, "best")
        curves.append(progress_along(scenario, schedule, watch, until))
        if not (run.path / FILE).exists():
            last = curves[-1]
            lines = ["step,loss,accuracy"]
            shares = last.accuracy["valid"].tolist()
            at = dict(zip(last.looks.tolist(), shares, strict=True))
            for number, loss in enumerate(last.loss.tolist()):
                lines.append(f"{number},{loss!r},{at.get(number + 1, math.nan)!r}")
            RunDirectory(run.path).write_lines(FILE, lines)
    return curves


def step_ends(run: RecordedRun) -> NDArray[np.float64]:
    """Return when the weights of every step were there, seconds, shape (iterations,).

    That is the end of the last parameter server, or of the last worker without one.
    """
    if not trains(run):
        raise DataError("has no training steps", path=run.path)
    return virtual_training.step_ends(run.best, _step_kinds(run))


def trains(run: RecordedRun) -> bool:
    """Return True where a run is of one job that trains by whole mini-batches."""
    return bool(_step_kinds(run))


def _step_kinds(run: RecordedRun) -> tuple[str, ...]:
    if run.manifest.get("first_iteration"):
        return ()  # the steps before are of another attempt, with times of its own
    system = system_of(run.manifest.get("scenario", {}).get("job", {}))
    return system.step_kinds if system else ()
