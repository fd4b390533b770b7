"""Keys that are right each by itself, against one another."""

from __future__ import annotations

from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.scenario import load
from emu.scenario.consistency import misspelt_keys
from emu.scenario.scenario_file import loads

CUSTOM = """\
cluster:
  machines:
    - {name: m, count: 2, nic: 1 MB/s}
    - {name: n, nic: 2 MB/s}
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 1 s}, {name: b, time: 1 s}]
  flows: [{from: a, to: b, volume: 10 B}]
"""
TRAINING = """\
cluster: {machines: [{name: m, count: 2, nic: 1 MB/s}]}
job:
  system: dgtp
  dataset: {name: products-like, scale: 0.01}
  model: {hidden: 8, layers: 2}
  fanouts: [2, 2]
  batch_size: 4
  iterations: 3
  times: {graph_store: 1 s, sampler: 1 s, worker: 1 s, parameter_server: 1 s}
"""
DRAWN = {"name": "products-like", "scale": 0.01, "drawn": True}


def errors_of(text: str, changes: dict[str, Any]) -> dict[str, str]:
    """Return key -> what is wrong with a file and changes; empty where nothing is."""
    base = loads(text)
    try:
        load(base, changes)
    except ScenarioError as error:
        parts = getattr(error, "errors", [error])
        return {part.key: part.problem for part in parts}
    return {}


PRICED = "cluster.machines[{}].price"


@pytest.mark.parametrize(
    ("text", "changes", "key", "words"),
    [
        (CUSTOM, {PRICED.format(0): "1 $/h"}, "cluster.machines[1]", "has no price"),
        (CUSTOM, {PRICED.format(1): "1 $/h"}, "cluster.machines[0]", "has no price"),
        (CUSTOM, {PRICED.format(n): "0 $/h" for n in (0, 1)}, "", ""),
        (CUSTOM, {"prices.granularity": "0 ms"}, "prices.granularity", "found zero"),
        (CUSTOM, {"prices.granularity": "1 ms"}, "", ""),
        # An accuracy is of one job that trains, at looks that are spaced in one way.
        (CUSTOM, {"until": {"accuracy": 0.5}}, "until", "a custom job trains nothing"),
        (TRAINING, {"until": {"accuracy": 0.5}}, "", ""),
        (TRAINING, {"until": {"accuracy": 0.5, "seeds": 9}}, "", ""),
        (
            TRAINING,
            {"until": {"accuracy": 0.5, "seeds": 9, "every": 2}},
            "until",
            "found seeds and every",
        ),
        # A trend takes three scales or more, all below that of the file.
        (TRAINING, {"training_scales": [0.001, 0.002, 0.003]}, "training_scales",
         "the job trains on its own graph"),
        (
            TRAINING,
            {"job.dataset": DRAWN, "training_scales": [0.001, 0.002, 0.0099]},
            "",
            "",
        ),
        (
            TRAINING,
            {"job.dataset": DRAWN, "training_scales": [0.001, 0.002]},
            "training_scales",
            "found [0.001, 0.002], write 3 different ones or more",
        ),
        (
            TRAINING,
            {"job.dataset": DRAWN, "training_scales": [0.001, 0.002, 0.001, 0.003]},
            "training_scales",
            "found [0.001, 0.002, 0.001, 0.003], write 3 different",
        ),
        (
            TRAINING,
            {"job.dataset": DRAWN, "training_scales": [0.001, 0.01, 0.002]},
            "training_scales",
            "found 0.01, write less than the scale of the file, 0.01",
        ),
        # What is kept, and how a job goes on.
        (
            TRAINING,
            {"checkpoint": {"every": "2 iterations", "takes": "1 ms"},
             "emulation.compute": "real"},
            "checkpoint.takes",
            "measured work has no stated times",
        ),
        (
            TRAINING,
            {"checkpoint": {"every": "2 iterations", "takes": "1 ms"},
             "emulation.compute": "padded"},
            "",
            "",
        ),
        (
            TRAINING,
            {"checkpoint": {"every": "2 iterations"}, "emulation.compute": "real"},
            "",
            "",
        ),
        (CUSTOM, {"max_restarts": 2}, "max_restarts", "a run is not restarted"),
        (CUSTOM, {"recovery": "0 s"}, "recovery", "a run is not restarted"),
        (CUSTOM, {"recovery": "0 s", "max_restarts": 2, "on_failure": "restart"},
         "", ""),
        (
            CUSTOM,
            {"events": [{"at": "1 s", "cut": "m0"},
                        {"at": "1 s", "kill": "a", "recovery": "0 s"}]},
            "events[1].recovery",
            "a run is not restarted",
        ),
        # A tolerance is of one number, of either kind.
        (CUSTOM, {"expect": {"makespan": "1 s", "tolerance": "2 %"}}, "", ""),
        (CUSTOM, {"expect": {"bytes": "1 B", "tolerance": "2 %"}}, "", ""),
        (
            CUSTOM,
            {"expect": {"makespan": "1 s .. 2 s", "tolerance": "2 %"}},
            "expect.tolerance",
            "is of one makespan or number of bytes",
        ),
        (CUSTOM, {"expect": {"makespan": "1 s .. 2 s"}}, "", ""),
        # Rules by job there are two of.
        (CUSTOM, {"schedule": {"policy": "maxmin", "share": "job"}}, "", ""),
        (CUSTOM, {"schedule": {"policy": "oes", "share": "job"}}, "", ""),
        (CUSTOM, {"schedule": {"policy": "fifo"}}, "", ""),
        (CUSTOM, {"schedule": {"policy": "fifo", "share": "job"}}, "schedule.share",
         "by job there are oes and maxmin, policy is fifo"),
        # Hosts are of machines that there are, and of no kernel's NICs.
        (CUSTOM, {"emulation.hosts": {"m1": "h"}}, "", ""),
        (CUSTOM, {"emulation.hosts": {"m2": "h"}}, "emulation.hosts.m2",
         "no machine 'm2'"),
        (
            CUSTOM,
            {"emulation": {"hosts": {"m1": "h"}, "network": "kernel"}},
            "emulation.hosts",
            "kernel NICs are all on this host",
        ),
        (CUSTOM, {"emulation": {"network": "kernel"}}, "", ""),
        # What is expected of a training.
        (CUSTOM, {"expect": {"loss": 0.5}}, "expect.loss", "a custom job trains"),
        (TRAINING, {"expect": {"accuracy": 0.5}, "emulation.compute": "timed"},
         "expect.accuracy", "timed tasks compute nothing"),
        (TRAINING, {"expect": {"accuracy": 0.5}, "emulation.compute": "padded"}, "",
         ""),
        (TRAINING, {"expect": {"loss": 0.5}, "emulation.compute": "timed"}, "", ""),
        (CUSTOM, {"emulation.setup": True}, "emulation.setup", "a custom job begins"),
        (TRAINING, {"emulation.setup": True}, "", ""),
        # Keys of several jobs, beside one.
        (CUSTOM, {"place_jobs": "joint"}, "place_jobs", "is of several jobs"),
        (CUSTOM, {"joint_cost": "sum"}, "joint_cost", "is of several jobs"),
        # A resource that a task demands has to be offered, and the other way round.
        (CUSTOM, {"job.tasks[0].demands": {"disk": 1}}, "job.tasks[0].demands.disk",
         "no machine has 'disk'"),
        (CUSTOM, {"job.tasks[0].demands": {"cpu": 1}}, "", ""),
        (CUSTOM, {"cluster.machines[1].disk": 1}, "cluster.machines[1].disk",
         "neither a key of machines nor a resource"),
        (
            CUSTOM,
            {"cluster.machines[1].disk": 1, "job.tasks[0].demands": {"disk": 1}},
            "",
            "",
        ),
        (CUSTOM, {"cluster.machines[1].name": "m1"}, "cluster.machines[1]",
         "a second machine called 'm1'"),
        (CUSTOM, {"cluster.machines[1].latency": 1}, "cluster.machines[1].latency",
         "a latency is one of"),
    ],
)  # fmt: skip
def test_what_is_said_of_two_keys_and_what_is_not(
    text: str, changes: dict[str, Any], key: str, words: str
) -> None:
    errors = errors_of(text, changes)
    assert list(errors) == ([key] if key else [])
    assert errors.get(key, "").startswith(words)


