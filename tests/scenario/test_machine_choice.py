"""Which machines take part: held where stated, else chosen, against brute force."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import EmulatorError, PlacementError, ScenarioError
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import write_rows
from emu.prediction.analysis.bounds import optimality_line, placement_gap
from emu.prediction.placement.machine_sets import machine_sets
from emu.prediction.simulation import makespan
from emu.problem import Cluster, Edge, Job, Machine, Realization, Task
from emu.report.explanation_tables import placing_line
from emu.scenario import (
    Experiment,
    Scenario,
    build_job,
    load,
    machine_choice,
    prepare,
    realize,
    write_scenario,
)

pytestmark = pytest.mark.timeout(400)

Drawn = dict[str, Any]
TIMES = {"graph_store": "1 ms", "sampler": "2 ms", "parameter_server": "0.5 ms"}


def loads(whole: Drawn, changes: Drawn | None = None) -> Scenario:
    """Return the scenario of a document, with some keys changed."""
    return emu.loads(json.dumps(whole), changes or {}, name="some.json")


def content(machines: list[Drawn], **job: Any) -> Drawn:
    """Return a scenario on some machines."""
    whole = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"hidden": 16, "layers": 2},
        "fanouts": [4, 6],
        "batch_size": 24,
        "iterations": 6,
        "times": {**TIMES, "worker": "4 ms"},
        **job,
    }
    return {
        "name": "some",
        "cluster": {"machines": machines},
        "job": whole,
        "placement": {"iterations": 60},
    }


def with_weak_machines(seed: int, most: int = 2) -> Scenario:
    """Return a job on one or two machines, and one to ``most`` with a slow NIC."""
    rng = np.random.default_rng(seed)
    machines: list[Drawn] = []
    for kind, nics in (("strong", (10, 25)), ("weak", (0.5, 1, 2.5))):
        count = rng.integers(1, 1 + (most if kind == "weak" else 2))
        for number in range(count):
            nic = f"{rng.choice(nics)} Gbit/s"
            rooms = {"cpu": int(rng.choice((4, 8))), "memory": "16 GB"}
            machines.append({"name": f"{kind}{number}", "nic": nic, **rooms})
    demands = {
        "sampler": {"cpu": int(rng.choice((1, 2)))},
        "worker": {"cpu": 1},
        "graph_store": {"memory": f"{rng.choice((2, 6))} GB"},
    }
    return loads(
        content(machines, workers=int(rng.integers(1, 4)), demands=demands)
        | {"seed": seed}
    )


def length(ready: Experiment) -> float:
    """Return the makespan."""
    return makespan(ready.problem, ready.realization, ready.policy)


def on_each_set(scenario: Scenario) -> dict[tuple[str, ...], float]:
    """Return the makespan on every set of machines that is stated and has room."""
    names, found = [name for name, _ in scenario.cluster.names_and_positions()], {}
    for count in range(1, len(names) + 1):
        for some in combinations(names, count):
            fewer = scenario.job.on_machines(some, len(names))
            assert fewer is not None
            with suppress(PlacementError, ScenarioError):  # no room for its stores
                stated = load(scenario, fewer.machine_keys())
                found[some] = length(prepare(stated))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_best_is_as_good_as_the_best_set_of_machines(seed: int) -> None:
    scenario = with_weak_machines(seed)
    by_set = on_each_set(scenario)
    ready = prepare(scenario)

    took = length(ready)
    assert took <= min(by_set.values()) * 1.02
    everything = tuple(name for name, _ in scenario.cluster.names_and_positions())
    assert took <= by_set.get(everything, took) * (1 + 1e-9)
    chosen = tuple(ready.placing["machines"])
    assert took == by_set[chosen]  # the same search where they are stated
    gap = placement_gap(ready.problem, ready.realization, took, seconds=1)
    assert gap["placement_bound"] <= by_set[chosen]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "it.yaml"
        write_scenario(file, ready.scenario)
        again = prepare(load(file))
    assert again.placing == ready.placing
    assert length(again) == took


GPU_BOX = content(
    [
        {"name": "gpu", "nic": "10 Gbit/s", "gpu": 1, "memory": "64 GB"},
        {"name": "cpu", "count": 2, "nic": "100 Mbit/s", "memory": "64 GB"},
    ]
)


def test_the_choice_is_named_and_stated_machines_are_held() -> None:
    free, held = prepare(loads(GPU_BOX)), {}
    assert "on gpu alone" in placing_line(free.placing)
    assert free.scenario.job.movable_on == ("gpu",)
    schedule = free.simulate()
    assert "as placed, whatever" in optimality_line(
        {"bound": 1.0, "gap": 0.1, "bound_by": "gpu in"}
    )
    assert len(schedule.problem.cluster.machines) == 1
    for names in (["gpu", "cpu1"], ["gpu", "cpu0", "cpu1"]):
        ready = prepare(loads(GPU_BOX, {"job.machines": names}))
        assert {*ready.tasks.values()} == {*names} == {*ready.placing["machines"]}
        held[len(names)] = length(ready)
    assert length(free) < min(held.values())
    for policy in ("ifs", "etp", "random", "round_robin", "distdgl"):
        changes = {"placement": {"policy": policy}, "job.machines": ["gpu", "cpu1"]}
        ready = prepare(loads(GPU_BOX, changes))
        assert {*ready.tasks.values()} == {"gpu", "cpu1"}


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        (["gpu", "cpu7"], "no machine 'cpu7', did you mean 'cpu1'"),
        (["gpu", "gpu"], "'gpu' occurs 2 times"),
        ([], "job.machines"),
        (["cpu0"], "gpu"),
    ],
)
@pytest.mark.parametrize("system", ["dgtp", "custom"])
def test_bad_machines_are_one_line(system: str, machines: Any, said: str) -> None:
    whole = json.loads(json.dumps(GPU_BOX))
    if system == "custom":
        task = {"name": "t", "time": "1 s", "demands": {"gpu": 1}}
        whole["job"] = {"system": "custom", "iterations": 1, "tasks": [task]}
    whole["job"]["machines"] = machines
    with pytest.raises(EmulatorError, match=said) as caught:
        prepare(loads(whole))
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize("where", [{"t": "b"}, {}])
def test_what_is_pinned_to_a_machine_that_takes_no_part_is_refused(where: Any) -> None:
    task = {"name": "t", "time": "1 s"} | ({} if where else {"pin": "b"})
    job = {"system": "custom", "iterations": 1, "tasks": [task], "machines": ["a"]}
    machines = [{"name": name, "nic": "1 Gbit/s"} for name in "ab"]
    whole = {"name": "x", "cluster": {"machines": machines}, "job": job}
    with pytest.raises(ScenarioError, match=r"'b' takes no part, job\.machines: a"):
        loads({**whole, "placement": {"policy": "ifs", "tasks": where}})


def test_explain_offers_fewer_machines_and_two_changes_at_once() -> None:
    found = emu.explain(loads(GPU_BOX, {"placement.policy": "ifs"}))
    by_name = {one.change.what: one for one in found.improvements}
    fewer = by_name["without cpu0, cpu1, placed by best"]
    assert fewer.gain > 0.2 * found.replayed_makespan
    both = by_name["NICs of cpu0, cpu1 twice as fast"]
    for one in (fewer, both):
        assert one.change.edit is not None
        again = emu.simulate(loads(GPU_BOX, dict(one.change.edit)))
        assert again.makespan == pytest.approx(one.makespan)


@pytest.mark.parametrize("same", [False, True])
def test_every_system_stands_on_machines_of_its_choice(*, same: bool) -> None:
    scenario = loads(GPU_BOX, {"job.demands": {"sampler": {"cpu": 1}}})
    names = ["dgtp", "data_parallel", "p3"]
    rows = compare_systems(scenario, names, same_machines=same)
    for row in rows:
        assert row.seeds_per_step == rows[0].seeds_per_step
        if same:
            assert row.placing["machines"] == rows[0].placing["machines"]
        with TemporaryDirectory() as folder:
            ((file,),) = write_rows(Path(folder), "it", [(row.system, row.scenarios)])
            assert prepare(load(file)).simulate().makespan == row.makespan
    stated = loads(GPU_BOX, {"job.machines": ["gpu", "cpu0"]})
    held = compare_systems(stated, names)
    assert all({*row.placing["machines"]} <= {"gpu", "cpu0"} for row in held)


def test_a_machine_is_as_fast_as_its_slower_direction() -> None:
    """Six unlike machines, of which one takes in most and lets out least."""
    nics = [(10.0 + m, 10.0 + m) for m in range(5)] + [(100.0, 1.0)]
    machines = tuple(Machine(f"m{m}", i, o) for m, (i, o) in enumerate(nics))
    sets = machine_sets(Job((Task("a", "a"),), (), 1), Cluster(machines), most=64)

    assert [names for names in sets if len(names) == 1] == [("m4",)]
    assert ("m0", "m1", "m2", "m3", "m4") in sets


def test_short_searches_see_volumes_of_the_whole_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last of 40 iterations alone sends bytes; a short search sees it, too."""
    machines = [{"name": name, "nic": "10 Gbit/s"} for name in "ab"]
    scenario = loads(content(machines, iterations=40))
    job = build_job(scenario)
    run = realize(scenario, job)
    late = Realization(run.times, run.volumes * (np.arange(40) == 39))
    searches = list[Realization]()

    def search(
        _job: Job, _cluster: Cluster, seen: Realization, *_: Any, **__: Any
    ) -> Any:
        searches.append(seen)
        return SimpleNamespace(makespan=1.0)

    monkeypatch.setattr(machine_choice, "best_placement", search)
    machine_choice.promising(scenario, job, scenario.to_cluster(), late)
    assert searches
    assert all(seen.volumes[:, -1].sum() > 0 for seen in searches)
    assert all(seen.times.shape[1] < 40 for seen in searches)


