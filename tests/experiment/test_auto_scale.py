"""Scales that are left open: what is prepared, shortened and tried."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from emu.cli import app
from emu.experiment import auto_scale as under_test
from emu.experiment.auto_scale import (
    choose_byte_scale,
    shorten,
    stating,
    try_out,
    with_byte_scale,
    with_scales,
)
from emu.experiment.scale_search import ScaleSearch, ScaleTrial
from emu.prediction.simulation import simulate
from emu.scenario import Experiment, load, prepare
from emu.scenario.scenario_file import loads
from emu.testing.trials.trial import Case, run_trial
from emu.trust.lateness import flow_completion
from tests import draws
from tests.integration.scenarios import custom, read
from tests.testing.trial_cases import CASES

GOLDEN = Path(__file__).parents[2] / "scenarios" / "golden.yaml"
AUTO = ("emulation.time_scale=auto", "emulation.byte_scale=auto")


class Trials:
    """Stands for `try_out`: notes the scales, is late below the one it is given."""

    def __init__(self, needed: float, cost: float = 1.0) -> None:
        self.needed, self.cost = needed, cost
        self.scales: list[float] = []

    def __call__(self, experiment: Experiment, _allow: tuple[str, ...]) -> ScaleTrial:
        """Return a trial with no late flow from the needed scale on."""
        scale = experiment.scenario.emulation.stated_time_scale
        self.scales.append(scale)
        late = 0 if scale >= self.needed else 50
        return ScaleTrial(scale, 2, self.cost, 0.5, 0.1, 0.0, late, 100)


def tried(monkeypatch: pytest.MonkeyPatch, needed: float, **more: float) -> Trials:
    """Put trials of a host in place of real ones."""
    trials = Trials(needed, **more)
    monkeypatch.setattr(under_test, "try_out", trials)
    return trials


def test_the_least_scale_that_holds_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = tried(monkeypatch, needed=0.3)
    told: list[ScaleTrial] = []

    experiment, choice = with_scales(load(GOLDEN, AUTO), told.append)

    assert choice is not None
    assert choice.taken is not None
    assert [trial.time_scale for trial in told] == trials.scales
    assert experiment.scenario.emulation.time_scale == choice.time_scale
    assert 0.3 <= choice.time_scale <= 0.6
    assert experiment.scenario.emulation.byte_scale == 25_000


def test_what_is_stated_is_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials, scenario = tried(monkeypatch, needed=9.0), load(GOLDEN)

    experiment, choice = with_scales(scenario)
    assert (experiment.scenario, choice, trials.scales) == (scenario, None, [])


def test_no_trial_begins_beyond_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = tried(monkeypatch, needed=1e9, cost=100.0)

    _, choice = with_scales(load(GOLDEN, (*AUTO, "emulation.trial_budget=1 s")))

    assert choice is not None
    assert choice.taken is None
    assert len(trials.scales) == 1
    assert choice.time_scale > trials.scales[0]


def test_a_job_that_takes_no_time_needs_no_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials = tried(monkeypatch, needed=1.0)
    scales = {"time_scale": "auto", "byte_scale": "auto"}
    task = {"name": "a", "kind": "worker", "time": "0 s"}
    nothing = custom([task], [], {"a": "m"}, emulation=scales, iterations=2)

    experiment, choice = with_scales(read(nothing))

    assert (choice, trials.scales) == (None, [])
    assert experiment.scenario.emulation.time_scale == 1.0


def test_the_first_iterations_are_those_of_the_whole() -> None:
    whole = with_byte_scale(load(GOLDEN))

    short = shorten(whole, 2)

    assert short.problem.job.iterations == 2
    assert shorten(whole, 99).problem.job.iterations == 3
    for name in ("times", "volumes"):
        part = getattr(short.realization, name)
        np.testing.assert_array_equal(part, getattr(whole.realization, name)[:, :2])
    assert short.simulate().makespan < whole.simulate().makespan


@pytest.mark.parametrize(
    ("volumes", "scale"),
    [([], 1.0), ([0.0], 1.0), ([40.0, 40.0, 60.0], 25_000.0), ([1e9], 1e-3)],
)
def test_byte_scale_makes_payloads_of_a_megabyte(
    volumes: list[float], scale: float
) -> None:
    assert choose_byte_scale(volumes) == scale


def test_no_payload_becomes_huge() -> None:
    assert max([1.0, 1.0, 1e4]) * choose_byte_scale([1.0, 1.0, 1e4]) <= 32e6


def test_a_dry_run_says_what_is_known_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trials = tried(monkeypatch, needed=1.0)
    dry = ["run", str(GOLDEN), "--dry-run", "--runs", str(tmp_path / "runs")]
    open_ = [word for key in AUTO for word in ("--set", key)]

    stated = json.loads(CliRunner().invoke(app, [*dry, "--json", "-"]).stdout)
    left = json.loads(CliRunner().invoke(app, [*dry, *open_, "--json", "-"]).stdout)
    shown = CliRunner().invoke(app, [*dry, *open_]).stdout

    assert stated["makespan"] == 38.0
    assert stated["wall_seconds"] == pytest.approx(38 * 0.2)
    # Two NICs carry 20 B/s together, 50,000 bytes for one, in a fifth of the time.
    assert stated["peak_traffic"] == pytest.approx(20 * 50_000 / 0.2)
    experiment = with_byte_scale(load(GOLDEN))
    flows = simulate(experiment.problem, experiment.realization, "oes").flow_bytes
    assert stated["payload"] == pytest.approx(50_000 * np.nansum(flows))
    assert (left["time_scale"], left["wall_seconds"]) == (None, None)
    assert left["byte_scale"] == 25_000
    assert "chosen by trials" in shown
    assert not trials.scales
    assert not (tmp_path / "runs").exists()


P3 = CASES["p3"].replace("iterations: 3", "iterations: 5")
SHORT = {
    **CASES,
    **{f"p3 {name}": f"{P3}  pipeline: {name}" for name in ("none", "A", "B")},
}


@pytest.mark.parametrize(
    "name",
    draws.rarely_but(2, sorted(SHORT.keys() - {"p3", "ring", "dorylus-dying"})),
)
def test_every_system_ends_after_any_of_its_iterations(name: str) -> None:
    """P3 looked for the gradients of the mini-batches that a trial leaves out."""
    text = SHORT[name]
    whole = prepare(loads(f"name: short\n{text}"))
    for count in range(1, whole.problem.job.iterations + 1):
        trial = run_trial(Case.of(shorten(whole, count)))
        assert trial.error is None
        assert trial.complaints == []


@pytest.mark.emulation
@pytest.mark.untimed
def test_a_trial_is_a_run_of_some_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late is a flow by more than what it may be: of these nine two."""
    scenario = stating(load(GOLDEN), time_scale=0.1)
    look = flow_completion

    def make_late(*looked_at: Any) -> Any:
        excess = np.zeros_like(look(*looked_at).excess)
        excess[:3] = 1.5, 2.5, 1.0
        return SimpleNamespace(excess=excess)

    monkeypatch.setattr(under_test, "flow_completion", make_late)

    trial = try_out(shorten(with_byte_scale(scenario), 2))

    assert (trial.time_scale, trial.iterations) == (0.1, 2)
    assert trial.cost > trial.wall > 0
    assert 0 < trial.cpu_busy <= 1
    assert (trial.late_flows, trial.flows) == (2, 9)


