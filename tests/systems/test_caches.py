"""Key ``cache``: hit rates, what is sent and when, memory, bad input."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emu.errors import EmulatorError, InfeasiblePlacement, ScenarioError
from emu.graph_data import BatchPlan, CachePlan, choose_rows, count_samples, open_for
from emu.scenario import Scenario, prepare
from emu.scenario.realize import build_job, realize
from emu.scenario.scenario_file import load, loads
from emu.scenario.setup import setup_rows
from emu.systems.cache_section import (
    CACHED,
    cache_figures,
    leave_room,
    list_fills,
)
from tests import draws

DATA = [
    pytest.mark.data,
    pytest.mark.skipif("EMU_DATA" not in os.environ, reason="EMU_DATA names no graphs"),
]
REALIZE = "emu.scenario.experiment.realize"
TEXT = """
cluster: {machines: [{name: m, count: 3, nic: 1 Gbit/s, memory: 1 MB}]}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.001}
  model: {hidden: 8, layers: 2}
  fanouts: [3, 4]
  batch_size: 8
  iterations: 6
  workers: 2
  samplers_per_worker: 2
  times: {sampler: 1 ms, worker: 1 ms, graph_store: 1 ms, parameter_server: 1 ms}
  cache: {policy: vip, size: 40 kB}
placement:
  policy: explicit
  tasks: {s0: m0, s1: m0, w0: m0, s2: m2, s3: m1, w1: m2, ps0: m1}
"""
#: A job whose workers may stand beside its stores.
ASKING = """
cluster: {machines: [{nic: 1 Gbit/s}]}
job:
  system: rapid_gnn
  dataset: {name: products-like, scale: 0.001}
  model: {hidden: 8, layers: 2}
  fanouts: [3, 4]
  batch_size: 8
  iterations: 6
  times: {sampler: 1 ms, worker: 1 ms, graph_store: 1 ms, parameter_server: 1 ms}
