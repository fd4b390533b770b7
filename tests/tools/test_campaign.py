"""What a campaign runs, skips and compares; nothing is emulated here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from emu.errors import DataError
from tools.fidelity_study import campaign as under_test
from tools.fidelity_study.campaign import Campaign, Manner, OutOfTime
from tools.fidelity_study.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

    from emu.scenario import Experiment
    from tools.fidelity_study.rows import Row


class Attempts:
    """Stands for `attempt`: notes what it is asked for, runs nothing."""

    def __init__(self) -> None:
        self.scales: list[tuple[str, float]] = []
        self.ends: list[str] = []
        self.failing = ""

    def __call__(self, experiment: Experiment, *_: Any, **__: Any) -> Trial:
        """Return a trial that came out as simulated, or failed."""
        name = experiment.scenario.name
        scale = experiment.scenario.emulation.stated_time_scale
        self.scales.append((name, scale))
        self.ends.append(experiment.scenario.emulation.flow_ends)
        makespan = experiment.simulate().makespan
        trust = "failed" if name.startswith(self.failing or "-") else "trusted"
        return Trial(
            name, experiment.policy, 8, 2, scale, 1.0,
            emulated=makespan, replay_error=0.0, trust=trust,
        )  # fmt: skip


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Attempts:
    found = Attempts()
    monkeypatch.setattr(under_test, "attempt", found)
    return found


def _campaign(
    out: Path, told: list[tuple[Row, bool]] | None = None, **changed: Any
) -> Campaign:
    manner: dict[str, Any] = {
        "out": out,
        "scales": ("wall",),
        "wall": 1.5,
        "per_event": 0.0,
        "most_rate": 5e8,
        "processes": 8,
        "retries": 1,
        "keep": False,
        "until": math.inf,
    }
    told = [] if told is None else told
    return Campaign(
        Manner(**{**manner, **changed}), lambda row, fresh: told.append((row, fresh))
    )


def test_what_stands_on_disk_is_not_run_again(
    tmp_path: Path, attempts: Attempts
) -> None:
    _campaign(tmp_path).repeat(range(3), 1)
    assert [name for name, _ in attempts.scales] == ["drawn-0", "drawn-1", "drawn-2"]

    told: list[tuple[Row, bool]] = []
    again = _campaign(tmp_path, told)
    again.repeat(range(4), 2)

    assert len(attempts.scales) == 8
    assert [fresh for _, fresh in told] == [False] * 3 + [True] * 5
    assert len(again.trials.rows) == 8


def test_every_scenario_runs_at_every_scale(tmp_path: Path, attempts: Attempts) -> None:
    ran = _campaign(tmp_path, scales=("wall", "2", "0.5"))
    ran.repeat(range(2), 1)

    groups = [row.group for row in ran.trials.rows]
    assert groups[:3] == ["drawn-0@wall", "drawn-0@2", "drawn-0@0.5"]
    assert [scale for _, scale in attempts.scales[4:]] == [2.0, 0.5]


def test_both_ways_of_ending_flows_run_side_by_side(
    tmp_path: Path, attempts: Attempts
) -> None:
    ran = _campaign(tmp_path, scales=("wall arrival", "wall fluid"))
    ran.repeat(range(2), 1)

    assert attempts.ends == ["arrival", "fluid"] * 2
    assert attempts.scales[0] == attempts.scales[1]
    assert {row.scale for row in ran.trials.rows} == {"wall arrival", "wall fluid"}


def test_a_budget_that_is_spent_starts_no_run_and_keeps_the_others(
    tmp_path: Path, attempts: Attempts
) -> None:
    _campaign(tmp_path).repeat(range(2), 1)
    late = _campaign(tmp_path, until=-math.inf)

    with pytest.raises(OutOfTime):
        late.repeat(range(3), 1)
    assert len(attempts.scales) == 2
    assert len(late.trials.rows) == 2


def test_another_manner_needs_another_folder(tmp_path: Path) -> None:
    _campaign(tmp_path)

    with pytest.raises(DataError, match="choose another"):
        _campaign(tmp_path, wall=3.0)


def test_pairs_are_run_at_one_time_scale_until_enough_are_decided(
    tmp_path: Path, attempts: Attempts
) -> None:
    attempts.failing = "placement-0-1"
    told = _campaign(tmp_path)
    told.decide(0, 3)

    groups = dict.fromkeys(row.group for row in told.pairs.rows)
    assert len(groups) == 4  # one of them failed and decides nothing
    for group in groups:
        scales = {s for name, s in attempts.scales if name.startswith(f"{group}-")}
        assert len(scales) == 1
        one, other = (row.expected for row in told.pairs.of(group))
        assert abs(one / other - 1) > 0.009
    assert {group.split("-")[0] for group in groups} == {"placement", "policy"}
    ran = len(attempts.scales)
    _campaign(tmp_path).decide(0, 3)
    assert len(attempts.scales) == ran == 8


def test_placements_of_a_scenario_share_a_time_scale(
    tmp_path: Path, attempts: Attempts
) -> None:
    ranked = _campaign(tmp_path)
    ranked.rank(0, 2, 4)

    assert [row.number for row in ranked.pairs.of("tau-1")] == [0, 1, 2, 3]
    assert len({scale for _, scale in attempts.scales}) == 2
    shortest = min(row.expected * row.trial.time_scale for row in ranked.pairs.rows)
    assert shortest == pytest.approx(1.5, rel=0.01)
