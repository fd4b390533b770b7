"""Measurements made elsewhere: read, held against runs, or refused with their line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import DataError
from emu.interchange.measurement import read_measurement
from emu.report.many_runs import measurement_rows, measurement_table
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
    assert measurement_table(found, [run]).row_count == 2 * len(here)


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
    with pytest.raises(DataError, match="is damaged"):
        read_measurement(path)


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