BYPASS = """\
cluster:
  machines:
    - {name: m, count: 2, nic: {in: 1 MB/s, out: 1 MB/s, latency: LATENCY}}
    - {name: n, nic: 1 MB/s}
  links: [{name: bus, bandwidth: 1 MB/s}]
  routes: [ROUTES]
job:
  system: custom
  iterations: 1
  tasks: [{name: a, time: 1 s}]
"""
ALL = "{from: [m0, m1], to: [m0, m1], through: [bus]}"
OUT = "{from: [m0, m1], to: [n], through: [bus, in]}"
IN = "{from: [n], to: [m0, m1], through: [out, bus]}"


@pytest.mark.parametrize(
    ("latency", "routes", "is_idle"),
    [
        ("1 ms", [ALL, OUT, IN], True),
        # A way that is not stated crosses both NICs.
        ("1 ms", [ALL, IN], False),
        ("1 ms", [ALL, OUT], False),
        ("{in: 0 s, out: 1 ms}", [ALL, OUT], True),
        ("{in: 1 ms, out: 0 s}", [ALL, OUT], False),
        ("{in: 1 ms, out: 0 s}", [ALL, IN], True),
        ("0 s", [ALL, OUT, IN], False),
        ("1 ms", [ALL.replace("bus", "out, bus"), OUT, IN], False),
        ("1 ms", [ALL, OUT.replace("[bus", "[out, bus"), IN], False),
        ("1 ms", [ALL, "{from: [m0], to: [n], through: [bus, in]}", IN], False),
    ],
)
def test_a_latency_that_all_routes_go_around_is_told(
    latency: str, routes: list[str], *, is_idle: bool
) -> None:
    text = BYPASS.replace("LATENCY", latency).replace("ROUTES", ", ".join(routes))
    if not is_idle:
        loads(text)
        return
    with pytest.raises(ScenarioError, match="no route crosses the NIC of m0") as error:
        loads(text)
    assert error.value.key == "cluster.machines[0].nic.latency"


