"""The search for scenarios that lateness moves the most."""

from __future__ import annotations

import numpy as np

from tests.fidelity.corpus import draw_scenario
from tools.studies.worst_cases import climbed, minimised, mutated, parted

WALL = 2.0


def test_lateness_moves_a_scenario_less_the_longer_it_runs() -> None:
    content = draw_scenario(2, most_processes=8)

    assert 0 < parted(content, 100 * WALL) < parted(content, WALL) < 0.1


def test_what_cannot_be_prepared_is_no_find() -> None:
    content = draw_scenario(2, most_processes=8)
    content["placement"]["tasks"] = {}

    assert parted(content, WALL) == 0


def test_climbing_never_loses_and_minimising_keeps_most() -> None:
    content = draw_scenario(2, most_processes=8)
    before, flows = parted(content, WALL), len(content["job"]["flows"])
    worst = climbed(content, 4, np.random.default_rng(1), WALL)
    small = minimised(content, WALL)

    assert parted(worst, WALL) >= before
    assert parted(small, WALL) >= 0.9 * before
    assert len(small["job"]["flows"]) < flows
    assert len(content["job"]["flows"]) == flows


def test_a_mutation_changes_one_thing_of_a_copy() -> None:
    content, rng = draw_scenario(1, most_processes=8), np.random.default_rng(0)
    before = str(content)
    changed = [mutated(content, rng) for _ in range(20)]

    assert str(content) == before
    assert all(other.keys() == content.keys() for other in changed)
    assert sum(str(other) != before for other in changed) >= 10
