"""One file as several systems: each row is a simulation of what --write leaves."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment import systems as systems_module
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import (
    as_system,
    as_variant,
    edits,
    flatten,
    list_sources,
    list_variants,
    write_rows,
)
from emu.graph_data import open_for
from emu.prediction.analysis.throughput import Pace, pace, seeds_per_iteration
from emu.problem import Profile, Schedule
from emu.report.system_tables import ranking
from emu.scenario import (
    ProfileFile,
    Scenario,
    build_job,
    load,
    prepare,
    realize,
    write_profile,
)
from emu.scenario.scenario_file import loads
from emu.systems.system import Variant
from emu.training import GraphModel
from emu.training.looks import epoch_of

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios"
MACHINES = [
    {"name": "a", "count": 2, "nic": "5 Gbit/s", "device": "quick", "gpu": 2},
    {"name": "b", "nic": "10 Gbit/s", "gpu": 1},
    {"name": "c", "nic": "1 Gbit/s"},
]
PHASES = {
    "model_forward": 8,
    "data_forward": 4,
    "data_backward": 8,
    "model_backward": 8,
}

#: In no ratio that a split of a worker's time has: layer 1 is 1, its gradient 7.
UNEVEN_PHASES = {
    "model_forward": 1,
    "data_forward": 4,
    "data_backward": 2,
    "model_backward": 7,
}


def document(system: str, job: dict[str, Any]) -> Scenario:
    ms = {"sampler": 6, "graph_store": 3, "worker": 28}
    if system == "dgtp":
        ms |= {"parameter_server": 2}
    if system == "p3":
        ms = {"sampler": 6, **PHASES}
    if system == "apt":
        ms = {"sampler": 6, "graph_store": 3, **PHASES}
    times: dict[str, Any] = {kind: f"{time} ms" for kind, time in ms.items()}
    if "worker" in times:
        times["worker"] = {"default": "28 ms", "quick": "14 ms"}
    whole = {
        "system": system,
        "dataset": {"name": "products-like", "scale": 0.002},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [2, 3],
        "batch_size": 12,
        "iterations": 6,
        "times": times,
        **job,
    }
    if system != "dgtp":
        whole.setdefault("machines", ["a0", "a1", "b"])
    content = {"name": "one", "cluster": {"machines": MACHINES}, "job": whole}
    return loads(json.dumps(content), name="one.json")


def test_epochs_of_a_row_over_whole_graphs_are_its_own_steps() -> None:
    """Those of mini-batches are the file's, as all that its job knows."""
    job = {"iterations": None, "epochs": 1, "batch_size": 60, "rates": RATES}
    base = document("dgtp", {**job, "times": None})

    whole: Any = as_variant(base, "dgcl", {"job.epochs": 7, "job.model.hidden": 16}).job
    parts = as_variant(base, "data_parallel", {"job.epochs": 2})
    once = as_variant(base, "data_parallel")

    # Where the file counts iterations it takes no epochs beside them.
    counted = document("dgtp", {"rates": RATES, "times": None})
    beside: Any = as_variant(counted, "dgcl", {"job.epochs": 7}).job

    assert whole.epochs == beside.epochs == 7
    assert whole.model.hidden == 16
    assert build_job(parts).iterations == 2 * build_job(once).iterations


def test_a_system_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    problem = "'dgpt' is not among the systems that can be compared: all, .*dgtp"
    with pytest.raises(ScenarioError, match=problem):
        as_system(document("dgtp", {}), "dgpt")


def translated(scenario: Scenario, system: str) -> Any:
    """Return the job section of a scenario as another system."""
    return as_system(scenario, system).job


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    system = draw(st.sampled_from(list_sources()))
    job: dict[str, Any] = {"batch_size": 12 * draw(st.integers(1, 5))}
    if draw(st.booleans()):
        job |= {"iterations": None, "epochs": 1, "batch_size": 60}
    if system == "dgtp":
        job["workers"] = draw(st.integers(1, 5))
        job["samplers_per_worker"] = draw(st.integers(1, 3))
        job["sync"] = draw(st.sampled_from(["parameter_server", "ring"]))
        if job["sync"] == "parameter_server":
            job["parameter_servers"] = draw(st.integers(1, 3))
        job["demands"] = {"worker": {"gpu": 1}}
    if system == "p3":
        job["pipeline"] = draw(st.sampled_from(["none", "A", "B"]))
    return document(system, job)


