"""``emu compare``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, emit
from emu.errors import PlacementError, ScenarioError
from emu.placement.neighbours import difference, moved
from emu.problem import Problem
from emu.report import Candidate, comparison_table, terminal
from emu.report.job_line import job_line
from emu.report.many_runs import runs_json, runs_table
from emu.runs.recorded_run import load_run
from emu.scenario import build_job, load, place, prepare, profile_of
from emu.scenario.pins import process_of
from emu.scenario.suggestion import nearest
from emu.simulation import makespan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.placement.neighbours import Move, Neighbour
    from emu.problem import Job, Realization
    from emu.scenario import Experiment


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
    move: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=MACHINE", help="Show it with this task moved."),
    ] = None,
    swap: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK,TASK", help="Show it with these tasks swapped."),
    ] = None,
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
        variants = Variants(policies, placements, move or [], swap or [])
        compare_variants(what[0], overrides or [], variants, json_target)


@dataclass(frozen=True)
class Variants:
    """What to show beside a scenario as it is, as the options say it."""

    policies: str
    placements: str
    moves: list[str]
    swaps: list[str]


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
    options: Variants,
    json_target: str | None,
) -> None:
    """Print what every variant of a scenario is simulated to take.

    First the scenario as it is, then its placement with each move and swap, then every
    combination of the other placements and policies.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As loading, placing and realizing say, or when a move cannot be.
    """
    base = prepare(load(file, stated))
    candidates = [_candidate(base, base.problem, base.scenario.placement.policy)]
    for near in _near(base.problem, options):
        problem = Problem(base.problem.cluster, base.problem.job, near.placement)
        candidates.append(_candidate(base, problem, str(near), near.moves))
    own = base.scenario.placement.policy, base.policy
    placements = _listed(options.placements) or [own[0]]
    policies = _listed(options.policies) or [own[1]]
    for placement in placements:
        problem = _placed_by(file, stated, base, placement)
        for policy in policies:
            if (placement, policy) != own:
                load(file, [*stated, f"schedule.policy={policy}"])
                candidates.append(_candidate(base, problem, placement, policy=policy))
    content = [candidate.to_json() for candidate in candidates]
    if emit(json_target, content):
        terminal().print(comparison_table(candidates, job_line(base.problem.job)))


def _placed_by(
    file: Path, stated: list[str], base: Experiment, placement: str
) -> Problem:
    """Return the job of ``base`` placed by another policy.

    What an explicit placement spells out pins nothing elsewhere.
    """
    if placement == base.scenario.placement.policy:
        return base.problem
    chosen = [*stated, f"placement.policy={placement}", "expect=null"]
    if base.scenario.placement.spelt_out:
        chosen.append("placement.tasks=null")
    scenario, cluster = load(file, chosen), base.problem.cluster
    job = build_job(scenario)
    profile = profile_of(scenario, job, base.realization)
    found = place(scenario, job, cluster, profile=profile)
    return Problem(cluster, job, found.placement)


def _candidate(
    base: Experiment,
    problem: Problem,
    placement: str,
    moves: tuple[Move, ...] = (),
    *,
    policy: str = "",
) -> Candidate:
    policy = policy or base.policy
    return Candidate(
        placement,
        policy,
        makespan(problem, base.realization, policy, profile=base.expected),
        _crossing(problem, base.realization),
        moves
        or difference(
            problem.job,
            problem.cluster,
            base.problem.placement,
            problem.placement,
        ),
    )


def _near(problem: Problem, options: Variants) -> Iterator[Neighbour]:
    """Yield the placements that ``--move`` and ``--swap`` ask for.

    Raises
    ------
    ScenarioError
        When one cannot be read, names what is not there, or breaks a pin or capacity.
    """
    machines = [machine.name for machine in problem.cluster.machines]
    for text in options.moves:
        option = f"--move {text}"
        name, equals, machine = (part.strip() for part in text.partition("="))
        if not (name and equals and machine):
            raise ScenarioError("write --move TASK=MACHINE", file=option)
        if machine not in machines:
            problem_said = f"no machine {machine!r}, {nearest(machine, machines)}"
            raise ScenarioError(problem_said, file=option)
        yield _moved(problem, {_process(problem.job, name, option): machine}, option)
    for text in options.swaps:
        option = f"--swap {text}"
        names = [part.strip() for part in text.split(",")]
        if len(names) != 2 or not all(names):
            raise ScenarioError("write --swap TASK,TASK", file=option)
        one, other = (_process(problem.job, name, option) for name in names)
        there = {
            process: machines[problem.placement.machine_of[members[0]]]
            for process, members in problem.job.processes.items()
        }
        yield _moved(problem, {one: there[other], other: there[one]}, option)


def _process(job: Job, name: str, option: str) -> str:
    try:
        return process_of(job, name)
    except ValueError as error:
        raise ScenarioError(
            f"no task {name!r}, {nearest(name, job.processes)}", file=option
        ) from error


def _moved(problem: Problem, machines: dict[str, str], option: str) -> Neighbour:
    try:
        near = moved(problem, machines)
    except PlacementError as error:
        raise ScenarioError(f"cannot be: {error}", file=option) from error
    if not near.moves:
        raise ScenarioError("moves nothing, it stands there already", file=option)
    return near


def _listed(words: str) -> list[str]:
    return [word.strip() for word in words.split(",") if word.strip()]


def _crossing(problem: Problem, realization: Realization) -> float:
    """Return the share of all bytes that cross between machines."""
    remote = np.array([bool(hops) for hops in problem.hops], dtype=bool)
    total = realization.volumes.sum()
    return float(realization.volumes[remote].sum() / total) if total else 0.0
