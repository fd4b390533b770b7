"""Times from rates of operations: counted twice, and the same work in every system."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.experiment.systems import as_system
from emu.graph_data import BatchPlan, open_for
from emu.graph_data.caches import batch_counts
from emu.graph_data.drawn_batches import DrawnBatch
from emu.prediction.analysis.what_if import Change, span
from emu.problem.workloads.operations import OPERATIONS, Operations, count_layers
from emu.scenario import Scenario, build_job, load, prepare, realize
from emu.scenario.edits import ScenarioEdits
from emu.scenario.scenario_file import find_errors, loads
from emu.systems.rates_section import RatesSection
from emu.training import GraphModel, MiniBatch

RATES = {
    "aggregate": "20 ps",
    "multiply": "0.4 ps",
    "sample": "30 ns",
    "collect": "200 ps",
    "step": "0.5 ns",
    "launch": "50 us",
}
JOBS: dict[str, dict[str, Any]] = {
    "dgtp": {"workers": 2, "samplers_per_worker": 2, "machines": ["a", "b", "c"]},
    "data_parallel": {},
    "p3": {"pipeline": "none"},
    "dgcl": {},
    "dorylus": {"parameter_servers": ["c"], "intervals": 2, "backend": "cpu"},
}
SAMPLED = {"fanouts": [3, 4], "batch_size": 16, "iterations": 3}


def document(system: str, **keys: Any) -> dict[str, Any]:
    whole = {"epochs": 2} if system in {"dgcl", "dorylus"} else SAMPLED
    machines = [
        {"name": "a", "nic": "1 Gbit/s", "device": "quick"},
        {"name": "b", "nic": "1 Gbit/s"},
        {"name": "c", "nic": "2 Gbit/s"},
    ]
    job = {
        "system": system,
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"kind": "gcn", "hidden": 8, "layers": 2},
        "rates": RATES,
        **whole,
        **JOBS[system],
        **keys,
    }
    return {"cluster": {"machines": machines}, "job": job}


def scenario_of(system: str, **keys: Any) -> Scenario:
    return loads(json.dumps(document(system, **keys)), name="rates.json")


def operations_of(scenario: Scenario) -> tuple[list[str], dict[str, Any]]:
    """Return kinds of the tasks, and operation -> counts of (task, iteration)."""
    job = build_job(scenario)
    context = scenario.build_context()
    volumes = realize(scenario, job).volumes
    counts = scenario.job.count_operations(job, context, volumes).counts
    return [task.kind for task in job.tasks], dict(zip(OPERATIONS, counts, strict=True))


@pytest.mark.parametrize("kind", ["sage", "gcn", "gin"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 99), hidden=st.sampled_from([3, 8, 200]))
def test_products_are_those_that_torch_counts(
    kind: str, seed: int, hidden: int
) -> None:
    """Forward and backward; the products of gat with vectors are no matrix products."""
    from torch.utils.flop_counter import FlopCounterMode

    model = {"kind": kind, "hidden": hidden, "layers": 2}
    scenario = scenario_of("data_parallel", model=model)
    keys = build_job(scenario).settings
    dataset = open_for(keys)
    plan = replace(BatchPlan.from_settings(keys), seed=seed)
    batch = plan.batch(dataset.structure, dataset.train, 0, 0)
    rows = dataset.gather(batch.vertices)
    mini = MiniBatch.of(batch, rows, dataset.labels[batch.seeds])
    network = GraphModel(keys, dataset)
    with FlopCounterMode(display=False) as counter:
        network.gradient([mini])
    counts = batch_counts(DrawnBatch.of(batch), dataset.owner, dataset.parts)
    sizes = keys["model"], dataset.feature_length, dataset.classes
    layers = count_layers(*sizes, [counts])
    passes = [layer.forward["multiply"] for layer in layers]
    passes += [
        layer.backward(first=number == 0)["multiply"]
        for number, layer in enumerate(layers)
    ]
    assert 2 * float(np.sum(passes)) == counter.get_total_flops()


@pytest.mark.parametrize("hidden", [4, 200])
@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_every_system_of_mini_batches_does_the_same_work(
    kind: str, hidden: int
) -> None:
    """P3 on columns, in a group that shares them: what replicas do, spread out."""
    model = {"kind": kind, "hidden": hidden, "layers": 2}
    kinds, counts = operations_of(scenario_of("data_parallel", model=model))
    of_p3, phases = operations_of(scenario_of("p3", model=model))
    for name in ("multiply", "sample"):
        assert counts[name].sum() == pytest.approx(phases[name].sum())
    # Rows that are made shorter first are added up by each machine of the group.
    more = phases["aggregate"].sum() / counts["aggregate"].sum()
    whole = hidden == 200 or kind == "gin"
    assert more == pytest.approx(1) if whole else 1 < more < 3
    stores = [kind == "graph_store" for kind in kinds]
    collected = counts["collect"][stores].sum()
    assert collected == pytest.approx(phases["collect"].sum())
    assert not counts["collect"][[not one for one in stores]].any()
    # A phase begins one pass, for all of its group; of the rest one per layer.
    begun = dict(zip(of_p3, phases["launch"][:, 0], strict=True))
    assert begun["model_forward"] == begun["model_backward"] == 1
    assert begun["data_forward"] == begun["data_backward"] == 2


def test_stores_draw_the_edges_that_samplers_ask_for_hop_by_hop() -> None:
    """Asked at once, a sampler draws the same; in either case it orders them all."""
    scenario = scenario_of("dgtp", sampling="multiround")
    settings = build_job(scenario).settings
    dataset = open_for(settings)
    plan = BatchPlan.from_settings(settings)
    train = plan.walk(dataset)
    batches = [plan.batch(dataset.structure, train, sampler, 1) for sampler in range(4)]
    # Hop 1 is from the seeds, whose layer is the last.
    edges = [[len(source) for source, _ in batch.edges[::-1]] for batch in batches]

    kinds, counts = operations_of(scenario)
    drawn = counts["sample"][:, 1]
    hops = drawn[[kind == "graph_store_hop" for kind in kinds]].reshape(3, 2)
    assert hops.sum(axis=0).tolist() == np.sum(edges, axis=0).tolist()
    asked = drawn[[kind == "sampler_fetch" for kind in kinds]]
    assert asked.tolist() == np.sum(edges, axis=1).tolist()
    assert drawn.sum() == hops.sum() + asked.sum()

    kinds, counts = operations_of(scenario_of("dgtp"))
    at_once = counts["sample"][[kind == "sampler" for kind in kinds], 1]
    assert at_once.tolist() == asked.tolist()


@pytest.mark.parametrize(("sync", "steps"), [("parameter_server", 0), ("ring", 1)])
def test_workers_step_no_weights_that_servers_keep(sync: str, steps: int) -> None:
    scenario = scenario_of("dgtp", sync=sync)
    dataset = open_for(build_job(scenario).settings)
    kinds, counts = operations_of(scenario)
    workers = [row for row, kind in enumerate(kinds) if kind == "worker"]
    weights = dataset.feature_length * 8 + 8 + 8 * dataset.classes + dataset.classes

    assert len(workers) == 2
    assert (counts["step"][workers] == steps * weights).all()


def test_whole_graphs_take_the_products_of_all_vertices() -> None:
    """Dorylus multiplies what it has gathered; rows of 100 columns, then of 8."""
    scenario = scenario_of("dorylus")
    dataset = open_for(build_job(scenario).settings)
    wide, classes = dataset.feature_length * 8, 8 * dataset.classes
    _, counts = operations_of(scenario)
    # Layer 1 forward and back, of which no gradient of features; layer 2 and both ways.
    products = dataset.vertices * (2 * wide + 3 * classes)
    assert counts["multiply"][:, 0].sum() == products
    edges = dataset.structure.indptr[-1] + dataset.vertices
    sums = edges * (dataset.feature_length + 8 + 8)
    assert counts["aggregate"][:, 0].sum() == sums
    weights = wide + classes
    intervals = 2 * 2
    assert counts["step"][:, 0].sum() == weights * (1 + intervals)

    one = scenario_of("dgcl", machines=["b"])
    _, alone = operations_of(one)
    # The shorter rows are added up: 8 columns, then classes where these are fewer.
    assert alone["multiply"][:, 0].sum() == products
    narrow = min(8, dataset.classes)
    passes = 2 * 8 + 2 * narrow
    loops = alone["aggregate"][:, 0].sum() / passes
    assert loops in {edges, edges - dataset.vertices}


def test_attention_takes_two_products_with_a_vector_for_each_edge() -> None:
    """And twice as many back: of 8 numbers for a hidden layer, then of the classes."""
    model = {"kind": "gat", "hidden": 8, "layers": 2}
    scenario = scenario_of("dorylus", model=model)
    dataset = open_for(build_job(scenario).settings)
    kinds, counts = operations_of(scenario)
    edges = int(dataset.structure.indptr[-1]) + dataset.vertices
    there = 2 * edges * (8 + dataset.classes)
    for kind, products in (("edge_apply", there), ("edge_apply_back", 2 * there)):
        rows = [found == kind for found in kinds]
        assert counts["multiply"][rows, 0].sum() == products


@pytest.mark.parametrize("system", [*JOBS])
def test_times_are_counts_by_rates(system: str) -> None:
    scenario = scenario_of(system)
    job = build_job(scenario)
    times = realize(scenario, job).times
    _, counts = operations_of(scenario)
    assert scenario.job.operation_rates is not None
    rates = scenario.job.operation_rates.on("default")
    by_hand = sum(rates[name] * counts[name] for name in OPERATIONS)
    np.testing.assert_allclose(times, by_hand, rtol=1e-12)
    assert times.any()


@pytest.mark.parametrize("system", [*JOBS])
def test_each_rate_moves_the_time_of_who_does_it(system: str) -> None:
    """No operation is counted for nobody, but samples of whole graphs."""
    _, counts = operations_of(scenario_of(system))
    whole = system in {"dgcl", "dorylus"}
    absent = {"sample"} if whole else set()
    assert {name for name in OPERATIONS if not counts[name].any()} == absent


@pytest.mark.parametrize("system", [*JOBS])
def test_a_device_has_rates_of_its_own(system: str) -> None:
    """Machine a has some: for tasks pinned there, and for those placed there."""
    rates = RATES | {"multiply": {"default": "4 ps", "quick": "1 ps"}}
    rates |= {"collect": {"default": "200 ps", "quick": "50 ps"}}
    rates |= {"aggregate": {"default": "20 ps", "quick": "80 ps"}}
    mixed = scenario_of(system, rates=rates)
    quick = {k: r["quick"] if isinstance(r, dict) else r for k, r in rates.items()}
    slow = {k: r["default"] if isinstance(r, dict) else r for k, r in rates.items()}
    experiment = prepare(mixed)
    problem, sums = experiment.problem, experiment.realization.times.sum(axis=1)
    on = {
        device: realize(one, build_job(one)).times.sum(axis=1)
        for device, keys in (("quick", quick), ("slow", slow))
        for one in [scenario_of(system, rates=keys)]
    }
    where = problem.machine_of_task
    for t, task in enumerate(problem.job.tasks):
        device = "quick" if where[task.name] == "a" else "slow"
        assert sums[t] == pytest.approx(on[device][t], rel=1e-9)
        if task.pinned is None:
            moved = on["slow"][t] * task.slowness.get("a", 1.0)
            assert moved == pytest.approx(on["quick"][t], rel=1e-9)
    assert (on["quick"] != on["slow"]).any()
    free = [task.pinned is None for task in problem.job.tasks]
    assert any(free) == (system == "dgtp")


@pytest.mark.parametrize("system", ["dgtp", "data_parallel", "p3"])
def test_translations_take_the_rates_along(system: str) -> None:
    for source in ("dgtp", "data_parallel", "p3"):
        job = as_system(scenario_of(source), system).job
        assert job.operation_rates == scenario_of(source).job.operation_rates
        assert job.times == type(job.times)()


def test_explain_says_what_each_rate_is_worth() -> None:
    scenario = scenario_of("dgtp")
    experiment = prepare(scenario)
    base = Change("", "", experiment.problem, experiment.realization, "oes")
    changes = [*ScenarioEdits(scenario).faster_rates(base)]
    assert [change.what.split()[1] for change in changes] == [*OPERATIONS]
    for change in changes:
        edited = prepare(load(scenario, {**(change.edit or {})}))
        placed = replace(edited.problem, placement=base.problem.placement)
        again = placed.stretch(realize(edited.scenario, build_job(edited.scenario)))
        assert span(change) == span(replace(base, realization=again))
        assert span(change) <= span(base)


@pytest.mark.parametrize(
    ("keys", "key", "says"),
    [
        ({"rates": RATES | {"step": "0 s"}}, "job.rates.step", "found zero"),
        ({"rates": RATES | {"step": {"quick": "1 ns"}}}, "job.rates.step", "default"),
        (
            {"rates": RATES | {"step": {"default": "1 ns", "quik": "1 ns"}}},
            "job.rates.step.quik",
            "quick",
        ),
        ({"times": {"worker": "1 s"}}, "job.rates", "write one"),
        ({"rates": {k: RATES[k] for k in [*RATES][:5]}}, "job.rates.launch", ""),
        (
            {"model": {"program": "net.py:Net"}},
            "job.rates",
            "operations of a program",
        ),
    ],
)
def test_wrong_rates_are_one_line(
    keys: dict[str, Any], key: str, says: str, tmp_path: Any
) -> None:
    path = tmp_path / "wrong.json"
    (tmp_path / "net.py").write_text("class Net: pass\n")
    path.write_text(json.dumps(document("dgtp", **keys)))
    errors = {error.key: error.problem for error in find_errors(path)}
    assert key in errors
    assert says in errors[key]


def test_a_profile_and_rates_are_refused(tmp_path: Any) -> None:
    (tmp_path / "p.json").write_text("{}")
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({**document("dgtp"), "profile": "p.json"}))
    errors = {error.key: error.problem for error in find_errors(path)}
    assert "profile" in errors["job.rates"]


def test_a_custom_job_has_no_rates() -> None:
    text = """