def jobs_of(*items: dict[str, Any], **keys: Any) -> dict[str, Any]:
    one = {
        "system": "custom",
        "iterations": 1,
        "tasks": [{"name": "a", "time": "1 s"}],
    }
    jobs = [
        {"name": f"j{n}", **item, "job": {**one, **item.get("job", {})}}
        for n, item in enumerate(items)
    ]
    return {"job": None, "jobs": jobs, **keys}


DISK = {"cluster.machines[1].disk": 3}
ASKING = {"tasks": [{"name": "a", "time": "1 s", "demands": {"disk": 1}}]}


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        (jobs_of({}, {}), "", ""),
        (jobs_of({"name": "x"}, {"name": "x"}), "jobs[0].name", "'x' occurs 2 times"),
        # What no task of one job demands, one of another may.
        (jobs_of({}, {"job": ASKING}, **DISK), "", ""),
        (jobs_of({}, {}, **DISK), "cluster.machines[1].disk", "neither a key of mach"),
        (jobs_of({}, {}, placement={"policy": "ifs"}), "placement", "write it into"),
        (jobs_of({}, {}, placement={"policy": "ifs"}, place_jobs="joint"), "", ""),
        (jobs_of({}, {}, profile="p.json"), "profile", "a profile is of one job"),
        (jobs_of({}, {}, expect={"loss": 0.5}), "expect.loss", "this is of one job"),
        (
            jobs_of({}, {}, until={"accuracy": 0.5}),
            "until",
            "several jobs reach it at different times",
        ),
        (
            jobs_of({}, {"job": {"machines": ["n"]}}, place_jobs="joint"),
            "jobs[1].job.machines",
            "jobs that are placed together share their machines",
        ),
        (jobs_of({}, {"job": {"machines": ["n"]}}), "", ""),
        (jobs_of(*[{"job": {"machines": ["n"]}}] * 2, place_jobs="joint"), "", ""),
        (jobs_of({}, {}, joint_cost="sum"), "joint_cost", "sum is of jobs that are"),
        (jobs_of({}, {}, joint_cost="sum", place_jobs="joint"), "", ""),
        (
            jobs_of({}, {}, joint_cost="weighted", place_jobs="joint"),
            "joint_cost",
            "no job has a weight",
        ),
        (
            jobs_of({}, {"weight": 2}, joint_cost="weighted", place_jobs="joint"),
            "",
            "",
        ),
        (
            jobs_of({}, {"weight": 2}, joint_cost="sum", place_jobs="joint"),
            "jobs[1].weight",
            "joint_cost is sum: write joint_cost: weighted",
        ),
        (
            jobs_of({}, {}, events=[{"at": "1 s", "kill": "a"}]),
            "events[0].kill",
            "no task, process, machine or host 'a'",
        ),
        (jobs_of({}, {}, events=[{"at": "1 s", "kill": "j1/a"}]), "", ""),
    ],
)
def test_what_is_said_of_several_jobs_and_what_is_not(
    changes: dict[str, Any], key: str, words: str
) -> None:
    errors = errors_of(CUSTOM, changes)
    found = {found for found in errors if found != "jobs[1].name"}
    assert found == ({key} if key else set())
    assert errors.get(key, "").startswith(words)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        ({"lab": {}}, ["lab"]),
        ({"lab": {}, "job": {}}, ["lab"]),
        ({"lab": {}, "jobs": []}, ["lab"]),
        ({"prices": {"function_second": 1}}, ["prices.function_second"]),
        ({"prices": {"function_hour": 1}}, []),
        ({"cluster": {"machines": [{}, {"memroy": 1}]}}, ["cluster.machines.1.memroy"]),
        # A further resource, and what cannot be a machine at all, are no slips.
        ({"cluster": {"machines": [{"disk": 1}, 7, {"memory": 1}]}}, []),
        ({"cluster": {"machines": 7}}, []),
        ({"cluster": 7}, []),
        ({}, []),
    ],
)
def test_keys_that_look_like_others_are_told(
    data: dict[str, Any], keys: list[str]
) -> None:
    found = [*misspelt_keys(data)]
    assert [".".join(map(str, trail)) for trail, _ in found] == keys
    states_job = "job" in data or "jobs" in data
    for _, problem in found:
        is_of_labs = "lab" in data and states_job
        assert ("a scenario runs its job" in problem) == is_of_labs
