"""Setup of a training as a job of its own: seconds by hand, and what commands say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.experiment.systems import as_system
from emu.graph_data import BatchPlan, count_samples, open_for
from emu.problem import Profile
from emu.scenario import ProfileFile, build_job, load, prepare, setup, write_profile
from emu.scenario.scenario_file import loads
from emu.scenario.setup import planning_seconds, setup_to_run
from emu.systems.cache_section import count_precomputed

#: 125 and 25 MB/s.
FAST, SLOW = 1.25e8, 2.5e7
TRAINING: dict[str, Any] = {
    "name": "training",
    "cluster": {
        "machines": [
            {"name": "a", "count": 3, "nic": "1 Gbit/s"},
            {"name": "b", "nic": "200 Mbit/s"},
        ]
    },
    "job": {
        "system": "data_parallel",
        "dataset": {"name": "products-like", "scale": 0.0005},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [2, 2],
        "batch_size": 4,
        "iterations": 3,
        "times": {"sampler": "1 ms", "worker": "1 ms"},
    },
}
#: Bytes of two layers of GraphSAGE: 100 features, width 8, 47 classes.
WEIGHTS = 4 * (2 * 100 * 8 + 8 + 2 * 8 * 47 + 47)


def setup_of(changes: dict[str, Any] | None = None) -> Any:
    return emu.setup(loads(json.dumps(TRAINING), changes or {}))


@pytest.mark.parametrize("begins", [True, False])
def test_a_run_begins_with_its_setup_where_the_file_says_so(*, begins: bool) -> None:
    changes = {"emulation.setup": begins}
    ready = prepare(loads(json.dumps(TRAINING), changes))
    assert (setup_to_run(ready) is not None) is begins


def simulated(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Return what ``emu simulate`` prints of the training, and its result."""
    file, out = folder / "training.yaml", folder / "out.json"
    file.write_text(json.dumps(TRAINING))
    done = CliRunner().invoke(app, ["simulate", str(file), *options, f"--json={out}"])
    assert done.exit_code == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


def test_weights_leave_the_first_machine_at_the_rate_of_its_nic() -> None:
    """Three flows share 125 MB/s until the slow machine's NIC is what limits one."""
    content = setup_of({"schedule.policy": "maxmin"})

    to = {(flow["from"], flow["to"]): flow["bytes"] for flow in content["flows"]}
    assert to == {("a0", name): WEIGHTS for name in ("a1", "a2", "b")}
    # 25 MB/s to b, and 50 to each of the others.
    ends = {flow["to"]: flow["end"] for flow in content["flows"]}
    expected = {"a1": WEIGHTS / 5e7, "a2": WEIGHTS / 5e7, "b": WEIGHTS / SLOW}
    assert ends == pytest.approx(expected)
    assert content["causes"] == {
        "weights": {"bytes": 3 * WEIGHTS, "seconds": pytest.approx(WEIGHTS / SLOW)}
    }
    assert content["seconds"] == pytest.approx(WEIGHTS / SLOW)
    assert content["bytes"] == 3 * WEIGHTS


def test_a_cause_takes_as_long_as_its_longest_flow_wherever_that_stands() -> None:
    """The slowest flow is neither the first nor the last."""
    machines = [
        {"name": "a", "nic": "1 Gbit/s"},
        {"name": "middle", "nic": "500 Mbit/s"},
        {"name": "slow", "nic": "200 Mbit/s"},
        {"name": "last", "nic": "1 Gbit/s"},
    ]
    changes = {"schedule.policy": "maxmin", "cluster.machines": machines}
    content = setup_of(changes)

    assert [flow["to"] for flow in content["flows"]] == ["middle", "slow", "last"]
    assert content["causes"]["weights"]["seconds"] == pytest.approx(WEIGHTS / SLOW)
    assert content["flows"][-1]["end"] < WEIGHTS / SLOW


def test_rates_are_those_of_the_scenarios_rule() -> None:
    """One after the other the flows of a0 end at one, two and three times the bytes."""
    changes = {"schedule.policy": "fifo", "cluster.machines[1].nic": "1 Gbit/s"}
    ends = sorted(flow["end"] for flow in setup_of(changes)["flows"])

    assert ends == pytest.approx([n * WEIGHTS / FAST for n in (1, 2, 3)])


def test_latencies_of_both_nics_come_on_top() -> None:
    machines = [
        {"name": "a", "nic": {"in": FAST, "out": FAST, "latency": {"out": "3 ms"}}},
        {"name": "b", "nic": {"in": FAST, "out": FAST, "latency": {"in": "4 ms"}}},
    ]
    for machine in machines:
        nic: Any = machine["nic"]
        nic |= {"in": f"{FAST:g} B/s", "out": f"{FAST:g} B/s"}

    found = setup_of({"cluster.machines": machines})

    assert found["seconds"] == pytest.approx(WEIGHTS / FAST + 0.007)