def pace_of(schedule: Schedule) -> Pace:
    return pace(schedule, epoch_of(schedule.problem.job.settings))


@settings(max_examples=12, deadline=None)
@given(scenarios(), st.data())
def test_every_row_is_the_simulation_of_the_scenario_that_is_written(
    scenario: Scenario, data: st.DataObject
) -> None:
    target = data.draw(st.sampled_from(list_sources()))
    brief = data.draw(st.integers(1, 60))  # a whole search is 0.4 s, twice per example
    scenario = load(scenario, {"placement.iterations": brief})
    (row,) = compare_systems(scenario, [target])
    with TemporaryDirectory() as folder:
        ((file,),) = write_rows(Path(folder) / "made", "it", [("", row.scenarios)])
        again = prepare(load(file))
    schedule = again.simulate()

    assert again.scenario.job.system == target
    assert row.makespan == schedule.makespan
    assert row.samples_per_second == pace_of(schedule).samples_per_second
    assert row.seeds_per_step == seeds_per_iteration(again.problem.job.settings)
    own = prepare(scenario).problem.job
    asked = seeds_per_iteration(own.settings)
    assert asked is not None
    assert row.seeds_per_step is not None
    workers = again.problem.job.settings["workers"]
    assert abs(row.seeds_per_step - asked) <= workers / 2  # whole seeds per worker
    batches = own.settings.get("batches", own.iterations)
    found = again.problem.job
    assert found.settings.get("batches", found.iterations) == batches
    if target == scenario.job.system:
        assert row.edits.keys() <= {"job.machines", "job.demands.graph_store.memory"}
    else:
        assert row.edits["job.system"] == (scenario.job.system, target)


@settings(max_examples=25, deadline=None)
@given(scenarios(), st.sampled_from(["data_parallel", "p3"]))
def test_a_seed_takes_a_worker_as_long_in_every_system(
    scenario: Scenario, target: str
) -> None:
    """On every device; a replica steps itself, which takes as long as all servers.

    What stores collect is a store's of data parallel, and of layer 1 under P3.
    """
    job: Any = scenario.job
    times = job.times.by_kind()
    made = translated(scenario, target)
    share = made.batch_size / job.batch_size
    served = getattr(job, "sync", "ring") == "parameter_server"
    step = 0.002 * job.parameter_servers if served else 0.0
    stores = 4 if job.system == "dgtp" else len(job.machines or "abcd")
    there = len(made.machines or "abcd")
    collected = times.get("graph_store", 0.0) * stores / there
    if target == "data_parallel":
        kept = made.times.by_kind()["graph_store"]
        assert kept == pytest.approx(collected)
    else:
        step += collected
    for device in ("default", "quick"):

        def on(time: float | dict[str, float], device: str = device) -> float:
            return time.get(device, time["default"]) if isinstance(time, dict) else time

        expected = share * on(times["worker"]) + step
        assert on(made.times.by_kind()["worker"]) == pytest.approx(expected)
        assert on(made.times.by_kind()["sampler"]) == pytest.approx(share * 0.006)


