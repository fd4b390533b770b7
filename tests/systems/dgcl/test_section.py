"""Keys of dgcl, and plans that are kept and checked when they are opened."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError, ScenarioError
from emu.graph_data import open_layers, open_parts
from emu.graph_data.prepared import PreparedArrays, prepare_arrays
from emu.graph_data.sources import list_data
from emu.scenario import load, prepare
from emu.scenario.realize import build_job, realize
from emu.scenario.scenario import Scenario
from emu.scenario.scenario_file import loads
from emu.systems.dgcl import plans
from emu.systems.dgcl.planner import (
    GatherPlan,
    Needs,
    Topology,
    check_plan,
    plan_of,
)
from emu.systems.dgcl.plans import (
    needs_of,
    needs_of_settings,
    open_plans,
    read_plans,
    read_topology,
    write_plans,
)
from emu.systems.system import outlook_on, remarks_on
from emu.units import DURATION

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
        "plan: swap",
        "plan: swap\n  machines: [d3, d0, d5]",
    ],
)
def test_a_job_follows_from_its_plan(more: str) -> None:
    scenario = scenario_of(more)
    job = build_job(scenario)
    realization = realize(scenario, job)
    plan, _ = open_plans(job.settings)
    (needs,) = needs_of_settings(job.settings)
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
    swapped = ["host"] if "swap" in more else []
    assert {task.pinned for task in job.tasks if not task.gate} == {
        *(scenario.job.machines or (f"d{i}" for i in range(8))),
        *swapped,
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
        ("plan: dgcl_r", "dgcl_r without boxes to replicate between"),
        ("plan: swap\n  host: d9", "swap without a machine 'd9'"),
        ("plan: swap\n  host: d1\n  machines: [d0, d1]", "'d1' holds a part"),
        ("plan: replication\n  cache_features: false", "where no row travels"),
    ],
)
def test_bad_keys_are_one_error(more: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        scenario_of(more)


def test_a_plan_has_at_most_62_devices() -> None:
    machines = "cluster: {{machines: [{{name: d, count: {count}, nic: 1 Gbit/s}}]}}"
    text = TEXT.replace("cluster: {{topology: {topology}}}", machines)
    assert len(loads(text.format(count=62, more="")).cluster.names) == 62
    with pytest.raises(ScenarioError, match="found 63 devices, a plan has at most 62"):
        loads(text.format(count=63, more=""))


@pytest.mark.parametrize("names", [("d3",), ("d0", "d3", "d5")])
def test_a_job_has_no_fewer_edges_than_are_counted_without_its_data(
    names: tuple[str, ...],
) -> None:
    """Counted are those of the machines that take part, not of all eight."""
    scenario = scenario_of(f"machines: [{', '.join(names)}]")
    least = scenario.job.least_edges(names)
    assert scenario.job.least_edges(scenario.cluster.names) == least
    assert 1 <= least <= len(build_job(scenario).edges)


def test_swap_of_two_boxes_has_no_host() -> None:
    with pytest.raises(ScenarioError, match="swap without a machine 'host'"):
        scenario_of("plan: swap", topology="two_dgx1")


RING = """
machines: [{name: a, nic: none}, {name: b, nic: none}, {name: c, nic: none}]
links: [{name: ab, bandwidth: RATE}, {name: bc, bandwidth: 1 GB/s},
        {name: ca, bandwidth: 1 GB/s}]
routes:
  - {from: a, to: b, through: [ab]}
  - {from: b, to: c, through: [bc]}
  - {from: c, to: a, through: [ca]}
"""
BACK = """
  - {from: b, to: a, through: [bc, ca]}
  - {from: c, to: b, through: [ca, ab]}
  - {from: a, to: c, through: [ab, bc]}