def test_columns_and_weights_of_p3_end_by_their_bytes_over_the_nic() -> None:
    machines = [{"name": "a", "nic": "1 Gbit/s"}, {"name": "b", "nic": "200 Mbit/s"}]
    times = ("model_forward", "data_forward", "data_backward", "model_backward")
    job = TRAINING["job"] | {
        "system": "p3",
        "columns": [1, 3],
        "pipeline": "none",
        "times": {"sampler": "1 ms", **dict.fromkeys(times, "1 ms")},
    }
    content = setup_of({"cluster.machines": machines, "job": job})

    flows = content["flows"]
    sizes = {(flow["cause"], flow["from"]): flow["bytes"] for flow in flows}
    rows = sizes["columns", "a"] / (4 * 75) + sizes["columns", "b"] / (4 * 25)
    assert rows == 1_225  # of every vertex what its owner has not
    # Each way has the slow NIC alone; on the way to b two flows share it.
    to_slow = sizes["columns", "a"] + sizes["weights", "a"]
    assert content["seconds"] == pytest.approx(to_slow / SLOW)
    ends = {(flow["cause"], flow["to"]): flow["end"] for flow in content["flows"]}
    assert ends["columns", "a"] == pytest.approx(sizes["columns", "b"] / SLOW)
    assert ends["weights", "b"] == pytest.approx(2 * sizes["weights", "a"] / SLOW)
    assert content["causes"]["columns"]["seconds"] == content["seconds"]


def test_the_clock_of_events_and_deaths_is_that_of_the_training() -> None:
    before = setup_of()
    events = [
        {"at": "1 us", "machine": "a0", "nic": "1 Mbit/s"},
        {"at": "1 ms", "kill": "w1"},
    ]
    changes = {"events": events, "on_failure": "restart", "recovery": "1 s"}

    assert setup_of(changes) == before


def test_emulated_bytes_are_real_ones_over_the_scale() -> None:
    setup = setup_of({"emulation.byte_scale": 0.5})

    assert {flow["bytes"] for flow in setup["flows"]} == {2 * WEIGHTS}


def test_resources_prices_and_pools_of_machines_ask_for_nothing() -> None:
    machine = {"nic": "1 Gbit/s", "count": 2, "disk": 3, "cpu": 2, "price": "1 $/h"}
    changes = {
        "cluster.machines": [machine | {"slots": {"gpu": 1}}],
        "job.demands.worker": {"disk": 1, "cpu": 1},
    }

    (flow,) = setup_of(changes)["flows"]
    assert (flow["from"], flow["to"], flow["bytes"]) == ("m0", "m1", WEIGHTS)


def test_several_jobs_send_what_each_of_them_would() -> None:
    """A custom job begins with nothing; both others share the NICs."""
    one = TRAINING["job"]
    custom = {
        "system": "custom",
        "iterations": 1,
        "tasks": [{"name": "t", "time": "1 s"}],
    }
    jobs = [
        {"name": "x", "job": one | {"machines": ["a0", "a1"]}},
        {"name": "y", "job": one | {"machines": ["a0", "a1", "b"]}},
        {"name": "z", "job": custom},
    ]

    setup = setup_of({"job": None, "jobs": jobs})

    sizes = {(flow["from"], flow["to"]): flow["bytes"] for flow in setup["flows"]}
    assert sizes == {("a0", "a1"): 2 * WEIGHTS, ("a0", "b"): WEIGHTS}


def test_a_job_that_trains_nothing_has_none() -> None:
    assert emu.setup(emu.load("golden")) == {}
    with pytest.raises(emu.errors.ScenarioError, match="begins with nothing"):
        emu.load("golden", {"emulation.setup": True})


def test_tasks_of_one_machine_send_each_other_nothing() -> None:
    """Two of three workers stand where the parameter server does."""
    kinds = ("sampler", "worker", "graph_store", "parameter_server")
    job = TRAINING["job"] | {
        "system": "dgtp",
        "workers": 3,
        "samplers_per_worker": 1,
        "times": dict.fromkeys(kinds, "1 ms"),
    }
    tasks = {"ps0": "a1", "w0": "a1", "w1": "a1", "w2": "b"}
    places = {"policy": "ifs", "tasks": tasks}

    (flow,) = setup_of({"job": job, "placement": places})["flows"]

    assert (flow["from"], flow["to"], flow["bytes"]) == ("a1", "b", WEIGHTS)


def test_one_machine_sends_nothing() -> None:
    nothing = {"seconds": 0.0, "bytes": 0, "causes": {}, "flows": []}
    assert setup_of({"job.machines": ["a0"]}) == nothing