"""


def scenario(*changes: str) -> Scenario:
    """Return a scenario of four samplers, two on one of three machines."""
    return load(loads(TEXT), changes)


def test_what_is_sent_is_counted_once_where_samplers_stand_as_presumed() -> None:
    machines = "cluster.machines=[{name: m, count: 3, nic: 1 Gbit/s}]"
    asking = load(loads(ASKING), [machines])
    with patch(REALIZE, wraps=realize) as counting:
        ready = prepare(asking)
    assert ready.problem.job.settings["cache"]["homes"] == [0, 1, 2]
    assert counting.call_count == 1

    with patch(REALIZE, wraps=realize) as counting:
        prepare(scenario())
    assert counting.call_count == 2  # two samplers stand beside other stores


@pytest.mark.parametrize("system", ["rapid_gnn", "salient_plus_plus"])
def test_a_cache_that_is_the_system_s_own_is_not_written_out(system: str) -> None:
    """Read again it would count as stated, also for a system without one."""
    unstated = loads(ASKING.replace("rapid_gnn", system))
    stated = load(unstated, {"job.cache": {"policy": "lru", "size": "40 kB"}})

    assert getattr(unstated.job, "cache", None) is not None
    assert "cache" not in unstated.to_json()["job"]
    cache = stated.to_json()["job"]["cache"]
    assert (cache["policy"], cache["size"]) == ("lru", "40 kB")


@pytest.mark.parametrize("policy", ["degree", "vip", "lru", "window"])
def test_stores_send_what_the_machine_of_a_sampler_lacks(policy: str) -> None:
    window = ", window: 2" if policy == "window" else ""
    ready = prepare(scenario(f"job.cache={{policy: {policy}, size: 40 kB{window}}}"))
    without = prepare(scenario("job.cache=null"))
    job = ready.problem.job
    saved = 0.0
    fetched = 0.0
    assert job.settings["cache"]["homes"] == [0, 0, 2, 1]
    differ = without.realization.volumes - ready.realization.volumes
    for e, edge in enumerate(job.edges):
        source, to = job.tasks[edge.source], job.tasks[edge.destination]
        away = ready.tasks[source.name] != ready.tasks[to.name]
        pulls = source.kind == "graph_store" and not edge.credit
        assert (differ[e] >= 0).all()
        assert differ[e].any() == (pulls and away)
        saved += differ[e].sum()
        fetched += ready.realization.volumes[e].sum() if pulls and away else 0.0
    (figures,) = cache_figures(ready.simulate()).values()
    assert saved == figures["bytes_saved"] == 400 * figures["hits"]
    assert fetched == 400 * figures["misses"] != saved
    assert figures["rows"] == 100
    assert ready.simulate().makespan < without.simulate().makespan
    rest = cache_figures(ready.beginning_at(4).simulate())["cache"]
    assert 400 * rest["hits"] == differ[:, 4:].sum()


def test_messages_without_a_row_are_those_of_which_all_rows_hit() -> None:
    changes = ["job.batch_size=2", "job.fanouts=[2, 1]", "job.cache.size=200 kB"]
    ready = prepare(scenario(*changes))
    job = ready.problem.job

    empty = 0
    for edge, volumes in zip(job.edges, ready.realization.volumes, strict=True):
        store, sampler = job.tasks[edge.source], job.tasks[edge.destination]
        if store.kind == "graph_store" and not edge.credit:
            away = ready.tasks[store.name] != ready.tasks[sampler.name]
            empty += away * int((volumes == 0).sum())

    (figures,) = cache_figures(ready.simulate()).values()
    assert figures["empty_messages"] == empty > 1


def test_choose_rows_are_sent_before_time_0_from_their_owners() -> None:
    ready = prepare(scenario())
    settings = ready.problem.job.settings
    data, plan = open_for(settings), BatchPlan.from_settings(settings)
    cache = CachePlan("vip", 100, 0, (0, 0, 2, 1))
    expected: dict[tuple[str, str], int] = {}
    for home in range(3):
        rows = choose_rows(data, plan, cache, home)
        for store, count in enumerate(np.bincount(data.owner[rows], minlength=3)):
            expected[f"m{store}", f"m{home}"] = 400 * int(count)
    flows = setup_rows(ready)["flows"]
    sent = {(f["from"], f["to"]): f["bytes"] for f in flows if f["cause"] == CACHED}

    assert sent == {ends: size for ends, size in expected.items() if size}
    assert sum(sent.values()) == 3 * 100 * 400
    lru = setup_rows(prepare(scenario("job.cache.policy=lru")))
    assert CACHED not in lru["causes"]


def test_machines_need_memory_for_rows_and_their_numbers() -> None:
    demands = [task.demands for task in build_job(scenario()).tasks[:3]]
    assert demands == [{"memory": 40_800.0}] * 3


def test_caches_of_two_jobs_add_up_on_machines_without_a_store() -> None:
    """Caches of 100 and 50 rows with their numbers, beside a store with its own."""
    jobs = []
    for name, size in (("a", "40 kB"), ("b", "20 kB")):
        part = scenario(f"job.cache.size={size}", "job.stores=[m1]", "placement=null")
        jobs.append({"name": name, "job": part.to_json()["job"]})
    both = load(scenario(), {"job": None, "placement": None, "jobs": jobs})
    job, cluster = build_job(both), both.cluster.build()

    def left(places: dict[str, str] | None) -> list[float]:
        machines = leave_room(job, cluster, places).machines
        return [machine.resources["memory"] for machine in machines]

    assert left(None) == [1e6 - 61_200, 1e6, 1e6 - 61_200]
    apart = {task.name: "m2" if task.name[0] == "a" else "m0" for task in job.tasks}
    assert left(apart | {"a/g0": "m1", "b/g0": "m1"}) == [
        1e6 - 20_400,
        1e6,
        1e6 - 40_800,
    ]
    small = load(both, {"cluster.machines[0].memory": "51.2 kB"}).cluster.build()
    with pytest.raises(InfeasiblePlacement, match="10 kB more memory") as error:
        leave_room(job, small)
    assert error.value.shortfall == 10_000


def test_caches_of_several_jobs_are_where_their_samplers_stand() -> None:
    one = {
        "job": scenario().to_json()["job"],
        "placement": scenario().to_json()["placement"],
    }
    jobs = [{"name": name, **one} for name in ("a", "b")]
    both = load(scenario(), {"job": None, "placement": None, "jobs": jobs})
    ready, alone = prepare(both), prepare(scenario())

    for part in ready.problem.job.settings["jobs"].values():
        assert part["cache"]["homes"] == [0, 0, 2, 1]
    count = len(alone.problem.job.edges)
    np.testing.assert_array_equal(
        ready.realization.volumes[:count], alone.realization.volumes
    )
    of_one = setup_rows(alone)["causes"][CACHED]["bytes"]
    assert setup_rows(ready)["causes"][CACHED]["bytes"] == 2 * of_one


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (["job.cache.size=2 MB"], "5,000 rows with their numbers are 2.04 MB"),
        (["job.cache.size=399 B"], "holds 0 rows for 1 samplers, write 400 B or more"),
        (["job.cache={policy: lru, size: 400 B}"], "holds 1 rows for 2 samplers"),
        (["job.cache.policy=window"], "write for example window: 16"),
        (["job.cache.window=2"], "found a window for vip, which looks at none"),
        (["job.cache={policy: window, size: 1 kB, window: 0}"], "cache.window"),
        (
            ["job.cache={policy: window, size: 1 kB, window: 7}"],
            "of 6 batches: write 6",
        ),
        (
            [
                "job.cache={policy: window, size: 1 kB, window: 99}",
                "job.iterations=null",
                "job.epochs=1",
            ],
            "found 99 for a job of",
        ),
        (["job.cache={policy: best, size: 1 kB}"], "cache.policy"),
        (["job.cache.share=0.5"], "found both of size and share, write one"),
        (["job.cache={policy: vip}"], "found neither of size and share"),
        (["job.cache={policy: vip, share: 2.1}"], "one's own have 2: write at most"),
        (["job.cache={policy: vip, share: 0}"], "cache.share"),
        (["job.cache={policy: vip, share: 0.0001}"], "holds 0 rows for 1 samplers"),
        (["job.cache={policy: hot, share: 1, window: 2}"], "asked for, as in rapid"),
    ],
)
def test_what_no_cache_can_be_is_refused(changes: list[str], text: str) -> None:
    with pytest.raises(EmulatorError) as error:
        prepare(scenario(*changes))
    assert text in str(error.value)
    assert "cache" in str(error.value)


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        # One machine alone owns all rows: its cache is idle, as one with a size is.
        ("job.machines=[m1]", 1),
        ("job.machines=[m0, m1, m2]", 2),
        # Machines without a part keep rows of all that have one.
        ("job.stores=[m2]", 1),
        ("job.stores=[m0, m2]", 2),
    ],
)
@pytest.mark.parametrize("policy", ["vip", "lru"])
def test_a_share_is_at_most_that_of_all_others(
    keys: str, most: int, policy: str
) -> None:
    is_alone = keys == "job.machines=[m1]"
    # Samplers of the file are on all machines: one alone has to place them itself.
    placement = ["placement=null"] if is_alone else []

    def cached(share: float) -> Scenario:
        cache = f"job.cache={{policy: {policy}, share: {share}}}"
        return scenario(keys, cache, *placement)

    ready = prepare(cached(most))

    (figures,) = cache_figures(ready.simulate()).values()
    met_rows = figures["hits"] + figures["misses"]
    assert (met_rows == 0) == is_alone
    with pytest.raises(ScenarioError, match=f"one's own have {most}: write at most"):
        cached(most + 0.5)


@pytest.mark.parametrize("stores", ["[m0, m1]", "2"])
def test_workers_beside_as_many_stores_keep_rows_of_all(stores: str) -> None:
    machines = "cluster.machines=[{name: m, count: 4, nic: 1 Gbit/s}]"

    def cached(share: float) -> Scenario:
        cache = f"{{policy: hot, window: 2, share: {share}}}"
        edits = [machines, f"job.stores={stores}", f"job.cache={cache}"]
        return load(loads(ASKING), edits)

    assert cached(2).to_json()["job"]["cache"]["share"] == 2
    with pytest.raises(ScenarioError, match="one's own have 2: write at most"):
        cached(2.5)


def test_what_no_cache_of_several_jobs_can_be_is_said_of_its_job() -> None:
    jobs = [
        {"name": size, "job": scenario(f"job.cache.size={size} B").to_json()["job"]}
        for size in ("400", "399")
    ]
    with pytest.raises(ScenarioError, match="holds 0 rows") as error:
        prepare(load(scenario(), {"job": None, "placement": None, "jobs": jobs}))
    assert error.value.key == "jobs.1.job.cache.size"


#: Share of hits among rows that others own, in %, at 1, 5, 10 and 30 % of all rows, of
#: four samplers: 100 batches of 20 seeds (10, 5), 60 of 128 (10, 25). The table that
#: this meets has 2 for the first ``lru`` of amazon_computers, where we count 1.45.
RATES = {
    ("products-like", "degree"): (8, 22, 33, 62),
    ("products-like", "vip"): (8, 23, 36, 68),
    ("products-like", "lru"): (2, 10, 19, 46),
    ("products-like", "window"): (17, 36, 41, 55),
    ("amazon_computers", "degree"): (3, 12, 23, 60),
    ("amazon_computers", "vip"): (3, 12, 23, 60),
    ("amazon_computers", "lru"): (1, 7, 15, 48),
    ("amazon_computers", "window"): (3, 13, 26, 70),
}
SIZES = {
    "products-like": {"seed": 2, "scale": 0.02, "batch_size": 20, "fanouts": [10, 5]},
    "amazon_computers": {
        "seed": 1,
        "scale": 1.0,
        "batch_size": 128,
        "fanouts": [10, 25],
    },
}


def hit_rates(name: str, policy: str, shares: tuple[int, ...]) -> list[float]:
    """Return the hit rates, in %, of caches of these percentages of all rows."""
    own = {**SIZES[name], "workers": 4, "samplers_per_worker": 1, "epoch": "shard"}
    dataset = {"name": name, "root": "", "seed": own["seed"], "scale": own.pop("scale")}
    stated = {
        "dataset": dataset,
        "partitioner": "metis",
        "parts": 4,
        "model": {},
        **own,
    }
    data, plan = open_for(stated), BatchPlan.from_settings(stated)
    rates = []
    for share in shares:
        rows, window = data.vertices * share // 100, 16 * (policy == "window")
        cache = CachePlan(policy, rows, window, (0, 1, 2, 3))
        batches = 100 if name == "products-like" else 60
        counts = count_samples(data, plan, batches, cache)
        hits = sum(sum(one.hits) for of in counts for one in of)
        others = [
            sum(one.owned) - one.owned[s] for s, of in enumerate(counts) for one in of
        ]
        rates.append(100 * hits / sum(others))
    return rates


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(*key, marks=DATA if key[0] == "amazon_computers" else ())
        for key in RATES
    ],
)
def test_hit_rates_are_those_of_the_table(name: str, policy: str) -> None:
    shares = draws.some((1, 5, 10, 30))
    rates = hit_rates(name, policy, tuple(shares))

    assert [round(rate) for rate in rates] == [*RATES[name, policy]][: len(rates)]


def test_what_a_store_demands_besides_comes_on_top_of_its_cache() -> None:
    """Memory counts to the last byte of a machine, and the error names the cache."""
    stated = ["job.demands.graph_store.memory=1 kB"]
    demands = [task.demands for task in build_job(scenario(*stated)).tasks[:3]]
    assert demands == [{"memory": 41_800.0}] * 3
    fits = "cluster.machines[0].memory={}"
    build_job(scenario(*stated, fits.format("41.8 kB")))
    with pytest.raises(ScenarioError, match=r"1 B more than m0 has room") as error:
        build_job(scenario(*stated, fits.format("41799 B")))
    assert error.value.key == "job.cache.size"


def test_two_samplers_of_a_machine_need_a_row_each() -> None:
    build_job(scenario("job.cache={policy: lru, size: 800 B}"))
    with pytest.raises(ScenarioError, match="holds 1 rows for 2 samplers, write 800 B"):
        build_job(scenario("job.cache={policy: lru, size: 799 B}"))
    # One is a share of what a store owns on average, a third of all.
    words = "holds 0 rows for 1 samplers, write 0.00{} or more"
    job = build_job(scenario("job.cache={policy: vip, share: 0.5}"))
    vertices = open_for(job.settings).vertices
    share = f"{3 / vertices:.2g}".removeprefix("0.00")
    with pytest.raises(ScenarioError, match=words.format(share)) as error:
        build_job(scenario("job.cache={policy: vip, share: 0.0001}"))
    assert error.value.key == "job.cache.share"


def test_rows_of_the_next_window_are_misses_as_well() -> None:
    """Misses are rows that cross machines; messages without rows are counted."""
    machines = "cluster.machines=[{name: m, count: 3, nic: 1 Gbit/s}]"
    hot = "job.cache={policy: hot, share: 0.2, window: 2}"
    ready = prepare(load(loads(ASKING), [machines, hot]))
    job = ready.problem.job
    sent, empty = 0.0, 0
    both = np.zeros((3, 3, job.iterations))
    for edge, volumes in zip(job.edges, ready.realization.volumes, strict=True):
        source, to = job.tasks[edge.source], job.tasks[edge.destination]
        if (source.kind, to.kind) == ("graph_store", "sampler"):
            place = source.settings["store"], to.settings["sampler"]
            if place[0] != place[1] and not edge.credit:
                both[place] += volumes
    sent = both.sum() / 400
    apart = ~np.eye(3, dtype=bool)
    empty = int((both[apart] == 0).sum())
    (figures,) = cache_figures(ready.simulate()).values()
    assert figures["misses"] == sent > 0
    assert figures["empty_messages"] == empty
    assert figures["bytes_saved"] == 400 * figures["hits"] > 0
    rate = figures["hits"] / (figures["hits"] + figures["misses"])
    assert figures["hit_rate"] == pytest.approx(rate)
    text = ASKING.replace("rapid_gnn", "data_parallel")
    plain = prepare(load(loads(text), [machines]))
    assert cache_figures(plain.simulate()) == {}


def test_what_fills_a_hot_cache_comes_from_the_owners_of_its_rows() -> None:
    """Those of the first window that batches need most often, and no more than fit."""
    machines = "cluster.machines=[{name: m, count: 3, nic: 1 Gbit/s}]"
    hot = "job.cache={policy: hot, share: 0.2, window: 2}"
    ready = prepare(load(loads(ASKING), [machines, hot]))
    job = ready.problem.job
    data = open_for(job.settings)
    most = int(0.2 * data.vertices / 3)
    plan = BatchPlan.from_settings(job.settings)
    train = plan.walk(data)
    for sampler in range(3):
        needed = np.zeros(data.vertices, int)
        for number in range(2):
            batch = plan.batch(data.structure, train, sampler, number)
            needed[batch.vertices] += 1
        needed[np.asarray(data.owner) == sampler] = 0
        found = [size for _, _, to, size in list_fills(job) if to == f"s{sampler}"]
        rows = sum(found) / 400
        assert 0 < rows <= min(most, int((needed > 0).sum()))
        own = [
            size
            for _, store, to, size in list_fills(job)
            if (store, to) == (f"g{sampler}", f"s{sampler}")
        ]
        assert not any(own)


def test_a_profile_knows_no_cache(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(ScenarioError, match=r"a profile knows no job\.cache"):
        scenario(f"profile={tmp_path / 'p.json'}")
    scenario(f"profile={tmp_path / 'p.json'}", "job.cache=null")
