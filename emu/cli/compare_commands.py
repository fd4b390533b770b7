"""``emu compare``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit
from emu.errors import ScenarioError
from emu.problem import Problem
from emu.report import Candidate, comparison_table, terminal
from emu.report.many_runs import runs_json, runs_table
from emu.runs.recorded_run import load_run
from emu.scenario import build_job, load, place, profile_of, realize
from emu.simulation import makespan

if TYPE_CHECKING:
    from emu.problem import Realization


@app.command()
def compare(
    what: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|RUN...", help="A scenario, or run directories."),
    ],
    overrides: Overrides = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B", help="Rate policies; default: the scenario's.")
    ] = "",
    placements: Annotated[
        str, typer.Option(metavar="A,B", help="Placements; default: the scenario's.")
    ] = "",
    json_target: JsonTarget = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Runs only: a picture, .svg, .pdf or .png."),
    ] = None,
) -> None:
    """Compare policies and placements of a scenario by simulation, or recorded runs.

    Runs that differ by their seed only count as repetitions: they make one row, with
    the 95 % interval of their mean.
    """
    if all(path.is_dir() for path in what):
        compare_runs(what, json_target, out)
    elif len(what) > 1:
        raise ScenarioError(
            "compare one scenario, or run directories", file=str(what[-1])
        )
    else:
        compare_variants(what[0], overrides or [], policies, placements, json_target)


def compare_runs(paths: list[Path], json_target: str | None, out: Path | None) -> None:
    """Print a table of recorded runs, and draw it to ``out`` where one is asked for.

    Raises
    ------
    DataError
        When one of them is no run, or a file cannot be written.
    """
    runs = [load_run(path) for path in paths]
    if emit(json_target, runs_json(runs)):
        terminal().print(runs_table(runs))
    if out is not None:
        from emu.report.plots import plot  # noqa: PLC0415 - matplotlib takes 0.5 s

        plot(runs, "compare", out)


def compare_variants(
    file: Path,
    stated: list[str],
    policies: str,
    placements: str,
    json_target: str | None,
) -> None:
    """Print what every combination of policies and placements is simulated to take.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As loading, placing and realizing say.
    """
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
