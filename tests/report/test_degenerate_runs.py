"""Everything that is drawn of a run can be drawn of any run.

Also of one without flows, with one machine, one task or one iteration, with times or
volumes of zero.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.cli.report_commands import draw
from emu.prediction.analysis.explanation import explain
from emu.problem import Placement, Problem, Realization
from emu.report.explanation_tables import explanation_tables
from emu.report.html.chart_data import chart_data
from emu.report.html.page import write_report
from emu.report.run_tables import run_tables
from emu.report.terminal import terminal
from emu.report.trace import write_trace
from emu.runs.recorded_run import load_run
from emu.testing.strategies import random_problem
from tests.report.drawn_run import write_run, write_run_of


@st.composite
def problems(draw: st.DrawFn) -> tuple[Problem, Realization]:
    """Draw problems of which most lack something."""
    problem, realization = random_problem(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    )
    times, volumes = np.array(realization.times), np.array(realization.volumes)
    job, placement = problem.job, problem.placement
    if draw(st.booleans()):  # nothing crosses
        placement = Placement((0,) * len(job.tasks))
    if draw(st.booleans()):
        times[:] = 0.0
    if draw(st.booleans()):
        volumes[:] = 0.0
    if draw(st.booleans()):
        job = dataclasses.replace(job, edges=())
        volumes = volumes[:0]
    if draw(st.booleans()):
        job = dataclasses.replace(job, iterations=1)
        times, volumes = times[:, :1], volumes[:, :1]
    return Problem(problem.cluster, job, placement), Realization(times, volumes)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(problems())
def test_everything_can_be_drawn(
    tmp_path: Path, drawn: tuple[Problem, Realization]
) -> None:
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    path, result = write_run_of(tmp_path / "runs", *drawn)
    run = load_run(path)
    found = explain(run.best, run.realization, run.policy, emulated=True)
    with (tmp_path / "shown.txt").open("w") as shown:
        terminal(shown).print(explanation_tables(found))
        terminal(shown).print(run_tables(result))
    json.dumps(found.to_json(), allow_nan=False)
    json.dumps(chart_data(run), allow_nan=False)
    write_report(path)
    write_trace(path)
    assert "Missing from this run" not in (path / "report.html").read_text()
    audited = CliRunner().invoke(app, ["audit", str(path)])
    assert audited.exit_code in {0, 6}, audited.output


@pytest.mark.parametrize("figure", ["gantt", "ports", "loss", "cdf", "compare"])
@pytest.mark.parametrize(("times", "volumes"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_every_figure_can_be_drawn_or_says_what_lacks(
    tmp_path: Path, figure: str, times: float, volumes: float
) -> None:
    problem, realization = random_problem(np.random.default_rng(1))
    for placement in (problem.placement, Placement((0,) * len(problem.job.tasks))):
        path, _ = write_run_of(
            tmp_path,
            Problem(problem.cluster, problem.job, placement),
            Realization(realization.times * times, realization.volumes * volumes),
        )
        out = tmp_path / "figure.svg"
        shown = CliRunner().invoke(
            app,
            ["report", str(path), "--as", "svg", "--figure", figure, "--out", str(out)],
        )
        nothing = figure == "loss" or (figure == "cdf" and shown.exit_code)
        assert shown.exit_code == (3 if nothing else 0), shown.output
        assert not nothing or "emu: no " in shown.stderr


def test_a_run_without_a_loss_is_named_in_the_picture(tmp_path: Path) -> None:
    trained, _ = write_run(tmp_path / "a")
    problem, realization = random_problem(np.random.default_rng(1))
    silent, _ = write_run_of(tmp_path / "b", problem, realization)
    out = tmp_path / "loss.svg"
    options = [str(trained), str(silent), "--figure", "loss", "--out", str(out)]
    shown = CliRunner().invoke(app, ["report", "--as", "svg", *options])

    assert shown.exit_code == 0
    assert f"emu: {silent.name}: no loss reported" in shown.stderr


def test_a_report_that_cannot_be_drawn_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Path) -> Path:
        raise ZeroDivisionError("a mistake in a picture")

    monkeypatch.setattr("emu.cli.report_commands.write_report", fails)
    with (tmp_path / "shown.txt").open("w+") as shown:
        draw(tmp_path, terminal(shown))
        shown.seek(0)
        text = shown.read().replace("\n", " ")
    assert "report.html could not be drawn" in text
    assert "ZeroDivisionError: a mistake in a picture" in text
