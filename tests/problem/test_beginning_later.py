"""A cluster for what begins later: at every instant the one that it is part of."""

from __future__ import annotations

import numpy as np
import pytest

from emu.problem import CapacityChange, Cluster, Machine, SpeedChange


@pytest.mark.parametrize("seed", range(40))
def test_capacities_and_speeds_are_those_of_then(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links, names = ["m0 out", "m0 in", "m1 out"], ["m0", "m1"]
    changes = [
        CapacityChange(float(t), link, float(rng.choice([0.0, 3.0, 20.0])))
        for link in links
        for t in rng.uniform(0.1, 9.0, rng.integers(0, 5))
    ]
    speeds = [
        SpeedChange(float(t), name, float(rng.choice([0.0, 0.25, 1.0])))
        for name in names
        for t in rng.uniform(0.1, 9.0, rng.integers(0, 5))
    ]
    speeds += [SpeedChange(10.0, name, 1.0) for name in names]
    machines = tuple(Machine(name, 10.0, 10.0) for name in names)
    whole = Cluster(machines, changes=tuple(changes), speed_changes=tuple(speeds))
    first, second = rng.uniform(0.0, 6.0, 2)
    later = whole.beginning_at(first).beginning_at(second)
    assert whole.beginning_at(0.0) is whole
    assert later.machines == whole.machines
    since = float(first + second)
    times = np.append(2e-9, rng.uniform(0.0, 10.0, 40))
    for port in range(len(whole.links)):
        found = later.links.steps.at(port, times)
        np.testing.assert_array_equal(found, whole.links.steps.at(port, times + since))
    for machine in range(2):
        done = later.speed_steps.work(machine, np.zeros(41), times)
        there = whole.speed_steps.work(machine, np.full(41, since), times + since)
        np.testing.assert_allclose(done, there, atol=1e-8)
