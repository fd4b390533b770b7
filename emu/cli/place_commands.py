"""``emu place``."""

from __future__ import annotations

from emu.cli.app import app
from emu.cli.options import JsonTarget, Overrides, ScenarioFile, emit
from emu.placement import resource_loads
from emu.problem import Problem
from emu.report import placement_table, terminal
from emu.scenario import build_job, load
from emu.scenario import place as place_job


@app.command()
def place(
    file: ScenarioFile,
    overrides: Overrides = None,
    json_target: JsonTarget = None,
) -> None:
    """Place the job; print which task stands where, and the load on every resource."""
    scenario = load(file, overrides or [])
    cluster, job = scenario.to_cluster(), build_job(scenario)
    placement = place_job(scenario, job, cluster)
    loads = resource_loads(job, cluster, placement)
    names = [cluster.machines[machine].name for machine in placement.machine_of]
    content = {
        "policy": scenario.placement.policy,
        "tasks": dict(zip((task.name for task in job.tasks), names, strict=True)),
        "loads": [
            {
                "machine": load.machine,
                "resource": load.resource,
                "used": load.used,
                "capacity": load.capacity if load.capacity < float("inf") else None,
            }
            for load in loads
        ],
    }
    if emit(json_target, content):
        terminal().print(placement_table(Problem(cluster, job, placement)))
