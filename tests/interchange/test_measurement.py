"""Measurements made elsewhere: read, held against runs, or refused with their line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError
from emu.interchange.measurement import TimeUnit, read_measurement
from emu.report import measured_rows
from emu.report.measured_rows import (
    _check_unit,
    _likeness_row,
    full_iterations,
    measurement_rows,
    measurement_tables,
)
from emu.runs.recorded_run import RecordedRun, load_run
from emu.runs.result import port_rows
from tests.report.recorded import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    return load_run(write_run(tmp_path_factory.mktemp("runs") / "run"))


def written(folder: Path, *lines: object, name: str = "cluster.csv") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.dear
@given(factor=st.floats(0.5, 2))
def test_times_of_iterations_are_held_against_both_schedules(
    factor: float, run: RecordedRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of the emulated run itself, `factor` times as long."""
    assert run.emulated is not None
    assert run.simulated is not None
    ends = np.nanmax(run.emulated.task_end, axis=0)
    steps = factor * np.diff(ends)
    lines = [f"{n},{float(step)!r}" for n, step in enumerate(steps)]
    folder = tmp_path_factory.mktemp("times")
    found = read_measurement(written(folder, "iteration,seconds", *lines))
    emulated, simulated = measurement_rows(found, [run])

    assert emulated["error"] == pytest.approx(1 / factor - 1)
    assert emulated["measured"] == pytest.approx(steps.mean())
    assert emulated["half"] > 0
    theirs = np.nanmax(run.simulated.task_end, axis=0)
    mean = (theirs[-1] - theirs[0]) / (len(theirs) - 1)
    assert simulated["here"] == pytest.approx(mean)
    assert (emulated["schedule"], simulated["schedule"]) == ("emulated", "simulated")


