"""Experiments that are ready: where tasks stand, what is chosen, what is cut."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.scenario import Experiment, Scenario, experiment, prepare
from emu.scenario.experiment import (
    WORTHWHILE,
    _words_of_policy,
    cost_of,
    count_failures,
    refuse_deaths,
)
from emu.scenario.scenario_file import loads


def content_of(**keys: Any) -> dict[str, Any]:
    """Return a job of two tasks on three unlike machines."""
    machines = [
        {"name": "a", "nic": "1 MB/s", "price": "1 $/h", "cpu": 2},
        {"name": "b", "nic": "2 MB/s", "price": "3 $/h", "cpu": 1, "disk": 5},
        {"name": "c", "nic": "4 MB/s", "price": "8 $/h", "cpu": 4},
    ]
    job = {
        "system": "custom",
        "iterations": 1,
        "tasks": [
            {"name": "s", "time": "1 s", "demands": {"cpu": 1}},
            {"name": "t", "time": "2 s", "demands": {"disk": 1}},
        ],
        "flows": [{"from": "s", "to": "t", "volume": "3 MB"}],
    }
    explicit = {"policy": "explicit", "tasks": {"s": "a", "t": "b"}}
    return {
        "cluster": {"machines": machines},
        "job": job,
        "placement": explicit,
        **keys,
    }


def scenario_of(**keys: Any) -> Scenario:
    return loads(json.dumps(content_of(**keys)))


def test_machines_cost_as_long_as_the_job_takes() -> None:
    """Those with a task: 1 s, 3 s on the way and 2 s, at 4 $/h for both."""
    ready = prepare(scenario_of())
    cost = cost_of(ready.scenario, ready.simulate())
    assert cost is not None
    assert cost.total == pytest.approx(4 * 6 / 3600)
    machines = content_of()["cluster"]["machines"]
    for machine in machines:
        del machine["price"]
    free = scenario_of(cluster={"machines": machines})
    assert cost_of(free, ready.simulate()) is None


def test_the_way_tasks_were_placed() -> None:
    placing = prepare(scenario_of()).placing
    assert placing == {
        "policy": "explicit",
        "seed": 0,
        "candidates": 0,
        "budget": 0,
        "optimal": False,
        "machines": ["a", "b"],
        "machines_in_all": 3,
        "unclaimed": [],
    }
    content = content_of(placement={"policy": "best"}, seed=4)
    content["job"]["tasks"][0]["demands"] = {}
    content["job"]["tasks"][0]["pin"] = "c"
    content["job"]["tasks"][1]["pin"] = "b"
    pinned = prepare(loads(json.dumps(content))).placing
    assert (pinned["candidates"], pinned["budget"], pinned["optimal"]) == (0, 0, True)
    assert pinned["machines"] == ["b", "c"]
    assert pinned["unclaimed"] == ["cpu"]
    assert pinned["seed"] == 4


def jobs_of(count: int) -> Scenario:
    tasks = [{"name": "t", "time": "1 s"}]
    policies = ["ifs", "random"]
    jobs = [
        {
            "name": f"j{n}",
            "job": {"system": "custom", "iterations": 1, "tasks": tasks},
            "placement": {"policy": policies[n % 3 == 2]},
        }
        for n in range(count)
    ]
    machines = [{"name": "m", "nic": "1 MB/s"}]
    return loads(json.dumps({"cluster": {"machines": machines}, "jobs": jobs}))


def test_up_to_twenty_jobs_are_named_with_their_policies() -> None:
    assert _words_of_policy(jobs_of(3)) == (
        "sequential: j0 by ifs, j1 by ifs, j2 by random"
    )
    assert _words_of_policy(jobs_of(20)).endswith("j18 by ifs, j19 by ifs")
    assert (
        _words_of_policy(jobs_of(21)) == "sequential: 14 jobs by ifs, 7 jobs by random"
    )
    assert _words_of_policy(scenario_of()) == "explicit"


@pytest.mark.parametrize(
    ("lengths", "chosen"),
    [
        ([10.0, 9.99, 9.98], 2),
        ([10.0, 10.0 * (1 - WORTHWHILE), 11.0], 0),
        ([10.0, 9.98, 9.9], 2),
        # Each has to be worth the change from the best before it.
        ([10.0, 9.98, 9.975], 1),
        ([10.0, 9.0, 9.5], 1),
        ([10.0, 10.1, 10.2], 0),
    ],
)
def test_another_set_of_machines_has_to_be_worth_the_change(
    monkeypatch: pytest.MonkeyPatch, lengths: list[float], chosen: int
) -> None:
    variants = [scenario_of(seed=seed) for seed in range(len(lengths))]
    ready = prepare(variants[0])
    monkeypatch.setattr(experiment, "promising", lambda *_: variants)
    monkeypatch.setattr(experiment, "_build", lambda variant: (variant,))
    monkeypatch.setattr(
        experiment,
        "_place_built",
        lambda variant, *_: Experiment(variant, ready.problem, ready.realization),
    )
    monkeypatch.setattr(experiment, "_length", lambda one: lengths[one.scenario.seed])
    found = experiment.prepare(variants[0])
    assert found.scenario.seed == chosen
    assert (found.unchosen is None) == (chosen == 0)
    if chosen:
        assert found.unchosen is variants[0]


def test_a_cut_is_taken_as_the_last_task_with_state_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = prepare(scenario_of())
    starts = np.array([[1.0, 2.0, 30.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    schedule = SimpleNamespace(task_start=starts)
    monkeypatch.setattr(Experiment, "simulate", lambda _: schedule)
    monkeypatch.setattr(Experiment, "_keepers", lambda _: [0, 1])
    rest = Experiment(
        ready.scenario, ready.problem, ready.realization, first=4, began=100.0
    )
    assert rest.time_of_cut(4) == rest.time_of_cut(3) == 100.0
    assert rest.time_of_cut(5) == 105.0
    assert rest.time_of_cut(6) == 130.0


def test_failures_are_counted_up_to_an_end() -> None:
    failures = {"machine": {"every": "100 s", "for": "1 s", "what": "cut", "most": 5}}
    ready = prepare(scenario_of(failures=failures))
    draws = ready.scenario.failures.draws(ready.problem.cluster, 0)  # type: ignore[union-attr]
    assert len(draws) == 15
    times = sorted(time for time, _ in draws)
    assert sum(count_failures(ready, times[6]).values()) == 6
    assert sum(count_failures(ready, times[6] + 1e-9).values()) == 7
    assert count_failures(ready, 1e9) == {"a": 5, "b": 5, "c": 5}
    assert count_failures(prepare(scenario_of()), 1e9) == {}


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"events": [{"at": "1 s", "cut": "a", "for": "1 s"},
                     {"at": "1 s", "kill": "s"}]}, "events[1].kill"),
        ({"failures": {"machine": {"every": "1 s", "what": "kill"}}},
         "failures.machine.what"),
    ],
)  # fmt: skip
def test_packets_know_no_deaths(keys: dict[str, Any], key: str) -> None:
    restart = {"on_failure": "restart"}
    with pytest.raises(ScenarioError, match="packets know no deaths") as error:
        refuse_deaths(prepare(scenario_of(**keys, **restart)))
    assert error.value.key == key
    refuse_deaths(prepare(scenario_of()))


@pytest.mark.parametrize(("latency", "is_long"), [("6.5 s", True), ("2 s", False)])
def test_a_latency_longer_than_the_job_is_hardly_meant(
    latency: str, *, is_long: bool
) -> None:
    content = content_of()
    nic = {"in": "1 MB/s", "out": "1 MB/s", "latency": {"in": "0 s", "out": latency}}
    content["cluster"]["machines"][0]["nic"] = nic
    remarks = prepare(loads(json.dumps(content))).remarks()
    found = [remark for remark in remarks if "is its unit the right one" in remark]
    assert bool(found) is is_long
    if is_long:
        assert found[0].startswith("a latency of 6.5 s between two machines")
