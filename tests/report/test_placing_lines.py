"""One line says how tasks were placed, another which resources limit nothing."""

from __future__ import annotations

from typing import Any

import pytest

from emu.report.explanation_tables import placing_line, print_placing, unclaimed_line
from emu.report.terminal import terminal

PLACING: dict[str, Any] = {
    "policy": "best",
    "seed": 3,
    "candidates": 6152,
    "budget": 3076,
    "optimal": False,
    "unclaimed": [],
}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "placed by best (at most 3,076 candidates, seed 3)"),
        (
            {"optimal": True},
            "placed by best (at most 3,076 candidates, seed 3), no placement is better",
        ),
        ({"policy": "ifs", "candidates": 0}, "placed by ifs"),
        ({"policy": "explicit", "candidates": 0}, "placed as the scenario states"),
    ],
)
def test_the_line_names_policy_budget_and_seed(
    change: dict[str, Any], line: str
) -> None:
    assert placing_line(PLACING | change) == line


@pytest.mark.parametrize(
    ("idle", "line"),
    [
        ([], ""),
        (["cpu"], "warning: cpu limits nothing: no task demands any"),
        (["cpu", "gpu"], "warning: cpu, gpu limit nothing: no task demands any"),
    ],
)
def test_what_limits_nothing_is_warned_of_once_on_standard_error(
    idle: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    placing = PLACING | {"unclaimed": idle}
    assert unclaimed_line(placing) == line
    print_placing(placing, terminal())
    out, err = capsys.readouterr()
    assert (out, err) == (placing_line(PLACING) + "\n", line + "\n" if line else "")
