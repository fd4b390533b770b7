"""The builder makes the golden jobs out of their plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.prediction.simulation import simulate
from emu.problem import Job, Placement, Problem, Realization, Schedule
from emu.systems.dgcl.job import DgclBuilder, dgcl_job, dgcl_realization
from emu.systems.dgcl.planner import GatherPlan, peer_to_peer
from emu.systems.dgcl.spst import spst
from tests.golden.cases import cases, exactly, problem_of
from tests.systems.dgcl.test_planner import GOLDEN_NEEDS, golden_topology
from tests.systems.sections import section_of

TIMES = {"layer1": 1.0, "layer2": 1.0, "gradient1": 1.0}


def builder_of(
    machines: tuple[str, ...], plan: GatherPlan, *, atomic: bool = False, **keys: Any
) -> DgclBuilder:
    """Return what builds a job with one plan for all of its gathers."""
    layers = keys.pop("layers", 2)
    section = section_of("dgcl", model={"hidden": 4, "layers": layers}, **keys)
    backward = plan.reverse(atomic=atomic)
    return DgclBuilder(section, machines, (plan,) * 3, (backward,) * 3)


def golden(plan: str = "spst", **changes: Any) -> DgclBuilder:
    topology = golden_topology()
    chosen = (
        spst(GOLDEN_NEEDS, topology, seed=0)
        if plan == "spst"
        else peer_to_peer(GOLDEN_NEEDS, 4)
    )
    return builder_of(("d0", "d1", "d2", "d3"), chosen, **changes)


def run(job: Job, realization: Realization, policy: str = "oes") -> Schedule:
    (case,) = cases("dgcl")
    cluster = problem_of(case)[0].cluster
    places = tuple(cluster.index(task.pinned or "d0") for task in job.tasks)
    return simulate(Problem(cluster, job, Placement(places)), realization, policy)


def realized(shape: DgclBuilder) -> Realization:
    return dgcl_realization(shape, TIMES, (4, 4), 40, 1)  # 4 bytes per row


@pytest.mark.parametrize("policy", ["oes", "maxmin"])
def test_the_golden_epoch_is_built(policy: str) -> None:
    (case,) = cases("dgcl")
    problem, stated = problem_of(case)
    shape = golden()
    job, realization = dgcl_job(shape, {}), realized(shape)
    ours, theirs = _edges(job, realization), _edges(problem.job, stated)

    assert {task.name for task in job.tasks} == {t.name for t in problem.job.tasks}
    assert ours == theirs
    schedule = run(job, realization, policy)
    assert schedule.makespan == pytest.approx(134, rel=1e-9)
    for name, ends in case.results[policy]["flow_ends"].items():
        found = schedule.flow_end[job.edge_positions[name]]
        np.testing.assert_allclose(found[~np.isnan(found)], exactly(ends), rtol=1e-9)


def _edges(job: Job, realization: Realization) -> dict[str, tuple[Any, ...]]:
    return {
        f"{job.tasks[edge.source].name}>{job.tasks[edge.destination].name}": (
            edge.lag,
            edge.credit,
            tuple(volumes),
        )
        for edge, volumes in zip(job.edges, realization.volumes.tolist(), strict=True)
    }


@pytest.mark.parametrize(("plan", "seconds"), [("peer_to_peer", 6.0), ("spst", 0.6)])
def test_one_gather_of_the_golden_devices(plan: str, seconds: float) -> None:
    shape = golden(plan, epochs=1)
    quiet = dgcl_realization(shape, {}, (1, 1), 0, 1)  # a byte per row, no weights
    schedule = run(dgcl_job(shape, {}), quiet)
    job = schedule.problem.job
    ends = [
        float(schedule.task_end[j, 0])
        for j, task in enumerate(job.tasks)
        if task.kind == "layer2"
    ]
    assert max(ends) == pytest.approx(seconds, rel=1e-9)


def test_layers_gates_and_sub_stages() -> None:
    shape = golden("peer_to_peer", layers=3, cache_features=False)
    names = {task.name for task in dgcl_job(shape, {}).tasks}
    assert {"d0.f0@1", "d0.f0", "f0.0to2@3", "d3.b0@3", "d2.grad2"} <= names
    assert not any(name.endswith("@1") and ".b" in name for name in names)

    central = golden("spst", coordination="central")
    job = dgcl_job(central, {})
    gates = [task.name for task in job.tasks if task.gate]
    assert gates == ["f1.gate", "f2.gate", "f3.gate", "b1.gate", "b2.gate", "b3.gate"]
    free = run(dgcl_job(golden("spst"), {}), realized(golden("spst"))).makespan
    assert run(job, realized(central)).makespan >= free
    slow = dgcl_realization(central, {**TIMES, "coordination": 1.0}, (4, 4), 40, 1)
    assert run(job, slow).makespan == pytest.approx(
        run(job, realized(central)).makespan + 12, rel=1e-9
    )


def test_one_device_gathers_nothing() -> None:
    from tests.systems.dgcl.test_planner import needs_of

    plan = peer_to_peer(needs_of([]), 1)
    shape = builder_of(("d0",), plan, epochs=3)
    realization = realized(shape)
    assert not realization.volumes.any()
    assert run(dgcl_job(shape, {}), realization).makespan == pytest.approx(9.0)
