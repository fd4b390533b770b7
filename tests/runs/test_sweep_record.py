"""A sweep's record survives whatever ends the sweep."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from emu.report.plot_curves import sweep_figure
from emu.report.plot_style import save, style
from emu.runs.sweep_record import SweepRecord
from tests.report.test_plots import groups, texts

ROWS: list[dict[str, Any]] = [
    {"values": {"size": size, "policy": policy, "seed": seed},
     "figures": {"makespan": float(size) + seed + (policy == "oes")}}
    for size in ("1", "2", "4") for policy in ("oes", "maxmin") for seed in range(3)
]  # fmt: skip


def test_rows_are_read_back(tmp_path: Path) -> None:
    record = SweepRecord(tmp_path / "new")
    record.add("a", {"x": "1", "seed": 0}, {"makespan": 2.5})
    record.add("b", {"x": "2", "seed": 0}, {"makespan": 1.5})

    assert SweepRecord(tmp_path / "new").rows == record.rows
    assert list(record.rows) == ["a", "b"]


def test_torn_line_is_dropped_and_overwritten(tmp_path: Path) -> None:
    record = SweepRecord(tmp_path)
    record.add("a", {"x": "1"}, {"makespan": 2.5})
    with record.path.open("a") as file:
        file.write('{"version": 1, "key": "b", "val')

    again = SweepRecord(tmp_path)
    assert list(again.rows) == ["a"]
    again.add("b", {"x": "2"}, {"makespan": 1.0})
    assert list(SweepRecord(tmp_path).rows) == ["a", "b"]


def test_table_holds_what_was_asked_for(tmp_path: Path) -> None:
    record = SweepRecord(tmp_path)
    record.add("b", {"x": "[5, 10]"}, {"makespan": 1.0})
    record.add("a", {"x": "1"}, {"makespan": 2.5, "loss": 0.5})
    with record.write_table(["a", "b", "not finished"]).open() as file:
        rows = list(csv.DictReader(file))

    assert rows == [
        {"x": "1", "makespan": "2.5", "loss": "0.5"},
        {"x": "[5, 10]", "makespan": "1.0", "loss": ""},
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [("nonsense", "not JSON"), ('{"version": 9, "key": "a"}', "version 9")],
)
def test_other_files_are_refused(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "points.jsonl").write_text(line + "\n")

    with pytest.raises(DataError, match=f"line 1 is.*{problem}"):
        SweepRecord(tmp_path)


def test_numbers_are_drawn_as_lines(tmp_path: Path) -> None:
    out = tmp_path / "points.svg"
    with style(dark=False):
        save(sweep_figure(ROWS, ["size", "policy"]), out)

    assert {"size", "makespan (s)", "policy", "oes", "maxmin"} <= texts(out)


def test_what_is_ranked_by_samples_per_second_is_drawn_so(tmp_path: Path) -> None:
    rows = []
    for row in ROWS:
        size = int(row["values"]["size"])
        pace = {"samples": 100 * size, "samples_per_second": 7000.0 * size}
        rows.append({**row, "figures": {**row["figures"], **pace}})
    drawn = {}
    for by_makespan in (False, True):
        out = tmp_path / f"{by_makespan}.svg"
        with style(dark=False):
            save(sweep_figure(rows, ["size"], by_makespan=by_makespan), out)
        drawn[by_makespan] = texts(out)

    assert "samples per s" in drawn[False]
    assert "makespan (s)" not in drawn[False]
    assert "makespan (s)" in drawn[True]


def test_words_are_drawn_as_bars(tmp_path: Path) -> None:
    out = tmp_path / "points.svg"
    some = [row for row in ROWS if row["values"]["size"] == "1"]
    with style(dark=False):
        save(sweep_figure(some, ["policy"]), out)

    bars = [key for key in groups(out) if key.startswith("bar-")]
    assert len(bars) == 2
    assert "makespan (s)" in texts(out)


def test_a_point_of_another_sweep_is_called_by_the_values_of_this_one(
    tmp_path: Path,
) -> None:
    """It stays finished, with its figures, of which a makespan may be short."""
    record = SweepRecord(tmp_path)
    record.add("a", {"x": "1"}, {"makespan": 0.0, "cost": 0.5})
    again = SweepRecord(tmp_path)
    assert not again.take("b", {"y": "2"})
    assert again.take("a", {"y": "2"})
    assert [*again.rows] == ["a"]
    row = again.rows["a"]
    assert (row["values"], row["figures"]) == (
        {"y": "2"},
        {"makespan": 0.0, "cost": 0.5},
    )


def test_a_line_without_a_key_is_of_no_version_of_ours(tmp_path: Path) -> None:
    line = '{"version": 1, "values": {}, "figures": {"makespan": 1.0}}\n'
    (tmp_path / "points.jsonl").write_text(line)
    with pytest.raises(DataError, match="line 1 is of version 1, this emu writes 1"):
        SweepRecord(tmp_path)
    (tmp_path / "points.jsonl").write_text(line.replace("1.0", "-1.0").replace(
        "{", '{"key": "a", ', 1
    ))  # fmt: skip
    with pytest.raises(DataError, match=r"line 1: figures\.makespan: "):
        SweepRecord(tmp_path)
