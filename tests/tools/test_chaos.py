"""Draws are a function of the seed, and rows are judged as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from tools.attacks.chaos import TASKS, Draw, complaint, table

ROW: dict[str, Any] = {
    "victim": "w0",
    "action": "kill",
    "code": 5,
    "traceback": False,
    "left": [],
    "message": "emu: process w0 was killed by SIGKILL (task w0 in iteration 1)",
    "seconds": 0.5,
}


def test_draws_are_those_of_the_seed_and_reach_everybody() -> None:
    draws = [Draw.of(3, number) for number in range(300)]

    assert draws == [Draw.of(3, number) for number in range(300)]
    assert draws != [Draw.of(4, number) for number in range(300)]
    assert len({draw.victim for draw in draws}) == 3 + len(TASKS)
    assert len({draw.action for draw in draws}) == 6
    assert min(draw.moment for draw in draws) < 0.02
    assert max(draw.moment for draw in draws) > 1.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"message": "emu: process w10 was killed"}, "the culprit is not named"),
        ({"left": ["process 7 emu:w0"]}, "left process 7 emu:w0"),
        ({"traceback": True, "code": 1}, "a traceback; exit code 1"),
        ({"unnoticed": ["python"]}, "not noticed by python"),
        ({"victim": "command", "code": -9}, ""),
        ({"victim": "command", "action": "terminate", "code": -15}, "exit code -15"),
        ({"code": 0, "message": "written to runs/golden"}, ""),
    ],
)
def test_row_that_is_not_as_it_should_be(change: dict[str, Any], expected: str) -> None:
    assert complaint(ROW | change) == expected


def test_table_counts() -> None:
    rows = [ROW, ROW | {"victim": "s0", "seconds": 1.5}]
    line = table([row | {"complaint": ""} for row in rows]).splitlines()[1]

    assert line.split() == [
        "a",
        "task",
        "kill",
        "2",
        "2",
        "1",
        "1.00",
        "1.50",
        "0",
        "0",
    ]