def test_every_short_search_tries_ten_placements_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the flows of a full search are those of thirty placements."""
    machines = [{"name": f"m{n}", "nic": f"{n + 1} Gbit/s"} for n in range(5)]
    scenario = loads(content(machines, iterations=40))
    job = build_job(scenario)
    asked = list[int]()

    def search(*_: Any, transfers: int, **__: Any) -> Any:
        asked.append(transfers)
        return SimpleNamespace(makespan=1.0)

    flows = len(job.edges) * machine_choice._ITERATIONS
    monkeypatch.setattr(machine_choice, "FLOWS", 2 * 30 * flows)
    monkeypatch.setattr(machine_choice, "best_placement", search)
    run = realize(scenario, job)
    machine_choice.promising(scenario, job, scenario.to_cluster(), run)
    assert len(asked) == 3
    assert min(asked) >= 10


def job_with_stores(count: int) -> Job:
    """Return stores that send a sampler two flows each, one for the next iteration."""
    stores = [Task(f"g{n}", "graph_store", pinned=f"m{n}") for n in range(count)]
    sampler = Task("s", "sampler")
    edges = []
    for store in range(count):
        edges += [Edge(store, count), Edge(store, count, lag=1)]
    return Job((*stores, sampler), tuple(edges), 2)


def test_fewer_stores_share_what_all_had_of_each_flow() -> None:
    """Three of unequal volumes as two: 60 and 90 bytes at once, 6 and 3 ahead."""
    volumes = [[10.0, 20.0], [1.0, 0.0], [20.0, 30.0], [2.0, 1.0], [30.0, 40.0], [3, 2]]
    times = [[4.0, 4.0], [4.0, 4.0], [4.0, 4.0], [7.0, 8.0]]
    run = Realization(np.array(times), np.array(volumes))
    found = machine_choice.shared_evenly(job_with_stores(3), run, job_with_stores(2))

    assert found.times.tolist() == [[4.0, 4.0], [4.0, 4.0], [7.0, 8.0]]
    assert found.volumes.tolist() == [[30.0, 45.0], [3.0, 1.5]] * 2
