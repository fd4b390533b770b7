"""Steps on smaller graphs, and what they amount to on a large one."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import EmulatorError, ScenarioErrors
from emu.experiment import scaled_steps
from emu.experiment.question import Answer, row_of
from emu.experiment.row_figures import weights_of
from emu.experiment.scaled_steps import (
    SEEDS,
    Trend,
    find_steps,
    fit_trend,
    list_smaller,
    place_alone,
)
from emu.experiment.system_rows import compare_systems, list_questions
from emu.experiment.systems import Target
from emu.report.step_sources import _list_trends, list_source_cells
from emu.report.target_tables import target_lines
from emu.scenario import Scenario, build_job, load, prepare
from emu.scenario.scenario_file import loads

SCALES = [0.0005, 0.0008, 0.0012]


@given(
    st.floats(-0.6, 0.6),
    st.floats(5, 500),
    st.lists(st.floats(0.001, 0.2), min_size=3, max_size=6, unique=True),
)
def test_a_power_of_the_scale_is_found(power: float, most: float, scales: Any) -> None:
    steps = [most * scale**power for scale in scales]
    trend = fit_trend(scales, steps, 1.0)
    if max(scales) / min(scales) > 1.5:
        assert trend.estimate == pytest.approx(most, rel=1e-6)
        assert trend.low == pytest.approx(trend.high, rel=1e-5)


def test_rows_of_one_trend_share_a_line_that_says_who_trained() -> None:
    trend = Trend((0.1, 0.1, 0.25), (7, 9, 8), 1.0, estimate=1500, low=1200, high=1900)
    alone = replace(trend, alone=True)
    trends = {"p3": trend, "dgtp": alone, "apt": trend, "dgcl": None}
    rows: Any = [
        SimpleNamespace(system=name, trend=its) for name, its in trends.items()
    ]

    for row, file in zip(rows, ("", "", "", "curve.csv"), strict=True):
        row.question = SimpleNamespace(curve_file=file)
    both = ["1,200 to 1,900", "2 scales"]
    cells = {"p3": both, "dgtp": both, "apt": both, "dgcl": ["", "curve.csv"]}
    assert list_source_cells(rows) == cells
    assert list_source_cells(rows[3:]) == {"dgcl": ["", "curve.csv"]}
    rows[3].question.curve_file = ""
    assert list_source_cells(rows)["dgcl"] == ["", "training"]
    assert list_source_cells(rows[3:]) == {}

    steps = "1,200 to 1,900 steps (95 %) by trainings"
    assert [*_list_trends(rows)] == [
        f"p3, apt: {steps} at 0.1, 0.25 of the graph",
        f"dgtp: {steps} on one machine at 0.1, 0.25 of the graph",
    ]


@pytest.mark.parametrize("place", [None, {"m0": "w0"}])
def test_a_trend_is_of_the_last_look_of_each_training(
    place: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = {0.1: [3, 9], 0.2: [4, 8, 16], 0.4: [30]}
    job = SimpleNamespace(settings={"dataset": {"scale": 1.0}})
    monkeypatch.setattr(
        scaled_steps, "list_smaller", lambda *_: [(s, s) for s in looks]
    )
    monkeypatch.setattr(
        scaled_steps,
        "_train",
        lambda scale: [SimpleNamespace(step=step) for step in looks[scale]],
    )
    monkeypatch.setattr(scaled_steps, "build_job", lambda _: job)
    monkeypatch.setattr(scaled_steps, "place_alone", lambda *_: place)
    nobody: Any = None

    trend = scaled_steps.find_trend(nobody, nobody, nobody)
    assert (trend.scales, trend.steps) == ((0.1, 0.2, 0.4), (9, 16, 30))
    assert (trend.scale, trend.alone) == (1.0, place is not None)


def test_the_interval_holds_a_further_training_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(20261128)
    scales = np.repeat(SCALES, SEEDS)
    held = 0
    for _ in range(4000):
        errors = rng.normal(scale=0.1, size=len(scales) + 1)
        *steps, further = 40 * np.append(scales, 1.0) ** 0.1 * np.exp(errors)
        trend = fit_trend(scales.tolist(), steps, 1.0)
        held += trend.low <= further <= trend.high
    assert 0.94 < held / 4000 < 0.96


@pytest.mark.parametrize(
    ("scales", "steps"), [([0.1, 0.2], [3, 4]), ([0.1] * 3, [3] * 3)]
)
def test_no_trend_is_refused(scales: list[float], steps: list[int]) -> None:
    with pytest.raises(ValueError, match="three trainings, of two scales"):
        fit_trend(scales, steps, 1.0)


def scenario_of(**keys: Any) -> Scenario:
    rates = dict.fromkeys(("aggregate", "multiply", "sample", "collect"), "20 ps")
    job = {
        "system": "data_parallel",
        "dataset": {"name": "products-like", "drawn": True, "scale": 0.003},
        "model": {"kind": "gcn", "hidden": 16, "layers": 2},
        "fanouts": [4, 6],
        "batch_size": 32,
        "epoch": "local",
        "iterations": 3,
        "optimizer": {"name": "adam", "lr": 0.03},
        "rates": {**rates, "step": "0.5 ns", "launch": "50 us"},
    }
    machines = [{"name": "m", "count": 2, "gpu": 1, "nic": "10 Gbit/s"}]
    document = {"cluster": {"machines": machines}, "job": job}
    return loads(json.dumps(document | {"training_scales": SCALES} | keys))


@pytest.mark.usefixtures("short_draws")
def test_rows_take_steps_from_smaller_graphs_and_time_from_their_own() -> None:
    target = Target(0.5)
    rows = compare_systems(
        scenario_of(), ["data_parallel", "dgcl"], same_machines=True, target=target
    )
    for row in rows:
        assert row.trend is not None
        assert row.trend.scales == tuple(np.repeat(SCALES, SEEDS))
        assert row.trend.scale == 0.003
        # What parts of a whole graph exchange decides how it learns.
        assert row.trend.alone == (row.system == "data_parallel")
        assert row.trend.low <= row.trend.estimate <= row.trend.high
        assert row.steps == np.ceil(row.trend.estimate)
        assert row.makespan == pytest.approx(row.steps * row.iteration_seconds)


@pytest.mark.nightly
def test_a_training_on_the_generated_graph_is_within_the_interval() -> None:
    """Where trends are twice as high, or a fifth, it is not."""
    target = Target(0.5)
    larger = {"job.dataset.scale": 0.01, "training_scales": [0.002, 0.003, 0.005]}
    scenario = load(scenario_of(), larger)
    (first,) = compare_systems(
        scenario, ["data_parallel"], same_machines=True, target=target
    )

    held = load(first.plain, {"job.dataset.drawn": False})  # type: ignore[arg-type]
    ready = prepare(load(target.end(held), {"until.every": 2}))
    assert first.trend is not None
    assert ready.reached is not None
    assert first.trend.low <= ready.reached.step <= first.trend.high


@pytest.mark.usefixtures("short_draws")
def test_mini_batch_rows_share_the_trainings_of_one_machine() -> None:
    scenario = scenario_of(
        systems={"dgtp": {"cache": {"policy": "degree", "size": "9 kB"}}}
    )
    classes = {}
    for name in ("data_parallel", "dgtp", "p3.none", "whole_graph", "p3.A"):
        (question,) = list_questions(scenario, name, target=Target(0.5))
        row = row_of(question)
        plain = row.on(("m0", "m1"))
        alone = place_alone(row, plain)
        assert alone is not None
        for learner in (plain, alone):
            settings = build_job(learner).settings
            # As many seeds per step, on however many machines.
            assert settings["batch_size"] * settings["workers"] == 64
        classes[name] = weights_of(alone)
        assert weights_of(plain) != weights_of(alone)
    late = classes.pop("p3.A")
    assert len(set(classes.values())) == 1
    assert late not in classes.values()

    (question,) = list_questions(scenario, "dgcl", target=Target(0.5))
    row = row_of(question)
    assert place_alone(row, row.on(("m0", "m1"))) is None


@pytest.mark.usefixtures("short_draws")
def test_trainings_of_a_scale_have_seeds_from_that_of_the_file_on() -> None:
    scenario = load(scenario_of(), {"seed": 7})
    target = Target(0.5)
    (question,) = list_questions(scenario, "data_parallel", target=target)
    row = row_of(question)
    smaller = [*list_smaller(row, row.on(("m0", "m1")), target)]
    assert [scale for scale, _ in smaller] == np.repeat(SCALES, SEEDS).tolist()
    assert [learner.seed for _, learner in smaller] == [7, 8] * len(SCALES)


@pytest.mark.nightly
@pytest.mark.usefixtures("short_draws")
def test_intervals_that_overlap_part_no_rows() -> None:
    first, second = compare_systems(
        scenario_of(), ["data_parallel", "p3.A"], same_machines=True, target=Target(0.5)
    )
    assert first.trend is not None
    assert second.trend is not None
    assert first.trend != second.trend
    rows = [first, replace_steps(second, first, low=0.9)]
    (overlap,) = [line for line in target_lines(rows) if "do not part" in line]
    assert "overlap" in overlap
    cells = list_source_cells(rows)
    assert cells["data_parallel"][1] == "3 scales"

    # Twice as long at least, whatever the steps are.
    first = replace_steps(first, first, low=0.99)
    rows = [first, replace_steps(second, first, low=0.95, times=2)]
    assert not any("do not part" in line for line in target_lines(rows))


def replace_steps(row: Answer, near: Answer, low: float, times: float = 1.1) -> Answer:
    """Return a row that takes so many times as long as another, in an interval."""
    trend = row.trend
    assert trend is not None
    exact = replace(trend, low=trend.estimate * low, high=trend.estimate / low)
    (draw,) = row.draws.values()
    makespan = times * near.makespan if row is not near else draw.makespan
    draws = {0: replace(draw, trend=exact, makespan=makespan)}
    return replace(row, draws=draws)


@pytest.mark.usefixtures("short_draws")
def test_a_smaller_graph_that_falls_short_is_named() -> None:
    problem = r"training_scales: at 0.0005: .*hold \d"
    with pytest.raises(EmulatorError, match=problem):
        compare_systems(scenario_of(), ["data_parallel"], target=Target(0.99, within=4))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"training_scales": []}, "write 3 different ones or more"),
        ({"training_scales": [0.002, 0.003]}, "write 3 different ones or more"),
        ({"training_scales": [0.002, 0.003, 0.003]}, "write 3 different ones or more"),
        ({"training_scales": [0.001, 0.002, 0.003]}, "less than the scale of the file"),
        ({"training_scales": [0.002, 0.003, 1.5]}, "training_scales"),
    ],
)
def test_scales_without_a_trend_are_refused(keys: Any, problem: str) -> None:
    with pytest.raises(EmulatorError, match=problem):
        scenario_of(**keys)


def test_a_graph_that_is_held_trains_itself() -> None:
    with pytest.raises(
        (EmulatorError, ScenarioErrors), match="trains on its own graph"
    ):
        load(scenario_of(), {"job.dataset.drawn": False})


def test_the_interval_is_of_one_more_training_far_from_the_others() -> None:
    """A line through logarithms by its textbook sums: t of one degree is 12.7."""
    scales, steps = (1.0, 2.0, 8.0), (10, 30, 40)
    found = fit_trend(scales, steps, 64.0)

    sizes, counts = np.log(scales), np.log(steps)
    slope, start = np.polyfit(sizes, counts, 1)
    errors = counts - start - slope * sizes
    middle = start + slope * np.log(64.0)
    away = (np.log(64.0) - sizes.mean()) ** 2 / ((sizes - sizes.mean()) ** 2).sum()
    half = 12.706 * np.sqrt((errors**2).sum() * (1 + 1 / 3 + away))
    assert found.estimate == pytest.approx(np.exp(middle))
    assert found.low == pytest.approx(np.exp(middle - half))
    assert found.high == pytest.approx(np.exp(middle + half))
    assert found.spread == pytest.approx(np.exp(half) - 1)


def test_a_target_is_reached_with_the_step_behind_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """12.2 steps are 13."""
    trend = Trend((1.0,), (3,), 2.0, estimate=12.2, low=9.0, high=15.0)
    monkeypatch.setattr(scaled_steps, "find_trend", lambda *_: trend)
    monkeypatch.setattr(scaled_steps, "refuse_unequal_steps", lambda *_: None)
    dataset = SimpleNamespace(train_count=100)
    monkeypatch.setattr(scaled_steps, "open_for", lambda _: dataset)
    monkeypatch.setattr(
        scaled_steps, "count_seeds", lambda _settings, count, step: [0, count * step]
    )
    file = SimpleNamespace(curve_files={}, training_scales=(0.5,))
    row: Any = SimpleNamespace(scenario=file, name="x")
    target: Any = SimpleNamespace(accuracy=0.75)
    plain: Any = None
    found = find_steps(row, target, plain, {})

    assert found is not None
    assert found.trend is trend
    assert trend.spread == pytest.approx(15.0 / 12.2 - 1)
    (look,) = found.looks
    assert (look.step, look.seeds, look.accuracy) == (13, 1300, 0.75)
