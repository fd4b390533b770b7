"""Drawn jobs of systems: good files, of every system, whose keys differ by seed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.system import systems
from tests.fidelity.drawn_systems import SYSTEMS, draw_system
from tests.testing.drawn_sections import TRAINED


def test_every_system_is_drawn_here_or_with_all_features() -> None:
    drawn = {"custom", *TRAINED, *SYSTEMS}
    shipped = {
        name
        for name, system in systems().items()
        if system.section().__module__.startswith("emu.systems.")
    }
    assert drawn == shipped
    assert not {*TRAINED} & {*SYSTEMS}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_drawn_job_is_good_and_moves_bytes(system: str) -> None:
    for seed in range(3):
        content = draw_system(system, seed)
        experiment = prepare(loads(json.dumps(content)))
        schedule = experiment.simulate()
        assert schedule.makespan > 0
        assert experiment.realization.volumes.sum() > 1e4
        # Rates give times of tasks and volumes alike: neither is all of a job.
        assert np.nansum(experiment.realization.times) > 0.1 * schedule.makespan


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_seed_draws_one_job_and_others_vary_all_keys(system: str) -> None:
    drawn = [draw_system(system, seed) for seed in range(30)]
    assert drawn[7] == draw_system(system, 7)
    assert len({json.dumps(content["cluster"]) for content in drawn}) > 20

    keys = {key for content in drawn for key in content["job"]}
    values: dict[str, set[str]] = {key: set() for key in keys}
    for content in drawn:
        for key in keys:
            values[key].add(json.dumps(content["job"].get(key)))
    fixed = {key for key, found in values.items() if len(found) == 1}
    assert fixed == {"system", "precision"}
