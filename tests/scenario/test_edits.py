"""Every what-if of explain is what simulating the edited scenario says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.analysis.critical_path import Cause, critical_path
from emu.analysis.what_if import Change
from emu.errors import EmulatorError
from emu.problem import Profile
from emu.scenario import ProfileFile, build_job, write_profile
from emu.scenario.edits import ScenarioEdits

if TYPE_CHECKING:
    from pathlib import Path

Drawn = dict[str, Any]
KINDS = ("graph_store", "sampler", "worker", "parameter_server")


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
    try:
        return emu.loads(json.dumps(content))
    except EmulatorError:
        return None  # drawn without room for its tasks, or in a circle


def check_every_edit(drawn: emu.Scenario) -> set[str]:
    """Simulate what every what-if says, edited; return the kinds that there were."""
    found = emu.explain(drawn)
    kinds = set()
    for one in (*found.improvements, *found.improvements_then):
        edit = one.change.edit
        if edit is None:
            continue
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


@settings(deadline=None, max_examples=12)
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


DGTP = """
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.002}
  model: {hidden: 8, layers: 2}
  fanouts: [2, 3]
  batch_size: 12
  workers: 2
  iterations: 4
"""


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
    assert note.endswith("it would have tasks that nobody measured")
