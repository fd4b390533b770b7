"""What `emu validate` calls good simulates; what does not is an error of a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import EmulatorError
from emu.scenario import load, prepare
from emu.scenario.scenario_file import find_errors, loads
from tests.documents import ROOT
from tests.testing.trial_cases import CASES
from tests.warm_commands import WarmCommands

_SLOTS = """
cluster: {machines: [{name: m, nic: 9 B/s, slots: {gpu: 1}}]}
job:
  system: custom
  iterations: 2
  tasks:
    - {name: a, time: 1 s, takes: gpu, frees: none}
    - {name: b, time: 1 s, takes: gpu}
placement: {policy: round_robin}
"""
_GATE = """
cluster: {machines: [{name: m, nic: 9 B/s}]}
job:
  system: custom
  iterations: 2
  tasks: [{name: a, time: 1 s}, {name: done, gate: true, time: 0 s}]
  flows: [{from: a, to: done, volume: 0 B}]
placement: {policy: best, tasks: {a: m}}
"""
_GPUS = "cluster.machines[0].slots.gpu="
_TRIED = ["placement.simulated_iterations=1"]
_KILL = ["events=[{at: 500 ms, kill: m}]"]
_DORYLUS = CASES["dorylus"].replace("intervals: 2", "intervals: 1\n  machines: [g0]")
_SERVED = _DORYLUS.replace("[ps]", "[ps, g1]")


def jobs(text: str) -> str:
    """Return a scenario of one job as one of several."""
    cluster, _, job = text.partition("job:\n")
    job, _, _ = job.partition("placement:")
    item = "\n".join("  " + line for line in job.rstrip().splitlines())
    return f"{cluster}\nuntil: {{accuracy: 50 %}}\njobs:\n- name: a\n  job:\n{item}\n"


@pytest.mark.parametrize(
    ("text", "edits", "key"),
    [
        (_SERVED, [], "job.parameter_servers"),
        (_SERVED, ["job.intervals=2"], ""),
        (_DORYLUS, [], ""),
        (CASES["dgcl"], ["job.machines=[d0]", "job.model.layers=1"], ""),
        (CASES["dgcl"], ["job.machines=[d0]", "job.cache_features=true"], ""),
        (CASES["dgtp"], ["job.batch_size=98"], ""),
        (CASES["dgtp"], ["job.batch_size=99"], "job.batch_size"),
        (CASES["dgtp"], ["job.batch_size=50", "job.epoch=shard"], "job.batch_size"),
        (CASES["p3"], ["job.batch_size=99"], "job.batch_size"),
        (CASES["p3"], ["job.dataset.feature_length=2"], "job.columns"),
        (CASES["p3"], ["job.dataset.feature_length=2", "job.columns=[1, 0, 2]"], ""),
        (CASES["p3"], ["job.dataset.feature_length=3"], ""),
        (jobs(CASES["dgtp"]), [], "until"),
        (_SLOTS, [], "placement"),
        (_SLOTS.replace("frees: none", "frees: gpu"), [], ""),
        (_SLOTS.replace("round_robin", "best"), [], "cluster.machines"),
        (_SLOTS.replace("round_robin", "best"), _KILL, "cluster.machines"),
        (_SLOTS.replace("round_robin", "best"), [*_TRIED, _GPUS + "2"], "placement"),
        (_SLOTS.replace("round_robin", "best"), [*_TRIED, _GPUS + "3"], ""),
        (_GATE, [], ""),
    ],
)
def test_validate_is_good_where_it_simulates(
    text: str, edits: list[str], key: str, tmp_path: Path
) -> None:
    file = tmp_path / "it.yaml"
    file.write_text(f"name: it\n{text}\n")
    assert [error.key for error in find_errors(file, edits)] == ([key] if key else [])
    if key:
        with pytest.raises(EmulatorError):
            prepare(load(file, edits)).simulate()
    else:
        assert prepare(load(file, edits)).simulate().makespan > 0


@pytest.mark.parametrize("when", ["500 ms", "9 s"])
def test_validate_runs_no_rule_of_others_to_see_what_a_death_ends(
    when: str, tmp_path: Path
) -> None:
    (tmp_path / "rule.py").write_text(
        "class Shares:\n    def rates(self, flows, links):\n        raise KeyError\n"
    )
    file = tmp_path / "it.yaml"
    text = _SLOTS.replace("frees: none", "frees: gpu")
    more = f"schedule: {{policy: rule.py:Shares}}\nevents: [{{at: {when}, kill: m}}]\n"
    file.write_text(f"name: it\n{text}{more}")
    assert find_errors(file) == []


@pytest.mark.parametrize("when", ["1 ms", "9 s"])
def test_validate_runs_no_model_of_others_to_see_what_a_death_ends(
    when: str, tmp_path: Path, warm_commands: WarmCommands
) -> None:
    """In a process of its own: where the model was run, its parameters are known."""
    kill = f"events=[{{at: {when}, kill: w0}}]"
    file = str(ROOT / "scenarios" / "own_model.yaml")
    done = warm_commands.run("validate", file, "--set", kill, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["dgtp", "ring", "p3", "data_parallel", "dorylus"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("to", ["peer", "disk"])
def test_validate_asks_for_a_machine_beside_one_that_keeps_state(
    name: str, count: int, to: str, tmp_path: Path
) -> None:
    content = loads(f"name: it\n{CASES[name]}\n").to_json()
    machines = content["cluster"]["machines"][:1]
    content["cluster"] = {"machines": [machines[0] | {"name": "m", "count": count}]}
    names = [f"m{n}" for n in range(count)] if count > 1 else ["m"]
    if name == "dorylus":
        content["job"] |= {"parameter_servers": names[:1], "machines": names}
    content["checkpoint"] = {"every": "1 iterations", "to": to}
    file = tmp_path / "it.yaml"
    file.write_text(json.dumps(content))
    errors = find_errors(file)
    if count > 1 or to == "disk":
        assert errors == []
        assert prepare(load(file)).simulate().makespan > 0
    else:
        assert [error.key for error in errors] == ["checkpoint.to"]
        with pytest.raises(EmulatorError, match="no machine is next to it"):
            prepare(load(file))


@pytest.mark.parametrize("name", ["dgtp", "ring", "p3", "data_parallel", "dorylus"])
@pytest.mark.parametrize("left_out", [".copy", "nobody"])
def test_a_stated_placement_may_leave_out_copies_of_state(
    name: str, left_out: str, tmp_path: Path
) -> None:
    content = loads(f"name: it\n{CASES[name]}\n").to_json()
    content["checkpoint"] = {"every": "1 iterations", "to": "peer"}
    file = tmp_path / "it.yaml"
    file.write_text(json.dumps(content))
    placed = prepare(load(file)).tasks
    stated = {t: m for t, m in placed.items() if not t.endswith(left_out)}
    assert (stated == placed) == (left_out == "nobody")
    content["placement"] = {"policy": "explicit", "tasks": stated}
    file.write_text(json.dumps(content))
    assert find_errors(file) == []
    assert prepare(load(file)).tasks == placed


_SEVERAL = """
cluster: {machines: [{count: 2, name: m, nic: 9 B/s}]}
jobs:
- name: a
  job: {system: custom, iterations: 3, tasks: [{name: t, time: 1 s, pin: m0}]}
