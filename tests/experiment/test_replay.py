"""The simulation of a run's own times, beside the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from emu.experiment.run_experiment import replay
from emu.experiment.run_result import RunResult, memory_figures, transport_figures
from emu.prediction.simulation import simulate
from emu.problem import Edge, Job, Realization, Task
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


def test_figures_of_processes_are_of_the_most_of_the_least_or_of_all() -> None:
    """Two processes of which each is the larger in something."""
    edge = {"payload_bytes": 10, "header_bytes": 3, "late_sends": 2, "max_behind": 0.1}
    more = {"payload_bytes": 20, "header_bytes": 4, "late_sends": 1, "max_behind": 0.3}
    statistics = {
        "a": {
            "memory": {"high_water": 5, "limit": 70},
            "sent": [edge, more],
            "cpu_seconds": 1.5,
        },
        "b": {
            "memory": {"high_water": 7, "limit": 60},
            "sent": [],
            "cpu_seconds": 0.5,
        },
    }
    tcp = {"segments": 5, "retransmitted": 2, "timeouts": 1}
    run: Any = SimpleNamespace(statistics=statistics, hosts=[{"tcp": tcp}] * 2)

    assert memory_figures(run) == {
        "high_water": 7.0,
        "total_high_water": 12.0,
        "limit": 60.0,
    }
    assert transport_figures(run) == {
        "payload_bytes": 30.0,
        "header_bytes": 7.0,
        "late_sends": 3,
        "max_behind_wall_seconds": 0.3,
        "cpu_seconds": 2.0,
        "segments": 10,
        "retransmitted": 4,
        "timeouts": 2,
    }


def test_reads_are_counted_by_those_who_read() -> None:
    """Five iterations read what three write; one reads another than foreseen."""
    tasks = Task("p", "p", iterations=3), Task("w", "w")
    job = Job(tasks, (Edge(0, 1, 2, latest=True),), 5)
    foreseen = np.array([[-1, -1, 0, 1, 2]])
    read = np.array([[-1, 0, 0, 1, 2]])
    fake: Any = SimpleNamespace(
        run=SimpleNamespace(schedule=SimpleNamespace(reads=read)),
        predicted=SimpleNamespace(reads=foreseen),
        experiment=SimpleNamespace(until=None, reached=None),
        problem=SimpleNamespace(job=job),
        training={},
    )

    assert RunResult._reads(fake) == {"reads_apart": {"count": 5, "other": 1}}
