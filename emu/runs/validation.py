"""Validation accuracy of a run over time, off the clock.

The weights after a step are a function of the seed, and the same wherever tasks stand
and flows go: one process takes the steps again, and looks at the validation vertices
now and then. It is kept as validation.csv in the run directory.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.errors import DataError
from emu.input_file import read_text
from emu.runs.run_directory import RunDirectory
from emu.scenario import Scenario, build_job
from emu.systems.registry import system_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.runs.recorded_run import RecordedRun

FILE = "validation.csv"
#: Looks at the validation vertices in a run; each is a pass over the whole graph.
LOOKS = 10


class Progress(NamedTuple):
    """Training of a run, step by step, float64, shape (steps,)."""

    loss: NDArray[np.float64]
    """Mean over the workers."""
    accuracy: NDArray[np.float64]
    """Accuracy on validation vertices after the step; NaN where it was not measured."""


def progress_of(
    runs: Sequence[RecordedRun],
    watch: Callable[[int, int], None] = lambda *_: None,
    looks: int = LOOKS,
) -> list[Progress]:
    """Return the training of every run; those of equal training are trained once.

    Parameters
    ----------
    watch
        Called with steps so far and in all while something is trained.
    looks
        Times that the validation vertices are looked at, evenly spaced.

    Raises
    ------
    DataError
        When a run does not train (`trains`), or its data are missing.
    """
    made: dict[str, Progress] = {}
    found = []
    for run in runs:
        settings, steps = _training(run)
        key = json.dumps([settings, steps], sort_keys=True, default=str)
        kept = read_progress(run.path / FILE)
        if kept is None or len(kept.loss) != steps:
            if key not in made:
                made[key] = _trained(settings, steps, watch, looks)
            _write(run.path, made[key])
        else:
            made[key] = kept
        found.append(made[key])
    return found


def step_ends(run: RecordedRun) -> NDArray[np.float64]:
    """Return when the weights of every step were there, seconds, shape (iterations,).

    That is the end of the last parameter server, or of the last worker without one.

    Raises
    ------
    DataError
        When the run does not train (`trains`).
    """
    kinds = np.array([task.kind for task in run.problem.job.tasks])
    ending = [kind for kind in _step_kinds(run) if kind in kinds]
    if not ending:
        raise DataError("has no training steps", path=str(run.path))
    ends: NDArray[np.float64] = run.best.task_end[kinds == ending[0]].max(axis=0)
    return ends


def trains(run: RecordedRun) -> bool:
    """Return True where a run is of one job that trains by whole mini-batches."""
    return bool(_step_kinds(run))


def _step_kinds(run: RecordedRun) -> tuple[str, ...]:
    system = system_of(run.manifest.get("scenario", {}).get("job", {}))
    return system.step_kinds if system else ()


def _training(run: RecordedRun) -> tuple[Mapping[str, Any], int]:
    if not trains(run):
        raise DataError("has no validation accuracy over time", path=str(run.path))
    job = build_job(Scenario.model_validate(run.manifest["scenario"]))
    return job.settings, job.iterations


def _trained(
    settings: Mapping[str, Any],
    steps: int,
    watch: Callable[[int, int], None],
    looks: int,
) -> Progress:
    from emu.training import evaluate, reference_training  # noqa: PLC0415 - torch

    at = set(np.linspace(0, steps, min(looks, steps) + 1, dtype=int)[1:] - 1)
    accuracy = np.full(steps, np.nan)

    def look(step: int, parameters: NDArray[Any]) -> None:
        if step in at:
            accuracy[step] = evaluate(settings, parameters).get("valid", np.nan)
        watch(step + 1, steps)

    _, losses = reference_training(settings, steps, watch=look)
    return Progress(np.array(losses), accuracy)


def _write(run: Path, made: Progress) -> None:
    rows = (
        f"{n},{loss!r},{seen!r}"
        for n, (loss, seen) in enumerate(
            zip(made.loss.tolist(), made.accuracy.tolist(), strict=True)
        )
    )
    RunDirectory(run).write_lines(FILE, ["step,loss,accuracy", *rows])


def read_progress(path: Path) -> Progress | None:
    """Return the content of validation.csv; None where there is nothing of use."""
    try:
        rows = [*csv.DictReader(read_text(path).splitlines())]
        columns = [[float(row[key]) for row in rows] for key in ("loss", "accuracy")]
    except (OSError, DataError, KeyError, TypeError, ValueError, csv.Error):
        return None
    return Progress(np.array(columns[0]), np.array(columns[1]))
