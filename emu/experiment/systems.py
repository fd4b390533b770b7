"""One scenario as several systems: what each would take, and where the best changes.

The same graph, cluster, model, mini-batches and seeds; keys that only one system has
keep their defaults in the others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from emu.analysis.bounds import bounds
from emu.analysis.critical_path import critical_path
from emu.errors import ScenarioError
from emu.report import SystemResult
from emu.scenario import load, prepare
from emu.scenario.p3_section import DataParallelJobSection, P3JobSection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emu.problem import Schedule
    from emu.scenario import Scenario
    from emu.scenario.p3_section import ReplicaSection

#: The systems that a scenario can be turned into.
SYSTEMS: dict[str, type[ReplicaSection]] = {
    "data_parallel": DataParallelJobSection,
    "p3": P3JobSection,
}


def as_system(
    scenario: Scenario, system: str, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Return a scenario of P3 or data parallel training as the other of them.

    Parameters
    ----------
    overrides
        Keys of the changed scenario, as for `load`.

    Raises
    ------
    ScenarioError
        When either is another system, or the changed scenario is wrong.
    """
    for name in (scenario.job.system, system):
        if name not in SYSTEMS:
            raise ScenarioError(
                f"{name!r} is not among the systems that can be compared: "
                f"{', '.join(SYSTEMS)}",
                file=scenario.name,
                key="job.system",
            )
    known = SYSTEMS[system].model_fields.keys()
    job = {k: v for k, v in scenario.to_json()["job"].items() if k in known}
    changed = {"job": {**job, "system": system}, "expect": None}
    return load(scenario, {**changed, **(overrides or {})})


def measure(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    seeds: int = 1,
) -> SystemResult:
    """Simulate a scenario as one of the systems, with its seed and those that follow.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `as_system` and `prepare`.
    """
    makespans: dict[int, float] = {}
    limit, busiest = "", 0.0
    for seed in range(scenario.seed, scenario.seed + seeds):
        ready = prepare(
            as_system(scenario, system, {**(overrides or {}), "seed": seed})
        )
        schedule = ready.simulate()
        if not makespans:
            limit = limit_of(schedule)
            busiest = bounds(ready.problem, ready.realization).nic_load
        makespans[seed] = schedule.makespan
    return SystemResult(system, makespans, limit, busiest)


def limit_of(schedule: Schedule) -> str:
    """Return what holds back most of the critical path, such as ``m0 in, 81 %``."""
    problem = schedule.problem
    seconds: dict[str, float] = defaultdict(float)
    for link in critical_path(schedule).links:
        if link.port >= 0:
            name = problem.links[link.port].name
        else:
            task = problem.job.edges[link.edge].source if link.edge >= 0 else link.task
            machine = problem.cluster.machines[problem.placement.machine_of[task]]
            name = f"computing on {machine.name}"
        seconds[name] += link.end - link.start
    if not schedule.makespan:
        return "nothing"
    most = max(seconds, key=seconds.__getitem__)
    return f"{most}, {seconds[most] / schedule.makespan:.0%}"


def compare_systems(
    scenario: Scenario, systems: Sequence[str], seeds: int = 1
) -> list[SystemResult]:
    """Return what every system is simulated to take, in the order given.

    Raises
    ------
    ScenarioError, PlacementError, DataError
        As `measure`.
    """
    return [measure(scenario, system, seeds=seeds) for system in systems]
