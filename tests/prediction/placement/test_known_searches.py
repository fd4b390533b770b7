"""A search that was made before is answered from memory, and no other one."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from emu.prediction.placement import place
from emu.prediction.placement.search import SearchOptions
from emu.prediction.simulation import simulate
from emu.problem import Cluster, Job, Placement, Profile
from emu.scenario.own_rules import register_program
from emu.testing.strategies import random_problem


def test_equal_searches_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("emu.prediction.placement.place")
    problem, realization = random_problem(np.random.default_rng(11))
    profile = Profile(realization.times, realization.volumes)
    made = []

    def search(*_: object, seed: int, **__: object) -> object:
        made.append(seed)
        return object()

    monkeypatch.setattr(module, "search_etp", search)

    def find(
        seed: int = 91,
        run: Profile = profile,
        policy: str = "oes",
        job: Job = problem.job,
        cluster: Cluster = problem.cluster,
    ) -> object:
        # Equal, and not the same: as two commands load them.
        again = replace(job), replace(cluster)
        return place("etp", *again, profile=run, seed=seed, policy=policy)

    first = find()
    assert find() is first
    assert find(policy="oes_by_job") is first  # there is one job
    assert made == [91]

    longer = Profile(1 + realization.times, realization.volumes)
    heavier = Profile(realization.times, 1 + realization.volumes)
    others = [find(seed=92), find(run=longer), find(run=heavier), find(policy="mrtf")]
    assert len({id(outcome) for outcome in [first, *others]}) == 5
    assert made == [91, 92, 91, 91, 91]

    task, *tasks = problem.job.tasks
    job = replace(problem.job, tasks=(replace(task, kind="another"), *tasks))
    machine, *machines = problem.cluster.machines
    wider = replace(machine, bandwidth_out=2 * machine.bandwidth_out)
    cluster = replace(problem.cluster, machines=(wider, *machines))
    assert find(job=job) is not first
    assert find(cluster=cluster) is not first
    assert made == [91, 92, 91, 91, 91, 91, 91]


def test_searches_differ_in_what_they_begin_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And large ones, or those of a rule of one's own, are made again."""
    module = importlib.import_module("emu.prediction.placement.place")
    known_searches = importlib.import_module("emu.prediction.placement.known_searches")
    problem, realization = random_problem(np.random.default_rng(12))
    made = []

    def search(*_: object, known: list[Placement], **__: object) -> object:
        made.append(known)
        return object()

    monkeypatch.setattr(module, "search_run", search)
    text = (
        "class Mine:\n def rates(self, flows, capacity):\n  return [1] * len(flows)\n"
    )
    own = register_program("known.py:Mine", text)

    def find(known: list[Placement], policy: str = "oes") -> object:
        options = SearchOptions(transfers=3, policy=policy)
        job = problem.job
        cluster = problem.cluster
        return module._search_run(job, cluster, realization, 0, options, known, None)

    first = find([problem.placement])
    assert find([problem.placement]) is first
    assert find([]) is not first
    assert len(made) == 2
    assert find([], own) is not find([], own)
    assert len(made) == 4
    most = realization.volumes.size
    monkeypatch.setattr(known_searches, "_MOST_VOLUMES", most)
    assert find([problem.placement]) is first
    monkeypatch.setattr(known_searches, "_MOST_VOLUMES", most - 1)
    assert find([problem.placement]) is not first


@pytest.mark.parametrize("rule", ["oes", "maxmin"])
def test_one_job_by_job_is_served_as_its_flows_are(rule: str) -> None:
    drawn = random_problem(np.random.default_rng(5))
    by_flow = simulate(*drawn, rule)
    by_job = simulate(*drawn, f"{rule}_by_job")
    np.testing.assert_array_equal(by_job.flow_end, by_flow.flow_end)
