"""Golden cases that are written as scenarios have the makespans worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emu.prediction.scheduling import RATE_POLICIES
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from tests.golden.as_scenario import as_scenario
from tests.golden.cases import cases, exactly

CASES = [
    (file, case, policy)
    for file in ("hops", "executors", "jobs", "ring", "dorylus")
    for case in cases(file)
    for policy in case.results
    if policy in RATE_POLICIES
]


@pytest.mark.parametrize(
    ("file", "number", "policy"),
    [(file, n, policy) for n, (file, _, policy) in enumerate(CASES)],
    ids=[f"{file}-{case}-{policy}" for file, case, policy in CASES],
)
def test_makespan(file: str, number: int, policy: str) -> None:
    case = CASES[number][1]
    content = as_scenario(file, case)
    content |= {"name": "golden", "schedule": {"policy": policy}}

    simulated = (
        prepare(loads(json.dumps(content), name="golden.json")).simulate().makespan
    )

    assert exactly([case.results[policy]["makespan"]]) == pytest.approx(
        [simulated], rel=1e-9
    )


FILES = json.loads(
    (Path(__file__).parents[1] / "golden" / "golden_files.json").read_text()
)["cases"]


@pytest.mark.parametrize("case", FILES, ids=[case["name"] for case in FILES])
def test_files_that_a_reference_outside_simulated(case: dict[str, Any]) -> None:
    scenario = loads(json.dumps(case["scenario"]), name="golden.json")
    schedule = prepare(scenario).simulate()
    ends = {
        task.name: schedule.task_end[position].tolist()
        for position, task in enumerate(schedule.problem.job.tasks)
        if task.name in case["task_ends"]
    }

    assert schedule.makespan == pytest.approx(case["makespan"], rel=1e-9)
    assert ends.keys() == case["task_ends"].keys()
    for name, expected in case["task_ends"].items():
        assert ends[name][: len(expected)] == pytest.approx(expected, rel=1e-9)
