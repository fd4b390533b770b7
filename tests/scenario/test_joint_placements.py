"""Placements of several jobs: on which machines, what is left, what is minimised."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emu.problem import Placement
from emu.scenario import Scenario, build_job
from emu.scenario.placements import (
    _joint_cost,
    _search_options,
    _searches_judge_the_run,
    _without_usage,
    place,
    place_one_by_one,
    places_of_originals,
    premise_of_moves,
)
from emu.scenario.scenario_file import loads


def job_of(*tasks: dict[str, Any], **keys: Any) -> dict[str, Any]:
    stated = [{"time": "1 s", **task} for task in tasks]
    return {"system": "custom", "iterations": 1, "tasks": stated, **keys}


def scenario_of(*jobs: dict[str, Any], **keys: Any) -> Scenario:
    """Return jobs on four machines of 1, 2, 3 and 4 cores."""
    machines = [
        {"name": f"m{n}", "nic": "1 MB/s", "cpu": n + 1, "memory": "1 GB"}
        for n in range(4)
    ]
    content = {"cluster": {"machines": machines}, "jobs": [*jobs], **keys}
    return loads(json.dumps(content))


def test_each_job_takes_what_those_before_it_leave() -> None:
    """Positions in a pool of machines are others than in the cluster."""
    first = job_of(
        {"name": "a", "demands": {"cpu": 3}},
        {"name": "b", "demands": {"cpu": 1}, "pin": "m2"},
        machines=["m2", "m3"],
    )
    second = job_of({"name": "a", "demands": {"cpu": 2}}, machines=["m1", "m3", "m2"])
    third = job_of({"name": "a", "demands": {"cpu": 2}})
    ifs = {"policy": "ifs"}
    alone = [
        {"name": name, "placement": ifs, "job": job_of({"name": "a"}, machines=[name])}
        for name in ("m0", "m3")
    ]
    scenario = scenario_of(
        {"name": "x", "job": first, "placement": ifs},
        {"name": "y", "job": second, "placement": ifs},
        {"name": "z", "job": third, "placement": ifs},
        *alone,
    )
    job = build_job(scenario)
    found = place_one_by_one(scenario, job, scenario.to_cluster())
    homes = dict(
        zip([task.name for task in job.tasks], found.placement.machine_of, strict=True)
    )
    # Of m3 one core is left, of m2 two.
    assert (homes["x/a"], homes["x/b"]) == (3, 2)
    assert {homes["y/a"], homes["z/a"]} == {1, 2}
    assert (homes["m0/a"], homes["m3/a"]) == (0, 3)
    assert found.policy == "sequential"


def test_candidates_of_jobs_add_up() -> None:
    tasks = [{"name": name, "demands": {"cpu": 1}} for name in "abc"]
    flows = [{"from": "a", "to": "b", "volume": "3 MB"}]
    jobs = [
        {
            "name": name,
            "job": job_of(*tasks, flows=flows),
            "placement": {"policy": "etp", "iterations": count},
        }
        for name, count in (("x", 7), ("y", 4))
    ]
    scenario = scenario_of(*jobs)
    found = place_one_by_one(scenario, build_job(scenario), scenario.to_cluster())
    alone = []
    for one in jobs:
        scenario = scenario_of(one)
        result = place_one_by_one(scenario, build_job(scenario), scenario.to_cluster())
        alone.append(result)
    assert found.candidates >= max(result.candidates for result in alone) > 0
    assert found.candidates == sum(result.candidates for result in alone)
    assert found.budget == max(result.budget for result in alone)
    assert alone[0].budget != alone[1].budget


def test_what_a_placed_job_demands_is_taken_from_its_machines() -> None:
    tasks = [{"name": name, "demands": {"cpu": 1}} for name in "ab"]
    scenario = scenario_of({"name": "x", "job": job_of(*tasks)})
    job, cluster = build_job(scenario), scenario.to_cluster()
    left = _without_usage(cluster, job, Placement((3, 3)))
    assert [one.resources["cpu"] for one in left.machines] == [1, 2, 3, 2]
    assert [one.resources["memory"] for one in left.machines] == [1e9] * 4
    left = _without_usage(cluster, job, Placement((1, 2)))
    assert [one.resources["cpu"] for one in left.machines] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    ("keys", "items", "cost"),
    [
        ({}, [{}, {}], None),
        ({}, [{}, {"release": "1 s"}], (False, {})),
        ({"joint_cost": "sum"}, [{}, {}], (True, {})),
        ({"joint_cost": "weighted"}, [{"weight": 2}, {}], (True, {"j0": 2.0})),
    ],
)
def test_jobs_are_placed_by_the_makespan_or_by_their_times(
    keys: dict[str, Any], items: list[dict[str, Any]], cost: Any
) -> None:
    jobs = [
        {"name": f"j{n}", "job": job_of({"name": "a"}), **item}
        for n, item in enumerate(items)
    ]
    found = _joint_cost(scenario_of(*jobs, place_jobs="joint", **keys))
    assert (found and (found.total, found.weights)) == cost


@pytest.mark.parametrize(
    ("keys", "judged"),
    [
        ({}, True),
        ({"schedule": {"policy": "maxmin"}}, True),
        ({"schedule": {"policy": "portfolio"}}, False),
        ({"events": [{"at": "1 s", "kill": "a"}]}, False),
        ({"events": [{"at": "1 s", "cut": "m0", "for": "1 s"}]}, True),
    ],
)
def test_a_search_sees_all_of_a_run_but_deaths_and_what_follows_its_placement(
    keys: dict[str, Any], *, judged: bool
) -> None:
    machines = [{"name": f"m{n}", "nic": "1 MB/s"} for n in range(2)]
    job = job_of({"name": "a"}, {"name": "b"})
    scenario = loads(
        json.dumps({"cluster": {"machines": machines}, "job": job, **keys})
    )
    assert _searches_judge_the_run(scenario, build_job(scenario)) is judged


@pytest.mark.parametrize(
    ("stated", "iterations", "count"),
    [
        ({}, 3, 3),
        ({"simulated_iterations": 2}, 3, 2),
        ({"simulated_iterations": 9}, 3, 3),
    ],
)
def test_candidates_are_no_longer_than_the_job(
    stated: dict[str, Any], iterations: int, count: int
) -> None:
    machines = [{"name": f"m{n}", "nic": "1 MB/s"} for n in range(2)]
    job = job_of({"name": "a"}, {"name": "b"}, iterations=iterations)
    content = {
        "cluster": {"machines": machines},
        "job": job,
        "placement": {"policy": "etp", "iterations": 11, **stated},
    }
    scenario = loads(json.dumps(content))
    options = _search_options(scenario, build_job(scenario))
    assert (options["iterations"], options["transfers"]) == (count, 11)
    assert places_of_originals(scenario, build_job(scenario)) == {}


@pytest.mark.parametrize(
    ("keys", "free", "pinned"),
    [
        ({}, True, True),
        # Its rule is chosen for the placed job: no search has simulated it.
        ({"schedule": {"policy": "portfolio"}}, False, True),
        ({"events": [{"at": "1 s", "kill": "a"}]}, False, True),
    ],
)
def test_a_placement_is_proved_best_where_searches_see_what_runs(
    keys: dict[str, Any], *, free: bool, pinned: bool
) -> None:
    """A job whose tasks all have their machines has no other placement."""
    flows = [{"from": "a", "to": "b", "volume": "3 MB"}]
    machines = [{"name": f"m{n}", "nic": "1 MB/s", "cpu": 2} for n in range(2)]
    for pins, is_proved in (({}, free), ({"a": "m0", "b": "m1"}, pinned)):
        tasks: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}]
        for task in tasks:
            if task["name"] in pins:
                task["pin"] = pins[task["name"]]
        content = {
            "cluster": {"machines": machines},
            "job": job_of(*tasks, flows=flows),
            "placement": {"policy": "best"},
            **keys,
        }
        scenario = loads(json.dumps(content))
        job = build_job(scenario)
        assert place(scenario, job, scenario.to_cluster()).optimal is is_proved
        options = _search_options(scenario, job)
        assert (options["judged"], options["transfers"]) == (False, None)


TRAINING: dict[str, Any] = {
    "system": "dgtp",
    "dataset": {"name": "products-like", "scale": 0.0005},
    "model": {"hidden": 8, "layers": 2},
    "fanouts": [2, 2],
    "batch_size": 4,
    "iterations": 3,
    "workers": 2,
    "times": dict.fromkeys(
        ("graph_store", "sampler", "worker", "parameter_server"), "1 ms"
    ),
}


@pytest.mark.parametrize(
    ("keys", "more", "judged"),
    [
        ({}, {}, True),
        ({"cache": {"policy": "lru", "size": "40 kB"}}, {}, False),
        ({"sync": "ring"}, {}, True),
        ({"sync": "ring", "ring": "placed"}, {}, False),
        ({}, {"checkpoint": {"every": "2 iterations", "to": "disk"}}, True),
        ({}, {"checkpoint": {"every": "2 iterations", "to": "peer"}}, False),
    ],
)
def test_what_follows_from_a_placement_is_seen_by_no_search(
    keys: dict[str, Any], more: dict[str, Any], *, judged: bool
) -> None:
    machines = [{"name": f"m{n}", "nic": "1 MB/s"} for n in range(2)]
    content = {"cluster": {"machines": machines}, "job": {**TRAINING, **keys}, **more}
    scenario = loads(json.dumps(content))
    job = build_job(scenario)
    assert _searches_judge_the_run(scenario, job) is judged
    words = "moves are timed with the bytes that caches leave at the present placement"
    assert premise_of_moves(job) == (words if "cache" in keys else "")


def test_one_ring_that_follows_its_placement_is_enough() -> None:
    """Only the second of two jobs has a ring that follows its placement."""
    rings = [{**TRAINING, "sync": "ring", "ring": how} for how in ("rank", "placed")]
    jobs = [{"name": f"j{n}", "job": job} for n, job in enumerate(rings)]
    machines = [{"name": f"m{n}", "nic": "1 MB/s"} for n in range(4)]
    content = {"cluster": {"machines": machines}, "jobs": jobs, "place_jobs": "joint"}
    scenario = loads(json.dumps(content))
    job = build_job(scenario)
    assert not _searches_judge_the_run(scenario, job)
