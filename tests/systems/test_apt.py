"""APT's keys, operations and choice, without programs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import ScenarioError
from emu.graph_data import BatchPlan, open_for
from emu.graph_data.dataset import open_dataset
from emu.problem.workloads.operations import OPERATIONS
from emu.scenario import Scenario, build_job, load, prepare, realize
from emu.scenario.scenario_file import loads
from emu.systems.apt.choice import choose, estimate
from emu.systems.apt.shares import computing, count_least, count_strategies, split

RATES = {
    "aggregate": "20 ps",
    "multiply": "0.4 ps",
    "sample": "30 ns",
    "collect": "200 ps",
    "collect_device": "10 ps",
    "step": "0.5 ns",
    "launch": "50 us",
}
STRATEGIES = ("gdp", "nfp", "snp", "dnp")


def scenario_of(**keys: Any) -> Scenario:
    machines = [
        {"name": f"m{n}", "gpu": 1, "cpu": 4, "nic": f"{n + 1} Gbit/s"}
        for n in range(3)
    ]
    job = {
        "system": "apt",
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"kind": "sage", "hidden": 8, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 24,
        "iterations": 3,
        "rates": RATES,
        **keys,
    }
    return loads(json.dumps({"cluster": {"machines": machines}, "job": job}))


def counts_of(scenario: Scenario) -> tuple[Any, dict[str, Any]]:
    job = build_job(scenario)
    context, volumes = scenario.build_context(), realize(scenario, job).volumes
    counts = scenario.job.count_operations(job, context, volumes).counts
    return job, dict(zip(OPERATIONS, counts, strict=True))


@pytest.mark.parametrize("kind", ["sage", "gcn", "gin"])
def test_strategies_draw_and_add_up_the_same_edges(kind: str) -> None:
    """Drawn once, and every number of layer 1 added once; where is what differs."""
    model = {"kind": kind, "hidden": 300, "layers": 2}  # wide: rows are added first
    found = {}
    for strategy in STRATEGIES:
        job, counts = counts_of(scenario_of(strategy=strategy, model=model))
        first = [task.kind == "model_forward" for task in job.tasks]
        data = open_for(job.settings)
        plan = BatchPlan.from_settings(job.settings)
        train = plan.walk(data)
        edges, first_edges = 0, 0
        for sampler in range(3):
            for number in range(3):
                batch = plan.batch(data.structure, train, sampler, number)
                edges += sum(len(source) for source, _ in batch.edges)
                first_edges += len(batch.edges[0][0])
        assert counts["sample"].sum() == edges
        assert counts["aggregate"][first].sum() == first_edges * data.feature_length
        found[strategy] = counts["multiply"][first].sum()
        asks = [task.kind == "sampler_fetch" for task in job.tasks]
        drawn_there = counts["sample"][asks].sum()
        assert drawn_there == (first_edges if strategy == "dnp" else 0)
    assert found["gdp"] == found["dnp"] == pytest.approx(found["nfp"])
    # Sums of several owners are multiplied apart.
    assert found["snp"] > found["gdp"]


def test_the_smallest_transfers_are_chosen_and_are_fast() -> None:
    """Narrow sums go to where rows are; wide ones stay where the batch is."""
    chosen = {}
    for hidden in (2, 2000):
        model = {"kind": "gcn", "hidden": hidden, "layers": 2}
        auto = scenario_of(model=model)
        chosen[hidden] = build_job(auto).settings["strategy"]
        times = {
            strategy: prepare(load(auto, {"job.strategy": strategy})).simulate()
            for strategy in STRATEGIES
        }
        fastest = min(times, key=lambda strategy: times[strategy].makespan)
        assert chosen[hidden] == fastest
        assert prepare(auto).simulate().makespan == times[fastest].makespan
    assert chosen[2] in {"snp", "dnp"}
    assert chosen[2000] == "gdp"


def estimate_by_hand(scenario: Scenario) -> float:
    """Return the cost from the simulated bytes between machines."""
    problem = prepare(scenario)
    job, volumes = problem.problem.job, problem.realization.volumes
    seconds = {f"m{n}": 8 / ((n + 1) * 1e9) for n in range(3)}
    place = problem.problem.machine_of_task
    terms = {
        kind: dict.fromkeys(seconds, 0.0) for kind in ("share", "rows", "sums", "back")
    }
    for edge, row in zip(job.edges, volumes, strict=True):
        source, reader = job.tasks[edge.source], job.tasks[edge.destination]
        ends = (place[source.name], place[reader.name])
        if ends[0] == ends[1] or edge.credit:
            continue
        name = {
            "sampler": "share",
            "graph_store": "rows",
            "model_forward": "sums",
            "data_backward": "back",
        }.get(source.kind)
        if name is None or reader.kind.startswith("all_reduce"):
            continue
        for end in ends[1:] if name == "rows" else ends:
            terms[name][end] += row.sum()
    cost = 0.0
    for by_machine in terms.values():
        cost += max(by_machine[name] * seconds[name] for name in seconds)
    return cost


def test_the_estimate_is_of_the_bytes_between_machines() -> None:
    from emu.systems.apt.shares import count_shares

    for strategy in STRATEGIES:
        scenario = scenario_of(strategy=strategy)
        job = build_job(scenario)
        data = open_for(job.settings)
        plan = BatchPlan.from_settings(job.settings)
        counts = count_shares(data, plan, strategy, 3)
        seconds = [8 / ((n + 1) * 1e9) for n in range(3)]
        found = estimate(strategy, counts, 4 * data.feature_length, 4 * 8, seconds)
        assert found == pytest.approx(estimate_by_hand(scenario)), strategy


@pytest.mark.parametrize("epoch", ["replicate", "local"])
@pytest.mark.parametrize("parts", [1, 3, 9])
def test_counts_of_shares_are_those_of_shares_that_are_split(
    epoch: str, parts: int
) -> None:
    """With two samplers per machine, what both need is asked for once."""
    plan = BatchPlan(3, samplers=2 * parts, batch_size=7, fanouts=(3, 4), epoch=epoch)
    data = open_dataset("products-like", scale=0.002, parts=parts, partitioner="hash")
    counted = count_strategies(data, plan, STRATEGIES, 2)
    train = plan.walk(data)
    owner = np.asarray(data.owner)
    for strategy in STRATEGIES[1:]:
        least = count_least(data, plan, strategy, 2)
        # Whoever owns a destination has it in its share; of columns all have all.
        np.testing.assert_array_equal(least.destinations, counted[strategy].own)
        assert not any(counts.any() for counts in (least.edges, least.inputs))
    for strategy in STRATEGIES:
        counts = counted[strategy]
        for number in range(2):
            asked = [set[int]() for _ in range(parts)]
            for sampler in range(plan.samplers):
                batch = plan.batch(data.structure, train, sampler, number)
                for machine in range(parts):
                    place = (sampler, machine, number)
                    home = sampler * parts // plan.samplers
                    found = [counts.destinations[place], counts.edges[place]]
                    found += [counts.inputs[place], counts.own[place]]
                    if machine not in computing(strategy, home, parts):
                        assert not any(found)
                        continue
                    _, share = split(batch, owner, strategy, machine)
                    inputs, _ = share.inputs
                    asked[machine] |= {*inputs.tolist()}
                    expected = [len(share.destinations), len(share.sources)]
                    assert found == [*expected, len(inputs), share.adds_own.sum()]
            for machine, vertices in enumerate(asked):
                owners = owner[[*vertices]]
                if strategy == "nfp":  # its own columns, whoever owns the vertex
                    owners = np.full(len(vertices), machine)
                rows = np.bincount(owners, minlength=parts)
                assert counts.rows[machine, :, number].tolist() == rows.tolist()


@given(
    seed=st.integers(0, 2**32 - 1),
    parts=st.integers(1, 9),
    batch_size=st.integers(1, 12),
    row=st.integers(1, 5000),
    width=st.integers(1, 5000),
    links=st.data(),
)
def test_a_choice_is_that_of_counting_every_strategy(
    seed: int, parts: int, batch_size: int, row: int, width: int, links: st.DataObject
) -> None:
    """Strategies that are left out could not be cheaper, whatever their counts."""
    data = open_dataset("products-like", scale=0.002, parts=parts, partitioner="hash")
    plan = BatchPlan(seed, samplers=2 * parts, batch_size=batch_size, fanouts=(3, 4))
    speeds = st.lists(st.floats(1e6, 1e9), min_size=parts, max_size=parts)
    byte_seconds = [1 / speed for speed in links.draw(speeds)]

    counted = count_strategies(data, plan, STRATEGIES, 2)
    costs = {}
    for strategy, counts in counted.items():
        costs[strategy] = estimate(strategy, counts, row, width, byte_seconds)
        if strategy == "gdp":
            continue
        least = count_least(data, plan, strategy, 2)
        assert (least.destinations <= counts.destinations).all()
        assert estimate(strategy, least, row, width, byte_seconds) <= costs[strategy]

    cheapest = min(costs, key=costs.__getitem__)
    assert choose(data, plan, 2, row, width, byte_seconds) == cheapest


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"model": {"kind": "gat", "hidden": 8, "layers": 2}}, "sage, gcn or gin"),
        ({"strategy": "mp"}, "strategy"),
        ({"cache": {"policy": "vip", "share": 0.1}}, "cache"),
    ],
)
def test_what_it_cannot_do_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        scenario_of(**keys)


def test_more_machines_than_columns_have_no_columns_of_their_own() -> None:
    dataset = {"name": "products-like", "scale": 0.002, "feature_length": 2}
    with pytest.raises(ScenarioError, match="3 machines cannot share 2 features"):
        prepare(scenario_of(strategy="nfp", dataset=dataset))
    prepare(scenario_of(dataset=dataset))  # another one is chosen


def test_rows_in_memory_of_a_device_take_its_memory_and_its_rate() -> None:
    counts = {}
    for place in ("host", "device"):
        scenario = scenario_of(strategy="snp", features=place)
        job, operations = counts_of(scenario)
        stores = [task.kind == "graph_store" for task in job.tasks]
        collected = operations["collect"][stores].sum()
        times = realize(scenario, job).times[stores].sum()
        rate = 10e-12 if place == "device" else 200e-12
        assert times == pytest.approx(collected * rate)
        counts[place] = collected
        assert {job.tasks[n].takes for n in np.flatnonzero(stores)} == {
            "gpu" if place == "device" else "cpu"
        }
    assert counts["host"] == counts["device"]
    scenario = scenario_of(strategy="snp", features="device")
    bounded = load(scenario, {"cluster.machines[0].gpu_memory": "1 kB"})
    with pytest.raises(ScenarioError, match="of gpu_memory are needed on m0"):
        build_job(bounded)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sampler_waits_for_all_that_compute_a_share_of_its_batches(
    strategy: str,
) -> None:
    """A window of 2 holds it back until they have done the batch before the last."""
    job = build_job(scenario_of(strategy=strategy, credit_window=2))

    ends = set()
    for edge in job.edges:
        held = job.tasks[edge.destination]
        if edge.credit and held.kind == "sampler":
            assert edge.lag == 2
            ends.add((job.tasks[edge.source].name, held.name))
    machines = range(3)
    assert ends == {
        (f"Mb{peer}", f"s{home}")
        for home in machines
        for peer in ([home] if strategy == "gdp" else machines)
    }
