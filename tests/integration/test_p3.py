"""P3 over sockets, with real training."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emu.emulation.coordinator import RunSettings, emulate
from emu.errors import NodeLost
from emu.experiment.run_experiment import emulation_settings
from emu.problem import (
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Realization,
    Task,
)
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from tests.emulation.coordinator.emulated import Acts, emulable, named
from tests.golden.cases import cases, problem_of
from tests.integration.scenarios import attempts, carried_out, check_training
from tests.leftovers import Leftovers

pytestmark = pytest.mark.emulation

BATCHES = 4
TEXT = f"""\
name: p3
cluster:
  machines: [{{count: 3, nic: 400 Mbit/s}}]
job:
  system: p3
  dataset: {{name: products-like, scale: 0.001}}
  model: {{hidden: 8, layers: 2}}
  fanouts: [3, 4]
  batch_size: 8
  structure: hashed
  iterations: {BATCHES}
  optimizer: {{name: sgd, lr: 0.1}}
  times:
    {{sampler: 10 ms, model_forward: 30 ms, data_forward: 20 ms, data_backward: 20 ms,
     model_backward: 30 ms, sampler_hop: 2 ms, graph_store_hop: 2 ms}}
emulation: {{compute: padded, deadline: 60 s}}
seed: 7
"""


@pytest.mark.untimed
def test_data_parallel_training_keeps_the_weights_of_one_process(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pulled.yaml"
    file.write_text(TEXT)
    changes = ("job.system=data_parallel", "job.structure=null")
    run = carried_out(file, tmp_path, *changes)
    check_training(run, BATCHES, within=1e-5)


@pytest.mark.untimed
def test_pipelined_weights_are_those_of_delayed_descent(tmp_path: Path) -> None:
    file = tmp_path / "p3.yaml"
    file.write_text(TEXT)
    run = carried_out(file, tmp_path)
    check_training(run, BATCHES, within=1e-5, missed=2)
    left = run.outcome.run
    assert run.result["accuracy"].keys() >= {"train", "test"}
    stated = json.loads((run.path / "manifest.json").read_text())
    assert stated["pipeline"]["updates_missed"] == 2
    assert run.result["payloads"].keys() == {"structure", "activations", "gradients"}
    crossed = left.schedule.flow_bytes[tuple(left.schedule.flows().T)]
    assert sum(run.result["payloads"].values()) == crossed.sum()


@pytest.mark.untimed
def test_a_machine_killed_in_the_mf_of_anothers_mini_batch(
    tmp_path: Path, leftovers: Leftovers
) -> None:
    # Of 30 ms it was over before the kill, on a busy host in 5 tries of 6.
    changes = ["emulation.compute=timed", "job.times.model_forward=300 ms"]
    experiment = prepare(loads(TEXT, changes))
    problem, settings = experiment.problem, emulation_settings(experiment.scenario)

    def kill() -> None:
        named(leftovers.note(), "w1").kill()

    observer = Acts("start Mf1 2", kill, problem)
    with pytest.raises(NodeLost) as caught:
        emulate(
            problem, "oes", settings, experiment.realization,
            log=tmp_path / "agent.log", observer=observer,
        )  # fmt: skip

    expected = (
        r"process w1 was killed by SIGKILL \(tasks Mf1, Df1,.*task Mf1 in iteration 2, "
        r"awaited by Df0 for its iteration 3, Df2 for its iteration 3"
    )
    assert re.search(expected, str(caught.value))


#: Worked out by hand (tests/golden/golden_p3.json): seconds, and how far a run may be
#: off. Side by side at this scale they were off by 0.05, 0.28 and 0.97 %.
BY_HAND = {
    "unpipelined_equal": (47, 0.01),
    "pipelined_equal": (28, 0.01),
    "data_parallel_equal": (39.4, 0.02),
}


def test_the_golden_jobs_over_sockets(tmp_path: Path) -> None:
    """Side by side in one run: each on two machines of its own, a process each."""
    found = {
        str(case): problem_of(case) for case in cases("p3") if str(case) in BY_HAND
    }
    problem, realization = beside_one_another(found)
    problem = emulable(problem, realization)
    settings = RunSettings(time_scale=0.1, byte_scale=20_000.0, deadline=30.0)

    def once() -> float:
        run = emulate(problem, "oes", settings, realization, log=tmp_path / "agent.log")
        apart = []
        for name, (seconds, allowed) in BY_HAND.items():
            mine = [task.name.startswith(name) for task in problem.job.tasks]
            end = float(np.nanmax(run.schedule.task_end[mine]))
            apart.append(abs(end / seconds - 1) / allowed)
        return max(apart)

    assert attempts(once, 1.0)[-1] <= 1.0


def beside_one_another(
    jobs: dict[str, tuple[Problem, Realization]],
) -> tuple[Problem, Realization]:
    """Return one problem of jobs that share nothing."""
    most = max(problem.job.iterations for problem, _ in jobs.values())
    tasks: list[Task] = []
    edges: list[Edge] = []
    machines: list[Machine] = []
    places: list[int] = []
    times: list[NDArray[np.float64]] = []
    volumes: list[NDArray[np.float64]] = []
    for name, (problem, realization) in jobs.items():
        job, first, host = problem.job, len(tasks), len(machines)
        machines += [
            replace(one, name=f"{name}-{one.name}") for one in problem.cluster.machines
        ]
        edges += [
            Edge(e.source + first, e.destination + first, e.lag, e.credit)
            for e in job.edges
        ]
        for task, at in zip(job.tasks, problem.placement.machine_of, strict=True):
            own = replace(task, process=f"{name}-{at}", iterations=job.iterations)
            tasks.append(replace(own, name=f"{name}.{task.name}"))
            places.append(host + at)
        wider = ((0, 0), (0, most - job.iterations))
        times.append(np.pad(realization.times, wider))
        volumes.append(np.pad(realization.volumes, wider))
    job = Job(tuple(tasks), tuple(edges), most)
    both = Problem(Cluster(tuple(machines)), job, Placement(tuple(places)))
    return both, Realization(np.concatenate(times), np.concatenate(volumes))
