"""Key ``stores``: machines that own no part of the graph."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from emu.errors import EmulatorError, ScenarioError
from emu.experiment import advice_search
from emu.experiment.advice import _Levers, advise
from emu.experiment.prospects import Terms
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import as_system, write_rows
from emu.prediction.simulation import makespan
from emu.scenario import Experiment, Scenario, build_job, load, prepare, realize
from emu.scenario.machine_choice import apart_words
from emu.scenario.scenario_file import loads
from emu.scenario.setup import setup_bytes
from emu.systems.cache_section import CACHED
from tests.systems.stores_apart import counted, drawn_pool, read_pool, sent

SYSTEMS = [("dgtp", {}), ("dgtp", {"sampling": "multiround"}), ("data_parallel", {})]
STORED = "no graph stores"


def length(ready: Experiment) -> float:
    """Return the makespan."""
    return makespan(ready.problem, ready.realization, ready.policy)


def owners_of(ready: Experiment) -> list[str]:
    """Return the machines of the stores, by number."""
    stores = [task for task in ready.problem.job.tasks if task.kind == "graph_store"]
    return [ready.tasks[task.name] for task in stores]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("system", "keys"), SYSTEMS)
def test_bytes_between_machines_are_those_counted(
    system: str, keys: dict[str, Any], seed: int
) -> None:
    document = drawn_pool(seed, system, **keys)
    stated = document["job"]["stores"]

    ready = prepare(read_pool(document))
    assert owners_of(ready) == stated  # by number, in the order of the file
    workers = {at for task, at in ready.tasks.items() if task.startswith("w")}
    assert all(name.startswith("c") for name in workers)  # the others have no gpu
    assert sent(ready.simulate()) == counted(ready, stated)


def test_no_store_is_without_a_vertex() -> None:
    """The least graph has 507 vertices."""
    document = drawn_pool(
        0, "dgtp", dataset={"name": "products-like", "scale": 2.07e-4}
    )
    machine = {"name": "m", "count": 509, "nic": "1 Gbit/s"}
    document["cluster"] = {"machines": [machine]}
    document["job"] |= {"stores": 508, "batch_size": 1, "partitioner": "hash"}
    scenario = read_pool(document)
    with pytest.raises(ScenarioError, match="508 graph stores for 507 vertices"):
        realize(scenario, build_job(scenario))
    section: Any = scenario.job
    section.check_parts(507, 507)


def test_workers_stand_beside_stores_that_are_on_all_machines() -> None:
    document = drawn_pool(1, "dgtp")
    names = [machine["name"] for machine in document["cluster"]["machines"]]
    document["job"]["stores"] = names
    ready = prepare(as_system(read_pool(document), "data_parallel"))

    assert owners_of(ready) == names
    assert (ready.tasks["w0"], ready.tasks["w1"]) == ("c0", "c1")  # these have gpus


@pytest.mark.parametrize("policy", ["ifs", "etp", "distdgl", "random", "round_robin"])
def test_every_placement_keeps_stores_apart(policy: str) -> None:
    document = drawn_pool(3, "dgtp", stores=2)
    document["placement"] = {"policy": policy, "iterations": 40}

    ready = prepare(read_pool(document))
    assert owners_of(ready) == ["s0", "s1"]  # the first without a gpu
    assert {at for task, at in ready.tasks.items() if task[0] == "w"} <= {"c0", "c1"}
    tasks = {task: at for task, at in ready.tasks.items() if "." not in task}
    document["placement"] = {"policy": "explicit", "tasks": tasks}
    assert length(prepare(read_pool(document))) == pytest.approx(length(ready))


def splits(scenario: Scenario, count: int) -> dict[tuple[str, ...], float]:
    """Return the makespan with each so many machines of all as stores."""
    lengths = {}
    names = scenario.cluster.names
    for owners in combinations(names, count):
        try:
            stated = load(scenario, {"job.stores": [*owners]})
            lengths[owners] = length(prepare(stated))
        except EmulatorError:  # no machine is left for a worker
            continue
    return lengths


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("system", ["dgtp", "data_parallel"])
def test_a_number_is_split_as_well_as_the_best_of_all_splits(
    system: str, seed: int
) -> None:
    document = drawn_pool(seed, system)
    for machine in document["cluster"]["machines"]:
        machine.pop("gpu", None)  # then all may be stores
    most = len(document["cluster"]["machines"]) - 1
    document["job"]["stores"] = count = 1 + seed % most

    scenario = read_pool(document)
    ready = prepare(scenario)
    by_split = splits(scenario, count)
    chosen = ready.scenario.job.machine_keys()["job.stores"]
    assert length(ready) <= min(by_split.values()) * 1.02
    assert length(ready) == pytest.approx(by_split[tuple(chosen)], rel=1e-9)
    again = prepare(load(ready.scenario, {}))
    assert again.placing == ready.placing


def test_auto_is_no_worse_than_a_store_on_each_machine_and_moves_its_memory() -> None:
    document = drawn_pool(5, "dgtp", stores="auto")
    document["job"]["demands"] = {"graph_store": {"memory": "30 GB"}}
    for machine in document["cluster"]["machines"]:
        machine["memory"] = "100 GB"
    document["cluster"]["machines"][0]["nic"] = "5 Mbit/s"
    free = prepare(read_pool(document))
    machines = len(document["cluster"]["machines"])
    chosen = free.scenario.job.machine_keys()
    assert chosen["job.stores"] == owners_of(free)
    size = float(chosen["job.demands.graph_store.memory"].split()[0])
    assert size == pytest.approx(30 * machines / len(owners_of(free)), rel=1e-6)

    document["job"]["stores"] = None
    assert length(free) <= length(prepare(read_pool(document))) * 1.001


def test_each_machine_without_a_part_has_a_cache_of_its_own() -> None:
    document = drawn_pool(4, "dgtp", cache={"policy": "degree", "size": "40 kB"})
    document["placement"] = {"policy": "distdgl"}
    document["job"] |= {"workers": 4, "samplers_per_worker": 1}
    ready = prepare(read_pool(document))
    owners, settings = owners_of(ready), ready.problem.job.settings

    names = [ready.tasks[f"s{sampler}"] for sampler in range(4)]
    homes = settings["cache"]["homes"]
    assert len({*names}) > 1
    assert not {*names} & {*owners}
    assert min(homes) == len(owners)
    assert len({*zip(homes, names, strict=True)}) == len({*homes}) == len({*names})
    sizes = setup_bytes(ready)
    filled = {to: 0.0 for cause, _, to in sizes if cause == CACHED}
    for (cause, source, to), size in sizes.items():
        if cause == CACHED:
            assert source in owners
            filled[to] += size
    assert filled == dict.fromkeys(names, 40_000.0)  # 100 rows of 400 bytes each


def test_a_cache_keeps_its_memory_free_where_no_store_does() -> None:
    document = drawn_pool(4, "dgtp", cache={"policy": "lru", "size": "3 GB"})
    for machine in document["cluster"]["machines"]:
        machine["memory"] = "4 GB"
    ready = prepare(read_pool(document))
    assert {m.resources["memory"] for m in ready.problem.cluster.machines} == {4e9}
    document["job"]["demands"] = {"worker": {"memory": "2 GB"}}
    with pytest.raises(EmulatorError, match="memory"):
        prepare(read_pool(document))
    document["job"]["cache"]["size"] = "4 GB"  # the numbers of rows come on top
    with pytest.raises(ScenarioError, match=r"more than s\d has room for"):
        prepare(read_pool(document))


@pytest.mark.parametrize("stores", [["s1", "s0"], 2])
def test_systems_without_stores_are_refused_by_name(
    stores: Any, tmp_path: Path
) -> None:
    document = drawn_pool(1, "dgtp", stores=stores)
    rates = dict.fromkeys(("aggregate", "multiply", "sample", "collect"), "1 ns")
    document["job"] |= {"rates": {**rates, "step": "1 ns", "launch": "1 us"}}
    del document["job"]["times"]
    scenario = read_pool(document)

    names = ["dgtp", "distdgl", "data_parallel", "one_machine", "p3.A", "dgcl"]
    rows = {row.system: row for row in compare_systems(scenario, names)}
    assert STORED in str(rows["p3.A"].refused)
    assert STORED in str(rows["dgcl"].refused)
    assert "one machine would own all" in str(rows["one_machine"].refused)
    simulated = [row for row in rows.values() if row.refused is None]
    assert [row.system for row in simulated] == names[:3]
    written = [(row.system, row.scenarios) for row in simulated]
    files = write_rows(tmp_path, "pool", written)
    for row, (file,) in zip(simulated, files, strict=True):
        ready = prepare(load(Path(file)))
        assert length(ready) == pytest.approx(row.makespan)
        if isinstance(stores, list):
            assert owners_of(ready) == stores
        assert len(owners_of(ready)) == 2
        assert all(name.startswith("s") for name in owners_of(ready))


def test_a_system_without_stores_is_compared_where_the_file_says_so() -> None:
    """The refusal names that each machine of such a system owns a part."""
    document = drawn_pool(3, "data_parallel")
    with pytest.raises(ScenarioError, match=r"systems: \{p3: \{stores: auto\}\}"):
        compare_systems(read_pool(document), ["p3.A"])
    document["systems"] = {"p3": {"stores": "auto"}}
    (row,) = compare_systems(read_pool(document), ["p3.A"])

    assert row.refused is None
    assert row.edits["job.stores"] == (document["job"]["stores"], None)


@pytest.mark.parametrize("stores", [2, "auto"])
def test_advice_keeps_a_number_among_storage_and_chooses_it_where_it_may(
    stores: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What limits and would change an advice is most of what one takes, and is not asked
    # for; nor are other systems.
    monkeypatch.setattr(_Levers, "find_rate", lambda _: None)
    monkeypatch.setattr(_Levers, "find_changes", lambda _: [])
    monkeypatch.setattr(advice_search, "list_variants", lambda _: ["dgtp"])
    document = drawn_pool(12, "dgtp", stores=stores)  # of one machine with gpus
    document["job"]["demands"] = {"graph_store": {"memory": "40 GB"}}
    for machine in document["cluster"]["machines"]:
        machine["memory"] = "32 GB" if "gpu" in machine else "900 GB"

    advice = advise(read_pool(document), Terms(seeds=1))
    answers = [choice.answer for choice in (advice.best, *advice.others)]
    by_system = {answer.system: answer for answer in answers}
    ready, _ = by_system["dgtp"].first
    owners = owners_of(ready)
    assert {name[0] for name in owners} == {"s"}  # the others have no room
    assert stores == "auto" or len(owners) == stores


def refused(**job: Any) -> str:
    """Return what is wrong with a pool of these keys."""
    document = drawn_pool(1, "dgtp")
    document["job"] |= job
    if document["job"]["system"] == "data_parallel":
        for key in ("workers", "samplers_per_worker", "sync"):
            del document["job"][key]
    with pytest.raises(EmulatorError) as caught:
        prepare(read_pool(document))
    return str(caught.value)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"stores": ["s7"]}, "job.stores[0]: no machine 's7', known: s0"),
        ({"stores": ["s0", "s0"]}, "'s0' occurs 2 times"),
        ({"stores": 99}, "job.stores: found 99, "),
        ({"stores": 0}, "found 0, write names of machines, how many"),
        ({"stores": []}, "found [], write names of machines, how many"),
        ({"stores": ["s0"], "machines": ["c0"]}, "'s0' takes no part, job.machines"),
        (
            {"demands": {"worker": {"gpu": 3}}},
            "gpu",
        ),
        (
            {"system": "data_parallel", "demands": {"worker": {"gpu": 3}}},
            "job.stores: no machine without a store has room for a worker",
        ),
        ({"partitioner": "imported"}, "needs a graph that was imported with its parts"),
    ],
)
def test_what_stores_cannot_be_is_one_line(keys: dict[str, Any], text: str) -> None:
    problem = refused(**keys)
    assert text in problem
    assert len([line for line in problem.splitlines() if "stores" in line]) <= 2


def test_a_document_of_stores_is_written_as_it_was_read() -> None:
    for stores in (["s1", "s0"], 2, "auto"):
        document = drawn_pool(2, "dgtp", stores=stores)
        scenario = read_pool(document)
        content = json.loads(json.dumps(scenario.to_json()))
        assert content["job"]["stores"] == stores
        assert read_pool(content) == scenario


def test_a_number_is_of_machines_with_room_first_of_those_without_gpus() -> None:
    document = drawn_pool(2, "dgtp", stores=1)
    document["job"]["demands"] = {"graph_store": {"memory": "8 GB"}}
    machines = document["cluster"]["machines"]
    small = ["s0", machines[-1]["name"]]
    for machine in machines:
        machine["memory"] = "4 GB" if machine["name"] in small else "16 GB"
    for policy in ("ifs", "best"):
        document["placement"] = {"policy": policy, "iterations": 20}
        ready = prepare(read_pool(document))
        assert owners_of(ready)[0] in {"s1", "s2", "s3"}
    for machine in machines:
        is_storage = machine["name"].startswith("s")
        machine["memory"] = "4 GB" if is_storage else "16 GB"
    ready = prepare(read_pool(document))
    assert owners_of(ready)[0].startswith("c")


def test_stores_beside_gpus_are_spoken_of_where_none_are_stated() -> None:
    document = drawn_pool(1, "dgtp", stores=None)
    storage = sum("gpu" not in one for one in document["cluster"]["machines"])
    for stated, text in ((None, f"job.stores: {storage} keeps them"), (storage, "")):
        document["job"]["stores"] = stated
        ready = prepare(read_pool(document))
        hint = apart_words(ready.scenario, ready.problem)
        assert text in hint
        assert bool(text) == bool(hint)


def test_a_row_has_its_stores_on_machines_of_their_own() -> None:
    """As GLT has them, beside a row whose machines own the graph themselves."""
    document = drawn_pool(2, "dgtp")
    stores = document["job"].pop("stores")
    document["systems"] = {"distdgl": {"stores": stores}}
    apart, beside = compare_systems(read_pool(document), ["distdgl", "data_parallel"])
    assert owners_of(apart.experiment) == stores
    computing = {
        machine
        for task, machine in apart.experiment.tasks.items()
        if task.startswith("w")
    }
    assert computing
    assert not computing & {*stores}
    assert not {*owners_of(beside.experiment)} & {*stores}


def test_workers_stand_on_the_machines_without_a_store_that_have_room() -> None:
    """Five machines could have both; one has no core for a worker."""
    document = {
        "cluster": {
            "machines": [
                {"name": "m", "count": 4, "nic": "1 Gbit/s", "cpu": 4},
                {"name": "small", "nic": "1 Gbit/s", "cpu": 0.5},
            ]
        },
        "job": {
            "system": "data_parallel",
            "dataset": {"name": "products-like", "scale": 0.001},
            "model": {"hidden": 8, "layers": 2},
            "fanouts": [2, 2],
            "batch_size": 8,
            "iterations": 1,
            "times": {"sampler": "1 ms", "worker": "1 ms"},
            "demands": {"worker": {"cpu": 1}},
            "stores": ["m2", "m0"],
        },
    }
    scenario = loads(json.dumps(document))
    names = scenario.cluster.names

    assert scenario.job.owners(names) == ("m2", "m0")
    assert scenario.job.ranks(names) == ("m1", "m3")
    chosen = load(scenario, {"job.stores": None, "job.machines": ["m3", "m0"]})
    assert chosen.job.ranks(names) == ("m3", "m0")


def test_as_many_stores_as_there_are_machines_are_the_most() -> None:
    most = len(drawn_pool(1, "dgtp")["cluster"]["machines"])
    words = f"found {most + 1}, {most} machines may have one: write {most} or fewer"
    assert words in refused(stores=most + 1)
