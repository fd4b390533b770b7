"""What-ifs as keys and values: each kind of change by hand, on unlike machines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.analysis.what_if import Change
from emu.problem import Profile
from emu.scenario import Experiment, ProfileFile, build_job, prepare, write_profile
from emu.scenario.edits import ScenarioEdits, placement_edit
from emu.scenario.scenario_file import loads

CONTENT: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "m", "count": 2, "nic": "1 MB/s", "slots": {"gpu": 1}},
            {
                "name": "n",
                "nic": {"in": "2 MB/s", "out": "4 MB/s", "latency": {"out": "3 ms"}},
                "slots": {"gpu": 3, "x": 5},
            },
            {"name": "bare", "nic": "9 MB/s"},
        ],
        "links": [
            {"name": "near", "bandwidth": "3 MB/s"},
            {"name": "far", "bandwidth": "5 MB/s", "latency": "7 ms"},
        ],
        "racks": [
            {
                "name": "r",
                "machines": ["n"],
                "uplink": {"in": "6 MB/s", "out": "8 MB/s"},
                "latency": {"in": "1 ms", "out": "2 ms"},
            }
        ],
        "routes": [
            {"from": ["m0", "m1"], "to": "bare", "through": ["out", "far", "in"]},
            {"from": "bare", "to": ["m0", "m1"], "through": ["out", "near", "in"]},
        ],
    },
    "job": {
        "system": "custom",
        "iterations": 2,
        "credit_window": 3,
        "tasks": [
            {"name": "a", "kind": "k", "time": "1 s", "pin": "m0", "slot": "gpu"},
            {"name": "b", "time": {"default": "2 s"}, "pin": "n"},
            {"name": "c", "time": ["1 s", "4 s"], "pin": "bare"},
        ],
        "flows": [
            {"from": "a", "to": "b", "volume": "10 B"},
            {"from": "b", "to": "c", "volume": ["20 B", "30 B"]},
        ],
    },
    "events": [{"at": "1 s", "machine": "m1", "nic": "8 MB/s"}],
}


def ready(**keys: Any) -> Experiment:
    return prepare(loads(json.dumps({**CONTENT, **keys})))


def written(experiment: Experiment, kind: str, **keys: Any) -> dict[str, Any] | None:
    """Return the edit of a change, without where its tasks stand."""
    change = Change(kind, "", experiment.problem, experiment.realization, "oes", **keys)
    edit = ScenarioEdits(experiment.scenario).add_edit(change).edit
    if edit is None:
        return None
    return {key: value for key, value in edit.items() if key != "placement"}


def links_of(experiment: Experiment, *names: str) -> tuple[int, ...]:
    links = experiment.problem.links
    positions = {links[port].name: port for port in range(len(links))}
    return tuple(positions[name] for name in names)


@pytest.mark.parametrize(
    ("names", "edit"),
    [
        # Equal machines are one section, unless only one of them changes.
        (
            ("m0 out", "m0 in", "m1 out", "m1 in"),
            {"cluster.machines[0].nic": "16 Mbit/s", "events[0].nic": "128 Mbit/s"},
        ),
        (("m0 out", "m0 in"), {"cluster.machines.m0.nic": "16 Mbit/s"}),
        (
            ("n in",),
            {
                "cluster.machines[1].nic": {
                    "in": "32 Mbit/s",
                    "out": "32 Mbit/s",
                    "latency": {"in": "0.0 s", "out": "3 ms"},
                }
            },
        ),
        (("near",), {"cluster.links[0].bandwidth": "48 Mbit/s"}),
        (("far",), {"cluster.links[1].bandwidth": "80 Mbit/s"}),
        (
            ("r up",),
            {"cluster.racks[0].uplink": {"in": "48 Mbit/s", "out": "128 Mbit/s"}},
        ),
        (
            ("r down",),
            {"cluster.racks[0].uplink": {"in": "96 Mbit/s", "out": "64 Mbit/s"}},
        ),
    ],
)
def test_links_are_scaled_where_they_are_stated(
    names: tuple[str, ...], edit: dict[str, Any]
) -> None:
    experiment = ready()
    rows = links_of(experiment, *names)
    assert written(experiment, "network", rows=rows, factor=2.0) == edit


def test_latencies_are_scaled_wherever_there_are_some() -> None:
    edit = written(ready(), "latency", factor=0.5)
    assert edit == {
        "cluster.machines[1].nic": {
            "in": "16 Mbit/s",
            "out": "32 Mbit/s",
            "latency": {"in": "0.0 s", "out": "1.5 ms"},
        },
        "cluster.links[1].latency": "3.5 ms",
        "cluster.racks[0].latency": {"in": "500 us", "out": "1 ms"},
    }


@pytest.mark.parametrize(
    ("rows", "factor", "edit"),
    [
        ((0,), 0.5, {"job.tasks[0].time": "500 ms"}),
        ((1,), 0.5, {"job.tasks[1].time": {"default": "1 s"}}),
        ((2, 0), 0.5, {"job.tasks[0].time": "500 ms",
                       "job.tasks[2].time": ["500 ms", "2 s"]}),
        ((2,), 0.0, {"job.tasks[2].time": "0 s"}),
    ],
)  # fmt: skip
def test_times_are_those_of_the_tasks(
    rows: tuple[int, ...], factor: float, edit: dict[str, Any]
) -> None:
    assert written(ready(), "compute", rows=rows, factor=factor) == edit


@pytest.mark.parametrize(
    ("rows", "factor", "edit"),
    [
        ((0,), 0.5, {"job.flows[0].volume": "5 B"}),
        ((1,), 2.0, {"job.flows[1].volume": ["40 B", "60 B"]}),
    ],
)
def test_bytes_are_those_of_the_flows(
    rows: tuple[int, ...], factor: float, edit: dict[str, Any]
) -> None:
    assert written(ready(), "bytes", rows=rows, factor=factor) == edit


@pytest.mark.parametrize(
    ("stated", "factor", "window"),
    [(3, 2.0, 6), (3, math.inf, "unlimited"), ("unlimited", 2.0, None)],
)
def test_a_window_is_so_many_times_as_wide(
    stated: Any, factor: float, window: Any
) -> None:
    experiment = ready(job={**CONTENT["job"], "credit_window": stated})
    expected = {} if window is None else {"job.credit_window": window}
    assert written(experiment, "window", factor=factor) == expected


@pytest.mark.parametrize(
    ("policy", "share"), [("maxmin", "flow"), ("maxmin_by_job", "job")]
)
def test_a_rule_is_a_policy_and_who_shares(policy: str, share: str) -> None:
    experiment = ready()
    change = Change("policy", "", experiment.problem, experiment.realization, policy)
    edit = ScenarioEdits(experiment.scenario).add_edit(change).edit
    assert edit is not None
    assert edit["schedule.policy"] == "maxmin"
    assert edit["schedule.share"] == share


def test_slots_are_those_of_the_changed_machines() -> None:
    experiment = ready()
    machines = list(experiment.problem.cluster.machines)
    machines[2] = replace(machines[2], slots={"gpu": 9, "x": 5})
    cluster = replace(experiment.problem.cluster, machines=tuple(machines))
    more = replace(experiment.problem, cluster=cluster)
    change = Change("slots", "", more, experiment.realization, "oes", (2,), pool="gpu")
    edit = ScenarioEdits(experiment.scenario).add_edit(change).edit
    assert edit is not None
    assert {k: v for k, v in edit.items() if "slots" in k} == {
        "cluster.machines[1].slots.gpu": 9
    }


def test_events_and_failures_are_left_out_where_they_are_stated() -> None:
    assert written(ready(), "events") == {"events": None}
    failures = {"machine": {"every": "9 s", "for": "1 s"}}
    edit = written(ready(failures=failures, events=[]), "events")
    assert edit == {"failures": None}


def test_tasks_stand_where_the_changed_run_has_them() -> None:
    experiment = ready()
    edits = ScenarioEdits(experiment.scenario)
    assert edits.standing(experiment.problem) == {
        "placement": {
            "policy": "explicit",
            "tasks": {"a": "m0", "b": "n", "c": "bare"},
        }
    }
    stated = {"policy": "explicit", "tasks": {"a": "m0", "b": "n", "c": "bare"}}
    explicit = ready(placement=stated).scenario
    assert placement_edit(explicit, "best") == {
        "placement.policy": "best",
        "placement.tasks": None,
    }
    assert placement_edit(explicit, "explicit") == {"placement.policy": "explicit"}
    assert placement_edit(experiment.scenario, "ifs") == {"placement.policy": "ifs"}


def test_a_profile_has_no_keys_of_times_and_bytes(tmp_path: Any) -> None:
    job = build_job(ready().scenario)
    times, volumes = np.ones((len(job.tasks), 2)), np.ones((len(job.edges), 2))
    path = tmp_path / "p.json"
    write_profile(path, ProfileFile.of(job, Profile(times, volumes)))
    experiment = ready(profile=str(path))
    for kind in ("compute", "bytes"):
        assert written(experiment, kind, rows=(0,), factor=0.5) is None
    assert written(experiment, "window", factor=2.0) == {"job.credit_window": 6}


def test_jobs_of_their_own_placement_state_theirs() -> None:
    one = {"system": "custom", "iterations": 1, "tasks": [{"name": "t", "time": "1 s"}]}
    jobs = [
        {"name": "x", "job": one, "placement": {"policy": "ifs"}},
        {
            "name": "y",
            "job": one,
            "placement": {"policy": "explicit", "tasks": {"t": "m1"}},
        },
    ]
    machines = [{"name": "m", "count": 2, "nic": "1 MB/s"}]
    content = {"cluster": {"machines": machines}, "jobs": jobs}
    experiment = prepare(loads(json.dumps(content)))
    assert placement_edit(experiment.scenario, "random") == {
        "jobs[0].placement.policy": "random",
        "jobs[1].placement.policy": "random",
        "jobs[1].placement.tasks": None,
    }
    edit = ScenarioEdits(experiment.scenario).standing(experiment.problem)
    assert edit["place_jobs"] == "sequential"
    assert edit["joint_cost"] is edit["placement"] is None
    homes = {n: edit[f"jobs[{n}].placement"]["tasks"]["t"] for n in (0, 1)}
    assert homes[1] == "m1"
    assert homes[0] == experiment.tasks["x/t"]
