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
from emu.scenario import Scenario, build_job, load, realize
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


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content["tasks"].pop(1), "task g0 lacks iteration 1"),
        (lambda content: content["flows"].pop(0), "lacks iteration"),
        (lambda content: content["tasks"].append(content["tasks"][0]), "twice"),
        (lambda content: content.pop("placement"), "KeyError 'placement'"),
        (lambda content: content["scenario"].pop("job"), "its scenario has 1 errors"),
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
