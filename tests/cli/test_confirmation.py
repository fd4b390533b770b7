"""Rows of a table that ran several times: median, interval, the least trust."""

from __future__ import annotations

import pytest

from emu.cli.confirmation import _confirmation_of
from emu.runs.repeats import Repeats, RunFigures


@pytest.mark.parametrize(
    ("errors", "trusts", "trust", "outcome"),
    [
        ((0.001, 0.002, 0.003), ("trusted",) * 3, "trusted", "agrees"),
        ((0.01, 0.02, 0.17), ("trusted",) * 3, "trusted", "undecided"),
        ((0.1, 0.101, 0.102), ("trusted",) * 3, "trusted", "differs"),
        (
            (0.001, 0.002, 0.003),
            ("trusted", "untrusted", "degraded"),
            "untrusted",
            "agrees",
        ),
    ],
)
def test_a_row_agrees_only_where_the_interval_does(
    errors: tuple[float, ...], trusts: tuple[str, ...], trust: str, outcome: str
) -> None:
    runs = [
        RunFigures(f"runs/{number}", 1.0 + error, error, trusted)
        for number, (error, trusted) in enumerate(zip(errors, trusts, strict=True))
    ]
    found = _confirmation_of(Repeats((*runs,), threshold=0.03))
    assert (found.trust, found.outcome, found.runs) == (trust, outcome, 3)
    assert found.makespan == 1.0 + errors[1]
    assert found.path == "runs/1"
    assert found.further is not None
    low, high = found.further
    assert low < 1.0 + min(errors) < 1.0 + max(errors) < high
