"""Figures 4 and 5 of the paper: training and bytes over time, of several systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization
from emu.report.plot_progress import plot_comparison, sum_crossed, time_to
from emu.report.plot_style import Window
from emu.runs.recorded_run import RecordedRun
from emu.runs.retraining import progress_of, step_ends, trains
from emu.scenario import build_job, load, prepare
from emu.scenario.scenario_file import loads
from emu.testing.strategies import problems
from emu.training.looks import Progress
from tests.integration.scenarios import tiny_training


def recorded(folder: Path, **changes: Any) -> RecordedRun:
    """Return a run of a small training job that is simulated, in its directory."""
    scenario = load(loads(json.dumps(tiny_training(25))), changes)
    experiment = prepare(scenario)
    folder.mkdir()
    return RecordedRun(
        path=folder,
        manifest={"scenario": json.loads(json.dumps(scenario.to_json()))},
        problem=experiment.problem,
        result={},
        emulated=None,
        simulated=experiment.simulate(),
        measured=None,
        missing=(),
    )


def test_accuracy_is_that_of_the_weights_of_its_step(tmp_path: Path) -> None:
    from emu.training import evaluate, reference_training

    run = recorded(tmp_path / "one")
    (made,) = progress_of([run])
    settings = build_job(loads(json.dumps(tiny_training(25)))).settings
    # An epoch of 196 training vertices, 16 a step and 8 in its last.
    assert made.looks.tolist() == [13, 25]
    for step, accuracy in zip(made.looks, made.accuracy["valid"], strict=True):
        weights, losses = reference_training(settings, int(step))
        assert accuracy == evaluate(settings, weights)["valid"]
        np.testing.assert_array_equal(made.loss[:step], losses)


def test_runs_of_equal_training_are_trained_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told: list[tuple[int, int]] = []
    one = recorded(tmp_path / "one")
    other = recorded(tmp_path / "other", **{"schedule.policy": "fifo"})
    first, second = progress_of([one, other], lambda *step: told.append(step))

    assert told == [(step, 25) for step in range(1, 26)]
    np.testing.assert_array_equal(first.accuracy["valid"], second.accuracy["valid"])
    lines = (other.path / "validation.csv").read_text().split()
    assert lines[0] == "step,loss,accuracy"
    rows = [tuple(map(float, line.split(","))) for line in lines[1:]]
    assert [row[1] for row in rows] == first.loss.tolist()
    valid = first.accuracy["valid"].tolist()
    assert [row[2] for row in rows if not np.isnan(row[2])] == valid
    assert np.isnan(rows[0][2])
    again = progress_of([other, one], lambda *_: pytest.fail("trained again"))
    np.testing.assert_array_equal(again[0].loss, first.loss)
    shorter = recorded(tmp_path / "shorter", **{"job.iterations": 5})
    assert len(progress_of([shorter])[0].loss) == 5


def test_weights_are_there_when_the_last_server_has_stepped(tmp_path: Path) -> None:
    run = recorded(tmp_path / "one")
    ends = step_ends(run)
    job = run.problem.job
    servers = [n for n, t in enumerate(job.tasks) if t.kind == "parameter_server"]

    for step in (0, 7, 24):
        assert ends[step] == max(run.best.task_end[n, step] for n in servers)


@given(drawn=problems())
def test_bytes_that_crossed_are_those_of_the_flows(
    drawn: tuple[Problem, Realization],
) -> None:
    schedule = simulate(*drawn, "maxmin")
    times = np.linspace(0, schedule.makespan, 37)
    total = sum_crossed(schedule, times)
    at = tuple(schedule.flows().T)

    assert (np.diff(total) >= 0).all()
    for time, bytes_so_far in zip(times, total, strict=True):
        by_hand = sum(
            volume if end <= time else volume * (time - start) / (end - start)
            for start, end, volume in zip(
                schedule.flow_start[at],
                schedule.flow_end[at],
                schedule.flow_bytes[at],
                strict=True,
            )
            if start < time
        )
        assert bytes_so_far == pytest.approx(by_hand, rel=1e-6, abs=1e-6 * total[-1])


def test_the_target_is_reached_at_the_first_look_that_is_held(tmp_path: Path) -> None:
    run = recorded(tmp_path / "one")
    ends = step_ends(run)
    looks = np.array([4, 8, 12, 16, 20, 25])  # the last is that of the end
    valid = np.array([0.8, 0.7, 0.8, 0.9, 0.8, 0.9])
    made = Progress(np.zeros(25), looks, {"valid": valid}, 5)

    assert time_to(0.8, run, made) == ends[11]
    assert time_to(0.7, run, made) == ends[3]
    assert np.isnan(time_to(0.9, run, made))
    assert np.isnan(time_to(0.8, run, made._replace(spaced=4)))


def test_a_figure_shows_every_system(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / name) for name in ("one", "other")]
    figure = plot_comparison(runs, ["a", "b"], progress_of(runs), Window())

    assert [len(axes.lines) for axes in figure.axes] == [2, 3, 0]
    assert [len(axes.patches) for axes in figure.axes] == [0, 0, 2]
    (label,) = figure.axes[1].texts
    line = np.asarray(figure.axes[1].lines[2].get_ydata())
    assert (label.get_text()[:4], label.get_position()[1]) == ("90%,", line[0])
    assert trains(runs[0])
    bytes_alone = plot_comparison(runs, ["a", "b"], [], Window())
    assert len(bytes_alone.axes) == 1


def test_bytes_per_second_have_the_unit_of_the_busiest_moment(tmp_path: Path) -> None:
    """5 MB/s were drawn as 0.005 GB/s."""
    run = recorded(tmp_path / "one")
    figure = plot_comparison([run], ["one"], [], Window())
    (traffic,) = figure.axes
    crossed = sum_crossed(run.best, np.linspace(0, run.best.length, 101))
    most = np.diff(crossed).max() / (run.best.length / 100)
    assert 1e6 <= most < 1e9

    assert traffic.get_ylabel() == "between machines (MB/s)"
    _, top = traffic.get_ylim()
    assert most / 1e6 <= top < 1.2 * most / 1e6


def test_the_unit_is_that_of_the_busiest_run_wherever_it_stands(
    tmp_path: Path,
) -> None:
    busy = recorded(tmp_path / "busy")
    slow = recorded(
        tmp_path / "slow",
        **{"cluster.machines": [{"name": n, "nic": "1 Mbit/s"} for n in ("a", "b")]},
    )
    for runs in ([busy, slow], [slow, busy]):
        (traffic,) = plot_comparison(runs, ["a", "b"], [], Window()).axes
        assert traffic.get_ylabel() == "between machines (MB/s)"
