"""Keys of dgcl, and plans that are kept and checked when they are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emu.errors import DataError, ScenarioError
from emu.graph_data import open_parts
from emu.graph_data.data_inventory import kept_data
from emu.graph_data.prepared import PreparedArrays, prepare_arrays
from emu.scenario import prepare
from emu.scenario.realize import build_job, realize
from emu.scenario.scenario_file import loads
from emu.systems.dgcl import plans
from emu.systems.dgcl.planner import Plan, check_plan
from emu.systems.dgcl.planner.plan import plan_of
from emu.systems.dgcl.plans import (
    needs_of,
    open_plan,
    read_plan,
    read_topology,
    write_plan,
)
from emu.systems.registry import remarks_on

if TYPE_CHECKING:
    from pathlib import Path

    from emu.scenario.scenario import Scenario

TEXT = """
cluster: {{topology: {topology}}}
job:
  system: dgcl
  dataset: {{name: products-like, scale: 0.0004}}
  model: {{kind: gcn, hidden: 16, layers: 2}}
  epochs: 2
  times: {{forward: 2 ms, backward: 4 ms}}
  {more}
"""


def scenario_of(more: str = "", topology: str = "dgx1") -> Scenario:
    return loads(TEXT.format(topology=topology, more=more))


@pytest.mark.parametrize(
    "more",
    [
        "plan: spst",
        "plan: peer_to_peer",
        "plan: best_of",
        "backward: atomic",
        "coordination: central",
        "cache_features: false",
        "plan_sweeps: 2",
        "partitioner: hash",
        "machines: [d3, d0, d5]",
        "machines: [d3]",
    ],
)
def test_a_job_follows_from_its_plan(more: str) -> None:
    scenario = scenario_of(more)
    job = build_job(scenario)
    realization = realize(scenario, job)
    plan = open_plan(job.settings)
    _, graph = open_parts(job.settings)
    needs = needs_of(graph)
    topology = read_topology(job.settings["topology"])
    check_plan(plan, needs, topology)
    sent = {
        (job.tasks[e.source].kind, job.tasks[e.destination].kind): 0.0
        for e in job.edges
    }
    for edge, volume in zip(job.edges, realization.volumes[:, 0], strict=True):
        kinds = (job.tasks[edge.source].kind, job.tasks[edge.destination].kind)
        sent[kinds] += volume
    rows = plan.counts.sum()

    width = 16 if job.settings["cache_features"] else 16 + 100
    assert rows >= needs.pairs
    assert sent.get(("gather", "gathered"), 0) == 4 * rows * width
    assert sent.get(("scatter", "scattered"), 0) == 4 * rows * 16
    assert {task.pinned for task in job.tasks if not task.gate} == {
        *(scenario.job.machines or (f"d{i}" for i in range(8)))  # type: ignore[attr-defined]
    }


def test_without_data_a_job_has_its_kinds() -> None:
    kinds = {task.kind for task in scenario_of().to_job(train_vertices=1).tasks}
    assert {"layer1", "layer2", "gradient1", "gather", "scatter"} <= kinds


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("fanouts: [5, 5]", "fanouts"),
        ("batch_size: 5", "batch_size"),
        ("plan: best", "plan"),
        ("plan_sweeps: -1", "plan_sweeps"),
        ("partitioner: hierarchical", "hierarchical"),
        ("machines: [d9]", "no machine 'd9'"),
    ],
)
def test_bad_keys_are_one_error(more: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        scenario_of(more)


def test_times_must_be_there_and_fit() -> None:
    with pytest.raises(ScenarioError, match=r"times.*forward"):
        loads(TEXT.format(topology="dgx1", more="").replace("forward: 2 ms,", ""))
    three = TEXT.replace("forward: 2 ms", "forward: [1 ms, 2 ms, 3 ms]")
    with pytest.raises(ScenarioError, match="3 times for a model of 2 layers"):
        loads(three.format(topology="dgx1", more=""))
    waiting = TEXT.replace("forward: 2 ms", "forward: 2 ms, coordination: 1 ms")
    with pytest.raises(ScenarioError, match="write coordination: central"):
        loads(waiting.format(topology="dgx1", more=""))


def test_a_plan_is_kept_and_used_again() -> None:
    settings = build_job(scenario_of()).settings
    plan = open_plan(settings)
    other = build_job(scenario_of("plan_seed: 7")).settings

    assert open_plan(settings) is plan
    assert open_plan(other) is not plan


def _kept(tmp_path: Path, plan: Plan, facts: dict[str, Any]) -> PreparedArrays:
    return prepare_arrays(tmp_path / "kept", lambda p: write_plan(p, plan, facts))


@pytest.mark.parametrize("of", ["parts", "key"])
def test_a_plan_of_something_else_is_an_error(tmp_path: Path, of: str) -> None:
    settings = build_job(scenario_of()).settings
    plan, (_, graph) = open_plan(settings), open_parts(settings)
    needs, topology = needs_of(graph), read_topology(settings["topology"])
    facts = {"parts": "a", "key": "b"}
    kept = _kept(tmp_path, plan, facts)

    np.testing.assert_array_equal(
        read_plan(kept, facts, needs, topology).rows, plan.rows
    )
    with pytest.raises(DataError, match=f"is a plan of {of}"):
        read_plan(kept, {**facts, of: "c"}, needs, topology)


@pytest.mark.parametrize("damage", ["cycle", "dropped", "stage"])
def test_a_damaged_plan_is_an_error(tmp_path: Path, damage: str) -> None:
    settings = build_job(scenario_of()).settings
    plan, (_, graph) = open_plan(settings), open_parts(settings)
    needs, topology = needs_of(graph), read_topology(settings["topology"])
    tables = [*plan]
    stage, sender, receiver, rows = tables[0]
    if damage == "cycle":  # rows go back to where they came from
        tables = [one for one in tables if one[:3] != (stage + 1, receiver, sender)]
        tables.append((stage + 1, receiver, sender, rows))
    elif damage == "dropped":
        tables[0] = (stage, sender, receiver, rows[1:])
    else:
        tables = [(one[0] + 1, *one[1:]) for one in tables]
    damaged = plan_of(plan.devices, sorted(tables, key=lambda one: one[:3]))
    with pytest.raises(DataError, match="is no plan"):
        read_plan(
            _kept(tmp_path, damaged, {}),
            {},
            needs,
            topology,
        )


def test_gathers_are_told_beside_the_cost_of_their_plan() -> None:
    lines = remarks_on({"simulated": prepare(scenario_of()).simulate()})

    assert [line.partition(":")[0] for line in lines] == [
        "gather of layer 2, forward",
        "gather of layer 2, backward",
    ]
    assert all("t(S) " in line and ", simulated " in line for line in lines)


def test_a_line_where_planning_cannot_pay() -> None:
    lines = remarks_on(
        {"simulated": prepare(scenario_of("machines: [d0, d3]")).simulate()}
    )

    assert lines[0] == "no link is shared or slow: peer-to-peer is as good"
    costs = [line.split("t(S) ")[1].split(", simulated ") for line in lines[1:]]
    assert all(cost == simulated for cost, simulated in costs)


def test_the_oldest_plans_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_KEPT", 2)
    order = [1000, 1001, 1000, 1002, 1003, 1000]
    jobs = [build_job(scenario_of(f"plan_seed: {seed}")) for seed in order]

    parts = open_parts(jobs[0].settings)[0].folder
    kept = [one for one in parts.parent.glob(f"{parts.name}-plan-*") if one.is_dir()]
    assert len(kept) == 2
    assert jobs[0].edges == jobs[-1].edges


def test_a_plan_is_listed_with_the_data_that_it_is_of() -> None:
    build_job(scenario_of())

    assert ("products-like", "plan") in {(one.name, one.origin) for one in kept_data()}
