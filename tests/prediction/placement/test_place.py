"""The one way in to all placement policies."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.prediction.placement import PLACEMENT_POLICIES, place
from emu.prediction.placement.baselines import place_ifs
from emu.prediction.placement.candidates import common_draws, walk_generator
from emu.prediction.placement.place import repeat_profile
from emu.prediction.placement.search import endless
from emu.prediction.placement.space import PlacementResult
from emu.prediction.simulation import makespan
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Machine,
    Placement,
    Problem,
    Profile,
    Realization,
    Task,
    Tuner,
)
from emu.scenario.own_rules import register_program
from tests.prediction.placement.placement_cases import paper_testbed, realization

OPTIONS: dict[str, dict[str, Any]] = {
    "etp": {"transfers": 50, "iterations": 2},
    "best": {"transfers": 50, "iterations": 2},
}


@pytest.fixture
def setting() -> tuple[Job, Cluster, Profile]:
    job, cluster = paper_testbed()
    drawn = realization(job, np.random.default_rng(0))
    return job, cluster, Profile(drawn.times, drawn.volumes * 1e7)


@pytest.mark.parametrize("policy", sorted(PLACEMENT_POLICIES))
def test_every_policy_places_and_says_the_makespan(
    policy: str, setting: tuple[Job, Cluster, Profile]
) -> None:
    job, cluster, profile = setting
    machines = place_ifs(job, cluster, walk_generator(0)).machine_of
    tasks = {
        task.name: cluster.machines[m].name
        for task, m in zip(job.tasks, machines, strict=True)
    }

    result = place(
        policy,
        job,
        cluster,
        profile=profile,
        tasks=tasks if policy == "explicit" else None,
        **OPTIONS.get(policy, {"iterations": 2}),
    )

    assert result.policy == policy
    assert result.placement.violations(job, cluster) == []
    assert result.makespan is not None
    assert result.makespan > 0


def test_searches_are_no_worse_than_ifs_under_the_same_draws(
    setting: tuple[Job, Cluster, Profile],
) -> None:
    job, cluster, profile = setting

    made = {
        policy: place(
            policy,
            job,
            cluster,
            profile=profile,
            seed=3,
            **OPTIONS.get(policy, {"iterations": 2}),
        ).makespan
        for policy in ("ifs", "etp", "best")
    }

    assert made["ifs"] is not None
    assert made["etp"] is not None
    assert made["best"] is not None
    assert made["etp"] <= made["ifs"]
    assert made["best"] <= made["ifs"]


@pytest.mark.parametrize("name", ["ifs", "etp", "best"])
def test_the_rate_policy_reaches_the_simulations(
    name: str, setting: tuple[Job, Cluster, Profile]
) -> None:
    job, cluster, profile = setting
    options = OPTIONS.get(name, {"iterations": 2})
    job_of_two = replace(job, iterations=2)

    made = {
        rates: place(name, job, cluster, profile=profile, policy=rates, **options)
        for rates in ("oes", "fifo")
    }

    for rates, result in made.items():
        problem = Problem(cluster, job_of_two, result.placement)
        drawn = common_draws(profile, 0, 2)
        if name == "best":  # judges by the run itself: its first and last iteration
            ends = [0, (job.iterations - 1) % profile.times.shape[1]]
            drawn = Realization(profile.times[:, ends], profile.volumes[:, ends])
        simulated = makespan(problem, drawn, rates)
        assert result.makespan == pytest.approx(simulated)
    assert made["oes"].makespan != made["fifo"].makespan


def test_without_a_profile_nothing_is_simulated(
    setting: tuple[Job, Cluster, Profile],
) -> None:
    job, cluster, _ = setting

    assert place("ifs", job, cluster).makespan is None
    for name in ("etp", "best"):
        with pytest.raises(ValueError, match=f"policy {name} needs a profile"):
            place(name, job, cluster)


def test_misuse_is_named(setting: tuple[Job, Cluster, Profile]) -> None:
    job, cluster, profile = setting

    with pytest.raises(ValueError, match="no placement policy is called magic"):
        place("magic", job, cluster)
    with pytest.raises(TypeError, match="mu"):
        place("ifs", job, cluster, mu=1.0)
    with pytest.raises(TypeError, match="colour"):
        place("etp", job, cluster, profile=profile, colour=1)


def test_a_placement_is_simulated_with_draws_of_its_seed_on_its_machines() -> None:
    """Where a machine is slow for a task, as where all are pinned to it."""
    machines = Machine("m0", 10.0, 20.0), Machine("m1", 40.0, 30.0)
    slow = {"m0": 1.0, "m1": 3.0}
    tasks = tuple(Task(name, name, slowness=slow) for name in "ab")
    job = Job(tasks, (Edge(0, 1),), 2)
    cluster = Cluster(machines)
    times = np.arange(1.0, 13.0).reshape(2, 6) ** 2
    profile = Profile(times, np.full((1, 6), 60.0))

    found = place("round_robin", job, cluster, profile=profile, seed=3, iterations=2)
    problem = Problem(cluster, job, Placement((0, 1)))
    drawn = problem.stretch(common_draws(profile, 3, 2))
    assert found.placement == problem.placement
    assert found.makespan == makespan(problem, drawn)

    pinned = tuple(replace(task, pinned="m1") for task in tasks)
    only = place("best", replace(job, tasks=pinned), cluster, profile=profile)
    # Of 1 and 4 s, and of 49 and 64 s, three times as long; nothing crosses a link.
    assert only.makespan == 3 * (1 + max(4, 49) + 64)


def test_a_placement_that_ends_nowhere_takes_for_ever() -> None:
    """The NIC of m0 is cut for good before a sends; b stands on m1."""
    machines = (Machine("m0", 1.0, 1.0), Machine("m1", 1.0, 1.0))
    cluster = Cluster(machines, changes=(CapacityChange(0.5, "m0 out", 0.0),))
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 1)
    profile = Profile(np.ones((2, 1)), np.ones((1, 1)))

    stated = {"a": "m0", "b": "m1"}
    found = place("explicit", job, cluster, profile=profile, tasks=stated)
    assert (found.makespan, found.evaluations) == (np.inf, 1)


def test_without_a_profile_tasks_take_a_second_and_send_nothing() -> None:
    job = Job((Task("a", "a"), Task("b", "b")), (Edge(0, 1),), 3)

    run = repeat_profile(job, None)
    assert run.times.tolist() == [[1.0] * 3] * 2
    assert run.volumes.tolist() == [[0.0] * 3]


def test_where_a_policy_leaves_tasks_waiting_a_search_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the same rule and seed, and under the policy's own name."""
    module = import_module("emu.prediction.placement.place")
    tasks = (Task("a", "a", takes="p", frees=""), Task("b", "b", frees="p"))
    job = Job(tasks, (Edge(0, 1),), 3)
    cluster = Cluster((Machine("m0", 1.0, 1.0, slots={"p": 1}),))
    profile = Profile(np.ones((2, 1)), np.zeros((1, 1)))
    searched = []
    simulated = []

    def search(*problem: Any, seed: int) -> PlacementResult:
        *_, rates = problem
        searched.append((rates, seed))
        return PlacementResult(Placement((0, 0)), "best")

    def take(*_: Any, iterations: int, policy: str) -> PlacementResult:
        simulated.append((iterations, policy))
        return PlacementResult(Placement((0, 0)), "ifs")

    monkeypatch.setattr(module, "best_placement", search)
    monkeypatch.setattr(module, "_with_makespan", take)
    options: dict[str, Any] = {"profile": profile, "seed": 5, "policy": "fifo"}
    place("ifs", job, cluster, **options)
    assert (searched, simulated) == ([], [(3, "fifo")])

    monkeypatch.setattr(module, "_judge", lambda *_: np.inf)
    assert place("ifs", job, cluster, **options).policy == "ifs"
    assert searched == [("fifo", 5)]