def test_bytes_of_links_are_held_against_what_crossed(
    run: RecordedRun, tmp_path: Path
) -> None:
    assert run.emulated is not None
    here = {row["port"]: row["bytes"] for row in port_rows(run.emulated)}
    lines = [f"{name}, {2 * size!r}" for name, size in here.items()]
    found = read_measurement(written(tmp_path, "\ufefflink, bytes", *lines, ""))
    rows = list(measurement_rows(found, [run]))

    assert [row["what"] for row in rows] == [*here, *here]
    assert all(row["error"] in (-0.5, None) for row in rows[: len(here)])
    assert any(row["error"] == -0.5 for row in rows)
    (table,) = measurement_tables(found, [run])
    assert table.row_count == 2 * len(here)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "begins with '', write iteration,seconds or link,bytes"),
        (["seconds,iteration", "1,0"], "begins with 'seconds,iteration'"),
        (["iteration,seconds"], "holds no rows"),
        (["iteration,seconds", "0,1", "1"], "line 3: '1', write a name"),
        (["iteration,seconds", "0,1", "", "1,nan"], "line 4: '1,nan'"),
        (["iteration,seconds", "0,-1"], "line 2"),
        (["iteration,seconds", "0,1,2"], "line 2"),
        (["iteration,seconds", "0,1 s"], "line 2"),
        (["link,bytes", "m0 out,1", "m0 out,2"], "line 3: 'm0 out' stands twice"),
        (["iteration,seconds", "2,1", "0,1", "1,1"], "not in order: number and sort"),
        (["iteration,seconds", "1,1", "1.0,1"], "not in order: number and sort"),
        (["iteration,seconds", "a,1", "b,1"], "not in order: number and sort"),
    ],
)
def test_what_it_is_not(lines: list[str], problem: str, tmp_path: Path) -> None:
    path = written(tmp_path, *lines)
    with pytest.raises(DataError) as caught:
        read_measurement(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_link_that_the_run_lacks(run: RecordedRun, tmp_path: Path) -> None:
    found = read_measurement(written(tmp_path, "link,bytes", "mo out,1"))
    with pytest.raises(
        DataError, match=r"run has no link 'mo out', did you mean 'm. out'"
    ):
        list(measurement_rows(found, [run]))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"link,bytes\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="is not text in UTF-8"):
        read_measurement(path)
    path.write_bytes(gzip.compress(b"link,bytes\na out,1\n"))
    assert read_measurement(path).values == {"a out": [1.0]}


def test_the_command_shows_it_beside_the_runs(run: RecordedRun, tmp_path: Path) -> None:
    times = written(tmp_path, "iteration,seconds", "0,10", "1,12", name="times.csv")
    sizes = written(tmp_path, "link,bytes", "m0 out,1e6", name="sizes.csv")
    what = ["compare", str(run.path), str(times), str(sizes)]
    shown = CliRunner().invoke(app, what)
    assert shown.exit_code == 0, shown.output
    for words in ("Measured elsewhere: times.csv", "11 s", "sizes.csv", "m0 out"):
        assert words in shown.stdout
    rows = json.loads(CliRunner().invoke(app, [*what, "--json", "-"]).stdout)
    assert [row["name"] for row in rows[1:]] == ["times.csv", "sizes.csv"]
    assert rows[1]["rows"][0]["measured"] == 11
    assert rows[1]["rows"][0]["outcome"] == "undecided"
    assert rows[1]["rows"][0]["measured_quartiles"] == [10.5, 11, 11.5]


def written_times(folder: Path, times: Sequence[float]) -> Path:
    lines = [f"{number},{time!r}" for number, time in enumerate(times)]
    return written(folder, "iteration,seconds", *lines)


@pytest.mark.parametrize(
    ("times", "count"),
    [
        ([5.0, *[1.0, 1.02] * 3], 1),
        ([0.1, *[1.0, 1.02] * 3], 1),
        ([5.0, 3.0, *[1.0, 1.02, 0.97] * 4], 2),
        ([0.3, 0.1], 1),
        # By turns, bit by bit, few of any length, and a later outlier.
        ([1.5, 0.5] * 10, 0),
        # More than a quarter is no beginning.
        ([3.0] * 4 + [1.0] * 8, 0),
        # By its later half alone: the earlier one is wide.
        ([1.25] * 3 + [1.09] * 3 + [1.0] * 6, 3),
        ([2 - number / 40 for number in range(40)], 0),
        ([1.2, 1.0], 0),
        ([7.0], 0),
        ([1.0, 1.02, 9.0, 1.0, 1.02], 0),
    ],
)
def test_times_that_warm_up_are_asked_about(
    times: list[float], count: int, tmp_path: Path
) -> None:
    path = written_times(tmp_path, times)
    if not count:
        assert read_measurement(path).values["iteration"] == times
        return
    rows = "row is" if count == 1 else f"{count} rows are"
    with pytest.raises(
        DataError, match=rf"first {rows} far .* --skip {count} to leave"
    ):
        read_measurement(path)
    assert read_measurement(path, 0).values["iteration"] == times
    left = read_measurement(path, count)
    assert left.values["iteration"] == times[count:]
    assert left.skipped == count
    with pytest.raises(DataError, match="leaves none of its"):
        read_measurement(path, len(times))


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1e3), ("us", 1e6)])
def test_a_unit_that_nobody_stated_is_asked_about(
    unit: str, scale: float, run: RecordedRun, tmp_path: Path
) -> None:
    assert run.emulated is not None
    seconds = full_iterations(run.emulated) * 1.3
    path = written_times(tmp_path, (seconds * scale).tolist())
    with pytest.raises(DataError, match=f"write --unit {unit} or --unit s"):
        list(measurement_rows(read_measurement(path), [run]))

    row, _ = measurement_rows(read_measurement(path, unit=TimeUnit(unit)), [run])
    assert row["measured"] == pytest.approx(seconds.mean())
    assert row["median_error"] == pytest.approx(1 / 1.3 - 1)
    stated, _ = measurement_rows(read_measurement(path, unit=TimeUnit.S), [run])
    assert stated["measured"] == pytest.approx(seconds.mean() * scale)


def test_unequal_numbers_of_iterations_are_said(
    run: RecordedRun, tmp_path: Path
) -> None:
    found = read_measurement(written_times(tmp_path, [13.5, 4.5] * 4))
    row, _ = measurement_rows(found, [run])
    assert (row["rows"], row["iterations"], row["same_number"]) == (8, 3, False)
    (table,) = measurement_tables(found, [run])
    assert "the file has 8 iterations, 0 skipped, the run 3" in str(table.caption)


def test_options_of_times_need_times(run: RecordedRun, tmp_path: Path) -> None:
    sizes = written(tmp_path, "link,bytes", "m0 out,1e6")
    for files in ([sizes], []):
        refused = CliRunner().invoke(
            app, ["compare", str(run.path), *map(str, files), "--unit", "ms"]
        )
        assert "write RUN times.csv" in refused.stderr
    refused = CliRunner().invoke(app, ["compare", "golden", "--skip", "1"])
    assert "--skip 1: is of iterations" in refused.stderr