@pytest.mark.parametrize("servers", [1, 3])
def test_a_replica_steps_what_all_servers_share(servers: int) -> None:
    """A server steps its shard in 2 ms, beside the 28 ms of a worker."""
    job = {
        "workers": 3,
        "parameter_servers": servers,
        "demands": {"worker": {"gpu": 1}},
    }
    made = translated(document("dgtp", job), "data_parallel")

    assert made.batch_size == 12
    worker = made.times.by_kind()["worker"]
    assert worker["default"] == pytest.approx(0.028 + servers * 0.002)
    assert worker["quick"] == pytest.approx(0.014 + servers * 0.002)


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
@pytest.mark.parametrize("hidden", [8, 160])
def test_phases_of_p3_are_split_by_operations(kind: str, hidden: int) -> None:
    """Torch counts the same operations of the layers' products."""
    from torch.utils.flop_counter import FlopCounterMode

    from emu.graph_data import BatchPlan
    from emu.training import MiniBatch, make_blocks
    from emu.training.layers import as_tensor

    model_keys = {"kind": kind, "hidden": hidden, "layers": 2}
    scenario = document("dgtp", {"workers": 3, "batch_size": 120, "model": model_keys})
    made = translated(scenario, "p3").times.default_times()
    job = prepare(scenario).problem.job
    data = open_for(job.settings)
    drawn = BatchPlan.from_settings(job.settings).batch(
        data.structure, data.train, 0, 0
    )
    batch = MiniBatch.of(drawn, data.gather(drawn.vertices), data.labels[drawn.seeds])
    model = GraphModel(job.settings, data)
    counted = []
    hidden = as_tensor(batch.features)
    for number, block in enumerate(make_blocks(batch.sizes, batch.edges)):
        with FlopCounterMode(display=False) as counter:
            hidden = model.layer(number, block, hidden)
        counted.append(counter.get_total_flops())
    first, rest = counted
    whole = 2 * first + 3 * rest
    for phase, operations in zip(PHASES, (first, rest, 2 * rest, first), strict=True):
        # Torch counts no additions along the edges, most of which gin has.
        beside = {"model_forward": 0.003 * 4 / 3, "model_backward": 0.002}
        mine = made[phase] - beside.get(phase, 0.0)
        near = 0.07 if kind == "gin" else 0.05
        assert mine == pytest.approx(0.028 * operations / whole, rel=near), phase


@pytest.mark.parametrize(
    ("source", "target", "collects"), [("p3", "apt", 0), ("apt", "p3", 3)]
)
def test_phases_that_a_file_states_are_kept(
    source: str, target: str, collects: int
) -> None:
    """Machines of P3 collect in their first phase, for as long as stores of apt do."""
    job = {"times": {kind: f"{time} ms" for kind, time in UNEVEN_PHASES.items()}}
    job["times"] |= {"sampler": "6 ms"}
    job["times"] |= {"graph_store": f"{collects} ms"} if collects else {}

    times = translated(document(source, job), target).times.default_times()

    expected = UNEVEN_PHASES | {"model_forward": 1 + collects}
    for phase, milliseconds in expected.items():
        assert times[phase] == pytest.approx(milliseconds / 1000), phase


def test_workers_go_where_they_have_room_and_are_fast() -> None:
    """One per machine with a gpu, the quick ones first; else more seeds for each."""
    two = translated(document("dgtp", {"workers": 2}), "p3")
    many = translated(document("dgtp", {"workers": 4}), "data_parallel")

    assert (two.machines, two.batch_size) == (("a0", "a1"), 12)
    assert (many.machines, many.batch_size) == (("a0", "a1", "b"), 16)
    too_much = {"workers": 2, "demands": {"worker": {"gpu": 3}}}
    with pytest.raises(ScenarioError, match=r"job\.demands.*no machine has room"):
        as_system(document("dgtp", too_much), "p3")


def test_what_another_system_refuses_names_the_file_and_that_system() -> None:
    """The error does not name the section that the translation has written."""
    key = "job.dataset.feature_length"
    scenario = load(document("dgtp", {"workers": 3}), {key: 1})
    with pytest.raises(ScenarioError, match=r"^one as p3: job\.columns: 3 mach"):
        as_system(scenario, "p3")


