"""Every what-if of explain is what simulating the edited scenario says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.errors import EmulatorError
from emu.prediction.analysis.bounds import bounds, placement_gap
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.prediction.analysis.explanation import Explanation
from emu.prediction.analysis.what_if import Change, Improvement, changes_of
from emu.problem import Profile
from emu.scenario import ProfileFile, build_job, prepare, write_profile
from emu.scenario import edits as edits_module
from emu.scenario.edits import ScenarioEdits
from tests import draws

Drawn = dict[str, Any]
KINDS = ("graph_store", "sampler", "worker", "parameter_server")
RATES = dict.fromkeys(("aggregate", "multiply", "sample"), "1 ps")
RATES |= {"step": "1 ns", "launch": "50 us"}


def cluster(rng: np.random.Generator) -> Drawn:
    """Return machines of some kinds, in racks or with a link, some without NIC."""
    machines: list[Drawn] = []
    for i in range(int(rng.integers(1, 4))):
        machine: Drawn = {"nic": f"{rng.choice([2, 5, 10])} B/s"}
        if rng.random() < 0.3:
            machine["nic"] = {"in": "4 B/s", "out": "10 B/s"}
        if rng.random() < 0.8:
            machine["name"] = f"n{i}"
        if rng.random() < 0.3:
            machine["count"] = 2
        machine |= {"cpu": int(rng.integers(2, 9)), "slots": {"gpu": 1}}
        if rng.random() < 0.4 or i == 0:
            machine["device"] = "slow"
        machines.append(machine)
    content: Drawn = {"machines": machines}
    names = named(content)
    if rng.random() < 0.5:
        half = names[: max(1, len(names) // 2)]
        content["racks"] = [{"name": "r", "machines": half, "uplink": "1 B/s"}]
    elif rng.random() < 0.6:
        content["machines"].append({"name": "bare", "nic": "none"})
        content["links"] = [{"name": "bus", "bandwidth": "3 B/s"}]
        content["routes"] = [
            {"from": names, "to": ["bare"], "through": ["out", "bus"]},
            {"from": ["bare"], "to": names, "through": ["bus", "in"]},
        ]
    return content


def named(content: Drawn) -> list[str]:
    names: list[str] = []
    for machine in content["machines"]:
        count, position = machine.get("count", 1), len(names)
        name = machine.get("name")
        if name is None:
            names += [f"m{position + i}" for i in range(count)]
        else:
            names += [name] if count == 1 else [f"{name}{i}" for i in range(count)]
    return names


def custom_job(rng: np.random.Generator, names: list[str]) -> Drawn:
    kinds = ["graph_store", "sampler", "worker"]
    tasks: list[Drawn] = []
    for j in range(int(rng.integers(2, 6))):
        task: Drawn = {"name": f"t{j}", "kind": kinds[j % 3]}
        task["time"] = f"{rng.choice([0, 1, 2, 3])} s"
        if rng.random() < 0.4:
            task["time"] = {"default": "1 s", "slow": "10 s"}
        elif rng.random() < 0.2:
            task["time"] = ["1 s", "2 s", "3 s"]
        if rng.random() < 0.3:
            task["slot"] = "gpu"
        if rng.random() < 0.2:
            task["pin"] = str(rng.choice(names))
        if rng.random() < 0.5:
            task["demands"] = {"cpu": 1}
        tasks.append(task)
    flows = [
        {
            "from": f"t{a}",
            "to": f"t{b}",
            "volume": f"{rng.choice([0, 5, 10, 40])} B",
            "lag": int(rng.integers(0, 2)),
            **({"channel": "x"} if rng.random() < 0.2 else {}),
        }
        for a in range(len(tasks))
        for b in range(a + 1, len(tasks))
        if rng.random() < 0.6
    ]
    job: Drawn = {"system": "custom", "iterations": 3, "tasks": tasks, "flows": flows}
    job["credit_window"] = rng.choice([1, 2, 4]).item()
    if rng.random() < 0.2:
        tasks[0] |= {"takes": "gpu", "frees": "none"}
        tasks[0].pop("slot", None)
        tasks[1] |= {"frees": "gpu"}
        tasks[1].pop("slot", None)
    if rng.random() < 0.3:
        job["collectives"] = [{"allreduce": {"among": ["t0", "t1"], "volume": "8 B"}}]
    return job


def loads(content: Drawn, edits: Mapping[str, Any] | None = None) -> emu.Scenario:
    """Return a drawn scenario by way of JSON: YAML takes a third of the time."""
    return emu.loads(json.dumps(content), edits or {}, name="drawn.json")


def scenario(seed: int) -> emu.Scenario | None:
    rng = np.random.default_rng(seed)
    content: Drawn = {"name": "drawn", "cluster": cluster(rng)}
    names = named(content["cluster"])
    if rng.random() < 0.2:
        content["jobs"] = [
            {"name": name, "job": custom_job(rng, names), "release": release}
            for name, release in (("a", "0 s"), ("b", "2 s"))
        ]
        content["place_jobs"] = str(rng.choice(["joint", "sequential"]))
    else:
        content["job"] = custom_job(rng, names)
    if content.get("place_jobs") != "sequential":
        content["placement"] = {
            "policy": str(rng.choice(["ifs", "best", "round_robin"]))
        }
    content["schedule"] = {"policy": str(rng.choice(["oes", "maxmin", "mrtf"]))}
    with_nics = [name for name in names if name != "bare"]
    if rng.random() < 0.3:
        machine = str(rng.choice(with_nics))
        content["events"] = [{"at": "3 s", "machine": machine, "nic": "1 B/s"}]
    add_faults(content, with_nics, rng)
    try:
        return loads(content)
    except EmulatorError:
        return None  # drawn without room for its tasks, or in a circle


def add_faults(content: Drawn, machines: list[str], rng: np.random.Generator) -> None:
    """Let a machine be slow, paused or cut for a time, and some fail by their rate."""
    machine, at = str(rng.choice(machines)), f"{rng.integers(1, 9)} s"
    fault: Drawn = {"at": at, "for": f"{rng.integers(1, 9)} s"}
    kind = str(rng.choice(["slow", "pause", "cut", "none", "none"]))
    if kind != "none":
        fault |= {kind: machine} | ({"by": 3} if kind == "slow" else {})
        content.setdefault("events", []).append(fault)
    if rng.random() < 0.2:
        drawn = {"every": "20 s", "for": "2 s"}
        content["failures"] = {"machine": drawn | {"what": "pause"}}


def with_edits(found: Explanation) -> list[Improvement]:
    """Return what-ifs that have edits: of every kind the first, and a share."""
    by_kind: dict[str, list[Improvement]] = {}
    for one in (*found.improvements, *found.improvements_then):
        if one.change.edit is not None:
            by_kind.setdefault(one.change.kind, []).append(one)
    return [one for each in by_kind.values() for one in each[:: draws.SHARE]]


def check_every_edit(drawn: emu.Scenario) -> set[str]:
    """Simulate what every what-if says, edited; return the kinds that there were."""
    found = emu.explain(drawn)
    kinds = set()
    for one in with_edits(found):
        edit = one.change.edit
        assert edit is not None
        kinds.add(one.change.kind)
        edited = emu.load(drawn, {**edit, "expect": None})
        again = emu.simulate(edited).makespan
        assert again == pytest.approx(one.makespan, rel=1e-9, abs=1e-12), (
            one.change.what,
            edit,
        )
    for step in found.moves.steps:
        pasted = step.to_json()["placement"]
        assert step.makespan == found.moves.before or pasted["policy"] == "explicit"
    return kinds


@settings(deadline=None, max_examples=9)
@given(st.integers(0, 2**32 - 1))
def test_every_what_if_is_its_edited_scenario(seed: int) -> None:
    drawn = scenario(seed)
    if drawn is None:
        return
    try:
        emu.place(drawn)
    except EmulatorError:
        return
    check_every_edit(drawn)


#: Job with a cache of rows that others own.
CACHED_JOB = {
    "system": "dgtp",
    "dataset": {"name": "products-like", "scale": 0.001},
    "model": {"hidden": 8, "layers": 2},
    "fanouts": [3, 3],
    "batch_size": 16,
    "iterations": 4,
    "workers": 2,
    "cache": {"policy": "degree", "size": "40 kB"},
    "rates": {**RATES, "collect": "2 ns"},
}


def test_moves_beside_a_cache_have_their_premise() -> None:
    """A sampler elsewhere would lack other rows, which the times of moves leave out."""
    apart = {"s0": "m0", "w0": "m1", "s1": "m1", "w1": "m0", "ps0": "m1"}
    content = {
        "cluster": {"machines": [{"count": 2, "nic": "1 Mbit/s"}]},
        "job": CACHED_JOB,
        "placement": {"policy": "explicit", "tasks": {"g0": "m0", "g1": "m1", **apart}},
    }
    premise = "timed with the bytes that caches leave at the present placement"
    stated = emu.loads(json.dumps(content))
    for cache, count in ((CACHED_JOB["cache"], 1), (None, 0)):
        explanation = emu.explain(emu.load(stated, {"job.cache": cache}))
        assert explanation.moves is not None
        assert explanation.moves.steps
        assert sum(premise in note for note in explanation.notes) == count


def test_faster_rates_keep_what_is_cached_where_tasks_stand() -> None:
    """Rows that others own depend on where a sampler stands."""
    crossed = {"s0": "m1", "w0": "m1", "s1": "m0", "w1": "m0", "ps0": "m0"}
    content = {
        "cluster": {"machines": [{"count": 2, "nic": "100 Mbit/s"}]},
        "job": CACHED_JOB,
    }
    drawn = emu.loads(json.dumps(content))
    placement = {"policy": "explicit", "tasks": {"g0": "m0", "g1": "m1", **crossed}}
    drawn = emu.load(drawn, {"placement": placement})
    rates = [
        one for one in emu.explain(drawn).improvements if "rate " in one.change.what
    ]
    assert rates
    for one in rates:
        again = emu.simulate(emu.load(drawn, one.change.edit or {})).makespan
        assert again == one.makespan < emu.simulate(drawn).makespan


def test_no_edit_scales_a_task_whose_time_follows_from_rates() -> None:
    """A graph store of another job has a stated time, which could be scaled."""
    rated = {
        "system": "data_parallel",
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [3, 3],
        "batch_size": 16,
        "iterations": 2,
        "rates": {**RATES, "collect": "9 us"},
    }
    task = {"name": "g", "kind": "graph_store", "time": "1 s"}
    stated = {"system": "custom", "iterations": 2, "tasks": [task]}
    content = {
        "cluster": {"machines": [{"count": 2, "nic": "1 Mbit/s"}]},
        "jobs": [{"name": "a", "job": rated}, {"name": "b", "job": stated}],
    }
    found = emu.explain(emu.loads(json.dumps(content)))
    edits = [
        one.change.edit
        for one in found.improvements
        if one.change.what == "every graph_store in no time"
    ]
    assert edits == [None]


def test_jobs_of_some_weight_have_edits() -> None:
    tasks = [{"name": name, "time": "2 s"} for name in ("a", "b")]
    job = {"system": "custom", "iterations": 3, "tasks": tasks}
    job["flows"] = [{"from": "a", "to": "b", "volume": "3 B"}]
    nic = [{"count": 2, "nic": "1 B/s", "cpu": 1}]
    jobs = [{"name": "x", "job": job}, {"name": "y", "job": job, "weight": 3}]
    joint = {"place_jobs": "joint", "joint_cost": "weighted"}
    content = {"cluster": {"machines": nic}, "jobs": jobs, **joint}
    assert "compute" in check_every_edit(emu.loads(json.dumps(content)))


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32 - 1))
def test_one_more_machine_is_a_copy_wherever_flows_pass(seed: int) -> None:
    """The same resources, and the same links on the way to and from everybody."""
    drawn = scenario(seed)
    if drawn is None:
        return
    try:
        placed = emu.place(drawn)
    except EmulatorError:
        return
    base = Change("", "", placed.problem, placed.realization, "oes")
    known = placed.problem.cluster.machines
    for change in ScenarioEdits(drawn).more_machines(base):
        cluster = change.problem.cluster
        (new,) = {each.name for each in cluster.machines} - {m.name for m in known}
        old = change.what.removeprefix("one more machine like ").split(",")[0]
        of, copy = cluster.index(old), cluster.index(new)
        renamed = replace(cluster.machines[copy], name=old)

        assert renamed == cluster.machines[of]
        for other in {*range(len(cluster.machines))} - {of, copy}:
            for ends, copied in (
                ((of, other), (copy, other)),
                ((other, of), (other, copy)),
            ):
                way = [cluster.links[port].name for port in cluster.links.route(*ends)]
                its = [
                    cluster.links[port].name for port in cluster.links.route(*copied)
                ]
                assert [name.replace(f"{new} ", f"{old} ") for name in its] == way


@pytest.mark.parametrize(
    ("limit", "count", "problem"),
    [
        ("MOST_TASKS", 7, "to place 7 tasks again takes too long"),
        ("MOST_PLANNED", 50, "to plan for 50 vertices again takes too long"),
        ("MOST_PARTED", 2449, "to partition 2,449 vertices again takes too long"),
    ],
)
def test_no_machine_is_added_to_what_is_too_large_to_place_anew(
    limit: str, count: int, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {
        "cluster": {"machines": [{"count": 2, "nic": "1 Mbit/s"}]},
        "job": CACHED_JOB,
    }
    drawn = emu.loads(json.dumps(content))
    job = build_job(drawn)
    edits = ScenarioEdits(drawn)
    monkeypatch.setattr(ScenarioEdits, "_vertices", 50)  # those that a plan is of
    problem_of_job: Any = SimpleNamespace(job=job)
    base = Change("", "", problem_of_job, prepare(drawn).realization, "oes")
    larger = emu.load(drawn, {"cluster.machines[0].count": 3})

    monkeypatch.setattr(edits_module, limit, count)
    assert edits._can_be_tried(larger, job)
    monkeypatch.setattr(edits_module, limit, count - 1)
    assert [*edits.more_machines(base)] == []
    (note,) = edits.notes
    assert note.startswith("one more machine was not tried: ")
    assert note.endswith(problem)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_no_drawn_scenario_has_a_gap(seed: int) -> None:
    """Collectives, releases of several jobs, slots that one takes and another frees."""
    drawn = scenario(seed)
    if drawn is None:
        return
    try:
        schedule = emu.simulate(drawn)
    except EmulatorError:
        return  # no placement, or one whose tasks wait for slots forever
    chain = critical_path(schedule)

    assert Cause.GAP not in {link.cause for link in chain.links}
    assert chain.seconds == pytest.approx(schedule.makespan, rel=1e-9, abs=1e-12)


PHASES = ("data_forward", "data_backward")
#: Kinds of task whose times each system states.
TIMED = {
    "dgtp": KINDS,
    "data_parallel": ("graph_store", "sampler", "worker"),
    "p3": ("sampler", "model_forward", *PHASES, "model_backward"),
    "dgcl": ("forward", "backward"),
    "dorylus": ("gather", "apply", "scatter"),
}


def training(seed: int, system: str) -> Drawn:
    """Return a scenario that trains on a small graph, on drawn machines."""
    rng = np.random.default_rng(seed)
    whole = cluster(rng)
    whole.pop("routes", None)
    whole.pop("links", None)
    whole["machines"] = [m for m in whole["machines"] if m["nic"] != "none"]
    for machine in whole["machines"]:
        machine.pop("slots")
        if isinstance(machine["nic"], str):
            machine["nic"] = f"{rng.choice([100, 500, 1000])} Mbit/s"
        else:
            machine["nic"] = {"in": "200 Mbit/s", "out": "1 Gbit/s"}
    for rack in whole.get("racks", ()):
        rack["uplink"] = "150 Mbit/s"
    names = named(whole)
    if len(names) == 1:
        whole["machines"].append({"name": "more", "nic": "1 Gbit/s", "cpu": 8})
        names.append("more")
    times: Drawn = {kind: f"{rng.integers(1, 30)} ms" for kind in TIMED[system]}
    if rng.random() < 0.5:
        slow = {"default": "5 ms", "slow": f"{rng.integers(1, 90)} ms"}
        times[str(rng.choice(TIMED[system]))] = slow
    job: Drawn = {
        "system": system,
        "dataset": {"name": "products-like", "scale": 0.0005},
        "model": {"hidden": int(rng.integers(4, 20)), "layers": 2},
        "times": times,
    }
    if system in {"dgcl", "dorylus"}:
        job |= {"epochs": 2, **whole_graph_keys(rng, system, names)}
    else:
        job |= {"fanouts": [3, 4], "batch_size": 12, "iterations": 3}
        if system == "dgtp":
            job |= {"workers": int(rng.integers(1, 4)), "machines": names}
    content: Drawn = {"name": "drawn", "cluster": whole, "job": job}
    content["schedule"] = {"policy": str(rng.choice(["oes", "maxmin", "mrtf"]))}
    if rng.random() < 0.3:
        event = {"at": "30 ms", "machine": names[0], "nic": "100 Mbit/s"}
        content["events"] = [event]
    return content


def whole_graph_keys(rng: np.random.Generator, system: str, names: list[str]) -> Drawn:
    flags = rng.random(3) < 0.5
    if system == "dgcl":
        return {
            "plan": str(rng.choice(["spst", "peer_to_peer", "best_of"])),
            "coordination": "central" if flags[0] else "decentralized",
            "backward": "atomic" if flags[1] else "nonatomic",
            "cache_features": bool(flags[2]),
        }
    keys: Drawn = {
        "parameter_servers": names[-1:],
        "intervals": int(rng.integers(1, 4)),
        "threads": int(rng.integers(1, 3)),
        "backend": str(rng.choice(["lambda", "lambda", "cpu", "gpu"])),
        "mode": str(rng.choice(["no_pipe", "pipe", "async"])),
        "fuse": bool(flags[0]),
    }
    if keys["backend"] == "lambda" and flags[1]:
        keys |= {"launch": {"cold": "90 ms", "warm": "10 ms"}, "stream": 2}
        keys |= {"slow_lambdas": {"share": "20 %", "factor": 3}}
    return keys


def check_file(content: Drawn) -> set[str]:
    """Return the what-ifs of a file that hold, pasted into the file itself."""
    found = emu.explain(loads(content))
    for one in with_edits(found):
        again = emu.simulate(loads(content, one.change.edit)).makespan
        assert again == pytest.approx(one.makespan, rel=1e-9, abs=1e-12), one.change
    chain = critical_path(found.schedule)
    assert Cause.GAP not in {link.cause for link in chain.links}
    every = (*found.improvements, *found.improvements_then)
    return {one.change.what for one in every if one.change.edit is not None}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("system", TIMED)
@pytest.mark.parametrize("number", draws.some(range(3), few=1))
def test_every_what_if_of_a_job_that_trains(number: int, system: str) -> None:
    """Plans follow from links, lambdas from the job, backward times from forward."""
    content = training(number, system)
    seen = check_file(content)

    assert "all NICs twice as fast" in seen or "all NICs and links endless" in seen
    assert any(what.startswith("every ") for what in seen)
    has_window = TIMED[system] != ("gather", "apply", "scatter") and system != "dgcl"
    assert ("credit window doubled" in seen) == has_window


@pytest.mark.timeout(400)
@settings(deadline=None, max_examples=3)
@given(seed=st.integers(0, 2**32 - 1), system=st.sampled_from(["dgcl", "dorylus"]))
def test_what_ifs_of_a_run(seed: int, system: str) -> None:
    """A run's job has no settings, and its tasks took longer than stated."""
    drawn = loads(training(seed, system))
    placed = emu.place(drawn)
    assert placed.placing["optimal"]  # the only one
    job = replace(placed.problem.job, settings={})
    times = placed.realization.times + 1e-3
    base = Change(
        "",
        "",
        replace(placed.problem, job=job),
        replace(placed.realization, times=times),
        drawn.schedule.rule,
    )
    edits = ScenarioEdits(drawn, measured=True)
    chain = critical_path(placed.simulate())
    for change in map(edits.add_edit, changes_of(base, chain)):
        stated = change.edit or {}
        if change.kind == "network" and system == "dgcl":
            assert not stated
        found = {key: value for key, value in stated.items() if "placement" not in key}
        assert not stated or emu.load(drawn, found).to_json() != drawn.to_json(), found
    assert ("other links" in " ".join(edits.notes)) == (system == "dgcl")
    gap = placement_gap(placed.problem, placed.realization, 1e9, seconds=1)
    least = bounds(placed.problem, placed.realization).combined
    assert gap["placement_bound"] == pytest.approx(least)


