"""Rows of tables of systems worked by hand: counts by rates give their makespans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import EmulatorError
from emu.experiment.question import Answer
from emu.experiment.system_rows import measure
from emu.graph_data import BatchPlan, SampledBatch, open_for, open_layers
from emu.scenario import Scenario, build_job
from emu.scenario.scenario_file import loads, write_scenario
from tests import draws

SUM, PRODUCT, DRAW, COLLECT = 3e-10, 5e-11, 7e-7, 1.1e-8
DEVICE, STEP, LAUNCH = 1.3e-9, 1.7e-7, 1.9e-4
RATES = {
    "aggregate": f"{SUM} s",
    "multiply": f"{PRODUCT} s",
    "sample": f"{DRAW} s",
    "collect": f"{COLLECT} s",
    "collect_device": f"{DEVICE} s",
    "step": f"{STEP} s",
    "launch": f"{LAUNCH} s",
}
#: Bytes per second; numbers of a row by layer.
NIC, HIDDEN = 1.25e8, 8
SYSTEMS = ["dgtp", "distdgl", "data_parallel", "p3.none", "p3.A", "dgcl"]
SYSTEMS += ["dorylus.pipe", "dorylus.async", "apt"]
#: Systems of parts that exchange rows, and those whose samplers ask for rows.
SYSTEMS += ["partition_parallel", "pipegcn", "bns_gcn", "adaqp", "sancus"]
SYSTEMS += ["neutron_star", "neutron_tp"]
SYSTEMS += ["salient_plus_plus", "rapid_gnn", "whole_graph"]


def scenario_of(machines: int, *, iterations: int = 1) -> Scenario:
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"kind": "gcn", "hidden": HIDDEN, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 24,
        "workers": machines,
        "iterations": iterations,
        "rates": RATES,
    }
    row = {"name": "m", "count": machines, "cpu": 4, "gpu": 1, "nic": "1 Gbit/s"}
    if machines == 1:
        row["name"] = "m0"
    return loads(json.dumps({"cluster": {"machines": [row]}, "job": job}))


def drawn(scenario: Scenario, count: int = 1) -> tuple[Any, list[list[SampledBatch]]]:
    """Return the data set, and the first batches of every sampler."""
    settings = build_job(scenario).settings
    dataset, plan = open_for(settings), BatchPlan.from_settings(settings)
    train = plan.walk(dataset)
    batches = [
        [plan.batch(dataset.structure, train, sampler, n) for n in range(count)]
        for sampler in range(plan.samplers)
    ]
    return dataset, batches


def layer_seconds(edges: float, inputs: int, outputs: int, widths: Any) -> float:
    """Return a forward pass: the shorter rows are added up."""
    before, after = widths
    shortens = before > after
    rows = inputs if shortens else outputs
    sums = edges * min(before, after) * SUM
    return float(sums + rows * before * after * PRODUCT + LAUNCH)


def training_seconds(dataset: Any, batch: SampledBatch) -> float:
    """Return both passes of a batch; features need no gradient."""
    length, classes = dataset.feature_length, dataset.classes
    sources = [len(source) for source, _ in batch.edges]
    inputs, outputs, seeds = batch.sizes
    first = layer_seconds(sources[0], inputs, outputs, (length, HIDDEN))
    back = first
    second = layer_seconds(sources[1], outputs, seeds, (HIDDEN, classes))
    rows = outputs if classes < HIDDEN else seeds
    return float(first + back + 2 * second + rows * HIDDEN * classes * PRODUCT)


def parameters_of(dataset: Any) -> int:
    return int(HIDDEN * (dataset.feature_length + 1) + dataset.classes * (HIDDEN + 1))


@pytest.mark.parametrize(
    "system",
    [
        "dgtp",
        "data_parallel",
        "p3.none",
        "apt",
        "salient_plus_plus",
        "rapid_gnn",
        "whole_graph",
    ],
)
def test_a_row_of_mini_batches_on_one_machine_by_hand(system: str) -> None:
    """One after the other: rows, edges, passes, the step; one batch at a time."""
    count = 3 if system == "p3.none" else 1
    keys = {"job.credit_window": 1}
    answer = measure(scenario_of(1, iterations=count), system, keys)
    dataset, (batches,) = drawn(answer.scenario, count)
    by_hand = 0.0
    for batch in batches:
        # Half numbers of SALIENT++, and rows in memory of the device.
        number = 2 if system == "salient_plus_plus" else 4
        rate = DEVICE if system in ("p3.none", "whole_graph") else COLLECT
        rows = number * dataset.feature_length * len(batch.vertices)
        edges = sum(len(source) for source, _ in batch.edges)
        by_hand += rows * rate
        by_hand += edges * DRAW + training_seconds(dataset, batch)
        by_hand += parameters_of(dataset) * STEP
        # A server adds the gradient to its sum; layer 1 of P3 is a pass of its own.
        extra = {"dgtp": parameters_of(dataset) * STEP}
        extra |= dict.fromkeys(("p3.none", "apt"), 2 * LAUNCH)
        by_hand += extra.get(system, 0.0)
    assert answer.makespan == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("system", ["dgtp", "data_parallel", "p3.none", "apt"])
def test_rows_in_memory_of_the_host_cross_to_the_device(system: str) -> None:
    """Every byte of the rows of each batch, once, while the device waits."""
    crossing = 7e-9
    base = scenario_of(1, iterations=3)
    rates = {"job.rates.pcie": f"{crossing} s", "job.credit_window": 1}
    for features in ("host", "device"):
        keys = {**rates, "job.features": features}
        with_way = measure(base, system, keys)
        without = measure(base, system, {**keys, "job.rates.pcie": None})
        dataset, (batches,) = drawn(with_way.scenario, 3)
        rows = sum(4 * dataset.feature_length * len(b.vertices) for b in batches)
        waits = rows * crossing if features == "host" else 0.0
        assert with_way.makespan - without.makespan == pytest.approx(waits, rel=1e-6)
        kinds = {"worker", "model_forward"}
        counts = sum(
            term.count
            for work in with_way.work
            for term in work.terms
            if work.what in kinds and term.rate == crossing
        )
        assert counts == (rows if features == "host" else 0)


def test_a_row_on_two_machines_by_hand() -> None:
    """Rows of the other machine cross one NIC; halves of the gradient do twice."""
    answer = measure(scenario_of(2), "data_parallel", {"job.machines": ["m0", "m1"]})
    dataset, drawn_batches = drawn(answer.scenario)
    batches = [first for (first,) in drawn_batches]
    row = 4 * dataset.feature_length
    owners = [dataset.owner[batch.vertices] for batch in batches]
    sends = np.array([[row * (o == g).sum() for o in owners] for g in range(2)])
    collected = sends.sum(axis=1) * COLLECT
    trained = []
    for rank, batch in enumerate(batches):
        other = 1 - rank
        came = collected[other] + sends[other, rank] / NIC
        begun = max(collected[rank], came)
        edges = sum(len(source) for source, _ in batch.edges)
        step = parameters_of(dataset) * STEP
        trained.append(begun + edges * DRAW + training_seconds(dataset, batch) + step)

    count = parameters_of(dataset)
    sizes = (count - count // 2, count // 2)  # of what each sends first
    added = []
    for rank in range(2):
        came = trained[1 - rank] + 4 * sizes[1 - rank] / NIC
        added.append(max(trained[rank], came + sizes[1 - rank] * STEP))
    # The second halves go when both have added the first ones.
    by_hand = max(added) + 4 * max(sizes) / NIC
    assert answer.makespan == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize(
    "system",
    [
        "dgcl",
        "partition_parallel",
        "bns_gcn",
        "adaqp",
        "sancus",
        "neutron_star",
        "dorylus.pipe",
    ],
)
def test_a_row_of_the_whole_graph_on_one_machine_by_hand(system: str) -> None:
    settings = {"job.intervals": 1} if system == "dorylus.pipe" else {}
    answer = measure(scenario_of(1), system, settings)
    job = answer.experiment.problem.job
    dataset = open_for(job.settings)
    vertices, classes = dataset.vertices, dataset.classes
    loops = vertices if system == "dorylus.pipe" else 0
    edges = len(dataset.structure.indices) + loops
    if system != "dorylus.pipe":
        _, graphs = open_layers(job.settings)
        edges = int(graphs[0].part(0).forward.indptr[-1])
    length = dataset.feature_length
    products = vertices * (2 * length * HIDDEN + 3 * HIDDEN * classes) * PRODUCT
    if system != "dorylus.pipe":
        # The shorter rows are added up, forward and back; layer 2 needs both gradients.
        sums = edges * 2 * (HIDDEN + min(HIDDEN, classes)) * SUM
        epoch = sums + products + 4 * LAUNCH + parameters_of(dataset) * STEP
    else:
        # Gathered as they come; of layer 1 no gradient of features. Seven passes begin,
        # and the weights of layer 1 come last: gradients are added, then stepped.
        sums = edges * (length + HIDDEN + HIDDEN) * SUM
        epoch = sums + products + 7 * LAUNCH + 2 * length * HIDDEN * STEP
    assert job.iterations == 1
    assert answer.makespan == pytest.approx(epoch, rel=1e-9)


def answer_of(system: str) -> Answer:
    # It reads what is an epoch old: one alone would read nothing.
    keys = {"job.epochs": 3} if system == "pipegcn" else {}
    return measure(scenario_of(2, iterations=4), system, keys)


@pytest.mark.parametrize("system", draws.rarely_but(2, SYSTEMS))
def test_terms_are_what_tasks_took_and_the_path_is_the_makespan(system: str) -> None:
    answer = answer_of(system)
    schedule, work = answer.simulated, answer.work
    assert sum(row.waited for row in work) == pytest.approx(schedule.length, rel=1e-9)
    spans = np.nansum(schedule.task_end - schedule.task_start, axis=1)
    tasks = [row for row in work if "->" not in row.machine]
    names = schedule.problem.machine_of_task
    for row in tasks:
        members = [
            number
            for number, task in enumerate(schedule.problem.job.tasks)
            if (task.kind, names[task.name]) == (row.what, row.machine)
        ]
        assert row.seconds == pytest.approx(spans[members].sum(), rel=1e-9, abs=1e-12)
    flows = sum(t.count for row in work if "->" in row.machine for t in row.terms)
    assert flows == pytest.approx(answer.figures["bytes"])


def test_stated_times_are_terms_too() -> None:
    times = dict.fromkeys(("graph_store", "sampler", "worker"), "3 ms")
    times["parameter_server"] = "1 ms"
    keys = {"job.rates": None, "job.times": times}
    answer = measure(scenario_of(1), "dgtp", keys)
    assert {t.operation for row in answer.work for t in row.terms} == {"task"}
    assert sum(row.waited for row in answer.work) == pytest.approx(answer.makespan)
    with pytest.raises(EmulatorError):
        measure(scenario_of(1), "dgcl", keys)


def test_the_command_shows_the_work_of_a_row(tmp_path: Path) -> None:
    file, out = tmp_path / "row.yaml", tmp_path / "out.json"
    write_scenario(file, scenario_of(2, iterations=4))
    args = ["compare", str(file), "--explain", "p3.A"]
    shown = CliRunner().invoke(app, args)
    assert shown.exit_code == 0, shown.output
    assert "p3.A: counts by rates, per iteration of 6" in shown.output
    CliRunner().invoke(app, [*args, f"--json={out}"])
    (row,) = json.loads(out.read_text())
    waited = sum(work["waited"] for work in row["work"])
    assert waited == pytest.approx(row["makespan"])

    wrong = CliRunner().invoke(app, [*args[:3], "p3.none", "--systems", "dgtp"])
    assert wrong.exit_code
    assert "--explain p3.none: no such row" in wrong.output