def test_an_option_that_no_policy_has_is_named() -> None:
    job = Job((Task("a", "x"),), (), 1)
    cluster = Cluster((Machine("m", 1.0, 2.0),))

    with pytest.raises(TypeError, match="policy ifs has no option bends"):
        place("ifs", job, cluster, bends=1, tasks={}, width=2)
    assert place("ifs", job, cluster, iterations=3).placement.machine_of == (0,)


def test_only_a_simulation_tells_whether_some_jobs_end() -> None:
    """Slots kept or tuned, links cut for good, and rules of one's own may hang."""
    module: Any = import_module("emu.prediction.placement.place")
    may_hang = module._may_hang
    cluster = Cluster((Machine("m", 1.0, 2.0, slots={"gpu": 2}),))
    job = Job((Task("a", "x", takes="gpu"),), (), 1)
    keeps = Job((Task("a", "x", takes="gpu", frees=""),), (), 1)
    cut = CapacityChange(1.0, "m in", 0.0)
    again = CapacityChange(2.0, "m in", 1.0)
    tuner = Tuner(0, "gpu", "gpu", most=3)
    text = "class Mine:\n def rates(self, flows, capacity):\n  return []\n"
    own = register_program("hangs.py:Mine", text)

    assert not may_hang(job, cluster, "oes")
    assert not may_hang(job, replace(cluster, changes=(cut, again)), "oes")
    assert may_hang(keeps, cluster, "oes")
    assert may_hang(job, replace(cluster, changes=(cut,)), "oes")
    assert may_hang(job, replace(cluster, tuners=(tuner,)), "oes")
    assert may_hang(job, cluster, own)


def test_runs_and_walks_have_streams_of_their_own() -> None:
    """Children of one seed: the first draws the run, the second is of the search."""
    of_run, of_walk = np.random.SeedSequence(5).spawn(2)
    assert walk_generator(5).random() == np.random.default_rng(of_walk).random()
    profile = Profile(np.arange(8.0).reshape(1, 8), np.zeros((0, 8)))
    drawn = common_draws(profile, 5, 6)
    expected = profile.draw(np.random.default_rng(of_run), 6)
    assert drawn.times.tolist() == expected.times.tolist()


def test_a_job_that_ends_nowhere_names_what_holds_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cut link is named first, then a rule of one's own; else slots are it."""
    machines = tuple(Machine(f"m{number}", 1.0, 1.0) for number in range(3))
    cuts = tuple(
        CapacityChange(1.0, f"m{number} {way}", 0.0)
        for number in range(3)
        for way in ("in", "out")
    )
    cut_off = endless(Cluster(machines, changes=cuts), "oes")
    assert "ends: m0 out, m0 in, m1 out, m1 in carries nothing" in str(cut_off)
    of_slots = endless(Cluster(machines), "oes")
    assert "every task gets its slots" in str(of_slots)
    assert cut_off.key == of_slots.key == "cluster.machines"
    own = SimpleNamespace(rates=lambda *_: [])
    monkeypatch.setattr(sys.modules[endless.__module__], "policy_named", lambda _: own)
    of_rule = endless(Cluster(machines), "mine.py:Rule")
    assert "mine.py:Rule leaves flows without a rate for ever" in str(of_rule)
    assert of_rule.key == "schedule.policy"