- name: b
  job: {system: custom, iterations: 2, tasks: [{name: t, time: 1 s, pin: m1}]}
"""
_ONE = """
cluster: {machines: [{count: 2, name: m, nic: 9 B/s}]}
job: {system: custom, iterations: 3, tasks: [{name: t, time: 1 s, pin: m0}]}
"""


@pytest.mark.parametrize("text", [_SEVERAL, _ONE])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("at", ["2 s", "2.5 s", "3 s", "9 s", "drawn"])
def test_validate_is_good_where_no_death_ends_it(
    text: str, at: str, tmp_path: Path, *, restarts: bool
) -> None:
    edits = {"on_failure": "restart"} if restarts else {}
    deaths: dict[str, object] = {"events": [{"at": at, "kill": "m0"}]}
    if at == "drawn":
        deaths = {"failures": {"machine": {"every": "2 s", "what": "kill", "most": 2}}}
    file = tmp_path / "it.yaml"
    file.write_text(f"name: it\n{text}\n")
    errors = find_errors(file, edits | deaths)
    lasts = at in {"3 s", "9 s"}
    assert [error.key for error in errors] == (
        [] if lasts or (restarts and text == _ONE) else [*deaths]
    )
    experiment = prepare(load(file, edits | deaths))
    if errors:
        with pytest.raises(EmulatorError) as raised:
            experiment.attempts()
        assert str(raised.value) in str(errors[0])
    else:
        assert experiment.attempts().makespan >= 3


@pytest.mark.parametrize("seed", range(40))
def test_validate_knows_whether_several_jobs_have_room(
    seed: int, tmp_path: Path
) -> None:
    """Each by itself has more often than all: beside each other, and one by one."""
    rng = np.random.default_rng(seed)
    policies = ["ifs", "best", "random", "round_robin", "explicit"]

    def placement(names: list[str]) -> dict[str, Any]:
        section: dict[str, Any] = {"policy": str(rng.choice(policies))}
        if section["policy"] == "explicit":
            count = len(names) - int(rng.random() < 0.3)
            section["tasks"] = {n: f"m{rng.integers(2)}" for n in names[:count]}
        return section

    jobs, joint = [], bool(rng.random() < 0.5)
    for name in "ab":
        tasks = [
            {
                "name": f"t{n}",
                "time": "1 s",
                "demands": {"cpu": int(rng.integers(1, 3))},
            }
            for n, cpu in enumerate(rng.integers(1, 3, 2))
        ]
        job = {"system": "custom", "iterations": 1, "tasks": tasks}
        own = {} if joint else {"placement": placement(["t0", "t1"])}
        jobs.append({"name": name, "job": job} | own)
    content = {
        "cluster": {"machines": [{"name": "m", "count": 2, "nic": "9 B/s", "cpu": 3}]},
        "jobs": jobs,
    }
    if joint:
        names = ["a/t0", "a/t1", "b/t0", "b/t1"]
        content |= {"place_jobs": "joint", "placement": placement(names)}
    file = tmp_path / "it.yaml"
    file.write_text(json.dumps(content))
    fits = True
    try:
        prepare(load(file))
    except EmulatorError:
        fits = False
    assert fits is (find_errors(file) == [])


@pytest.mark.parametrize("backend", ["lambda", "cpu", "gpu"])
def test_who_asks_for_stashed_weights_sends_nothing(backend: str) -> None:
    """The request is order alone, whoever makes it; what is stashed has its bytes."""
    text = f"{CASES['dorylus']}  backend: {backend}\n  rematerialize: true\n"
    if backend != "lambda":
        text = text.replace("  lambdas: 2\n", "")
    made = prepare(loads(f"name: it\n{text}"))
    job, volumes = made.problem.job, made.realization.volumes
    kinds = [
        (job.tasks[e.source].kind, job.tasks[e.destination].kind) for e in job.edges
    ]
    asked = {a: volumes[n].max() for n, (a, b) in enumerate(kinds) if b == "stash"}
    assert asked.pop("apply") == 8  # a version
    assert set(asked.values()) == {0.0}
    assert min(volumes[n].min() for n, (a, _) in enumerate(kinds) if a == "stash") > 8
