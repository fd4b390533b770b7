"""Attempts at a job: each begins with the last cut that an earlier one has kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from emu.coordinator.cuts import CutPlan
from emu.runs.checkpoints import Cut, digest_of, write_cut
from emu.scenario.realize import noted
from emu.systems.registry import system_of

if TYPE_CHECKING:
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
    scenario, job = experiment.scenario, experiment.problem.job
    system = system_of(job.settings)
    if scenario.checkpoint is None or system is None or system.cuts is None:
        return None
    keep = partial(write_cut, run, digest_of(noted(scenario).to_json()))
    return CutPlan(
        system.cuts(job), scenario.checkpoint.every, keep, start or Cut(0, {})
    )