def test_what_ifs_of_a_topology_are_keys_of_its_machines() -> None:
    assert "link qpi1 endless" in check_file(
        {
            "name": "box",
            "cluster": {"topology": "pcie_8"},
            "job": {
                "system": "dgcl",
                "dataset": {"name": "products-like", "scale": 0.0005},
                "model": {"hidden": 8, "layers": 2},
                "epochs": 1,
                "times": {"forward": "10 us", "backward": "10 us"},
            },
        }
    )


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=10)
def test_a_scenario_that_is_loaded_again_is_equal(seed: int) -> None:
    """Defaults that are written back are no stated keys."""
    for system in TIMED:
        read = loads(training(seed, system))

        assert emu.load(read).to_json() == read.to_json()


DGTP = """
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.0005}
  model: {hidden: 8, layers: 2}
  fanouts: [2, 3]
  batch_size: 12
  workers: 2
  iterations: 4
"""


@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize("seed", range(4))
def test_what_ifs_of_a_profile(seed: int, tmp_path: Path) -> None:
    """One more machine has a graph store, of which no profile knows anything."""
    rng = np.random.default_rng(seed)
    nics = [{"nic": f"{nic} Gbit/s"} for nic in rng.integers(1, 9, rng.integers(2, 4))]
    file = tmp_path / "drawn.yaml"
    file.write_text("\n".join(["cluster:", f"  machines: {json.dumps(nics)}", DGTP]))
    job = build_job(emu.load(file, {"job.times": dict.fromkeys(KINDS, "1 ms")}))
    times = rng.random((len(job.tasks), 5)) / 50
    profile = Profile(times, 1e6 * rng.random((len(job.edges), 5)))
    write_profile(tmp_path / "times.json", ProfileFile.of(job, profile))
    drawn = emu.load(file, {"profile": str(tmp_path / "times.json")})

    assert "network" in check_every_edit(drawn)
    (note,) = emu.explain(drawn).notes
    assert note.endswith("it would have tasks without measured times")


