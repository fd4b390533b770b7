"""Rows of kills are drawn from their seed, and judged as they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tools.attacks.recovery import complaint, drawn, named, table

ROW: dict[str, Any] = {
    "kind": "restart",
    "victim": "w0",
    "noticed": 0.5,
    "first": 3,
    "named": True,
    "orphans": [],
    "code": 0,
    "traceback": False,
    "left": [],
    "identical": True,
}


def test_victims_are_those_of_the_seed_and_reach_everybody() -> None:
    there = ["agent", "fork server", "ps0", "w0"]
    victims = [drawn(there, np.random.default_rng([3, n])) for n in range(100)]

    assert {*victims} == {*there}
    assert victims == [drawn(there, np.random.default_rng([3, n])) for n in range(100)]
    assert drawn([], np.random.default_rng(0)) == ""


@pytest.mark.parametrize(
    ("victim", "message", "expected"),
    [
        ("w0", "process w0 was killed by SIGKILL: ", True),
        ("w0", "process w01 was killed by SIGKILL: ", False),
        ("fork server", "the agent on here ended: ", True),
    ],
)
def test_a_culprit_is_named(victim: str, message: str, *, expected: bool) -> None:
    assert named(victim, message) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"code": 5, "identical": False}, "exit code 5"),
        ({"identical": False}, "other weights"),
        ({"named": False, "left": ["file a"]}, "the culprit is not named; left file a"),
        ({"orphans": ["emu:w0"]}, "not ended: emu:w0"),
    ],
)
def test_row_that_is_not_as_it_should_be(change: dict[str, Any], expected: str) -> None:
    assert complaint(ROW | change) == expected


def test_table_counts() -> None:
    rows = [ROW, ROW | {"first": 0, "noticed": 1.5}, ROW | {"first": None}]
    line = table([row | {"complaint": ""} for row in rows]).splitlines()[1]
    assert " ".join(line.split()) == "restart 3 2 3 1 0.50 1.50 0 0"
