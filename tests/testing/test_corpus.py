"""The corpus: the same scenarios for the same seeds, of every kind that it promises."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from emu.scenario import load, prepare
from emu.testing.corpus import RULES, draw_scenario

if TYPE_CHECKING:
    from pathlib import Path

DRAWN = [draw_scenario(seed) for seed in range(80)]


def test_a_seed_draws_the_same_scenario_again() -> None:
    assert draw_scenario(7) == DRAWN[7]
    assert draw_scenario(7) != DRAWN[8]


def test_every_policy_and_window_has_its_turn() -> None:
    policies = {content["schedule"]["policy"] for content in DRAWN}
    windows = {content["job"]["credit_window"] for content in DRAWN}

    assert policies == set(RULES)
    assert windows == {1, 2, 4, "unlimited"}


def test_machines_and_processes_keep_their_bounds() -> None:
    machines = [len(content["cluster"]["machines"]) for content in DRAWN]
    tasks = [len(content["job"]["tasks"]) for content in DRAWN]

    assert (min(machines), max(tasks)) == (2, 24)
    assert max(machines) == 8  # a third of the processes
    assert len(draw_scenario(3, most_processes=60)["job"]["tasks"]) <= 60
    with pytest.raises(ValueError, match="8 processes"):
        draw_scenario(0, most_processes=7)


@pytest.mark.parametrize("seed", range(0, 80, 8))
def test_what_is_drawn_is_a_scenario_that_can_be_simulated(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "drawn.yaml"
    path.write_text(json.dumps(DRAWN[seed]))
    experiment = prepare(load(path), emulated=True)
    schedule = experiment.simulate()

    assert schedule.makespan > 0
    assert len(schedule.flows()) > 0
    assert np.isfinite(schedule.task_end).all()


def test_jobs_range_from_computing_to_moving_bytes(tmp_path: Path) -> None:
    """The share of the makespan that the busiest port is in use."""
    shares = []
    for content in DRAWN[:40]:
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
