"""Rates from measured times: those that made the times are found again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import ScenarioError
from emu.experiment import profiling
from emu.experiment.profiling import (
    Sample,
    fit_rates,
    list_sizes,
    measure_rates,
    prepare_profile,
    rates_keys,
    sample_tasks,
)
from emu.problem import Profile
from emu.problem.fields.quantities import default_time
from emu.problem.workloads.operations import OPERATIONS
from emu.scenario import Experiment, Scenario, build_job, load, prepare, realize
from emu.scenario.scenario_file import loads
from emu.systems.rates_section import RatesSection

TRUTH = dict(zip(OPERATIONS, (3e-9, 4e-11, 2e-7, 1e-9, 5e-9, 4e-4), strict=True))
FILE = """
cluster: {machines: [{name: m, count: 2, nic: 1 Gbit/s}]}
job:
  system: %s
  dataset: {name: products-like, scale: 0.002}
  model: {kind: gcn, hidden: 16, layers: 2}
"""
SAMPLED = FILE % "dgtp" + "  fanouts: [5, 5]\n  batch_size: 64\n  iterations: 4\n"
WHOLE = FILE % "dgcl" + "  epochs: 3\n"


def run_by(truth: dict[str, float], scenario: Scenario) -> tuple[Experiment, Profile]:
    """Return what a computer with these rates measures."""
    experiment = prepare_profile(scenario)
    job = experiment.problem.job
    keys = {name: f"{rate!r} s" for name, rate in truth.items()}
    rated = load(scenario, {"job.rates": keys, "job.times": None})
    realization = realize(rated, build_job(rated))
    assert realization.times.shape[0] == len(job.tasks)
    return experiment, Profile(realization.times, realization.volumes)


@pytest.mark.parametrize("text", [SAMPLED, WHOLE])
def test_the_rates_of_a_computer_are_found_again(text: str) -> None:
    scenario = loads(text, timed=False)
    assert len(list_sizes(scenario)) == 3
    fitted = measure_rates(scenario, lambda one: run_by(TRUTH, one))
    assert max(map(abs, fitted.residuals.values())) < 1e-6
    planned = {"partition"} if text == SAMPLED else {"partition", "plan"}
    assert {*fitted.rates} - {*OPERATIONS} == planned
    assert all(0 < fitted.rates[name] < 1e-3 for name in planned)
    for name, rate in fitted.rates.items():
        if name in planned:
            continue
        # Tasks of too little time tell nothing: those rates come out of others.
        if rate:
            assert rate == pytest.approx(TRUTH[name], rel=0.02)
    absent = {"sample", "collect"} if text == WHOLE else set()
    assert {*OPERATIONS} - {*fitted.rates} == absent


@given(
    st.lists(
        st.lists(st.floats(0, 10), min_size=6, max_size=6), min_size=3, max_size=12
    ),
    st.lists(st.floats(0.1, 10), min_size=12, max_size=12),
)
def test_no_set_of_rates_is_nearer(rows: list[list[float]], times: list[float]) -> None:
    """Neither any change of one rate, nor of two, and none is negative."""
    assume(all(any(row) for row in rows))
    samples = [Sample(f"k{n}", np.array(row), times[n]) for n, row in enumerate(rows)]
    fitted = fit_rates(samples)
    best = np.array([fitted.rates.get(name, 0.0) for name in OPERATIONS])
    relative = np.array([one.operations / one.seconds for one in samples])

    def error(rates: np.ndarray) -> float:
        return float(((relative @ rates - 1) ** 2).sum())

    assert (best >= 0).all()
    least = error(best)
    for one in range(6):
        for other in range(6):
            for step in (1e-3, -1e-3):
                for beside in (0.0, 1e-3, -1e-3):
                    near = best.copy()
                    near[one] += step
                    near[other] += beside
                    if (near >= 0).all():
                        assert error(near) >= least - 1e-9


def test_residuals_are_the_furthest_of_a_kind() -> None:
    row = np.eye(6)[0]
    samples = [Sample("a", row, 1.0), Sample("a", row, 2.0), Sample("b", row, 1.0)]
    fitted = fit_rates(samples)
    rate = fitted.rates["aggregate"]
    assert fitted.rates.keys() == {"aggregate"}
    assert fitted.residuals["b"] == pytest.approx(rate - 1)
    assert abs(fitted.residuals["a"]) == pytest.approx(
        max(abs(rate - 1), abs(rate / 2 - 1))
    )
    with pytest.raises(ValueError, match="no task"):
        fit_rates([])


def test_rates_that_no_task_tells_are_stated_or_asked_for() -> None:
    fitted = fit_rates([Sample("a", np.eye(6)[1], 1e-3)])
    with pytest.raises(ScenarioError, match=r"job\.rates\.aggregate.*state job\.rates"):
        rates_keys(fitted, None)
    stated = RatesSection.model_validate(dict.fromkeys(OPERATIONS, "7 ns"))
    keys = rates_keys(fitted, stated)
    assert keys["multiply"] == "1 ms"
    again = RatesSection.model_validate(keys)
    assert again.collect == 7e-9


def test_jobs_that_count_nothing_are_refused() -> None:
    text = """
