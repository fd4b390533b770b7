"""``emu place``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit
from emu.placement import resource_loads
from emu.problem import Problem
from emu.report import placement_table, terminal
from emu.scenario import build_job, load
from emu.scenario import place as place_job
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from emu.placement import PlacementResult


@app.command()
def place(
    file: ScenarioFile,
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Place the job; print which task stands where, and the load on every resource."""
    scenario = load(file, overrides or [])
    cluster, job = scenario.to_cluster(), build_job(scenario)
    found = place_job(scenario, job, cluster)
    problem = Problem(cluster, job, found.placement)
    if emit(json_target, _content(found, problem)):
        console = terminal()
        console.print(placement_table(problem))
        if found.candidates:
            console.print(f"\n{_story(found)}", soft_wrap=True)


def _content(found: PlacementResult, problem: Problem) -> dict[str, object]:
    job, cluster = problem.job, problem.cluster
    names = [cluster.machines[machine].name for machine in found.placement.machine_of]
    return {
        "policy": found.policy,
        "tasks": dict(zip((task.name for task in job.tasks), names, strict=True)),
        "loads": [
            {
                "machine": load.machine,
                "resource": load.resource,
                "used": load.used,
                "capacity": load.capacity if math.isfinite(load.capacity) else None,
            }
            for load in resource_loads(job, cluster, found.placement)
        ],
        "makespan": found.makespan,
        "start_makespan": found.start_makespan,
        "bound": found.bound,
        "candidates": found.candidates,
        "accepted": found.accepted,
        "simulated": found.evaluations,
        "optimal": found.optimal,
    }


def _story(found: PlacementResult) -> str:
    """Return what a search did, in one line."""
    if found.makespan is None or found.start_makespan is None:
        return f"{found.policy}: {found.candidates:,} candidates"
    gained = format_ratio(found.makespan / found.start_makespan - 1)
    proof = ", no placement is better" if found.optimal else ""
    return (
        f"{found.policy}: {format_duration(found.start_makespan)} -> "
        f"[bold]{format_duration(found.makespan)}[/bold] ({gained}) after "
        f"{found.candidates:,} candidates, {found.accepted:,} accepted{proof}"
    )
