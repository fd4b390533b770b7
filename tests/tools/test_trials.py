"""The pure parts of the fidelity tool."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.coordinator.trial import Trial
from tools.trials.figures import draw_cdf, kendall, table, write_csv

if TYPE_CHECKING:
    from pathlib import Path


def _trial(fidelity: float, trust: str = "trusted", **more: Any) -> Trial:
    return Trial(
        "drawn", "oes", 8, 2, 1.0, 1.0, fidelity=fidelity, flow_error=0.01,
        trust=trust, bound=0.002, **more,
    )  # fmt: skip


TRIALS = [
    _trial(0.001),
    _trial(-0.003, retries=1),
    _trial(0.05, "untrusted"),
    _trial(0.004, "degraded"),
    _trial(math.nan, "failed", problem="w0 died"),
]


def test_the_table_counts_what_is_off_and_what_was_flagged() -> None:
    text = "\n".join(table(TRIALS))

    assert "runs 5, not trusted 2, retried 1" in text
    assert "failed 1" in text
    assert "makespan, trusted          p50 0.200" in text
    assert "off by > 3 %: 1, flagged 1" in text
    assert "flagged though within 1 %: 1" in text


def test_every_run_is_in_the_csv(tmp_path: Path) -> None:
    write_csv(TRIALS, tmp_path / "trials.csv")
    with (tmp_path / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert [row["trust"] for row in rows] == [trial.trust for trial in TRIALS]
    assert rows[-1]["problem"] == "w0 died"


def test_the_distribution_is_drawn(tmp_path: Path) -> None:
    draw_cdf(TRIALS, tmp_path / "cdf.png")

    assert (tmp_path / "cdf.png").read_bytes().startswith(b"\x89PNG")


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8, unique=True))
def test_tau_of_an_order_with_itself_is_one(values: list[float]) -> None:
    assert kendall(values, values) == 1.0
    assert kendall(values, [-value for value in values]) == -1.0


def test_tau_by_hand() -> None:
    assert kendall([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
