"""Golden cases that are written as scenarios have the makespans worked out by hand."""

from __future__ import annotations

import json

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
