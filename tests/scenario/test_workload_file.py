"""Benchmark workloads as custom-job scenarios."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from emu.errors import ScenarioError
from emu.scenario import build_job, load, realize
from emu.scenario.scenario_file import loads

WORKLOAD: dict[str, Any] = {
    "comment": "as the benchmark files have it",
    "name": "another one",
    "description": "keys that say nothing to act upon",
    "expected_makespan_s": {"oes": 7.25, "maxmin": 7.0},
    "machines": [[10.0, 5.0], [10.0, 10.0]],
    "tasks": ["g0", "s0", "w0", "ps"],
    "edges": [["g0", "s0", 0], ["s0", "w0", 0], ["w0", "ps", 0], ["ps", "w0", 1]],
    "volumes": [[1.5, 2.5], [3.0, 4.0], [5.0, 0.0], [5.0, 5.0]],
    "exec_times": {"g0": 0.02, "s0": 0.015, "w0": 1.0, "ps": 0.1},
    "placement": {"g0": 0, "s0": 1, "w0": 1, "ps": 0},
    "n_iterations": 2,
}


def _file(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(WORKLOAD | changes))
    return path


def test_a_workload_becomes_a_problem(tmp_path: Path) -> None:
    scenario = load(_file(tmp_path))
    job, cluster = build_job(scenario), scenario.to_cluster()
    realization = realize(scenario, job)

    assert scenario.name == "small"
    assert (cluster.machines[0].bandwidth_in, cluster.machines[0].bandwidth_out) == (
        10.0,
        5.0,
    )
    assert [*job.edge_names] == [
        "g0->s0",
        "s0->w0",
        "w0->ps",
        "ps->w0",
    ]
    assert [edge.lag for edge in job.edges] == [0, 0, 0, 1]
    assert realization.times[:, 1].tolist() == [0.02, 0.015, 1.0, 0.1]
    assert realization.volumes.tolist() == WORKLOAD["volumes"]
    assert scenario.placement.tasks == {"g0": "m0", "s0": "m1", "w0": "m1", "ps": "m0"}


def test_the_listed_makespan_of_the_policy_is_expected(tmp_path: Path) -> None:
    path = _file(tmp_path)

    assert load(path).expect.makespan == 7.25
    assert load(path, ["schedule.policy=maxmin"]).expect.makespan == 7.0
    assert load(path, ["schedule.policy=none"]).expect.makespan is None
    assert load(path, ["job.iterations=1"]).expect.makespan is None
    assert load(path, ["expect.makespan=9 s"]).expect.makespan == 9.0
    assert load(path, ["expect.replay_error=2 %"]).expect.makespan is None


def test_a_workload_survives_a_round_trip(tmp_path: Path) -> None:
    scenario = load(_file(tmp_path))
    resolved = tmp_path / "resolved.json"
    resolved.write_text(json.dumps(scenario.to_json()))

    assert load(resolved) == scenario


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"volumes": [[1.0, 2.0]]}, "is not a workload"),
        ({"volumes": [[-1.0, 2.0]] * 4}, "a volume of g0->s0 is impossible"),
        ({"volumes": [["x", 2.0]] * 4}, "is not a workload"),
        ({"volumes": [[1.0]] * 4}, "found 1 values for 2 iterations"),
        ({"machines": [[10.0]]}, "is not a workload"),
        ({"machines": [[0.0, 1.0]] * 2}, "found zero, write more than that"),
        ({"exec_times": {}}, "is not a workload"),
        ({"tasks": "g0"}, "found str, a workload has a list here"),
        ({"n_iterations": None}, "found NoneType, a workload has a int here"),
        ({"n_iterations": True}, "found bool, a workload has a int here"),
        ({"placement": {"g0": 7}}, "no machine 'm7'"),
        ({"edges": [["g0", "s0", -1]] * 4}, "g0->s0 has lag -1"),
        ({"edges": [["g0", "s9", 0]] * 4}, "no task 's9'"),
        ({"edges": [["g0", 7, 0]] * 4}, "an edge ends at 'g0', 7"),
        ({"edges": [[7, "g0", 0]] * 4}, "an edge ends at 7, 'g0'"),
        ({"edges": [["g0", "s0", 0.5]] * 4}, "g0->s0 has lag 0.5"),
        ({"volumes": [[1.0, math.inf]] * 4}, "a volume of g0->s0 is impossible"),
        ({"edges": [["g0", "s0", True]] * 4}, "g0->s0 has lag True"),
        (
            {"volumes": [[1.0, 2.0, 3.0]] * 4},
            "g0->s0 has 3 volumes for 2 iterations",
        ),
        (
            {"exec_times": WORKLOAD["exec_times"] | {"w9": 1.0}},
            "found 'w9', which is no task",
        ),
        ({"latency": 1}, "unknown key 'latency', known: machines"),
        ({"expected_makespan": {}}, "unknown key 'expected_makespan', did you mean"),
    ],
)
def test_a_broken_workload_is_one_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = _file(tmp_path, **changes)

    with pytest.raises(ScenarioError) as caught:
        load(path)

    assert caught.value.problem.startswith(message)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("volumes", [[1.0, 2.0, 3.0]] * 4),
        ("volumes", [[-1.0, 2.0]] * 4),
        ("exec_times", WORKLOAD["exec_times"] | {"w9": 1.0}),
        ("edges", [["g0", "s0", -1]] * 4),
        ("edges", [["g0", 7, 0]] * 4),
    ],
)
def test_a_wrong_value_of_a_workload_is_named_with_its_key(
    tmp_path: Path, key: str, value: Any
) -> None:
    """A class of Python stood there instead."""
    path = _file(tmp_path, **{key: value})
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert caught.value.key == key


def test_a_key_of_json_that_is_there_twice_is_refused() -> None:
    """As in YAML: the last of two counted without a word."""
    job = '{"system": "custom", "iterations": 2, "iterations": 7}'
    with pytest.raises(ScenarioError) as caught:
        loads(f'{{"cluster": {{}}, "job": {job}}}', name="s.json")
    assert caught.value.problem == '"iterations" is there twice: keep one of them'


def test_json_that_is_cut_off_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(WORKLOAD, indent=1)[:200])

    with pytest.raises(ScenarioError) as caught:
        load(path)

    assert caught.value.problem.startswith("is not JSON")
    assert caught.value.line > 1