def test_a_simulation_says_it_beside_a_makespan_without(tmp_path: Path) -> None:
    said, result = simulated(tmp_path)

    setup = result["setup"]
    assert setup == setup_of()
    alone = emu.simulate(loads(json.dumps(TRAINING))).makespan
    assert result["makespan"] == alone
    (line,) = [line for line in said.splitlines() if line.startswith("setup")]
    assert "before time 0: 28.88 kB of weights; with setup" in line
    assert min(row["start"] for row in result["tasks"]) == 0.0


def test_systems_are_compared_with_it_beside(tmp_path: Path) -> None:
    file = tmp_path / "training.yaml"
    job = TRAINING["job"] | {"machines": ["a0", "a1", "b"]}
    file.write_text(json.dumps(TRAINING | {"job": job}))
    command = ["compare", str(file), "--systems", "data_parallel,dgtp"]
    text = CliRunner().invoke(app, command).stdout
    rows = json.loads(CliRunner().invoke(app, [*command, "--json=-"]).stdout)

    assert max(map(len, text.splitlines())) <= 100
    assert "data_parallel: setup " in text
    assert any("setup" in line.split()[1:] for line in text.splitlines())
    assert rows[0]["setup"] == setup_of({"job.machines": job["machines"]})
    alone = emu.simulate(loads(json.dumps(TRAINING), {"job": job})).makespan
    assert rows[0]["makespan"] == alone
    assert rows[1]["setup"]["bytes"] == 0  # where all stand on one machine


