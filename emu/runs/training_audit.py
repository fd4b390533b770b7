"""Compare a run's training with that of one process: an audit of its payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.systems.registry import system_of
from emu.trust.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from emu.problem import Job
    from emu.trust.violation import Findings

#: Share of a loss by which it may be off, by precision: sums of gradients differ in
#: their last digits where workers are many, and steps carry them on.
_EXACTNESS = {"float32": 1e-4, "float64": 1e-9}
#: Factor by which rounding may carry several processes farther than one.
_ROUNDING = 3


def training_audit(run: Path, job: Job) -> Findings:
    """Return the number of losses computed again, and the first wrong one of a job.

    All steps are taken again in one process, where nothing is sent. A gradient or a
    parameter that arrived with other content changes the next loss. What the last step
    made is in no loss, so it is not compared. Sampling, models and optimisers are the
    same code in both: their faults change neither, and only their own tests find them.

    Parameters
    ----------
    run
        Run directory, of which training.csv is read.
    job
        Job of its scenario, not of the run.

    Raises
    ------
    DataError
        When the job has trained nothing, or training.csv holds no losses of it.
    """
    from emu.runs.frames import training_frame  # noqa: PLC0415 - pandas takes 0.5 s

    checked, violations = 0, []
    frame = training_frame(run / "training.csv")
    for name, settings in trained_jobs(job):
        found = _losses(frame, name)
        if found.empty:
            raise DataError("holds no losses", path=str(run / "training.csv"))
        system = system_of(settings)
        missed = system.updates_missed(settings) if system else 0
        batches = int(found.index.max()) + 1
        alone = _alone(settings, batches, missed)[found.index]
        off = np.abs(found.to_numpy() - alone)
        allowed = _EXACTNESS[settings["precision"]] * np.abs(alone)
        if (off > allowed).any() and settings["precision"] == "float32":
            # Hundreds of steps carry last digits on: at step 572 of p3_amazon to 1e-4.
            exact = _alone({**settings, "precision": "float64"}, batches, missed)
            carried = np.abs(alone - exact[found.index])
            allowed += _ROUNDING * np.maximum.accumulate(carried)
        wrong = off > allowed
        checked += len(found)
        if wrong.any():
            first = int(np.argmax(wrong))
            subject = f"{name}loss[{found.index[first]}]"
            sentence = f"{subject} is {found.iloc[first]:.6g}, {alone[first]:.6g} alone"
            violations.append(
                Violation("training", subject, off[first], "values", sentence)
            )
    if not checked:
        raise DataError("trained nothing, so no loss can be compared", path=str(run))
    return checked, violations


def trained_jobs(job: Job) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the prefix of task names, and the settings, of every part that trains."""
    parts = job.settings.get("jobs")
    named = (
        [("", job.settings)]
        if parts is None
        else [(f"{name}/", settings) for name, settings in parts.items()]
    )
    for name, settings in named:
        if "model" in settings and settings.get("compute") != "timed":
            yield name, settings


def _losses(frame: pd.DataFrame, name: str) -> pd.Series[float]:
    """Return the mean loss of all tasks, by iteration."""
    mine = frame[(frame.figure == "loss") & frame.task.str.startswith(name)]
    return mine.groupby("iteration").value.mean()


def _alone(
    settings: Mapping[str, Any], batches: int, missed: int
) -> NDArray[np.float64]:
    from emu.training import reference_training  # noqa: PLC0415 - torch, a second

    return np.array(reference_training(settings, batches, missed)[1])
