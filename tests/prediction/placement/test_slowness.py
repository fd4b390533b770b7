"""Times that differ by machine, beside plain enumeration and plain simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.prediction.placement.bound import placement_bound
from emu.prediction.placement.search import SearchOptions
from emu.prediction.placement.space import Space
from emu.prediction.simulation import simulate
from emu.problem import Cluster, Job, Problem, Profile
from emu.scenario import Experiment, prepare
from emu.scenario.scenario_file import loads
from tests.prediction.placement.placement_cases import (
    feasible_placements,
    random_setting,
    realization,
)
from tools.benches.evaluator import MakespanEvaluator, search


def slowed(job: Job, cluster: Cluster, rng: np.random.Generator) -> Job:
    """Return the job with times that differ by kind of task and machine."""
    names = [machine.name for machine in cluster.machines]
    factors = {
        kind: dict(zip(names, rng.choice([0.3, 1.0, 2.5], len(names)), strict=True))
        for kind in ("sampler", "worker", "parameter_server")
    }
    tasks = (replace(t, slowness=factors.get(t.kind, {})) for t in job.tasks)
    return replace(job, tasks=tuple(tasks))


@pytest.mark.parametrize("seed", [2, 4, 7, 8, 10])
def test_search_and_bound_know_what_every_machine_takes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job, cluster = random_setting(rng)
    job = slowed(job, cluster, rng)
    reference = realization(job, rng)
    evaluator = MakespanEvaluator(job, cluster)
    lengths = []
    for placement in feasible_placements(job, cluster):
        problem = Problem(cluster, job, placement)
        length = simulate(problem, problem.stretch(reference)).makespan
        machine_of = np.array(placement.machine_of)
        assert evaluator.makespan(machine_of, reference) == length
        lengths.append(length)
    profile = Profile(reference.times[:, :1], reference.volumes[:, :1])
    constant = profile.draw(rng, job.iterations)
    best = search(
        job, cluster, profile, options=SearchOptions(iterations=job.iterations)
    )
    problems = [Problem(cluster, job, p) for p in feasible_placements(job, cluster)]
    least = min(simulate(p, p.stretch(constant)).makespan for p in problems)

    assert best.makespan == pytest.approx(least)
    assert placement_bound(job, cluster, reference, nodes=50) <= min(lengths) * (
        1 + 1e-9
    )


def test_tasks_of_unequal_slowness_do_not_change_places() -> None:
    rng = np.random.default_rng(2)
    job, cluster = random_setting(rng)
    alike = Space(job, cluster).groups
    first = Space(job, cluster).units[alike[0][0]].tasks[0]
    tasks = list(job.tasks)
    tasks[first] = replace(tasks[first], slowness={"m0": 0.5})
    apart = Space(replace(job, tasks=tuple(tasks)), cluster).groups

    assert len(apart) == len(alike) + (len(alike[0]) > 1)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.inf, np.nan])
def test_slowness_is_positive_and_finite(factor: float) -> None:
    job, _ = random_setting(np.random.default_rng(0))
    task = replace(job.tasks[0], slowness={"m0": factor})

    with pytest.raises(ValueError, match="slowness"):
        replace(job, tasks=(task, *job.tasks[1:]))


DEVICES = """
cluster:
  machines:
    - {name: old, nic: 1 GB/s, memory: 10 GB}
    - {name: new, nic: 1 GB/s, memory: 10 GB, device: a100}
job:
  system: custom
  iterations: 4
  tasks:
    - {name: a, time: {default: 40 ms, a100: 12 ms}, demands: {memory: 8 GB}}
    - {name: b, time: 20 ms, demands: {memory: 8 GB}}
placement: {policy: best}
"""


def prepared(*overrides: str) -> Experiment:
    return prepare(loads(DEVICES, overrides))


def test_the_faster_device_gets_the_task_that_gains() -> None:
    placed = prepared()

    assert placed.tasks == {"a": "new", "b": "old"}
    assert placed.simulate().makespan == pytest.approx(4 * 0.020)
    swapped = prepared("placement.policy=explicit", "placement.tasks={a: old, b: new}")
    assert swapped.simulate().makespan == pytest.approx(4 * 0.040)


def test_moves_take_the_times_of_where_they_lead() -> None:
    """Up from the worse placement, and nowhere from the better one."""
    from emu.prediction.analysis.task_moves import task_moves
    from emu.prediction.analysis.what_if import Change

    for tasks, after in (("{a: old, b: new}", [0.080]), ("{a: new, b: old}", [])):
        here = prepared("placement.policy=explicit", f"placement.tasks={tasks}")
        base = Change("", "", here.problem, here.realization, here.policy)
        swaps = task_moves(base).steps
        assert [one.makespan for one in swaps] == pytest.approx(after)


def test_a_profile_takes_its_seconds_over_the_speed(tmp_path: Any) -> None:
    """The search knows where; it counted with the mean speed once."""
    profile = tmp_path / "profile.json"
    profile.write_text(
        '{"version": 1, "tasks": {"a": [0.04], "b": [0.02]}, "edges": {}, '
        '"settings": {}}'
    )
    placed = prepared(f"profile={profile}", "cluster.machines[1].speed=4")

    assert placed.tasks == {"a": "new", "b": "old"}
    assert placed.simulate().makespan == pytest.approx(4 * 0.020)


@pytest.mark.parametrize(
    ("time", "problem"),
    [
        ("{a100: 1 s}", "found no default, write what other devices take as well"),
        (
            "{default: 1 s, a10: 2 s}",
            "no machine has device 'a10', did you mean 'a100'",
        ),
        ("{default: 0 s, a100: 2 s}", "default: found zero .* for example 1 ns"),
        ("{default: 2 s, a100: 0 s}", "a100: found zero .* for example 1 ns"),
        ("{default: 1, a100: 2 s}", r"default: a bare number \(1\)"),
    ],
)
def test_wrong_times_of_devices_are_named(time: str, problem: str) -> None:
    from emu.errors import ScenarioError

    with pytest.raises(ScenarioError, match=problem):
        loads(DEVICES.replace("{default: 40 ms, a100: 12 ms}", time))


def test_no_time_on_any_device_is_no_time() -> None:
    by_device = loads(
        DEVICES.replace("{default: 40 ms, a100: 12 ms}", "{default: 0 s}")
    )
    plain = loads(DEVICES.replace("{default: 40 ms, a100: 12 ms}", "0 s"))

    assert by_device == plain


def test_times_of_devices_are_written_back() -> None:
    scenario = loads(DEVICES)

    assert loads(str(scenario.to_json()).replace("'", '"')) == scenario
