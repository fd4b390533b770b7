"""The corpus: the same scenarios for the same seeds, of every kind that it promises."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from emu.scenario import load, prepare
from tests.fidelity.corpus import RULES, SHAPES, draw_scenario
from tools.trials.trial import shape_of

DRAWN = [draw_scenario(seed) for seed in range(80)]


def test_a_seed_draws_the_same_scenario_again() -> None:
    assert draw_scenario(7) == DRAWN[7]
    assert draw_scenario(7) != DRAWN[8]


def test_every_policy_and_window_has_its_turn() -> None:
    policies = {content["schedule"]["policy"] for content in DRAWN}
    windows = {content["job"]["credit_window"] for content in DRAWN}

    assert policies == set(RULES)
    assert windows == {1, 2, 4, "unlimited"}


def test_every_shape_meets_every_policy() -> None:
    met = {
        (SHAPES[seed % len(SHAPES)], content["schedule"]["policy"])
        for seed, content in enumerate(DRAWN)
    }

    assert len(met) == len(SHAPES) * len(RULES)


def test_machines_and_nics_keep_their_bounds() -> None:
    """24 processes allow 8 machines, 48 all 16."""
    for most, machines in ((24, 8), (48, 16)):
        drawn = [draw_scenario(seed, most_processes=most) for seed in range(80)]
        counts = [len(content["cluster"]["machines"]) for content in drawn]
        assert (min(counts), max(counts)) == (2, machines)
    nics = [float(m["nic"][:-4]) for c in DRAWN for m in c["cluster"]["machines"]]
    assert max(nics) / min(nics) == 20
    with pytest.raises(ValueError, match="8 processes"):
        draw_scenario(0, most_processes=7)


@pytest.mark.parametrize("seed", range(0, 80, 7))
@pytest.mark.parametrize("most", [8, 24, 48])
def test_what_is_drawn_is_a_scenario_that_can_be_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    monkeypatch.delenv("EMU_DATA", raising=False)
    path = tmp_path / "drawn.yaml"
    path.write_text(json.dumps(draw_scenario(seed, most_processes=most)))
    experiment = prepare(load(path))
    schedule = experiment.simulate()

    assert shape_of(experiment.problem.job) == SHAPES[seed % len(SHAPES)]
    assert len(experiment.problem.job.processes) <= most
    assert schedule.makespan > 0
    assert len(schedule.flows()) > 0
    assert np.isfinite(schedule.task_end).all()


@pytest.mark.nightly
def test_jobs_range_from_computing_to_moving_bytes(tmp_path: Path) -> None:
    """The share of the makespan that the busiest port is in use."""
    shares = []
    for content in DRAWN[:64]:
        path = tmp_path / "drawn.yaml"
        path.write_text(json.dumps(content))
        experiment = prepare(load(path))
        problem, schedule = experiment.problem, experiment.simulate()
        carried = np.zeros(len(problem.capacities))
        for edge, n in schedule.flows():
            carried[list(problem.hops[edge])] += schedule.flow_bytes[edge, n]
        shares.append((carried / problem.capacities).max() / schedule.makespan)

    assert min(shares) < 0.3
    assert max(shares) > 0.9