class Clock:
    """Stands for `time`: moves by what each trial costs."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the present reading."""
        return self.now


@pytest.mark.parametrize(
    ("budget", "asked"),
    [
        (49.0, [(0.15, 4), (4.0, 2)]),
        (51.0, [(0.15, 4), (4.0, 2), (8.0, 1)]),
        (21.0, [(0.15, 4), (4.0, 1)]),
        (20.0, [(0.15, 4)]),
    ],
)
def test_trials_are_as_long_as_the_rest_of_the_budget_allows(
    budget: float, asked: list[tuple[float, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iteration takes 4 s at scale 1: 4 of them take 2.4 s at 0.15, 2 take 32 at 4.

    The first start takes 5 s, the others 1 s; the clock runs from the second trial on,
    which costs 17 s.
    """
    clock = Clock()
    found: list[tuple[float, int]] = []

    def at(_: object, scale: float) -> float:
        return scale

    def run(part: tuple[float, int], _: object) -> ScaleTrial:
        found.append(part)
        cost, wall = (17.0, 16.0) if len(found) > 1 else (500.0, 495.0)
        clock.now += cost
        return ScaleTrial(part[0], part[1], cost, wall, 0.1, 1.0, 1, 9)

    monkeypatch.setattr(under_test, "time", clock)
    monkeypatch.setattr(under_test, "_at", at)
    monkeypatch.setattr(under_test, "shorten", lambda scale, count: (scale, count))
    monkeypatch.setattr(under_test, "try_out", run)
    emulation = SimpleNamespace(trial_budget=budget)
    job = SimpleNamespace(iterations=3)
    experiment: Any = SimpleNamespace(
        scenario=SimpleNamespace(emulation=emulation),
        problem=SimpleNamespace(job=job),
    )
    scales = iter([4.0, 8.0, None])
    search: Any = SimpleNamespace(makespan=12.0, next=lambda _: next(scales))
    told: list[ScaleTrial] = []
    trials = under_test._trials(experiment, search, 0.15, told.append, ())
    assert found == asked
    assert told == trials


def test_the_median_of_what_is_sent_decides_the_byte_scale() -> None:
    """The upper of the two middle values counts; values of zero are left out."""
    assert choose_byte_scale([80.0, 10.0, 40.0, 20.0]) == 25_000.0
    assert choose_byte_scale([0.0, 10.0, 20.0, 0.0, 40.0]) == 50_000.0
    assert choose_byte_scale([2.0, 3.0, 1e4]) == 3200.0
    assert choose_byte_scale([0.5]) == 2e6


@pytest.mark.parametrize(("spread", "max_error"), [(0.01, 0.01), (0.011, np.inf)])
def test_what_chance_moves_by_more_than_the_aim_has_no_aim(
    spread: float, max_error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Golden has 18 ends of tasks and 14 of flows: 4 ms of a core each, over 38 s."""
    searches = []

    def trials(_: object, search: ScaleSearch, first: float, *__: object) -> Any:
        searches.append((search, first))
        return [ScaleTrial(first, 2, 1.0, 0.5, 0.1, 0.0, 0, 9)]

    monkeypatch.setattr(under_test, "effect_of_slight_delays", lambda *_, **__: spread)
    monkeypatch.setattr(under_test, "usable_cores", lambda: 1)
    monkeypatch.setattr("emu.experiment.scale_search.SHORTEST", 0.0)
    monkeypatch.setattr(under_test, "_trials", trials)
    scenario = load(GOLDEN, (*AUTO, "emulation.max_error=1 %"))
    schedule = prepare(scenario).simulate()
    assert (schedule.task_end.size, len(schedule.flows())) == (18, 14)
    with_scales(scenario)
    ((search, first),) = searches
    assert (search.makespan, search.max_error) == (38.0, max_error)
    assert first == pytest.approx(0.0034)  # 0.00337, of two digits


@pytest.mark.parametrize("several", [False, True])
def test_real_payloads_have_their_size(several: bool) -> None:  # noqa: FBT001
    text = CASES["dgtp"]
    scenario = loads(f"name: it\n{text}", {"emulation.byte_scale": "auto"})
    if several:
        job = scenario.to_json()["job"]
        edit: dict[str, Any] = {"job": None, "placement": None}
        edit["jobs"] = [{"name": "a", "job": job}]
        scenario = load(scenario, edit)
    experiment = with_byte_scale(scenario)
    assert experiment.scenario.emulation.byte_scale == 1.0