"""


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        (RING.replace("RATE", "1 GB/s"), "every route .* must be stated"),
        (RING.replace("RATE", "0 GB/s") + BACK.lstrip("\n"), "bandwidth"),
    ],
    ids=["out of reach", "a link of 0"],
)
def test_a_bad_topology_is_one_error(tmp_path: Path, links: str, problem: str) -> None:
    (tmp_path / "ring.yaml").write_text(links)
    with pytest.raises(ScenarioError, match=problem):
        scenario_of(topology=str(tmp_path / "ring.yaml"))


def test_one_way_links_carry_a_ring_of_rows(tmp_path: Path) -> None:
    links = RING.replace("RATE", "1 GB/s") + BACK.lstrip("\n")
    (tmp_path / "ring.yaml").write_text(links)
    scenario = scenario_of(topology=str(tmp_path / "ring.yaml"))
    plan = open_plans(build_job(scenario).settings)[0]

    assert plan.stages > 0
    assert prepare(scenario).simulate().makespan > 0


SLOW = """
machines: [{name: a, nic: none}, {name: b, nic: none}, {name: c, nic: none, device: x}]
links:
  - {name: ab, bandwidth: 1 MB/s, latency: LATE}
  - {name: bc, bandwidth: 1 GB/s, latency: LATE}
  - {name: ca, bandwidth: 1 GB/s, latency: LATE}
routes:
  - {from: [a, b], to: [a, b], through: [ab]}
  - {from: [b, c], to: [b, c], through: [bc]}
  - {from: [c, a], to: [c, a], through: [ca]}