def test_iterations_are_those_between_the_first_and_what_drains_a_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipeline of depth 2 leaves three of eight iterations full, and none of four."""
    lengths = np.array([9.0, 8.0, 7.0, 1.0, 2.0, 3.0, 6.0, 5.0])
    schedule: Any = SimpleNamespace(problem=SimpleNamespace(job=None))
    monkeypatch.setattr(measured_rows, "pipeline_depth", lambda _: 2)
    monkeypatch.setattr(measured_rows, "iteration_lengths", lambda _: lengths)
    mean = SimpleNamespace(iteration_seconds=1.25)
    monkeypatch.setattr(measured_rows, "pace", lambda *_: mean)
    assert full_iterations(schedule).tolist() == [1.0, 2.0, 3.0]

    monkeypatch.setattr(measured_rows, "iteration_lengths", lambda _: lengths[:4])
    assert full_iterations(schedule).tolist() == [1.25]


@pytest.mark.parametrize("steps", [(2.0, 3.0, 7.0), ()])
def test_steps_that_a_program_told_stand_for_its_iterations(
    steps: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any, iterations of the schedule do, which are five in all."""
    of_schedule = np.array([10.0, 20.0, 30.0, 40.0])
    monkeypatch.setattr(measured_rows, "full_iterations", lambda _: of_schedule)
    values = {"iteration": [2.0, 4.0, 6.0, 8.0]}
    measurement: Any = SimpleNamespace(values=values, unit_stated=True, skipped=1)
    run: Any = SimpleNamespace(name="r", steps=steps, result={})
    job = SimpleNamespace(iterations=5)
    schedule: Any = SimpleNamespace(problem=SimpleNamespace(job=job))
    row = _likeness_row(measurement, run, schedule)

    median = 3.0 if steps else 25.0
    assert row["here_quartiles"][1] == median
    assert row["median_error"] == pytest.approx(median / 5.0 - 1)
    assert row["iterations"] == (3 if steps else 5)
    assert row["same_number"] == (not steps)


def test_a_link_that_carries_a_quarter_more_than_was_measured_is_off_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readings of 9, 10 and 11 B stand beside 12.5 B; readings of 0 have no error."""
    sizes = [("m0 out", 12.5), ("m1 in", 3.0)]
    ports = [{"port": name, "bytes": size} for name, size in sizes]
    schedule: Any = SimpleNamespace()
    monkeypatch.setattr(measured_rows, "schedules_of", lambda _: {"emulated": schedule})
    monkeypatch.setattr(measured_rows, "port_rows", lambda _: ports)
    values = {"m1 in": [0.0, 0.0], "m0 out": [9.0, 10.0, 11.0]}
    measurement: Any = SimpleNamespace(unit="bytes", values=values, path=Path("m.csv"))
    run: Any = SimpleNamespace(name="r", steps=())

    rows = [*measurement_rows(measurement, [run])]
    found = [(row["what"], row["measured"], row["here"], row["error"]) for row in rows]
    assert found == [("m1 in", 0.0, 3.0, None), ("m0 out", 10.0, 12.5, 0.25)]
    assert [row["schedule"] for row in rows] == ["emulated"] * 2


@pytest.mark.parametrize(
    ("times", "here", "advice"),
    [
        # They are 0.67 and 1.33 times as much.
        ([2000.0, 4000.0], 3.0, "about 1,000 times.*--unit ms or"),
        ([2e6, 4e6], 3.0, "about 1,000,000 times.*--unit us or"),
        ([2.0, 4.0], 3.0, ""),
        ([2000.0, 9000.0], 3.0, ""),  # one of them is three times as much
        ([2000.0, 1000.0], 3.0, ""),  # or a third
        ([2000.0, 4000.0], 0.0, ""),
    ],
)
def test_times_of_another_unit_are_noticed(
    times: list[float], here: float, advice: str
) -> None:
    measurement: Any = SimpleNamespace(
        values={"iteration": times}, unit_stated=False, path=Path("m.csv")
    )
    if advice:
        with pytest.raises(DataError, match=advice):
            _check_unit(measurement, here, "run")
        measurement.unit_stated = True
    _check_unit(measurement, here, "run")
