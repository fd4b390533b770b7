"""Result files: the schedule comes back, and nothing half is taken for whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import DataError
from emu.prediction.simulation import simulate
from emu.problem import Problem, Schedule
from emu.runs.result import read_result, result_of
from emu.scenario import Scenario, build_job, load, prepare, realize
from emu.scenario.placements import place

GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"


@pytest.fixture(params=[False, True], ids=["simulated", "emulated"])
def result(request: pytest.FixtureRequest) -> tuple[Scenario, Schedule, dict[str, Any]]:
    scenario = load(GOLDEN, ["job.credit_window=null"])
    job = build_job(scenario)
    cluster = scenario.to_cluster()
    problem = Problem(cluster, job, place(scenario, job, cluster).placement)
    schedule = simulate(problem, realize(scenario, job))
    return scenario, schedule, result_of(scenario, schedule, emulated=request.param)


def test_round_trip(
    result: tuple[Scenario, Schedule, dict[str, Any]], tmp_path: Path
) -> None:
    """With the credit edges of the run: an emulated job has a window by default."""
    scenario, schedule, content = result
    (tmp_path / "result.json").write_text(json.dumps(content))
    read_scenario, read = read_result(tmp_path)

    assert read_scenario == scenario
    assert read.problem == schedule.problem
    for name in ("task_start", "task_end", "flow_ready", "flow_start", "flow_end"):
        expected, found = getattr(schedule, name), getattr(read, name)
        np.testing.assert_array_equal(found, expected, err_msg=name)


RATES = dict.fromkeys(("aggregate", "multiply", "sample"), "1 ps")
RATES |= {"collect": "1 ns", "step": "1 ns", "launch": "50 us"}
TRAINING = {
    "dataset": {"name": "products-like", "scale": 0.001},
    "model": {"kind": "gcn", "hidden": 4, "layers": 2},
    "rates": RATES,
    "epochs": 2,
}


@pytest.mark.parametrize(
    "keys",
    [
        {"system": "data_parallel", "fanouts": [2, 2], "batch_size": 40},
        {"system": "dgcl", "plan": "spst"},
    ],
)
def test_several_jobs_are_as_long_and_shaped_as_their_data(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    short = {
        "system": "custom",
        "iterations": 3,
        "tasks": [{"name": "t", "time": "1 s"}],
    }
    machines = [{"count": 3, "nic": "1 Gbit/s"}]
    jobs = [{"name": "a", "job": {**TRAINING, **keys}}, {"name": "b", "job": short}]
    content = {"name": "two", "cluster": {"machines": machines}, "jobs": jobs}
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps(content))
    scenario = load(file, [])
    experiment = prepare(scenario)
    schedule = simulate(experiment.problem, experiment.realization)
    result = result_of(scenario, schedule, emulated=False)
    (tmp_path / "result.json").write_text(json.dumps(result))

    _, read = read_result(tmp_path)

    assert read.problem.job.rounds == schedule.problem.job.rounds
    np.testing.assert_array_equal(read.task_end, schedule.task_end)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content["tasks"].pop(1), "task g0 lacks iteration 1"),
        (lambda content: content["flows"].pop(0), "lacks iteration"),
        (lambda content: content["tasks"].append(content["tasks"][0]), "twice"),
        (lambda content: content.pop("placement"), "KeyError 'placement'"),
        (lambda content: content["scenario"].pop("job"), "its scenario has 1 error"),
        (lambda content: content["tasks"][0].update(task="x9"), "no task is called x9"),
        (lambda content: content["flows"][0].update(edge="x9"), "KeyError 'x9'"),
        (lambda content: content["tasks"][0].update(start="soon"), "start is 'soon'"),
    ],
)
def test_a_damaged_result_is_named(
    result: tuple[Scenario, Schedule, dict[str, Any]],
    tmp_path: Path,
    damage: Callable[[dict[str, Any]], object],
    message: str,
) -> None:
    content = json.loads(json.dumps(result[2]))
    damage(content)
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content))

    with pytest.raises(DataError, match=message) as caught:
        read_result(path)
    assert caught.value.path == str(path)