def profiled(folder: Path, dataset: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Simulate the training on a data set with a profile, which reads no data."""
    job = build_job(loads(json.dumps(TRAINING), {"job.dataset": dataset}))
    times, volumes = np.full((len(job.tasks), 2), 0.5), np.ones((len(job.edges), 2))
    path = folder / "profile.json"
    write_profile(path, ProfileFile.of(job, Profile(times, volumes)))
    changes = (f"job.dataset={json.dumps(dataset)}", f"profile={path}")
    options = [word for change in changes for word in ("--set", change)]
    return simulated(folder, *options)


def test_with_a_profile_it_is_what_it_is_without(tmp_path: Path) -> None:
    _, result = profiled(tmp_path, TRAINING["job"]["dataset"])

    assert result["setup"] == setup_of()


def test_with_a_profile_it_is_not_known_without_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest needs times and volumes alone, and goes on."""
    monkeypatch.setenv("EMU_DATA", str(tmp_path))
    said, result = profiled(tmp_path, {"name": "ogbn-products"})

    assert "setup is not known: " in said
    assert "ogbn-products" in said[said.index("setup is not known") :]
    assert "setup" not in result
    assert result["makespan"] > 1.0


@pytest.mark.parametrize(
    ("system", "planned"),
    [
        ("data_parallel", {}),
        ("dgtp", {"partitioning": 2e-6}),
        ("dgcl", {"partitioning": 2e-6, "planning": 7e-6}),
    ],
)
def test_parts_and_plans_take_time_before_what_is_sent(
    system: str, planned: dict[str, float]
) -> None:
    """Per edge of the graph; a hash and straight ways take none."""
    names = ("aggregate", "multiply", "sample", "collect", "step", "launch")
    rates = dict.fromkeys(names, "1 ns")
    base = loads(json.dumps(TRAINING), {"job.rates": rates, "job.times": None})
    scenario = as_system(load(base, {"job.model.kind": "gcn"}), system)
    if system == "dgtp":  # the source cuts by a hash, and best takes one machine
        keys = {"job.partitioner": "metis", "placement.policy": "ifs"}
        scenario = load(scenario, keys)
    free = emu.setup(scenario)
    slow = {"job.rates": rates | {"partition": "2 us", "plan": "7 us"}}
    content = emu.setup(load(scenario, slow))
    edges = open_for(build_job(scenario).settings).edges
    seconds = {cause: edges * rate for cause, rate in planned.items()}
    found = {c: row["seconds"] for c, row in content["causes"].items() if c in planned}
    assert found == pytest.approx(seconds)
    more = content["seconds"] - free["seconds"]
    assert more == pytest.approx(sum(seconds.values()))
    assert content["causes"].keys() - free["causes"].keys() == planned.keys()


@pytest.mark.parametrize("policy", ["hot", "vip", "degree"])
def test_what_a_cache_has_to_know_takes_time_before_time_0(policy: str) -> None:
    """Batches of the first window are drawn; all edges are gone over per hop."""
    rates = {
        "aggregate": "3 ns",
        "multiply": "1 ns",
        "sample": "7 us",
        "collect": "1 ns",
        "step": "1 ns",
        "launch": "1 us",
    }
    base = loads(json.dumps(TRAINING), {"job.rates": rates, "job.times": None})
    scenario = as_system(base, "rapid_gnn")
    cache: dict[str, Any] = {"policy": policy, "share": 0.1}
    if policy == "hot":
        cache["window"] = 2
    job = {"job.cache": cache, "job.partitioner": "hash", "job.iterations": 3}
    scenario = load(scenario, job)
    settings = build_job(scenario).settings
    dataset = open_for(settings)
    plan = BatchPlan.from_settings(settings)
    train = plan.walk(dataset)
    drawn = [
        sum(
            len(sources)
            for number in range(2)
            for sources, _ in plan.batch(
                dataset.structure, train, sampler, number
            ).edges
        )
        for sampler in range(plan.samplers)
    ]
    by_hand = {
        "hot": 7e-6 * max(drawn),
        "vip": 3e-9 * len(plan.fanouts) * dataset.edges,
        "degree": 0.0,
    }
    causes = emu.setup(scenario)["causes"]
    found = causes.get("precomputing", {"seconds": 0.0})["seconds"]
    assert found == pytest.approx(by_hand[policy])


def test_a_window_is_no_longer_than_what_the_busiest_sampler_draws() -> None:
    """Either sampler draws the most edges under one of five seeds."""
    cache = {"policy": "hot", "share": 0.1, "window": 2}
    base = as_system(loads(json.dumps(TRAINING)), "rapid_gnn")
    keys = {"job.cache": cache, "job.partitioner": "hash", "job.fanouts": [30, 30]}
    settings = build_job(load(base, keys)).settings
    dataset = open_for(settings)
    plan = BatchPlan.from_settings(settings)
    busiest = set()
    for seed in range(5):
        seeded = {**settings, "seed": seed}
        for iterations in (1, 2, 3):
            window = min(iterations, 2)
            counts = count_samples(dataset, replace(plan, seed=seed), window, None)
            drawn = [sum(batch.edges for batch in batches) for batches in counts]
            found = count_precomputed(seeded, iterations)
            assert found == {"sample": float(max(drawn))}
            busiest.add(drawn.index(max(drawn)))
    assert len(busiest) > 1


def test_jobs_that_are_there_together_are_prepared_one_after_the_other() -> None:
    """Each as it is alone: of other graphs, parts and rows that caches keep."""
    names = ("aggregate", "multiply", "sample", "collect", "step", "launch")
    job: dict[str, Any] = {
        "system": "dgtp",
        "rates": dict.fromkeys(names, "3 ns") | {"partition": "2 us"},
        "cache": {"policy": "vip", "share": 0.1},
        "model": {"hidden": 8, "layers": 2},
        "batch_size": 4,
        "iterations": 3,
    }
    jobs = [
        job | {"dataset": {"name": "products-like", "scale": scale}, "fanouts": fanouts}
        for scale, fanouts in ((0.001, [2, 2]), (0.0005, [2, 3]))
    ]
    document = {key: TRAINING[key] for key in ("name", "cluster")}
    document |= {"placement": {"policy": "round_robin"}}
    alone = [document | {"job": job} for job in jobs]
    items = [{"name": f"j{n}", "job": job} for n, job in enumerate(jobs)]
    together = document | {"jobs": items, "place_jobs": "joint"}
    seconds, *parts = [
        planning_seconds(prepare(loads(json.dumps(stated))))
        for stated in (together, *alone)
    ]
    first, second = parts
    assert first["partitioning"] > second["partitioning"] > 0
    for cause, length in seconds.items():
        assert length == pytest.approx(first[cause] + second[cause])
    assert len(seconds) == 2


def test_bytes_add_up_between_two_machines_and_are_none_within_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transfer without bytes is not sent; bytes are divided by 0.5."""
    ready = prepare(loads(json.dumps(TRAINING), {"emulation.byte_scale": 0.5}))
    homes = [ready.tasks[task] for task in ("w0", "w1", "s1", "w3")]
    assert homes == ["a0", "a1", "a1", "b"]
    transfers = [
        ("x", "w0", "w1", 10.0),
        ("x", "w0", "s1", 5.0),
        ("y", "w0", "w1", 3.0),
        ("x", "w1", "w0", 2.0),
        ("x", "w1", "s1", 7.0),
        ("x", "w1", "w3", 0.0),
    ]
    monkeypatch.setattr(setup, "list_transfers", lambda _: transfers)
    assert setup.setup_bytes(ready) == {
        ("x", "a0", "a1"): 30.0,
        ("y", "a0", "a1"): 6.0,
        ("x", "a1", "a0"): 4.0,
    }
    rows = setup.setup_rows(ready)
    assert rows["bytes"] == 40.0
    assert [flow["bytes"] for flow in rows["flows"]] == [30.0, 6.0, 4.0]
    causes = {cause: row["bytes"] for cause, row in rows["causes"].items()}
    assert causes == {"x": 34.0, "y": 6.0}
