"""emu explain and report as a user calls them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import emu
from emu.cli import app
from emu.cli.report_commands import draw
from emu.report.terminal import terminal
from tests.report import trace_reader
from tests.report.recorded import write_run

GOLDEN = str(Path(__file__).parents[2] / "scenarios" / "golden.yaml")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def explained(*arguments: str | Path) -> Any:
    result = call("explain", *arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_scenario_is_simulated_and_explained() -> None:
    content = explained(GOLDEN)

    assert content["makespan"] == 38.0
    assert sum(row["seconds"] for row in content["causes"]) == pytest.approx(38.0)
    assert "apart" not in content
    best = content["improvements"][0]
    assert best["gain"] == pytest.approx(38.0 - best["makespan"])


def test_overrides_count() -> None:
    content = explained(GOLDEN, "--set", "job.iterations=10", "--no-improvements")

    assert content["makespan"] == 115.0
    assert content["improvements"] == []


@pytest.mark.parametrize("at", [0.5, 10, 30, 37, 90])
def test_deaths_count_in_compare_as_in_simulate(at: float) -> None:
    kill = ["--set", f"events=[{{at: {at} s, kill: w0}}]", "--set", "expect=null"]
    kill += ["--set", "on_failure=restart", "--set", "recovery=7 s"]
    simulated = json.loads(call("simulate", GOLDEN, *kill, "--json", "-").stdout)
    compared = call("compare", GOLDEN, *kill, "--policies", "oes", "--json", "-")
    explained = call("explain", GOLDEN, *kill, "--no-improvements").stdout

    length = 38.0 if at > 36 else at + 7.0 + 38.0  # w0 has ended by then
    assert simulated["makespan"] == pytest.approx(length)
    assert json.loads(compared.stdout)[0]["makespan"] == pytest.approx(length)
    assert ("killed once, lost" in explained) == (at < 36)


def test_what_events_and_failures_cost_is_a_line_that_can_be_pasted() -> None:
    pauses = "events=[{at: 3 s, pause: m0, for: 20 s}, {at: 3 s, pause: m1, for: 20 s}]"
    text = call("explain", GOLDEN, "--set", pauses, "--set", "expect=null").stdout
    (line,) = [row for row in text.splitlines() if "no events" in row]

    assert line.split()[4:6] == ["14", "s"]
    assert line.split()[-1] == "events=null"
    assert "no events" not in call("explain", GOLDEN).stdout


def test_a_run_is_explained_with_its_drift(run: Path) -> None:
    content = explained(run)
    parts = sum(row["seconds"] for row in content["apart"]["parts"])

    assert content["notes"] == []
    assert parts == pytest.approx(content["makespan"] - content["replayed_makespan"])


def test_what_a_broken_run_lacks_is_said(run: Path) -> None:
    (run / "result.json").write_text('{"version": 1, "tasks": [')
    result = call("explain", run)

    assert result.exit_code == 0
    assert "note: result.json is not JSON" in result.output
    assert "Why this long" in result.output


def test_no_run_at_all_is_bad_data(tmp_path: Path) -> None:
    result = call("explain", tmp_path)

    assert result.exit_code == 3
    assert "is not a run directory" in result.output


def test_trace(run: Path) -> None:
    draw(run, terminal(io.StringIO()))
    assert (run / "report.html").exists()
    assert not (run / "trace.json").exists()  # for who asks

    assert call("report", run, "--as", "trace").exit_code == 0
    assert len(trace_reader.read(run / "trace.json").processes) == 4


def test_a_run_is_explained_as_it_was(run: Path) -> None:
    refusal = call("explain", run, "--set", "job.iterations=9")
    assert refusal.exit_code == 2
    assert "--set job.iterations=9: is of a scenario" in refusal.output


def test_what_would_help_is_of_the_page(run: Path) -> None:
    refusal = call("report", run, "--as", "trace", "--explain")
    assert refusal.exit_code == 2
    assert "--explain: is of the page" in refusal.output
    assert call("report", run, "--explain").exit_code == 0
    assert 'id="moves"' in (run / "report.html").read_text()


def test_tables(run: Path, tmp_path: Path) -> None:
    taken, there = tmp_path / "file", tmp_path / "new" / "tables"
    taken.touch()
    assert call("report", run, "--as", "csv", "--out", taken).exit_code == 3
    assert call("report", run, "--as", "csv", "--out", there).exit_code == 0
    recorded = emu.load_run(run)
    for name in ("tasks", "flows", "ports"):
        rows = (there / f"{name}.csv").read_text().splitlines()
        assert len(rows) == 1 + len(getattr(recorded, name)) > 1


def test_options_of_figures_need_a_figure(run: Path) -> None:
    for form in ("html", "trace", "csv"):
        result = call("report", run, "--as", form, "--from", "1 s")
        assert result.exit_code == 2
        assert "add --as svg" in result.output


def test_a_page_is_not_written_as_a_picture(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.png"
    result = call("report", run, "--out", out)

    assert (result.exit_code, out.exists()) == (2, False)
    assert "add --as svg" in result.output


def test_plot(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "ports.png"

    assert (
        call("report", run, "--as", "svg", "--figure", "ports", "--out", out).exit_code
        == 0
    )
    assert out.read_bytes().startswith(b"\x89PNG")
    assert (
        call("report", run, "--as", "svg", "--out", tmp_path / "a.gif").exit_code == 3
    )


@pytest.mark.parametrize(
    ("form", "start"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")]
)
def test_a_figure_has_the_form_that_is_named(
    run: Path, tmp_path: Path, form: str, start: bytes
) -> None:
    assert call("report", run, "--as", form, "--figure", "ports").exit_code == 0
    assert (run / f"ports.{form}").read_bytes().startswith(start)
    apart = call("report", run, "--as", form, "--out", tmp_path / "a.eps")
    assert apart.exit_code == (3 if form == "svg" else 2)
    wrong = call("report", run, "--as", f"{form}x")
    assert "Value error" not in wrong.output
    assert f"'{form}x' is not one of" in wrong.output


@pytest.mark.parametrize("name", ["result.json", "simulated.json"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, Path.touch, None])
def test_a_row_says_what_its_run_lacks(
    run: Path, tmp_path: Path, name: str, make: Callable[[Path], object] | None
) -> None:
    other = write_run(tmp_path / "other", policy="maxmin")
    assert call("compare", run, other).stderr == ""
    (other / name).unlink()
    if make is not None:
        make(other / name)
    shown = call("compare", run, other)
    (whole, lacking) = json.loads(call("compare", run, other, "--json", "-").stdout)

    assert shown.exit_code == 0
    assert ("missing" in shown.stdout) == (name == "result.json")
    assert f"emu: other: {name}" in shown.stderr
    assert whole["missing"] == []
    assert lacking["missing"] == [shown.stderr.strip().removeprefix("emu: ")]


def test_runs_are_compared_with_intervals(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", policy="maxmin")
    again = write_run(tmp_path / "again")
    picture = tmp_path / "runs.svg"
    result = call("compare", run, again, other, "--json", "-", "--out", picture)
    rows = {row["name"]: row for row in json.loads(result.stdout)}

    assert {name: row["runs"] for name, row in rows.items()} == {
        "golden, explicit, oes": 2,
        "golden, explicit, maxmin": 1,
    }
    (alike, _) = rows.values()
    assert alike["emulated"]["half"] == 0.0
    assert alike["replay_error"] == pytest.approx(
        alike["emulated"]["mean"] / alike["simulated"]["mean"] - 1
    )
    assert picture.stat().st_size > 5000
    assert "maxmin" in call("compare", run, other).output
    assert call("compare", GOLDEN, run).exit_code == 2


def test_runs_of_different_scenarios_are_not_repetitions(
    run: Path, tmp_path: Path
) -> None:
    """Told apart by what differs: the iterations, not the seed."""
    paths = [run, *(write_run(tmp_path / name) for name in ("longer", "reseeded"))]
    for path, (key, value) in zip(
        paths, [("iterations", 1), ("iterations", 2), ("iterations", 1)], strict=True
    ):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["scenario"] |= {"job": {key: value}, "seed": paths.index(path)}
        (path / "manifest.json").write_text(json.dumps(manifest))
    rows = json.loads(call("compare", *paths, "--json", "-").stdout)

    assert [(row["name"], row["runs"]) for row in rows] == [
        ("golden, explicit, oes, job.iterations=1", 2),
        ("golden, explicit, oes, job.iterations=2", 1),
    ]
