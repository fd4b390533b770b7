"""Attempts at a job: each begins with the last cut that an earlier one has kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from emu.coordinator.cuts import CutPlan
from emu.runs.checkpoints import Cut, digest_of, newest_cut, write_cut
from emu.scenario.realize import noted
from emu.systems.registry import system_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from emu.scenario import Experiment


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