"""


@pytest.mark.parametrize("policy", ["oes", "fifo"])
@pytest.mark.parametrize(
    ("latency", "best"), [("0 s", "spst"), ("100 ms", "peer_to_peer")]
)
def test_best_of_simulates_and_asks_no_cost(
    tmp_path: Path, latency: str, best: str, policy: str
) -> None:
    """A way round the slow link has the lower t(S), and pays latencies twice.

    What it simulates is the job itself, of devices and under the rule of the file.
    """
    (tmp_path / "slow.yaml").write_text(SLOW.replace("LATE", latency))
    text = TEXT.replace("forward: 2 ms", "forward: {{default: 2 ms, x: 5 ms}}")
    scenario = loads(text.format(topology=tmp_path / "slow.yaml", more=""))
    kinds = ("peer_to_peer", "spst", "best_of")
    ready = {
        kind: prepare(load(scenario, {"job.plan": kind, "schedule.policy": policy}))
        for kind in kinds
    }
    makespans = {kind: one.simulate().makespan for kind, one in ready.items()}
    settings = {kind: one.problem.job.settings for kind, one in ready.items()}
    topology = read_topology(settings["spst"]["topology"])
    costs = {kind: open_plans(settings[kind])[0].cost(topology) for kind in kinds[:2]}

    assert min(costs, key=costs.__getitem__) == "spst"
    assert settings["best_of"]["plan"]["kind"] == best
    assert makespans["best_of"] == min(makespans.values()) == makespans[best]
    seconds = settings["best_of"]["best_of"]  # of two epochs, which the job has
    assert seconds == {kind: makespans[kind] for kind in kinds[:2]}
    (line, *_) = outlook_on(settings["best_of"])
    assert line.startswith(f"best_of takes {best}: 2 epochs take ")


def test_replicas_take_time_by_their_edges() -> None:
    scenario = scenario_of("plan: replication\n  machines: [d0, d4]")
    job = build_job(scenario)
    times = dict(
        zip(
            [task.name for task in job.tasks],
            realize(scenario, job).times[:, 0],
            strict=True,
        )
    )
    _, graphs = open_layers(job.settings)
    for rank in (0, 1):
        edges = [graph.part(rank).forward.indptr[-1] for graph in graphs]
        factor = edges[0] / edges[1]
        assert factor > 1
        assert times[f"d{rank}.layer1"] == pytest.approx(0.002 * factor)
        assert times[f"d{rank}.grad1"] == pytest.approx(0.004 * factor)
        assert times[f"d{rank}.layer2"] == 0.006


def test_what_is_said_before_a_run() -> None:
    def said(more: str) -> list[str]:
        return outlook_on(build_job(scenario_of(more)).settings)

    assert said("") == said("plan: swap") == []
    assert said("machines: [d0, d3]") == [
        "SPST finds no plan of a lower t(S) than peer-to-peer's"
    ]
    assert said("machines: [d3]") == said("machines: [d0, d3]")


def test_devices_keep_all_that_their_vertices_need_two_layers_down() -> None:
    settings = build_job(
        scenario_of("plan: replication\n  machines: [d0, d5]")
    ).settings
    dataset, _ = open_layers(settings)
    kept = 0
    for device in range(2):
        reached = np.flatnonzero(np.asarray(dataset.owner) == device)
        for _ in range(2):
            _, near = dataset.structure.neighbours(reached)
            reached = np.union1d(reached, near)
        kept += len(reached)

    factor = f"{kept / dataset.vertices:.2f}"
    assert outlook_on(settings) == [
        f"devices keep {factor} times the vertices (replication factor)"
    ]


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
    (plan, _) = open_plans(settings)
    other = build_job(scenario_of("plan_seed: 7")).settings

    assert open_plans(settings)[0] is plan
    assert open_plans(other)[0] is not plan


def _kept(tmp_path: Path, plan: GatherPlan, facts: dict[str, Any]) -> PreparedArrays:
    return prepare_arrays(tmp_path / "kept", lambda p: write_plans(p, [plan], facts))


@pytest.mark.parametrize("of", ["parts", "key"])
def test_a_plan_of_something_else_is_an_error(tmp_path: Path, of: str) -> None:
    settings = build_job(scenario_of()).settings
    (plan, _), (_, graph) = open_plans(settings), open_parts(settings)
    needs, topology = needs_of(graph), read_topology(settings["topology"])
    facts = {"parts": "a", "key": "b"}
    kept = _kept(tmp_path, plan, facts)

    np.testing.assert_array_equal(
        read_plans(kept, facts, [needs], topology)[0].rows, plan.rows
    )
    with pytest.raises(DataError, match=f"is a plan of {of}"):
        read_plans(kept, {**facts, of: "c"}, [needs], topology)


@pytest.mark.parametrize("damage", ["cycle", "dropped", "stage"])
def test_a_damaged_plan_is_an_error(tmp_path: Path, damage: str) -> None:
    settings = build_job(scenario_of()).settings
    (plan, _), (_, graph) = open_plans(settings), open_parts(settings)
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
        read_plans(_kept(tmp_path, damaged, {}), {}, [needs], topology)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"rows": np.zeros(3, np.int32)},
            "of types int32, int64, int32",
        ),
        ({"bounds": np.array([[0, 3]])}, r"its arrays have shapes \(2, 3\), \(1, 2\)"),
        ({"transfers": np.zeros((1, 3), np.int32)}, "its arrays have shapes"),
        ({"bounds": np.array([1, 2, 3])}, "bounds do not divide its rows"),
        ({"bounds": np.array([0, 2, 2])}, "bounds do not divide its rows"),
        ({"bounds": np.array([0, 4, 3])}, "bounds do not divide its rows"),
        ({"transfers": [(1, 0, 1), (0, 1, 2)]}, "stages are not ascending"),
        (
            {
                "transfers": [(0, 0, 1), (2, 1, 2), (1, 0, 2)],
                "bounds": np.array([0, 2, 3, 3]),
            },
            "stages are not ascending",
        ),
        ({"transfers": [(-1, 0, 1), (0, 1, 2)]}, "beyond any tree's depth"),
        ({"transfers": [(0, 0, 1), (3, 1, 2)]}, "beyond any tree's depth"),
    ],
)
def test_arrays_that_are_those_of_no_plan(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    """Read three rows, of which the first two go to device 1 and one to device 2."""
    arrays = {
        "transfers": [(0, 0, 1), (2, 1, 2)],
        "bounds": np.array([0, 2, 3]),
        "rows": np.array([4, 6, 6]),
        **changes,
    }
    arrays["transfers"] = np.array(arrays["transfers"], np.int32)
    plan = GatherPlan(devices=3, **arrays)
    topology = Topology(3, (), np.empty(0), {})
    needs = Needs(np.array([6]), np.array([0], np.int32), np.array([0b10]))

    with pytest.raises(DataError, match=problem):
        read_plans(_kept(tmp_path, plan, {}), {}, [needs], topology)


def said_of(scenario: Scenario) -> list[str]:
    ready = prepare(scenario)
    return remarks_on({"simulated": ready.simulate()}, ready.policy)


def figures_of(line: str) -> list[float]:
    """Return t(S), the simulated time beside it, and that with waits."""
    found = re.findall(r"(?:t\(S\)|simulated) ([^,;]+)", line.partition("; no plan")[0])
    return [DURATION.parse(text) for text in found]


def test_gathers_are_told_beside_the_cost_of_their_plan() -> None:
    lines = said_of(scenario_of())

    assert [line.partition(":")[0] for line in lines] == [
        "gather of layer 2, forward",
        "gather of layer 2, backward",
    ]
    assert all(len(figures_of(line)) == 3 for line in lines)


@pytest.mark.parametrize("seed", range(6))
def test_what_stands_beside_the_cost_waits_for_nobody(seed: int) -> None:
    """Drawn times, slow devices and links that change move the last figure alone."""
    rng = np.random.default_rng(seed)
    plan = rng.choice(["spst", "peer_to_peer"])
    kinds = ("forward", "backward", "gather", "scatter", "receive")
    times = {f"job.times.{kind}": f"{rng.integers(1, 90)} us" for kind in kinds}
    device = f"d{rng.integers(8)}"
    slow = {"events": [{"at": "1 ns", "slow": device, "by": int(rng.integers(2, 5))}]}
    once = load(scenario_of(f"plan: {plan}"), {"job.epochs": 1})
    idle = [figures_of(one) for one in said_of(load(once, dict.fromkeys(times, "0 s")))]
    busy = [figures_of(one) for one in said_of(load(once, {**times, **slow}))]

    assert [one[:2] for one in busy] == [one[:2] for one in idle]
    assert all(0.7 * cost < alone < 1.4 * cost for cost, alone, _ in idle)
    assert all(waited > alone for _, alone, waited in busy)


def test_a_gather_waits_from_the_last_beginning_to_the_last_end_of_a_device() -> None:
    """In the mean of both epochs; devices are unequal, and links of some slow."""
    slow = {"events": [{"at": "1 ns", "slow": "d5", "by": 3}]}
    ready = prepare(load(scenario_of("plan: peer_to_peer"), slow))
    schedule = ready.simulate()
    seconds = []
    distinct_ends = set[float]()
    for epoch in range(2):
        begins = dict.fromkeys(range(8), math.inf)
        ends = dict.fromkeys(range(8), 0.0)
        for position, task in enumerate(schedule.problem.job.tasks):
            if task.kind == "gather":
                device = int(task.process_name[1:].partition(".")[0])
                begin = schedule.task_start[position, epoch]
                begins[device] = min(begins[device], begin)
                end = schedule.task_end[position, epoch]
                ends[device] = max(ends[device], end)
        seconds.append(max(ends.values()) - max(begins.values()))
        distinct_ends.update(ends.values())
    line = remarks_on({"simulated": schedule}, ready.policy)[0]
    assert len(distinct_ends) > 2
    assert figures_of(line)[2] == pytest.approx(sum(seconds) / 2, rel=1e-3)


def test_waiting_for_a_slow_device_is_no_part_of_a_gather() -> None:
    slow = {"events": [{"at": "1 ns", "slow": "d5", "by": 3}]}
    level, held_up = scenario_of(), load(scenario_of(), slow)
    assert figures_of(said_of(held_up)[0])[2] <= figures_of(said_of(level)[0])[2]


def test_a_line_where_planning_cannot_pay() -> None:
    lines = said_of(scenario_of("machines: [d0, d3]"))

    assert lines[0] == "SPST finds no plan of a lower t(S) than peer-to-peer's"
    told = [re.findall(r"(?:: t\(S\)|simulated|below) ([^,;]+)", s) for s in lines[1:]]
    assert [len(some) for some in told] == [4, 3]
    assert all(len({*some}) == 1 for some in told)  # the bound, too


def test_the_oldest_plans_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # whatever others have kept
    monkeypatch.setattr(plans, "MOST_KEPT", 2)
    order = [1000, 1001, 1000, 1002, 1003, 1000]
    jobs = [build_job(scenario_of(f"plan_seed: {seed}")) for seed in order]

    parts = open_parts(jobs[0].settings)[0].folder
    kept = [one for one in parts.parent.glob(f"{parts.name}-plan-*") if one.is_dir()]
    assert len(kept) == 2
    assert jobs[0].edges == jobs[-1].edges


def test_a_plan_is_listed_with_the_data_that_it_is_of() -> None:
    build_job(scenario_of())

    assert ("products-like", "plan") in {(one.name, one.origin) for one in list_data()}
