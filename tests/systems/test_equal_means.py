"""Equal means for every system of mini-batches: samplers, caches, places of features.

Times of systems on one machine are equal but for work that is named here; what is
counted is counted once more from the drawn batches.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, cast

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment.row_machines import Row
from emu.experiment.system_rows import measure
from emu.experiment.systems import as_variant
from emu.graph_data import (
    BatchPlan,
    Dataset,
    SampledBatch,
    SamplerCache,
    open_for,
    open_layers,
)
from emu.graph_data.caches import CachePlan
from emu.problem import Job
from emu.problem.workloads.operations import OPERATIONS
from emu.report.system_tables import answer_json, edit_lines
from emu.scenario import Scenario, build_job, load, prepare, realize
from emu.scenario.scenario_file import loads
from emu.systems.gpu_turns import GpuTurnsSection

RATES = {
    "aggregate": "20 ps",
    "multiply": "0.4 ps",
    "sample": "30 ns",
    "collect": "200 ps",
    "step": "0.5 ns",
    "launch": "50 us",
}
LAUNCH = 50e-6
ROWS = ("dgtp", "distdgl", "data_parallel", "p3.none", "one_machine")
BATCHES = 5


def scenario_of(machines: int = 1, **keys: Any) -> Scenario:
    """Return a dgtp job with a worker per machine."""
    gpu = {"gpu": 1, "nic": {"in": "1 Gbit/s", "out": "2 Gbit/s"}}
    names = [{"name": f"m{number}", **gpu} for number in range(machines)]
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"kind": "gcn", "hidden": 8, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 24,
        "workers": machines,
        "iterations": BATCHES,
        "rates": RATES,
        **keys,
    }
    return loads(json.dumps({"cluster": {"machines": names}, "job": job}))


def makespan(scenario: Scenario) -> float:
    return prepare(scenario).simulate().makespan


def counts_of(scenario: Scenario) -> tuple[Job, Any]:
    """Return the job, and operation -> counts of (task, iteration)."""
    job = build_job(scenario)
    context, volumes = scenario.build_context(), realize(scenario, job).volumes
    counts = scenario.job.count_operations(job, context, volumes).counts
    return job, dict(zip(OPERATIONS, counts, strict=True))


@pytest.mark.parametrize("window", [1, 2, 4, "unlimited"])
@pytest.mark.parametrize("samplers", [1, 2, 3])
def test_equal_means_give_equal_times(samplers: int, window: Any) -> None:
    """One machine, no cache, collecting as good as free.

    A parameter server adds the worker's gradient to its sum, where a replica has it;
    with one batch at a time it does so, and steps, while the next one is drawn. P3
    begins layer 1 in passes of their own, one for all samplers: beside the passes of
    the rest of layer 1 that are two more per step.
    """
    rates = RATES | {"collect": "0.000001 ps"}
    base = scenario_of(samplers_per_worker=samplers, credit_window=window, rates=rates)
    times = {row: makespan(as_variant(base, row)) for row in ROWS}

    dataset = open_for(build_job(base).settings)
    parameters = 8 * (dataset.feature_length + 1) + dataset.classes * (8 + 1)
    stepping = parameters * 0.5e-9
    adding = (2 - BATCHES if window == 1 else BATCHES) * stepping
    launching = BATCHES * 2 * LAUNCH
    replica = times["data_parallel"]
    assert times["one_machine"] == replica
    walks_locally = load(base, {"job.epoch": "local"})  # as the row does by itself
    local = makespan(as_variant(walks_locally, "dgtp"))
    assert times["distdgl"] == pytest.approx(local, rel=1e-12)
    assert times["dgtp"] - replica == pytest.approx(adding, rel=1e-6)
    assert times["p3.none"] - replica == pytest.approx(launching, rel=1e-6)
    local_replica = makespan(as_variant(walks_locally, "data_parallel"))
    of_apt = makespan(as_variant(base, "apt"))
    assert of_apt - local_replica == pytest.approx(launching, rel=1e-6)


@pytest.mark.parametrize("row", ["data_parallel", "p3.none", "p3.A"])
def test_more_samplers_draw_as_many_seeds_in_less_time(row: str) -> None:
    """Where drawing is what takes long, k samplers take about a k-th."""
    rates = RATES | {"sample": "100 us"}
    spans = []
    for samplers in (1, 2, 4):
        base = scenario_of(2, samplers_per_worker=samplers, rates=rates)
        scenario = as_variant(base, row)
        job = build_job(scenario)
        spans.append(makespan(scenario))
        plan = BatchPlan.from_settings(job.settings)
        drawn = [task for task in job.tasks if task.kind == "sampler"]
        assert len(drawn) == plan.samplers == 2 * samplers
        assert plan.batch_size == 24 // samplers
        assert len({task.process_name for task in drawn}) == 2 * samplers
    assert spans[0] > 1.6 * spans[1] > 1.6**2 * spans[2]


@pytest.mark.parametrize("epoch", ["replicate", "shard", "local"])
@pytest.mark.parametrize("row", ["dgtp", "data_parallel", "p3"])
def test_epochs_are_as_long_as_their_samplers_walk(row: str, epoch: str) -> None:
    base = scenario_of(2, samplers_per_worker=3, epoch=epoch, epochs=2, iterations=None)
    job = build_job(as_variant(base, row))
    plan = BatchPlan.from_settings(job.settings)
    steps = plan.steps_per_epoch(open_for(job.settings).train_count)
    assert job.settings.get("batches", job.iterations) == 2 * steps


@pytest.mark.parametrize("system", ["data_parallel", "p3"])
def test_a_batch_that_samplers_cannot_share_is_refused(system: str) -> None:
    base = as_variant(scenario_of(2), system)
    with pytest.raises(ScenarioError, match="write batch_size: 20 or 25"):
        load(base, {"job.samplers_per_worker": 5})
    shared = load(base, {"job.samplers_per_worker": 3})
    job: Any = as_variant(shared, "dgtp").job
    assert job.samplers_per_worker == 3
    # Of 48 seeds on three machines each sampler of six gets as many.
    row = Row(scenario_of(2, samplers_per_worker=2), system, {}, per_machine=False)
    job = row.on(("m0",)).job
    assert job.batch_size == 48


def hits_by_hand(
    dataset: Dataset, plan: BatchPlan, cache: CachePlan, sampler: int
) -> list[int]:
    """Return the rows that a sampler has already, of every batch."""
    held = SamplerCache(dataset, plan, cache, sampler)
    batches: list[SampledBatch] = [
        plan.batch(dataset.structure, plan.walk(dataset), sampler, number)
        for number in range(BATCHES)
    ]
    return [int(held.look(batch.vertices).sum()) for batch in batches]


@pytest.mark.parametrize("policy", ["degree", "vip", "lru", "window"])
@pytest.mark.parametrize(
    ("row", "keys"),
    [
        ("dgtp", {}),
        ("dgtp", {"job.sampling": "multiround"}),
        ("data_parallel", {}),
        ("data_parallel", {"job.features": "device"}),
    ],
)
def test_who_gathers_a_row_pays_for_it(
    row: str, keys: dict[str, Any], policy: str
) -> None:
    """Rows of a batch are collected once each: by its store, or where the cache is."""
    window = {"window": 2} if policy == "window" else {}
    cache = {"policy": policy, "size": "100 kB", **window}
    base = load(as_variant(scenario_of(3, samplers_per_worker=2), row), keys)
    job, plain = counts_of(base)
    _, cached = counts_of(load(base, {"job.cache": cache}))
    kinds = np.array([task.kind for task in job.tasks])
    stores, samplers = kinds == "graph_store", kinds == "sampler"

    assert not plain["collect"][samplers].any()
    assert cached["collect"][samplers].sum() > 0
    assert cached["collect"].sum() == plain["collect"].sum()
    assert (cached["collect"][stores] <= plain["collect"][stores]).all()

    settings = build_job(load(base, {"job.cache": cache})).settings
    dataset = open_for(settings)
    kept = CachePlan.from_settings(settings, dataset)
    assert kept is not None
    plan = BatchPlan.from_settings(settings)
    for task, counts in zip(job.tasks, cached["collect"], strict=True):
        if task.kind == "sampler":
            hits = hits_by_hand(dataset, plan, kept, task.settings["sampler"])
            assert counts.tolist() == [4.0 * dataset.feature_length * n for n in hits]


def test_a_cache_on_one_machine_has_nothing_to_bring() -> None:
    base = as_variant(scenario_of(), "data_parallel")
    cached = load(base, {"job.cache": {"policy": "degree", "size": "1 MB"}})
    assert makespan(cached) == makespan(base)


@pytest.mark.parametrize("row", ["dgtp", "data_parallel", "p3.none"])
def test_features_of_the_host_are_collected_beside_the_gpu(row: str) -> None:
    """Where collecting takes longest, a step takes as long; on a device both in turn.

    A rate of its own makes the device faster, and neither changes bytes or work.
    """
    rates = RATES | {"collect": "20 ns", "sample": "1 ns"}
    base = as_variant(scenario_of(rates=rates, credit_window="unlimited"), row)
    spans: dict[str, float] = {}
    for place in ("host", "device"):
        scenario = load(base, {"job.features": place})
        job, counts = counts_of(scenario)
        times = realize(scenario, job).times
        collects = [task.kind in {"graph_store", "model_forward"} for task in job.tasks]
        collecting = 20e-9 * counts["collect"].sum()
        assert counts["collect"][collects].sum() == counts["collect"].sum()
        beside = {"graph_store", "sampler", "parameter_server"}
        trains = [task.kind not in beside for task in job.tasks]
        rest = times[trains].sum() - 20e-9 * counts["collect"][trains].sum()
        spans[place] = makespan(scenario)
        if place == "device":
            assert spans[place] >= collecting + rest
        else:
            assert collecting < spans[place] < collecting + rest
    quick = {"job.features": "device", "job.rates.collect_device": "2 ps"}
    assert makespan(load(base, quick)) < spans["host"] < spans["device"]
    still = {"job.features": "host", "job.rates.collect_device": "2 ps"}
    assert makespan(load(base, still)) == spans["host"]


def test_where_features_lie_by_default() -> None:
    """On the device under P3, as in its paper; what a file states holds for all."""
    base = scenario_of(2)
    jobs: dict[str, Any] = {row: as_variant(base, row).job for row in ROWS}
    places = {row: job.place_on("m0") for row, job in jobs.items()}
    assert {row for row, place in places.items() if place == "device"} == {"p3.none"}
    stated = load(base, {"job.features": "host"})
    job: Any = as_variant(stated, "p3.none").job
    assert [job.place_on(name) for name in ("m0", "m1")] == ["host", "host"]
    each = load(base, {"job.features": {"default": "device", "m1": "host"}})
    job = each.job
    assert [job.place_on(name) for name in ("m0", "m1")] == ["device", "host"]


@pytest.mark.parametrize("row", ["dgtp", "data_parallel", "p3.none", "p3.A"])
def test_features_lie_where_each_machine_has_them(row: str) -> None:
    """Rows of m0 are collected at its device's rate, those of m1 at a core's."""
    rates = RATES | {"collect_device": "2 ps"}
    places = {"default": "host", "m0": "device"}
    scenario = load(as_variant(scenario_of(2, rates=rates), row), {"job.features": {}})
    mixed = load(scenario, {"job.features": places})
    job, counts = counts_of(mixed)
    free = {name: "0.000001 ps" for name in RATES if name != "collect"}
    times = realize(load(mixed, {"job.rates": rates | free}), job).times.sum(axis=1)
    by_machine = {}
    for task, seconds, sizes in zip(job.tasks, times, counts["collect"], strict=True):
        if sizes.any():
            by_machine[task.pinned] = seconds / sizes.sum(), task.takes
    assert by_machine["m0"] == (pytest.approx(2e-12, rel=1e-3), "gpu")
    assert by_machine["m1"] == (pytest.approx(200e-12, rel=1e-3), "cpu")
    with pytest.raises(ScenarioError, match="no machine 'm7'"):
        load(scenario, {"job.features": {"m7": "device"}})


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("cores", [1, 2, 3])
def test_processes_of_a_machine_share_its_cores(row: str, cores: int) -> None:
    """As many tasks of the CPU run at a time as there are cores, and never more."""
    rates = RATES | {"sample": "100 us"}
    base = scenario_of(samplers_per_worker=4, credit_window="unlimited", rates=rates)
    scenario = as_variant(load(base, {"cluster.machines[0].cpu": cores}), row)
    schedule = prepare(scenario).simulate()
    on_core = [task.takes == "cpu" for task in schedule.problem.job.tasks]
    starts = schedule.task_start[on_core].ravel()
    ends = schedule.task_end[on_core].ravel()
    changes = [(end, -1) for end in ends[ends > starts]]
    changes += [(start, 1) for start in starts[ends > starts]]
    running = np.cumsum([change for _, change in sorted(changes)])
    assert running.max() == cores
    # Four samplers draw what one draws: on one core they gain nothing.
    drawing = float((ends - starts).sum()) / cores
    assert drawing < schedule.makespan < 1.6 * drawing


def test_a_row_says_where_its_features_lie_and_what_its_gpus_hold() -> None:
    base = load(scenario_of(), {"cluster.machines[0].gpu_memory": "1 GB"})
    pulled, pushed = (measure(base, row) for row in ("data_parallel", "p3.none"))
    assert not [line for line in edit_lines(pulled) if "job.features" in line]
    (line,) = (line for line in edit_lines(pushed) if "job.features" in line)
    assert "at job.rates.collect, since no collect_device is stated" in line
    sizes = {row.system: row.gpu_memory["m0"] for row in (pulled, pushed)}
    assert sizes["p3.none"] > sizes["data_parallel"] > 0
    assert answer_json(pushed, pulled)["gpu_memory"] == {"m0": sizes["p3.none"]}


def test_gpus_take_turns_by_their_number_where_no_slots_are_stated() -> None:
    machines = {
        "cluster.machines[1].gpu": 3,
        "cluster.machines[2].gpu": 4,
        "cluster.machines[2].slots": {"gpu": 2},
    }
    changes = machines | {"job.features": "device"}
    sections = load(scenario_of(3), changes).cluster.machines
    assert [machine.slots["gpu"] for machine in sections] == [1, 3, 2]


def test_rows_on_a_device_take_one() -> None:
    base = load(scenario_of(2), {"job.features": "device"})
    assert build_job(base).tasks[0].takes == "gpu"
    alone = load(scenario_of(2), {"job.features": "host"})
    sections = [scenario.job for scenario in (base, alone)]
    assert all(isinstance(section, GpuTurnsSection) for section in sections)
    pools = [cast(GpuTurnsSection, section).pool_of("worker") for section in sections]
    assert pools == ["gpu", ""]
    assert "gpu" in sections[0].made_slots - sections[1].made_slots
    without = {"cluster.machines[1].gpu": 0, "job.workers": 1}
    with pytest.raises(ScenarioError, match="m1 has no gpu: write host, or machines"):
        load(base, without)


def devices_of(scenario: Scenario) -> dict[str, float]:
    """Return the bytes of gpu_memory that tasks demand, by machine."""
    ready = prepare(load(scenario, {"cluster.machines[0].gpu_memory": "1 GB"}))
    needs: dict[str, float] = {}
    for task in ready.problem.job.tasks:
        name = ready.tasks[task.name]
        needs[name] = needs.get(name, 0.0) + task.demands.get("gpu_memory", 0.0)
    return needs


@pytest.mark.parametrize("row", ["dgtp", "data_parallel", "p3.none", "p3.A"])
@pytest.mark.parametrize("place", ["host", "device"])
def test_memory_of_a_device_is_refused_where_it_lacks(row: str, place: str) -> None:
    """One byte less than it takes is refused, with what takes it."""
    base = load(as_variant(scenario_of(), row), {"job.features": place})
    needs = devices_of(base)["m0"]
    key = "cluster.machines[0].gpu_memory"
    prepare(load(base, {key: f"{needs:.0f} B"}))
    with pytest.raises(
        ScenarioError, match=r"of gpu_memory are needed on m0, 1 B .* weights"
    ):
        prepare(load(base, {key: f"{needs - 1:.0f} B"}))
    if place == "device":
        with pytest.raises(ScenarioError, match="features: host keeps features"):
            prepare(load(base, {key: f"{needs - 1:.0f} B"}))


def test_memory_of_a_device_by_hand() -> None:
    """Rows, Adam's four vectors, and the largest batch with what layers compute.

    A device has room for the batches of any worker, and the rows of its own store.
    """
    base = as_variant(scenario_of(2, samplers_per_worker=2), "data_parallel")
    settings = build_job(base).settings
    dataset, plan = open_for(settings), BatchPlan.from_settings(settings)
    train = plan.walk(dataset)
    sizes = []
    for worker, number in itertools.product(range(2), range(BATCHES)):
        size = 0
        for sampler in (2 * worker, 2 * worker + 1):
            batch = plan.batch(dataset.structure, train, sampler, number)
            inputs, outputs, seeds = batch.sizes
            numbers = inputs * dataset.feature_length
            numbers += 2 * (outputs * 8 + seeds * dataset.classes)
            edges = sum(len(source) for source, _ in batch.edges)
            size += 4 * numbers + 8 * edges
        sizes.append(size)
    parameters = 8 * (dataset.feature_length + 1) + dataset.classes * (8 + 1)
    host = 4 * 4 * parameters + max(sizes)
    assert devices_of(base)["m0"] == host
    needs = devices_of(load(base, {"job.features": "device"}))
    for part, machine in enumerate(("m0", "m1")):
        owned = int((np.asarray(dataset.owner) == part).sum())
        assert needs[machine] == host + 4 * owned * dataset.feature_length
    stated = {"job.demands": {"worker": {"gpu_memory": "5 MB"}}}
    assert devices_of(load(base, stated))["m0"] == 5e6


def test_a_worker_brings_the_rows_of_its_own_samplers() -> None:
    rates = RATES | {"pcie": "70 ps"}
    base = scenario_of(2, samplers_per_worker=2, features="host", rates=rates)
    job, counts = counts_of(base)
    dataset = open_for(job.settings)
    plan = BatchPlan.from_settings(job.settings)
    train = plan.walk(dataset)
    row = 4 * dataset.feature_length
    sizes = [
        [
            row * len(plan.batch(dataset.structure, train, sampler, number).vertices)
            for number in range(BATCHES)
        ]
        for sampler in range(4)
    ]
    workers = [n for n, task in enumerate(job.tasks) if task.kind == "worker"]
    for worker, position in enumerate(workers):
        own = np.sum(sizes[2 * worker : 2 * worker + 2], axis=0)
        assert counts["collect"][position].tolist() == own.tolist()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_moments_lie_where_the_step_is_taken(optimizer: str) -> None:
    """A worker beside servers has weights and a gradient, and steps with neither."""
    base = scenario_of(optimizer={"name": optimizer, "lr": 0.01})
    settings = build_job(base).settings
    dataset = open_for(settings)
    parameters = 8 * (dataset.feature_length + 1) + dataset.classes * (8 + 1)
    needs = {row: devices_of(as_variant(base, row))["m0"] for row in ROWS[::2]}
    moments = 2 * 4 * parameters if optimizer == "adam" else 0
    assert needs["data_parallel"] - needs["dgtp"] == moments


def test_what_moves_has_the_room_of_the_roomiest_machine() -> None:
    """A hint is given where it helps alone: weights and batches stay on the device."""
    base = scenario_of(2, workers=1, features="host")
    first = "cluster.machines[0].gpu_memory"
    second = "cluster.machines[1].gpu_memory"
    ready = prepare(
        load(base, {first: "1 GB", second: "1 kB", "placement.policy": "ifs"})
    )
    workers = [task for task in ready.problem.job.tasks if task.kind == "worker"]
    assert [ready.tasks[task.name] for task in workers] == ["m0"]
    replica = as_variant(scenario_of(features="device"), "data_parallel")
    small = load(replica, {first: "2 kB"})
    with pytest.raises(ScenarioError) as found:
        prepare(small)
    assert "of gpu_memory are needed on m0" in str(found.value)
    assert "weights" in str(found.value)
    assert "job.features" not in str(found.value)


def test_memory_of_dgcls_devices() -> None:
    """All rows that a device reads, and what layers compute twice; 8 hidden columns."""
    whole = load(as_variant(scenario_of(2), "dgcl"), {"job.plan": "peer_to_peer"})
    dataset, graphs = open_layers(build_job(whole).settings)
    parameters = 8 * (dataset.feature_length + 1) + dataset.classes * (8 + 1)
    needs = devices_of(whole)
    for rank, name in enumerate(("m0", "m1")):
        part = graphs[0].part(rank)
        numbers = len(part.vertices) * (dataset.feature_length + 2 * 8)
        numbers += len(part.local) * 2 * dataset.classes + 4 * parameters
        assert needs[name] == 4 * numbers