cluster: {machines: [{name: a, nic: 1 Gbit/s}]}
job: {system: custom, iterations: 1, tasks: [{name: t, time: 1 s, pin: a}]}
"""
    with pytest.raises(ScenarioError, match="counted of one job that trains"):
        list_sizes(loads(text))


@pytest.mark.emulation
@pytest.mark.untimed
def test_the_command_leaves_a_scenario_that_runs(tmp_path: Path) -> None:
    """Rates of this computer, whatever it is busy with."""
    file, out = tmp_path / "job.yaml", tmp_path / "rated.yaml"
    file.write_text(SAMPLED)
    args = ["profile", str(file), str(out), "--rates", "--iterations", "3", "--force"]
    done = CliRunner().invoke(app, [*args, "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    rated = load(out)
    rates = rated.job.operation_rates
    assert rates is not None
    assert all(default_time(rate) > 0 for rate in rates.stated.values())
    assert np.isfinite(prepare(rated).simulate().makespan)
    assert "at the furthest" in done.output


def test_sizes_are_quarters_of_what_samplers_can_share() -> None:
    """Three samplers of a worker have 10 seeds each: sizes are multiples of 3."""
    samplers = {"job.batch_size": 30, "job.samplers_per_worker": 3}
    sampled = load(loads(SAMPLED, timed=False), samplers, timed=False)
    jobs: list[Any] = [size.job for size in list_sizes(sampled)]
    assert [job.batch_size for job in jobs] == [6, 15, 30]
    small = load(sampled, {"job.batch_size": 3}, timed=False)
    jobs = [size.job for size in list_sizes(small)]
    assert [job.batch_size for job in jobs] == [3]

    whole = load(loads(WHOLE, timed=False), {"job.model.hidden": 6}, timed=False)
    jobs = [size.job for size in list_sizes(whole)]
    assert [job.model.hidden for job in jobs] == [2, 3, 6]
    least = load(whole, {"job.model.hidden": 1}, timed=False)
    jobs = [size.job for size in list_sizes(least)]
    assert [job.model.hidden for job in jobs] == [1]


def test_samples_are_of_all_iterations_but_the_first_and_of_tasks_that_tell() -> None:
    """A kind with 1 s of 110 s is left out, as is a kind without operations."""
    kinds = ["a", "b", "a", "c", "d"]
    counts = np.zeros((6, 5, 3))
    counts[1] = [[50, 1, 2], [60, 3, 4], [70, 5, 6], [0, 0, 0], [80, 1, 1]]
    counts[4, 0] = [9, 7, 8]
    times = np.array(
        [[90, 20, 30], [90, 10, 15], [90, 11, 13], [90, 5, 5], [90, 0.4, 0.6]]
    )
    section = SimpleNamespace(
        count_operations=lambda *_: SimpleNamespace(counts=counts)
    )
    scenario = SimpleNamespace(job=section, build_context=lambda: None)
    tasks = [SimpleNamespace(kind=kind) for kind in kinds]
    job = SimpleNamespace(tasks=tasks)
    experiment: Any = SimpleNamespace(
        scenario=scenario, problem=SimpleNamespace(job=job)
    )
    found = sample_tasks(experiment, Profile(times, np.zeros((1, 3))))
    assert [(sample.kind, sample.seconds) for sample in found] == [
        ("a", 74.0),
        ("b", 25.0),
    ]
    assert found[0].operations.tolist() == [0, 14, 0, 0, 15, 0]
    assert found[1].operations.tolist() == [0, 7, 0, 0, 0, 0]


def test_planning_is_told_per_edge_of_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts take 3 s of CPU, and a plan 8 s, of a graph of 40 edges."""
    readings = iter([10.0, 13.0, 20.0, 28.0])
    clock = SimpleNamespace(process_time=lambda: next(readings))
    monkeypatch.setattr(profiling, "time", clock)
    dataset = SimpleNamespace(edges=40)
    monkeypatch.setattr(profiling, "open_for", lambda _: dataset)
    planning = {"partition": lambda: None, "plan": lambda: None}
    job = SimpleNamespace(planning=lambda _: planning)
    settings = SimpleNamespace(job=SimpleNamespace(settings={}))
    experiment: Any = SimpleNamespace(
        problem=settings, scenario=SimpleNamespace(job=job)
    )
    found = profiling.measure_planning(experiment)
    assert found == {"partition": 0.075, "plan": 0.2}


def test_of_equal_fits_that_with_fewer_rates_is_taken() -> None:
    """Both columns tell the same: the first alone is as near as both."""
    rows = np.zeros((2, 6))
    rows[:, 0] = [2.0, 4.0]
    rows[:, 3] = [2.0, 4.0]
    samples = [Sample("a", rows[0], 4.0), Sample("b", rows[1], 8.0)]
    fitted = fit_rates(samples)
    assert fitted.rates == pytest.approx({"aggregate": 2.0, "collect": 0.0})
    # A residual is that of the furthest sample of a kind, with its sign.
    one = np.eye(6)[0]
    kinds = [("a", 1.0), ("a", 4.0), ("a", 2.0)]
    fitted = fit_rates([Sample(kind, one, seconds) for kind, seconds in kinds])
    rate = fitted.rates["aggregate"]
    assert rate == pytest.approx((1 + 1 / 4 + 1 / 2) / (1 + 1 / 16 + 1 / 4))
    assert fitted.residuals["a"] == pytest.approx(rate / 4 - 1)