cluster: {machines: [{name: a, nic: 1 Gbit/s}]}
job:
  system: custom
  iterations: 1
  tasks: [{name: t, time: 1 s, pin: a}]
  rates: {step: 1 ns}
"""
    with pytest.raises(ScenarioError, match="rates"):
        loads(text)


def test_operations_are_summed_by_iteration() -> None:
    job = build_job(scenario_of("dgcl"))
    operations = Operations(job)
    operations.add(0, {"step": [1.0, 2.0]})
    operations.add(1, {"step": 5.0, "launch": 1.0}, slice(1, 2))
    rate = dict.fromkeys(OPERATIONS, 1.0) | {"launch": 100.0}
    seconds = operations.seconds([rate] * len(job.tasks))
    assert seconds[:2].tolist() == [[1.0, 2.0], [0.0, 105.0]]


def test_rates_of_a_device_are_its_own_and_those_of_collecting_by_default() -> None:
    stated = {**RATES, "sample": {"default": "30 ns", "quick": "5 ns"}}
    section = RatesSection.model_validate(stated)
    everywhere = {
        "aggregate": 20e-12,
        "multiply": 0.4e-12,
        "sample": 30e-9,
        "collect": 200e-12,
        "step": 0.5e-9,
        "launch": 50e-6,
        "collect_device": 200e-12,
        "pcie": 0.0,
    }
    assert section.on("default") == pytest.approx(everywhere)
    assert section.on("quick") == pytest.approx({**everywhere, "sample": 5e-9})

    more = {"collect_device": "10 ps", "pcie": "80 ps", "partition": "1 us"}
    with_way = RatesSection.model_validate({**stated, **more})
    expected = {**everywhere, "collect_device": 10e-12, "pcie": 80e-12}
    assert with_way.on("default") == pytest.approx(expected)


def test_work_on_a_cpu_takes_slots_that_are_stated_or_one_of_each_core() -> None:
    cluster = {
        "machines": [
            {"name": "a", "nic": "1 Gbit/s", "cpu": 4, "slots": {"cpu": 3, "x": 7}},
            {"name": "b", "nic": "1 Gbit/s", "cpu": 2.5},
            {"name": "c", "nic": "1 Gbit/s"},
        ]
    }
    scenario = load(scenario_of("data_parallel"), {"cluster": cluster})

    changed = scenario.job.with_machines(scenario.cluster)
    slots = [dict(machine.slots) for machine in changed.machines]
    assert slots == [{"cpu": 3, "x": 7}, {"cpu": 2}, {}]
