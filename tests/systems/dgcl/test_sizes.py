"""Times, operations and memory of a DGCL job by hand, in layers of unequal widths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from emu.graph_data import open_layers
from emu.problem.workloads.operations import OPERATIONS
from emu.scenario import load, prepare
from emu.scenario.realize import build_job, realize
from emu.scenario.scenario import Scenario
from emu.systems.dgcl.plans import open_plans, read_topology
from emu.systems.system import remarks_on
from emu.units import format_duration
from tests.systems.dgcl.test_section import scenario_of

#: Numbers of a row, from the features to the classes.
WIDTHS = (100, 16, 20, 47)
DEVICES = range(3)


def three_layers(more: str = "") -> Scenario:
    keys = "machines: [d3, d0, d5]\n  coordination: central"
    scenario = scenario_of(f"{keys}\n  {more}")
    times = {
        "forward": ("1 ms", "2 ms", "4 ms"),
        "backward": ("8 ms", "16 ms", "32 ms"),
        "gather": "64 ms",
        "scatter": "128 ms",
        "receive": "256 ms",
        "coordination": "512 ms",
    }
    return load(scenario, {"job.model.layers": 3, "job.times": times})


def test_times_are_of_the_layer_and_the_way() -> None:
    scenario = three_layers()
    job = build_job(scenario)
    seconds = realize(scenario, job).times
    found: dict[str, set[float]] = {}
    for task, row in zip(job.tasks, seconds.tolist(), strict=True):
        found.setdefault(task.kind, set()).update(row)
    assert found.pop("all_reduce") == {0.0}
    expected = {
        "layer1": 1,
        "layer2": 2,
        "layer3": 4 + 32,
        "gradient1": 8,
        "gradient2": 16,
        "gather": 64,
        "scatter": 128,
        "gathered": 256,
        "scattered": 256,
        "coordination": 512,
    }
    for kind, time in expected.items():
        assert [*found.pop(kind)] == pytest.approx([time / 1000]), kind
    assert not found


@pytest.mark.parametrize("replicas", ["", "plan: replication"])
def test_memory_has_all_that_a_device_holds_and_computes(replicas: str) -> None:
    """Layers are 16, 16 and 47 wide: rows of others come before the last two."""
    scenario = three_layers(replicas)
    job = build_job(scenario)
    found = scenario.job.device_memory(job, scenario.build_context())

    _, graphs = open_layers(job.settings)
    parameters = 100 * 16 + 16 + 16 * 16 + 16 + 16 * 47 + 47
    for rank in DEVICES:
        first, second, third = (graph.part(rank) for graph in graphs)
        local = [len(part.local) for part in (first, second, third)]
        remote = [len(part.remote) for part in (second, third)]
        numbers = 16 * local[0] + 16 * local[1] + 47 * local[2]
        numbers += 16 * remote[0] + 16 * remote[1]
        assert found[f"d{rank}.layer1"] == {
            "features": 4.0 * 100 * (local[0] + len(first.remote)),
            "rows of layers": 4.0 * 2 * numbers,
            "weights": 4.0 * 4 * parameters,
        }


def counts_of(scenario: Scenario, job: Any) -> dict[str, dict[str, float]]:
    """Return operation -> task -> count in an epoch."""
    volumes = realize(scenario, job).volumes
    context = scenario.build_context()
    counts = scenario.job.count_operations(job, context, volumes).counts
    names = [task.name for task in job.tasks]
    return {
        operation: dict(zip(names, rows[:, 0].tolist(), strict=True))
        for operation, rows in zip(OPERATIONS, counts, strict=True)
    }


@pytest.mark.parametrize("plan", ["spst", "replication"])
def test_operations_are_of_a_devices_vertices_and_edges(plan: str) -> None:
    """Rows of 100 numbers are multiplied first, into 16; others are added up first."""
    scenario = three_layers(f"plan: {plan}")
    job = build_job(scenario)
    counts = counts_of(scenario, job)
    multiply, aggregate = counts["multiply"], counts["aggregate"]
    _, graphs = open_layers(job.settings)
    sizes = set()
    for rank in DEVICES:
        parts = [graph.part(rank) for graph in graphs]
        local = [len(part.local) for part in parts]
        edges = [int(part.forward.indptr[-1]) for part in parts]
        rows = local[0] + len(parts[0].remote)
        sizes |= {*local, *edges, rows}
        d = f"d{rank}"
        assert multiply[f"{d}.layer1"] == rows * 100 * 16
        # Features need no gradient: one product back, of two.
        assert multiply[f"{d}.grad1"] == rows * 100 * 16
        assert multiply[f"{d}.layer2"] == local[1] * 16 * 16
        assert multiply[f"{d}.grad2"] == 2 * local[1] * 16 * 16
        assert multiply[f"{d}.layer3"] == 3 * local[2] * 16 * 47
        assert aggregate[f"{d}.layer1"] == aggregate[f"{d}.grad1"] == edges[0] * 16
        assert aggregate[f"{d}.layer2"] == aggregate[f"{d}.grad2"] == edges[1] * 16
        assert aggregate[f"{d}.layer3"] == 2 * edges[2] * 16
        assert counts["launch"][f"{d}.layer3"] == 2
        assert counts["launch"][f"{d}.grad1"] == counts["launch"][f"{d}.layer1"] == 1
        parameters = 100 * 16 + 16 + 16 * 16 + 16 + 16 * 47 + 47
        assert counts["step"][f"{d}.layer1"] >= parameters
        assert counts["step"][f"{d}.layer2"] == counts["step"][f"{d}.grad1"] == 0
    # Replicas make every layer another size.
    assert len(sizes) > (12 if plan == "replication" else 7)


def test_rates_count_real_bytes_whatever_stands_for_one() -> None:
    names = ("aggregate", "multiply", "sample", "collect", "step", "launch")
    rates = {"job.rates": dict.fromkeys(names, "1 ns"), "job.times": None}
    keys = {"job.coordination": "decentralized", **rates}
    seconds = []
    for scale in (1.0, 0.25):
        changed = load(three_layers(), {**keys, "emulation.byte_scale": scale})
        seconds.append(realize(changed, build_job(changed)).times)
    real, scaled = seconds
    np.testing.assert_array_equal(real, scaled)
    assert real.any()


KINDS = {
    "d0.layer1": "layer1",
    "d0.layer2": "layer2",
    "d0.layer3": "layer3",
    "d0.grad1": "gradient1",
    "d0.grad2": "gradient2",
    "d0.f0": "gather",
    "d1.f0": "gather",
    "f0.0to1": "gathered",
    "b0.0to1": "scattered",
}


@pytest.mark.parametrize(
    ("wanted", "covered", "times"),
    [
        # Of a kind all, or none.
        ({"d0.f0", "d1.f0"}, None, {"gather": 0.64}),
        ({"d0.f0"}, set(), {}),
        # One key is the time of both ways of a transfer.
        ({"f0.0to1"}, set(), {}),
        ({"f0.0to1", "b0.0to1"}, None, {"receive": 2.56}),
        # Times of other layers are written out beside it.
        ({"d0.layer2"}, None, {"forward": ["1 ms", 0.02, "4 ms"]}),
        ({"d0.layer1", "d0.layer2"}, None, {"forward": [0.01, 0.02, "4 ms"]}),
        ({"d0.grad1"}, None, {"backward": [0.08, "16 ms", "32 ms"]}),
        # The last layer goes on to its own backward pass.
        (
            {"d0.layer3"},
            None,
            {"forward": ["1 ms", "2 ms", 0.04], "backward": ["8 ms", "16 ms", 0.32]},
        ),
    ],
)
def test_times_are_scaled_by_the_keys_that_they_have(
    wanted: set[str], covered: set[str] | None, times: dict[str, Any]
) -> None:
    section = three_layers().job
    edit, found = section.scale_times(KINDS, wanted, lambda time: 10 * time)
    assert found == (wanted if covered is None else covered)
    rows = {key.removeprefix("job.times."): value for key, value in edit.items()}
    assert rows.keys() == times.keys()
    for key, expected in times.items():
        if not isinstance(expected, list):
            assert rows[key] == pytest.approx(expected)
            continue
        for row, stated in zip(rows[key], expected, strict=True):
            assert row == (stated if isinstance(stated, str) else pytest.approx(stated))


def test_a_line_of_a_gather_is_of_the_rows_of_its_layer() -> None:
    """Rows have 16 numbers of 4 bytes, before either layer."""
    scenario = three_layers()
    ready = prepare(scenario)
    settings = ready.problem.job.settings
    cost = open_plans(settings)[1].cost(read_topology(settings["topology"]))
    lines = remarks_on({"simulated": ready.simulate()}, ready.policy)
    found = {}
    for line in lines:
        words = re.match(r"gather of layer (\d), forward: t\(S\) ([^,]+),", line)
        if words:
            found[words[1]] = words[2]
    assert found == dict.fromkeys("23", format_duration(4 * 16 * cost))


def test_rows_are_collected_where_they_go_and_gradients_added_where_they_come() -> None:
    scenario = three_layers()
    job = build_job(scenario)
    counts = counts_of(scenario, job)
    plans = open_plans(job.settings)
    sent = np.zeros(3)
    for _, sender, _, rows in plans[2]:
        sent[sender] += 4 * 16 * len(rows)
    for rank in DEVICES:
        stages = [
            count
            for name, count in counts["collect"].items()
            if name.startswith(f"d{rank}.f") and name.endswith("@3")
        ]
        assert sum(stages) == sent[rank]
    for edge, volume in zip(job.edges, realize(scenario, job).volumes, strict=True):
        reader = job.tasks[edge.destination]
        if reader.kind == "scattered":
            assert counts["aggregate"][reader.name] == volume[0] / 4
        elif reader.kind == "gathered":
            assert counts["aggregate"][reader.name] == 0