@pytest.mark.usefixtures("read_here")
@pytest.mark.parametrize("pins", [("m0", "m1"), ()])
def test_a_profile_knows_the_tasks_that_one_more_machine_leaves_as_they_are(
    pins: tuple[str, ...], tmp_path: Path
) -> None:
    """It is tried where they may go there, and is never said to lack their times."""
    tasks: list[Drawn] = [{"name": name, "time": "1 ms"} for name in "ab"]
    for task, pin in zip(tasks, pins, strict=False):
        task["pin"] = pin
    flow = {"from": "a", "to": "b", "volume": "1 kB"}
    content: Drawn = {
        "name": "measured",
        "cluster": {"machines": [{"nic": "1 MB/s"}, {"nic": "2 MB/s"}]},
        "job": {"system": "custom", "iterations": 3, "tasks": tasks, "flows": [flow]},
    }
    job = build_job(loads(content))
    profile = Profile(np.full((2, 3), 0.25), np.full((1, 3), 1e6))
    write_profile(tmp_path / "times.json", ProfileFile.of(job, profile))
    drawn = loads(content, {"profile": str(tmp_path / "times.json")})

    explanation = emu.explain(drawn)

    assert explanation.schedule.makespan >= 1.0  # by the profile
    assert not any("without measured times" in note for note in explanation.notes)


@pytest.mark.parametrize(("port", "rates"), [(0, (3e6, 4e6)), (1, (6e6, 2e6))])
def test_one_direction_of_a_nic_is_faster_at_first_and_after_an_event(
    port: int, rates: tuple[float, float]
) -> None:
    """Port 0 is m0 out, port 1 m0 in."""
    nic = {"in": "3 MB/s", "out": "2 MB/s"}
    drawn = loads(
        {
            "name": "one-way",
            "cluster": {"machines": [{"name": "m0", "nic": nic}]},
            "job": {
                "system": "custom",
                "iterations": 1,
                "tasks": [{"name": "a", "time": "1 ms"}],
            },
            "events": [{"at": "1 ms", "machine": "m0", "nic": nic}],
        }
    )
    ready = prepare(drawn)
    change = Change(
        kind="network",
        what="one direction",
        problem=ready.problem,
        realization=ready.realization,
        policy=ready.policy,
        rows=(port,),
        factor=2.0,
    )

    edit = ScenarioEdits(drawn).add_edit(change).edit

    assert edit is not None
    edited = emu.load(drawn, edit)
    changed = edited.events[0].nic
    assert changed is not None
    for found in (edited.cluster.machines[0].nic, changed):
        assert (found.inward, found.outward) == rates