def test_of_two_machines_the_one_that_takes_in_more_gets_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = {"gives": ("1 Gbit/s", "4 Gbit/s"), "takes": ("2 Gbit/s", "1 Gbit/s")}
    machines = [
        {"name": name, "nic": {"in": into, "out": out}}
        for name, (into, out) in rates.items()
    ]
    monkeypatch.setattr("tests.experiment.test_systems.MACHINES", machines)
    times = dict.fromkeys(
        ("sampler", "worker", "graph_store", "parameter_server"), "1 ms"
    )
    one = translated(document("dgtp", {"workers": 1, "times": times}), "data_parallel")
    assert one.machines == ("takes",)


def test_the_command_prints_edits_and_the_ranking(tmp_path: Path) -> None:
    scenario = document("dgtp", {"workers": 3, "samplers_per_worker": 2})
    file = tmp_path / "one.yaml"
    file.write_text(json.dumps(scenario.to_json()))

    def said(*arguments: str) -> str:
        stated = ["compare", str(file), "--systems", "dgtp,p3,data_parallel"]
        result = CliRunner().invoke(app, [*stated, *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    rows = json.loads(said("--json", "-", "--write", str(tmp_path / "as")))
    shown = " ".join(said().split())
    order = sorted(rows, key=lambda row: -row["samples_per_second"])
    best = order[0]
    for row in rows:
        other = prepare(load(tmp_path / "as" / f"one-{row['system']}.yaml"))
        found = pace_of(other.simulate())
        assert row["samples_per_second"] == found.samples_per_second
        assert row["iteration_seconds"] == found.iteration_seconds
        if row is not best:
            ratio = best["samples_per_second"] / row["samples_per_second"]
            times = "" if round(ratio, 2) == 1 else f"{ratio:.2f} x "
            assert f"{times}as fast as {row['system']}" in shown
    assert f"By seeds per second {best['system']} is" in shown
    assert "p3: dropped job.workers (was 3)" in shown
    for row in rows:
        job: Any = load(tmp_path / "as" / f"one-{row['system']}.yaml").job
        assert job.samplers_per_worker == 2
    assert "data_parallel: job.times.worker.quick: " in shown  # by its machines
    assert "means over" not in shown
    assert "means over 2 seeds; cost, bytes, memory: of the first" in " ".join(
        said("--seeds", "2").split()
    )


def test_what_cannot_be_compared_is_one_error() -> None:
    scenario = document("dgtp", {"workers": 2})
    tasks = [{"name": "a", "time": "1 s"}]
    custom = {"system": "custom", "iterations": 1, "tasks": tasks}
    with pytest.raises(ScenarioError, match="'custom' is not among the systems"):
        compare_systems(load(scenario, {"job": custom}), ["dgtp", "p3"])


@pytest.mark.dear
@settings(max_examples=3, deadline=None)
@given(st.permutations(["dgtp", "p3", "data_parallel"]), st.booleans())
def test_a_refused_system_keeps_the_others(order: list[str], per_device: bool) -> None:  # noqa: FBT001
    """P3 cannot split a program, whatever the times of its workers are."""
    whole = document("dgtp", {"workers": 2})
    program = {"program": str(SHIPPED / "own_model" / "sage.py:SAGE")}
    time = {"default": "28 ms", "quick": "9 ms"} if per_device else "28 ms"
    changes = {"job.model": program, "job.times.worker": time}
    scenario = load(whole, {**changes, "job.model.args": {"hid_size": 8}})
    with TemporaryDirectory() as folder:
        file = Path(folder) / "own.json"
        file.write_text(json.dumps(scenario.to_json()))
        stated = ["compare", str(file), "--systems", ",".join(order)]
        done = CliRunner().invoke(app, [*stated, "--json", "-", "--write", folder])
        shown = CliRunner().invoke(app, stated)
    rows = {row["system"]: row for row in json.loads(done.stdout)}

    assert [*rows] == order
    assert done.exit_code == shown.exit_code == 2
    assert "p3 cannot split the first layer of a program" in rows["p3"]["refused"]
    assert f"p3: {rows['p3']['refused']}" in " ".join(shown.stdout.split())
    assert done.stderr.count("p3 cannot split") == 1
    others = [rows[name] for name in order if name != "p3"]
    assert others[0]["change"] == 0
    assert all(row["makespan"] > 0 and len(row["files"]) == 1 for row in others)


@pytest.mark.parametrize("seed", range(4))
def test_a_profile_is_compared_by_its_means(seed: int, tmp_path: Path) -> None:
    """The error proposes the mean times of the profile's tasks."""
    rng = np.random.default_rng(seed)
    several = int(rng.integers(1, 4))
    scenario = document("dgtp", {"workers": 2, "samplers_per_worker": several})
    job = build_job(scenario)
    times = rng.random((len(job.tasks), 7)) / 50
    profile = Profile(times, np.ones((len(job.edges), 7)))
    write_profile(tmp_path / "p.json", ProfileFile.of(job, profile))
    profiled = load(scenario, {"profile": str(tmp_path / "p.json")})

    with pytest.raises(ScenarioError, match="profile: is of one system") as found:
        as_system(profiled, "p3")
    stated = load(scenario, [str(found.value).partition("instead: ")[2]])
    taken = realize(stated, build_job(stated)).times.mean(axis=1)
    for kind in {task.kind for task in job.tasks}:
        rows = [n for n, task in enumerate(job.tasks) if task.kind == kind]
        assert taken[rows] == pytest.approx(times[rows].mean(), rel=1e-3)
    as_system(stated, "p3")


RATES = {
    "aggregate": "20 ps",
    "multiply": "4 ps",
    "sample": "3 ns",
    "collect": "200 ps",
    "step": "1 ns",
    "launch": "50 us",
}


@pytest.mark.parametrize("row", ["data_parallel", "p3", "dgcl", "dorylus"])
def test_rules_see_the_coflows_that_the_file_states(row: str) -> None:
    """The rule is carried over, and so is what it goes by."""
    gcn = {"kind": "gcn", "hidden": 8, "layers": 2}
    job = {"rates": RATES, "times": {}, "model": gcn, "coflow": "stage"}
    scenario = load(document("dgtp", job), {"schedule.policy": "sebf_madd"})
    made = as_system(scenario, row)
    assert made.schedule.policy == "sebf_madd"
    assert made.job.model_dump()["coflow"] == "stage"


@pytest.mark.parametrize("row", ["p3.none", "dgcl", "dorylus.pipe"])
def test_a_policy_for_samplers_keeps_no_system_out(row: str) -> None:
    """Where every task is pinned any policy gives the one placement there is."""
    gcn = {"kind": "gcn", "hidden": 8, "layers": 2}
    scenario = document("dgtp", {"rates": RATES, "times": {}, "model": gcn})
    by_policy = [
        compare_systems(load(scenario, {"placement.policy": policy}), [row])[0]
        for policy in ("distdgl", "round_robin")
    ]
    assert by_policy[0].makespan == by_policy[1].makespan


@settings(max_examples=4, deadline=None)
@example("dgtp", "one_machine", 3, ["a0", "b"])
@example("p3", "one_machine", 3, ["a0", "b"])
@given(
    st.sampled_from(list_sources()),
    st.sampled_from(["dgcl", "dorylus.pipe", "dorylus.async", "one_machine"]),
    st.integers(1, 40),
    st.sampled_from([None, ["a0", "b"]]),
)
def test_whole_graphs_take_as_many_epochs(
    source: str, row: str, iterations: int, machines: list[str] | None
) -> None:
    """And their row is the simulation of the scenario that it leaves."""
    job = {
        "rates": RATES,
        "times": {},
        "model": {"kind": "gcn", "hidden": 8, "layers": 2},
    }
    job |= {"iterations": iterations, "machines": machines, "batch_size": 12}
    scenario = document(source, job | ({"workers": 2} if source == "dgtp" else {}))
    (result,) = compare_systems(scenario, [row])
    made = result.scenarios[scenario.seed]
    assert made.job.operation_rates == scenario.job.operation_rates
    assert prepare(made).simulate().makespan == result.makespan
    taken = set(result.placing["machines"])
    if row == "one_machine":
        assert len(taken) == 1
    else:
        workers = len(machines or ("a0", "a1", "b"))
        workers = 2 if source == "dgtp" else workers
        settings = build_job(made).settings
        train = open_for(settings).train_count
        assert made.job.iterations == -(-iterations // -(-train // (12 * workers)))
        assert result.seeds_per_step == train
        assert settings["model"]["norm"] == "mean"
    if machines:
        assert taken <= {*machines}


def test_rows_are_named_once_and_in_order() -> None:
    every = list_variants(["all"])
    assert list_variants(["dgcl", "all", "dgcl"])[0] == "dgcl"
    assert {"distdgl", "p3.none", "dorylus.async", "one_machine"} <= {*every}
    assert len(every) == len(set(every))
    assert list_variants(["p3", "p3.A"]) == ["p3", "p3.A"]
    with pytest.raises(ScenarioError, match="'p4' is not among the systems"):
        list_variants(["p4"])


@pytest.mark.parametrize("source", ["dgcl", "dorylus"])
def test_a_file_without_mini_batches_is_no_source(source: str) -> None:
    job: dict[str, Any] = {"system": source, "epochs": 3, "rates": RATES}
    job |= {"dataset": "products-like", "model": {"hidden": 8, "layers": 2}}
    job |= {"parameter_servers": ["c"], "intervals": 2} if source == "dorylus" else {}
    scenario = load(document("dgtp", {"workers": 1}), {"job": job})
    with pytest.raises(ScenarioError, match="says nothing of mini-batches"):
        as_system(scenario, "p3")


@pytest.mark.parametrize("source", ["dgcl", "dorylus"])
@pytest.mark.parametrize("by", ["rates", "times"])
def test_a_whole_graph_is_a_row_of_its_own(source: str, by: str) -> None:
    """On machines of its choice by rates; stated times are of all its parts."""
    job: dict[str, Any] = {"system": source, "epochs": 3}
    job |= {"dataset": {"name": "products-like", "scale": 0.002}}
    job |= {"model": {"hidden": 8, "layers": 2}, "rates": RATES}
    job |= {"parameter_servers": ["c"], "intervals": 2} if source == "dorylus" else {}
    if by == "times":
        kinds = ["forward", "backward"]
        kinds = ["gather", "apply", "scatter"] if source == "dorylus" else kinds
        job |= {"rates": None, "times": dict.fromkeys(kinds, "3 ms")}
    scenario = load(document("dgtp", {"workers": 1}), {"job": job})
    results = compare_systems(scenario, [source, "all"])
    rows = {row.system: row for row in results if not row.refused}
    assert {name.partition(".")[0] for name in rows} == {source}
    for row in rows.values():
        made = row.scenarios[scenario.seed]
        assert prepare(made).simulate().makespan == row.makespan
    if by == "times":
        assert rows[source].makespan == prepare(scenario).simulate().makespan


def test_several_jobs_are_one_error() -> None:
    alone = document("dgtp", {"workers": 1}).to_json()
    jobs = [{"name": name, "job": alone["job"]} for name in "ab"]
    both = loads(json.dumps({"cluster": alone["cluster"], "jobs": jobs}))
    with pytest.raises(ScenarioError, match="jobs: several jobs cannot be compared"):
        compare_systems(both, ["dgtp", "p3"])


def test_a_key_that_one_file_leaves_out_has_its_default_there() -> None:
    """A default that is stated is no change; a key of one system alone is there."""
    plain = document("data_parallel", {"machines": None})
    double = document("data_parallel", {"machines": None, "precision": "float64"})
    stated = document("data_parallel", {"machines": None, "precision": "float32"})
    assert edits(plain, stated) == edits(stated, plain) == {}
    assert edits(plain, double) == {"job.precision": ("float32", "float64")}
    assert edits(double, plain) == {"job.precision": ("float64", "float32")}


def test_names_of_tasks_are_left_behind() -> None:
    placed = load(
        document("dgtp", {"workers": 2}), {"placement.tasks": {"w0": "b", "w1": "a0"}}
    )
    made = as_system(placed, "data_parallel")

    assert not made.placement.tasks
    assert edits(placed, made)["placement.tasks.w0"] == ("b", None)
    assert np.isfinite(prepare(made).simulate().makespan)
    assert [*ranking(compare_systems(placed, ["dgtp"]))] == []


def test_no_row_hides_another_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of x is called as the system y, and a row of y as one of x."""
    variants = {name: Variant(name) for name in "abcd"}
    rows = {
        "x": {"a": variants["a"], "y": variants["b"]},
        "y": {"a": variants["c"], "y": variants["d"]},
        "z": {},
    }
    table = {
        name: SimpleNamespace(variants=of_system, translation=object())
        for name, of_system in rows.items()
    }
    table["custom"] = SimpleNamespace(variants={}, translation=None)
    monkeypatch.setattr(systems_module, "systems", lambda: table)
    assert systems_module._variants() == {
        "a": variants["a"],
        "x.y": variants["b"],
        "y.a": variants["c"],
        "y": variants["d"],
        "z": Variant("z"),
    }
    assert list_variants(["z", "all", "x"]) == ["z", "a", "x.y", "y.a", "y", "x"]


def test_keys_are_those_that_lead_to_a_value() -> None:
    nested = {"a": {"b": {"c": 1}, "d": [2]}, "e": None}
    assert flatten(nested) == {"a.b.c": 1, "a.d": [2], "e": None}
    assert flatten({"a": 1}, "job.") == {"job.a": 1}


def test_rows_whose_names_are_one_as_files_are_numbered(tmp_path: Path) -> None:
    scenario = document("dgtp", {"workers": 1})
    rows = [
        ("p3, A", {4: scenario, 5: scenario, 9: scenario}),
        ("p3-A", {4: scenario, 5: scenario}),
        ("p3-A", {4: scenario}),
    ]
    files = write_rows(tmp_path / "made", "it", rows)
    names = [[Path(file).name for file in row] for row in files]
    assert names == [
        ["it-p3-A.yaml", "it-p3-A-seed5.yaml", "it-p3-A-seed9.yaml"],
        ["it-p3-A-2.yaml", "it-p3-A-2-seed5.yaml"],
        ["it-p3-A-3.yaml"],
    ]


def test_a_first_layer_has_its_share_of_products_and_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A product is two operations: 24 of the first layer, and 8 of the second."""
    works = [{"multiply": 10, "aggregate": 4}, {"multiply": 3, "aggregate": 2}]
    layers = [
        SimpleNamespace(forward={name: np.array([n]) for name, n in work.items()})
        for work in works
    ]
    dataset = SimpleNamespace(feature_length=9, classes=3)
    monkeypatch.setattr(systems_module, "open_for", lambda _: dataset)
    monkeypatch.setattr(systems_module, "replace", lambda plan, **_: plan)
    plan = SimpleNamespace(from_settings=lambda _: None)
    monkeypatch.setattr(systems_module, "BatchPlan", plan)
    monkeypatch.setattr(systems_module, "count_samples", lambda *_: ["counts"])
    monkeypatch.setattr(systems_module, "count_layers", lambda *_, **__: layers)
    assert systems_module._first_layer_share({"model": {}}) == 0.75


@pytest.mark.parametrize("system", ["sancus", "dgcl"])
def test_what_no_translation_can_take_is_told_of_file_and_system(system: str) -> None:
    """Errors of the translation had neither, unlike those of what it wrote."""
    with pytest.raises(ScenarioError) as caught:
        as_system(load("demo"), system)

    assert caught.value.file.endswith(f"demo.yaml as {system}")
    assert caught.value.key == "job.times"
