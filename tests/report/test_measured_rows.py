"""Iterations that were measured elsewhere, beside those of each schedule of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.table import Table

from emu.errors import DataError
from emu.report import measured_rows as module
from emu.runs.repeats import Agreement


def rows_of(table: Table) -> list[list[str]]:
    """Return the cells of every row."""
    columns = [[*map(str, column.cells)] for column in table.columns]
    return [[*row] for row in zip(*columns, strict=True)]


#: Two schedules beside one file; no two figures are equal.
FIRST: dict[str, Any] = {
    "run": "r",
    "schedule": "emulated",
    "what": "iteration",
    "rows": 8,
    "skipped": 2,
    "iterations": 5,
    "same_number": False,
    "measured": 4.0,
    "half": 0.25,
    "here": 3.0,
    "error": -0.25,
    "measured_quartiles": [1.0, 2.0, 6.0],
    "here_quartiles": [1.5, 2.5, 7.0],
    "median_error": 0.25,
    "apart": 0.125,
    "apart_by_chance": 0.0625,
    "largest_gap": 0.5,
    "drift": 0.75,
    "drift_half": 0.375,
    "outcome": str(Agreement.DIFFERS),
    "reasons": ["slower", "wider"],
}
SECOND = FIRST | {
    "schedule": "",
    "iterations": 6,
    "here": 5.0,
    "error": None,
    "here_quartiles": [3.5, 4.5, 8.0],
    "median_error": 1.25,
    "apart": None,
    "largest_gap": 0.125,
    "drift": None,
    "outcome": str(Agreement.UNDECIDED),
    "reasons": ["by chance"],
}


def table_of(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> Table:
    """Return the table of such rows."""
    monkeypatch.setattr(module, "measurement_rows", lambda *_: iter(rows))
    measurement: Any = SimpleNamespace(unit="seconds", path=Path("a/m.csv"))
    run: Any = SimpleNamespace(name="r")
    (table,) = module.measurement_tables(measurement, [run])
    return table


def test_each_schedule_has_a_column_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(monkeypatch, FIRST, SECOND)
    assert str(table.title) == "Measured elsewhere: m.csv, beside r"
    assert [str(column.header) for column in table.columns] == [
        *("", "measured", "emulated", "")
    ]
    assert rows_of(table) == [
        ["iterations", "8", "5", "6"],
        ["mean", "4 s ± 250 ms", "3 s", "5 s"],
        ["first quartile", "1 s", "1.5 s", "3.5 s"],
        ["median", "2 s", "2.5 s", "4.5 s"],
        ["third quartile", "6 s", "7 s", "8 s"],
        ["error of the mean", "", "-25 %", ""],
        ["error of the median", "", "+25 %", "+125 %"],
        ["apart on average", "", "12.5 %, 6.25 % by chance", ""],
        ["largest distance of distributions", "", "0.500", "0.125"],
        ["drift from beginning to end", "", "+75 % ± 38 %", ""],
        ["outcome", "", "differs", "undecided"],
    ]
    assert str(table.caption).splitlines() == [
        "emulated: slower",
        "emulated: wider",
        "run: by chance",
        "which may be chance: more iterations decide",
        (
            "the file has 8 iterations, 2 skipped, the run 5: drift is along those "
            "that both have"
        ),
    ]
    alone = table_of(monkeypatch, FIRST | {"same_number": True, "half": 0.0})
    assert "the file has" not in str(alone.caption)
    assert rows_of(alone)[1] == ["mean", "4 s", "3 s"]


def test_links_stand_by_run_and_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    row = FIRST | {"what": "m0 out", "measured": 2e6, "here": 3e6, "error": 0.5}
    other = row | {"run": "q", "schedule": "", "error": None}
    monkeypatch.setattr(module, "measurement_rows", lambda *_: iter([row, other]))
    measurement: Any = SimpleNamespace(unit="bytes", path=Path("m.csv"))
    (table,) = module.measurement_tables(measurement, [])
    assert rows_of(table) == [
        ["r", "emulated", "m0 out", "2 MB", "3 MB", "+50 %"],
        ["q", "", "m0 out", "2 MB", "3 MB", ""],
    ]


def measured(*times: float) -> Any:
    """Return a measurement of iterations whose unit is stated."""
    values = {"iteration": [*times]}
    return SimpleNamespace(
        unit="seconds",
        values=values,
        unit_stated=True,
        skipped=1,
        path=Path("m.csv"),
    )


def test_a_run_s_own_threshold_judges_its_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its iterations are 10 % longer, each of them: within 20 %, and not within 3."""
    schedule: Any = SimpleNamespace(
        problem=SimpleNamespace(job=SimpleNamespace(iterations=9))
    )
    monkeypatch.setattr(module, "schedules_of", lambda _: {"emulated": schedule})
    monkeypatch.setattr(module, "full_iterations", lambda _: np.array([9.0]))
    measurement = measured(*[1.0, 1.001, 0.999] * 7)
    steps = [1.1 * time for time in measurement.values["iteration"]]
    run: Any = SimpleNamespace(name="r", steps=steps, result={})
    (row,) = module.measurement_rows(measurement, [run])
    assert (row["threshold"], row["outcome"]) == (0.03, "differs")
    assert (row["schedule"], row["rows"], row["iterations"]) == ("virtual", 21, 21)
    assert (row["same_number"], row["skipped"]) == (True, 1)
    assert row["here"] == pytest.approx(1.1)
    assert row["error"] == pytest.approx(0.1)
    assert row["here_quartiles"][0] == pytest.approx(1.1 * 0.999)
    assert row["measured_quartiles"][2] == pytest.approx(1.001)
    run.result = {"prediction": {"threshold": 0.2}}
    (row,) = module.measurement_rows(measurement, [run])
    assert (row["threshold"], row["outcome"]) == (0.2, "agrees")


def test_a_run_without_iterations_to_compare_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "schedules_of", lambda _: {"": None})
    run: Any = SimpleNamespace(name="r", steps=[], result={"virtual": {}})
    with pytest.raises(DataError, match="r told no steps: emu virtual --mark"):
        list(module.measurement_rows(measured(1.0), [run]))
    run.result = {}
    pace = SimpleNamespace(iteration_seconds=None)
    monkeypatch.setattr(module, "pace", lambda *_: pace)
    with pytest.raises(DataError, match="r has several jobs, and no iteration of all"):
        list(module.measurement_rows(measured(1.0), [run]))
