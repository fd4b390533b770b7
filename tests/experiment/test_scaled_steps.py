"""Steps on smaller graphs, and what they amount to on a large one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import EmulatorError, ScenarioErrors
from emu.experiment.scaled_steps import SEEDS, fit_trend
from emu.experiment.system_rows import compare_systems
from emu.experiment.systems import Target
from emu.scenario import Scenario, load, prepare
from emu.scenario.scenario_file import loads

SCALES = [0.002, 0.003, 0.005]


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
        "dataset": {"name": "products-like", "drawn": True, "scale": 0.01},
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


def test_rows_take_steps_from_smaller_graphs_and_time_from_their_own() -> None:
    target = Target(0.5)
    rows = compare_systems(
        scenario_of(), ["data_parallel", "dgcl"], same_machines=True, target=target
    )
    for row in rows:
        assert row.trend is not None
        assert row.trend.scales == tuple(np.repeat(SCALES, SEEDS))
        assert row.trend.low <= row.trend.estimate <= row.trend.high
        assert row.steps == np.ceil(row.trend.estimate)
        assert row.makespan == pytest.approx(row.steps * row.iteration_seconds)

    # A training on the generated graph of that size is within the interval.
    first, _ = rows
    held = load(first.plain, {"job.dataset.drawn": False})  # type: ignore[arg-type]
    ready = prepare(load(target.end(held), {"until.every": 2}))
    assert first.trend is not None
    assert ready.reached is not None
    assert first.trend.low <= ready.reached.step <= first.trend.high


def test_a_smaller_graph_that_falls_short_is_named() -> None:
    problem = "training_scales: at 0.002: .*hold 7"
    with pytest.raises(EmulatorError, match=problem):
        compare_systems(scenario_of(), ["data_parallel"], target=Target(0.99, within=4))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"training_scales": [0.002, 0.003]}, "write 3 different ones or more"),
        ({"training_scales": [0.002, 0.003, 0.003]}, "write 3 different ones or more"),
        ({"training_scales": [0.002, 0.003, 0.01]}, "less than the scale of the file"),
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
