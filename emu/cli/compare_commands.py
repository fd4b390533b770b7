"""``emu compare``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit
from emu.problem import Problem
from emu.report import Candidate, comparison_table, terminal
from emu.scenario import build_job, load, place, profile_of, realize
from emu.simulation import makespan

if TYPE_CHECKING:
    from emu.problem import Realization


@app.command()
def compare(
    file: ScenarioFile,
    overrides: Overrides = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B", help="Rate policies; default: the scenario's.")
    ] = "",
    placements: Annotated[
        str, typer.Option(metavar="A,B", help="Placements; default: the scenario's.")
    ] = "",
    json_target: JsonTarget = None,
) -> None:
    """Simulate several rate policies and placements of one scenario, side by side."""
    stated = overrides or []
    scenario = load(file, stated)
    cluster, job = scenario.to_cluster(), build_job(scenario)
    realization = realize(scenario, job)
    profile = profile_of(scenario, job, realization)
    candidates = []
    for placement in _listed(placements) or [scenario.placement.policy]:
        chosen = [*stated, f"placement.policy={placement}", "expect=null"]
        found = place(load(file, chosen), job, cluster, profile=profile)
        problem = Problem(cluster, job, found.placement)
        for policy in _listed(policies) or [scenario.schedule.policy]:
            checked = load(file, [*chosen, f"schedule.policy={policy}"])
            candidates.append(
                Candidate(
                    placement,
                    policy,
                    makespan(problem, realization, checked.schedule.policy),
                    _moved(problem, realization),
                )
            )
    if emit(json_target, [asdict(candidate) for candidate in candidates]):
        terminal().print(comparison_table(candidates))


def _listed(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def _moved(problem: Problem, realization: Realization) -> float:
    """Return the share of all bytes that cross between machines."""
    remote = np.array([bool(hops) for hops in problem.hops], dtype=bool)
    total = realization.volumes.sum()
    return float(realization.volumes[remote].sum() / total) if total else 0.0
