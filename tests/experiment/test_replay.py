"""The simulation of a run's own times, beside the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from emu.experiment.run_experiment import replay
from emu.prediction.simulation import simulate
from emu.problem import Realization
from emu.scenario import prepare
from emu.scenario.scenario_file import loads

TUNED = """\
cluster:
  machines: [{name: g, count: 2, nic: 1 Gbit/s}, {name: ps, nic: 1 Gbit/s}]
job:
  system: dorylus
  dataset: {name: products-like, scale: 0.0008}
  model: {hidden: 8}
  parameter_servers: [ps]
  intervals: 3
  lambdas: auto
  tuner: {period: 20 ms}
  epochs: 20
  times: {gather: 8 ms, apply: 20 ms, scatter: 2 ms}
"""


def test_a_replay_has_the_quotas_of_its_run() -> None:
    """A run whose tasks were late by turns, and which set its quotas by that."""
    experiment = prepare(loads(TUNED))
    problem, planned = experiment.problem, experiment.realization
    rng = np.random.default_rng(7)
    times = planned.times * rng.uniform(1, 1.5, planned.times.shape)
    ran = simulate(problem, Realization(times, planned.volumes))
    run = cast("Any", SimpleNamespace(schedule=ran, realization=planned))
    replayed = replay(experiment, run, "oes")

    assert ran.quotas is not None
    assert replayed.quotas is not None
    both = min(len(ran.quotas), len(replayed.quotas))
    np.testing.assert_array_equal(replayed.quotas[:both], ran.quotas[:both])
    own = simulate(problem, planned).quotas
    assert own is not None
    both = min(both, len(own))
    assert (own[:both] != ran.quotas[:both]).any()
