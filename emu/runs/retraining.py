"""The training of a run once more, in one process: its losses and its accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.errors import DataError
from emu.problem import Job
from emu.runs.array_files import read_weights
from emu.runs.recorded_run import RecordedRun, training_frame
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, virtual_training
from emu.scenario.run_sections import UntilSection
from emu.scenario.virtual_training import progress_along
from emu.systems.system import system_of, trainer_of
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
    training = run / "training.csv"
    frame = training_frame(training)
    for prefix, settings in list_training(job):
        is_loss = frame.figure == "loss"
        is_of_job = frame.task.str.startswith(prefix)
        rows = frame[is_loss & is_of_job]
        # Every worker reports the loss of its share; alone the mean of them is kept.
        losses = rows.groupby("iteration").value.mean()  # of all tasks
        if losses.empty:
            raise DataError("holds no losses", path=training)

        wrong = _first_wrong(
            losses,
            missed=_updates_missed(settings, run),
            weights=_weights_of(run, prefix),
            settings=settings,
        )
        # One more for the weights, which are compared as one number.
        count += len(losses) + 1
        if wrong is not None:
            off, figure, words = wrong
            subject = prefix + figure
            violation = Violation(
                constraint="training",
                subject=subject,
                amount=off,
                unit="values",
                sentence=f"{subject} {words}",
            )
            violations.append(violation)
    if not count:
        raise DataError("trained nothing, so no loss can be compared", path=run)
    return count, violations


def _updates_missed(settings: Mapping[str, Any], run: Path) -> int:
    """Return the updates that a job lacks; raises DataError where nobody can tell."""
    system = system_of(settings)
    if system is None:
        return 0
    if system.asynchronous(settings):
        problem = "trained asynchronously: its losses follow from what was read"
        raise DataError(f"{problem} when, audit a run of mode: pipe", path=run)
    # A pipeline of P3 lacks some updates by design:
    # alone the training lacks the same ones.
    return system.updates_missed(settings)


def _weights_of(run: Path, prefix: str) -> Floats:
    """Return the weights of one job of a run, flat."""
    weights = np.empty(0)
    for name, part in read_weights(run).items():
        if name.startswith(prefix):
            weights = np.append(weights, part)
    return weights


def list_training(job: Job) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the prefix of task names, and the settings, of every part that trains."""
    jobs = job.settings.get("jobs") or {"": job.settings}
    for name, settings in jobs.items():
        # With `timed` nothing computes, so that there is no loss to compare.
        has_model = "model" in settings
        if has_model and settings.get("compute") != "timed":
            prefix = f"{name}/" if name else ""
            yield prefix, settings


def _first_wrong(
    found: pd.Series[float],
    weights: Floats,
    settings: Mapping[str, Any],
    missed: int,
) -> tuple[float, str, str] | None:
    """Return what is wrong first: by how much, its name, and words on it."""
    rows = found.index
    losses = found.to_numpy()
    batches = int(rows.max()) + 1
    weights_alone, curve = _alone(settings, batches, missed)
    losses_alone = curve[rows]
    count = len(weights_alone)
    if len(weights) != count:
        return 1.0, "weights", f"are {len(weights)} numbers, {count} alone"
    if _diverges(curve) or _diverges(weights_alone):
        # Numbers run off before they are none, so that only where they end is compared.
        words = "diverged in one of the run and one process alone"
        for name, numbers, alone in (
            ("loss", losses, losses_alone),
            ("weights", weights, weights_alone),
        ):
            if _diverges(numbers) != _diverges(alone):
                return 1.0, name, words
        return None

    # Losses one by one, then the weights as one number, by their norm.
    size = np.linalg.norm(weights_alone)
    loss_errors = np.abs(losses - losses_alone)
    weight_error = np.linalg.norm(weights - weights_alone)
    off = np.append(loss_errors, weight_error)
    precision = settings["precision"]
    limit = np.append(np.abs(losses_alone), size)
    limit *= _EXACTNESS[precision]
    is_close = off <= limit
    # Only where the plain limit fails: in float64 it is trained once more.
    if not is_close.all() and precision == "float32":
        exact_settings = {**settings, "precision": "float64"}
        exact = _alone(exact_settings, batches, missed)
        rounded = (weights_alone, curve)
        limit += _ROUNDING * _drifts(rounded, exact, rows)
    wrong = ~(off <= limit)  # NaN is wrong
    if not wrong.any():
        return None

    first = int(np.argmax(wrong))
    amount = off[first]
    if first == len(losses):
        # Weights may all be 0.
        share = amount / max(float(size), 1e-300)
        return amount, "weights", f"are {share:.2g} of them off those alone"
    words = f"is {losses[first]:.6g}, {losses_alone[first]:.6g} alone"
    return amount, f"loss[{rows[first]}]", words


#: Parameters and losses.
_Trained: TypeAlias = tuple[Floats, Floats]


def _drifts(rounded: _Trained, exact: _Trained, rows: Any) -> Floats:
    """Return how far rounding has carried losses by then, and in the end the weights.

    Hundreds of steps carry last digits on: at step 572 of p3_amazon to 1e-4.
    """
    weights, curve = rounded
    exact_weights, exact_curve = exact
    apart = np.abs(curve - exact_curve)
    highest = np.maximum.accumulate(apart[rows])
    weight_drift = np.linalg.norm(weights - exact_weights)
    return np.append(highest, weight_drift)


def _diverges(numbers: Floats) -> bool:
    return not np.isfinite(numbers).all()


def _alone(settings: Mapping[str, Any], batches: int, missed: int) -> _Trained:
    """Return the parameters and the losses of one process."""
    train = trainer_of(settings)
    parameters, losses = train(settings, batches, missed)
    return parameters.astype(np.float64), np.array(losses)


def progress_of(
    runs: Sequence[RecordedRun],
    watch: Callable[[int, int], None] = lambda *_: None,
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
        until = None
        if section:
            until = UntilSection.model_validate(section)

        schedule = partial(getattr, run, "best")
        progress = progress_along(scenario, schedule, watch, until)
        curves.append(progress)
        file = run.path / FILE
        if not file.exists():
            _write_progress(run.path, progress)
    return curves


def _write_progress(run: Path, progress: Progress) -> None:
    """Write loss and accuracy of every step; NaN where no one looked."""
    looks = progress.looks.tolist()
    shares = progress.accuracy["valid"].tolist()
    accuracy = dict(zip(looks, shares, strict=True))
    lines = ["step,loss,accuracy"]
    for step, loss in enumerate(progress.loss.tolist()):
        # Looks count steps from 1, and lines from 0.
        share = accuracy.get(step + 1, math.nan)
        lines.append(f"{step},{loss!r},{share!r}")
    RunDirectory(run).write_lines(FILE, lines)


def step_ends(run: RecordedRun) -> Floats:
    """Return when the weights of every step were there, seconds, shape (iterations,).

    That is the end of the last parameter server, or of the last worker without one.
    """
    kinds = _step_kinds(run)
    if not kinds:
        raise DataError("has no training steps", path=run.path)
    return virtual_training.step_ends(run.best, kinds)


def trains(run: RecordedRun) -> bool:
    """Return True where a run is of one job that trains by whole mini-batches."""
    return bool(_step_kinds(run))


def _step_kinds(run: RecordedRun) -> tuple[str, ...]:
    if run.manifest.get("first_iteration"):
        return ()  # the steps before are of another attempt, with times of its own
    scenario = run.manifest.get("scenario", {})
    job = scenario.get("job", {})
    system = system_of(job)
    if system is None:
        return ()
    return system.step_kinds
