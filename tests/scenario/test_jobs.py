"""Several jobs on one cluster, as scenarios state them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import ScenarioError, ScenarioErrors
from emu.prediction.analysis.throughput import JobTime, job_times
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import Placement, Problem
from emu.scenario import Experiment, prepare
from emu.scenario.scenario import Scenario
from emu.scenario.scenario_file import loads
from emu.scenario.schema import json_schema
from emu.training.looks import epoch_of
from emu.trust.audit import audit
from tests.golden.cases import Case, cases, exactly

GOLDEN = {case.name: case for case in cases("jobs")}


def document(case: Case) -> dict[str, Any]:
    """Return a golden case as a scenario: a job per prefix, released as it says."""
    stated = case.job
    jobs = []
    for prefix in dict.fromkeys(task["job"] for task in stated["tasks"]):
        own = [task for task in stated["tasks"] if task["job"] == prefix]
        (release,) = (t["time"][0] for t in own if t["name"] == f"{prefix}release")
        tasks = [t for t in own if t["name"] != f"{prefix}release"]
        names = {task["name"] for task in tasks}
        jobs.append({
            "name": prefix.removesuffix("."),
            "release": f"{release} s",
            "placement": {
                "policy": "explicit",
                "tasks": {t["name"].removeprefix(prefix): t["on"] for t in tasks},
            },
            "job": {
                "system": "custom",
                "iterations": tasks[0]["rounds"],
                "credit_window": "unlimited",
                "tasks": [
                    {"name": t["name"].removeprefix(prefix), "time": f"{t['time']} s"}
                    for t in tasks
                ],
                "flows": [
                    {
                        "from": flow["from"].removeprefix(prefix),
                        "to": flow["to"].removeprefix(prefix),
                        "volume": f"{flow['volume']} B",
                    }
                    for flow in stated["flows"]
                    if flow["from"] in names
                ],
            },
        })  # fmt: skip
    machines = [
        {"name": name, "nic": {"in": f"{m['in']} B/s", "out": f"{m['out']} B/s"}}
        for name, m in stated["machines"].items()
    ]
    return {"cluster": {"machines": machines}, "jobs": jobs}


def prepared(content: dict[str, Any], *overrides: str) -> Experiment:
    return prepare(loads(json.dumps(content), list(overrides), name="jobs.json"))


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        (case.name, policy)
        for case in GOLDEN.values()
        for policy in case.results
        if policy in RATE_POLICIES
    ],
)
def test_golden_jobs_through_a_file(name: str, policy: str) -> None:
    case = GOLDEN[name]
    rule = policy.removesuffix("_by_job")
    share = "flow" if rule == policy else "job"
    told = [f"schedule.policy={rule}", f"schedule.share={share}"]
    experiment = prepared(document(case), *told)
    schedule, expected = experiment.simulate(), case.results[policy]

    (span,) = exactly([expected["makespan"]])
    assert schedule.makespan == pytest.approx(span)
    job = experiment.problem.job
    for told, ends in expected["task_ends"].items():
        if not told.endswith("release"):
            found = schedule.task_end[job.index(told.replace(".", "/"))]
            np.testing.assert_allclose(found[~np.isnan(found)], exactly(ends))
    assert audit(schedule).passed


def test_each_job_beside_its_time_alone() -> None:
    content = document(GOLDEN["two_jobs"])
    experiment = prepared(content)
    a, b = job_times(experiment.simulate(), experiment.realization, "oes", epoch_of)

    assert (a.job, a.release, a.alone) == ("A", 0.0, 18.0)
    assert a.end == pytest.approx(64 / 3)
    assert (b.release, b.end, b.seconds) == (4.0, 17.0, 13.0)
    assert b.alone == pytest.approx(32 / 3 - 4)
    assert b.slowdown == pytest.approx(13 / (32 / 3 - 4))
    names = [task.name for task in experiment.problem.job.tasks]
    assert names == ["A/g", "A/w", "A/v", "B/g", "B/w", "B/release"]
    assert "A/g->A/w" in experiment.problem.job.edge_positions


@settings(deadline=None, max_examples=10)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(1, 5)),
        min_size=2,
        max_size=3,
    )
)
def test_each_job_has_its_own_samples_per_second(
    drawn: list[tuple[int, int, int]],
) -> None:
    kinds = ("graph_store", "sampler", "worker", "parameter_server")
    content = {
        "cluster": {"machines": [{"nic": "1 Gbit/s", "count": 2}]},
        "jobs": [
            {
                "name": f"j{number}",
                "release": f"{number} ms",
                "job": {
                    "system": "dgtp",
                    "dataset": {"name": "products-like", "scale": 0.002},
                    "model": {"hidden": 8, "layers": 1},
                    "fanouts": [2],
                    "workers": workers,
                    "batch_size": batch,
                    "iterations": iterations,
                    "times": dict.fromkeys(kinds, "5 ms"),
                },
            }
            for number, (workers, batch, iterations) in enumerate(drawn)
        ],
    }
    experiment = prepared(content)
    schedule = experiment.simulate()
    found = job_times(schedule, experiment.realization, "oes", epoch_of)

    for one, (workers, batch, iterations) in zip(found, drawn, strict=True):
        tasks = experiment.problem.job.tasks
        rows = [t for t, task in enumerate(tasks) if task.job_name == one.job]
        ends = [
            max(np.nan_to_num(schedule.task_end[rows, i])) for i in range(iterations)
        ]
        # 393 training vertices, each walked by every sampler; the last batch is short.
        steps = -(-393 // batch)
        epochs = (iterations - 1) // steps
        last = epochs * steps if epochs else iterations - 1
        seconds = (ends[last] - ends[0]) / last if iterations > 1 else one.seconds
        rate = workers * 393 / steps / seconds
        assert one.samples_per_second == pytest.approx(rate)


def crowded(**more: Any) -> dict[str, Any]:
    """Return two jobs of two tasks that fill two machines, whatever stands where."""
    job = {
        "system": "custom",
        "iterations": 2,
        "tasks": [
            {"name": "g", "time": "1 s", "demands": {"cpu": 1}},
            {"name": "w", "time": "1 s", "demands": {"cpu": 1}},
        ],
        "flows": [{"from": "g", "to": "w", "volume": "10 B"}],
    }
    machines = [{"name": "m", "count": 2, "cpu": 2, "nic": "10 B/s"}]
    jobs = [{"name": name, "job": job} for name in ("a", "b")]
    return {"cluster": {"machines": machines}, "jobs": jobs, **more}


def test_one_after_the_other_takes_what_is_left_and_together_can_do_better() -> None:
    content = crowded()
    content["jobs"][0]["placement"] = {
        "policy": "explicit", "tasks": {"g": "m0", "w": "m1"},
    }  # fmt: skip
    apart = prepared(content)
    together = prepared(crowded(place_jobs="joint", placement={"policy": "best"}))

    assert apart.tasks["a/g"] == "m0"
    assert apart.tasks["b/g"] != apart.tasks["b/w"]
    assert (
        apart.problem.placement.violations(apart.problem.job, apart.problem.cluster)
        == []
    )
    assert together.tasks["a/g"] == together.tasks["a/w"]
    assert together.simulate().makespan == 3.0 < apart.simulate().makespan


@pytest.mark.parametrize("policy", ["best", "etp"])
@pytest.mark.parametrize("cost", ["max", "sum", "weighted"])
def test_jobs_placed_together_cost_the_least_of_all_placements(
    cost: str, policy: str
) -> None:
    """Of three jobs that fight for one fast machine, against all 3 ** 3 placements."""
    place = {"policy": policy, "iterations": 300}
    content = rivals(place_jobs="joint", joint_cost=cost, placement=place)
    if cost == "weighted":
        content["jobs"][2]["weight"] = 9
    found = prepared(content)
    weights = [item.weight or 1 for item in found.scenario.jobs]

    def costs(times: list[JobTime]) -> float:
        weighed = [w * one.seconds for w, one in zip(weights, times, strict=True)]
        return max(weighed) if cost == "max" else sum(weighed)

    job, cluster = found.problem.job, found.problem.cluster
    least = np.inf
    for machines in itertools.product(range(3), repeat=3):
        at = dict(zip("abc", machines, strict=True))
        placement = Placement(
            tuple(
                cluster.index("hub")
                if task.process_name.endswith("g")
                else at[task.job_name]
                for task in job.tasks
            )
        )
        problem = Problem(cluster, job, placement)
        if not placement.violations(job, cluster):
            schedule = simulate(problem, found.realization, "oes")
            least = min(
                least, costs(job_times(schedule, found.realization, "oes", epoch_of))
            )
    schedule = found.simulate()
    made = costs(job_times(schedule, found.realization, "oes", epoch_of))
    assert found.placed is not None
    assert found.placed.makespan == pytest.approx(made)
    assert made == pytest.approx(least) if policy == "best" else made >= least - 1e-9


def rivals(**more: Any) -> dict[str, Any]:
    """Return three jobs of unlike length and release, one per machine."""
    machines: list[dict[str, Any]] = [
        {"name": f"m{i}", "cpu": 1, "nic": f"{nic} B/s"}
        for i, nic in enumerate((40, 10, 5))
    ]
    machines.append({"name": "hub", "cpu": 0, "nic": "60 B/s"})
    jobs = [
        {
            "name": name,
            "release": f"{release} s",
            "job": {
                "system": "custom",
                "iterations": iterations,
                "tasks": [
                    {"name": "g", "time": "1 s", "pin": "hub"},
                    {"name": "w", "time": "1 s", "demands": {"cpu": 1}},
                ],
                "flows": [{"from": "g", "to": "w", "volume": f"{volume} B"}],
            },
        }
        for name, release, iterations, volume in (
            ("a", 0, 2, 40), ("b", 3, 3, 30), ("c", 1, 2, 20),
        )
    ]  # fmt: skip
    return {"cluster": {"machines": machines}, "jobs": jobs, **more}


def test_pins_of_a_job_hold_when_all_are_placed_together() -> None:
    content = crowded(place_jobs="joint", placement={"policy": "best"})
    content["jobs"][1]["placement"] = {"tasks": {"w": "m0"}}

    assert prepared(content).tasks["b/w"] == "m0"


@pytest.mark.parametrize("policy", ["best", "etp", "ifs", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_jobs_that_are_placed_together_keep_to_their_machines(
    policy: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    own = [f"m{n}" for n in rng.permutation(5)[:3]]
    content = crowded(place_jobs="joint", placement={"policy": policy}, seed=seed)
    content["cluster"]["machines"][0]["count"] = 5
    jobs = content["jobs"] = json.loads(json.dumps(content["jobs"]))
    for job in jobs:
        job["job"]["machines"] = [str(name) for name in rng.permutation(own)]

    assert {*prepared(content).tasks.values()} <= {*own}
    del jobs[seed % 2]["job"]["machines"]
    with pytest.raises(ScenarioError, match="share their machines: state the same"):
        prepared(content)


def test_a_resolved_scenario_of_several_jobs_loads_back_equal() -> None:
    scenario = loads(json.dumps(document(GOLDEN["two_jobs"])))

    assert Scenario.model_validate(scenario.to_json()) == scenario
    assert "job" not in scenario.to_json()


@pytest.mark.parametrize(
    ("change", "key", "problem"),
    [
        ({"job": crowded()["jobs"][0]["job"]}, "jobs", "found both job and jobs"),
        ({"jobs.1.name": "a"}, "jobs[0].name", "'a' occurs 2 times"),
        ({"jobs.1.release": "-1 s"}, "jobs[1].release", "cannot be negative"),
        ({"jobs.1.name": "a/b"}, "jobs[1].name", "'a/b'"),
        ({"jobs.0.job.tasks": []}, "jobs[0].job.tasks", "write at least 1"),
        ({"jobs.0.placement": {"tasks": {"x": "m0"}}}, "jobs[0].placement.tasks.x",
         "no task 'x'"),
        ({"placement": {"policy": "etp"}}, "placement", "write it into each"),
        ({"joint_cost": "sum"}, "joint_cost", "write place_jobs: joint"),
        ({"place_jobs": "joint", "joint_cost": "weighted"}, "joint_cost",
         "no job has a weight, write for example weight: 2"),
        ({"place_jobs": "joint", "joint_cost": "sum", "jobs.1.weight": 2},
         "jobs[1].weight", "joint_cost is sum: write joint_cost: weighted"),
        ({"place_jobs": "joint", "joint_cost": "weighted", "jobs.1.weight": 0},
         "jobs[1].weight", "found 0"),
        ({"profile": "p.json"}, "profile", "a profile is of one job"),
        ({"expect": {"loss": 1.0}}, "expect.loss", "of one job"),
    ],
)  # fmt: skip
def test_what_cannot_be(change: dict[str, Any], key: str, problem: str) -> None:
    content = json.loads(json.dumps(crowded()))
    for trail, value in change.items():
        *above, last = trail.split(".")
        place: Any = content
        for step in above:
            place = place[int(step) if step.isdigit() else step]
        place[last] = value
    with pytest.raises(ScenarioError) as caught:
        loads(json.dumps(content))
    assert caught.value.key == key
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        {"place_jobs": "joint"},
        {"joint_cost": "sum"},
        # As by default, and as without effect.
        {"place_jobs": "sequential"},
        {"joint_cost": "max"},
    ],
)
def test_keys_of_several_jobs_are_refused_of_one(key: dict[str, str]) -> None:
    content = crowded()
    [job, _] = content.pop("jobs")
    content |= {"job": job["job"]} | key
    with pytest.raises(
        ScenarioError, match="is of several jobs, this is one"
    ) as caught:
        loads(json.dumps(content))
    assert [caught.value.key] == [*key]


def test_no_jobs_are_neither_several_nor_one() -> None:
    content = crowded()
    [job, _] = content["jobs"]
    content["jobs"] = []
    with pytest.raises(ScenarioError, match=r"found \[\], write at least 1") as caught:
        loads(json.dumps(content | {"job": job["job"]}))
    assert caught.value.key == "jobs"
    assert json_schema()["properties"]["jobs"]["minItems"] == 1
    # Beside them no job is missing.
    with pytest.raises(ScenarioError) as caught:
        loads(json.dumps(content))
    assert caught.value.key == "jobs"
    assert "this key is missing" not in str(caught.value)


def test_keys_of_several_jobs_are_right_where_one_of_these_is_wrong() -> None:
    """The jobs are not read then; only what is wrong in them was to be said."""
    content = crowded() | {"place_jobs": "joint", "joint_cost": "sum"}
    content["jobs"][0]["job"]["system"] = "custon"
    # For a task of theirs, whoever demands it.
    content["cluster"]["machines"][0]["tpu"] = 1
    with pytest.raises(ScenarioErrors) as caught:
        loads(json.dumps(content))
    keys = {error.key for error in caught.value.errors}
    assert keys == {"jobs[0].job.system", "jobs[1].job.system"}


@given(st.lists(st.sets(st.sampled_from(["tpu", "fpga", "lustre"])), min_size=1))
def test_a_resource_is_known_if_one_of_the_jobs_demands_it(
    demanded: list[set[str]],
) -> None:
    tasks = [
        [{"name": "x", "time": "1 s", "demands": dict.fromkeys(sorted(some), 1)}]
        for some in demanded
    ]
    jobs = [
        {"name": f"j{n}", "job": {"system": "custom", "iterations": 1, "tasks": own}}
        for n, own in enumerate(tasks)
    ]
    machine = {"nic": "1 B/s", "tpu": 9, "fpga": 9, "lustre": 9}
    content = {"cluster": {"machines": [machine]}, "jobs": jobs}
    idle = sorted({"tpu", "fpga", "lustre"}.difference(*demanded))

    if not set.union(*demanded) ^ {"tpu", "fpga", "lustre"}:
        loads(json.dumps(content), name="jobs.json")
        return
    with pytest.raises(ScenarioError) as raised:
        loads(json.dumps(content), name="jobs.json")
    errors = getattr(raised.value, "errors", [raised.value])
    assert sorted(error.key for error in errors) == [
        f"cluster.machines[0].{r}" for r in idle
    ]


@given(st.integers(2, 6), st.sampled_from(["memory", "cpu"]))
def test_machines_that_are_too_small_alike_are_one_error(
    count: int, resource: str
) -> None:
    """A store stands on every machine, and what it demands is written once."""
    room, asked = ("10 GB", "14 GB") if resource == "memory" else (1, 3)
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.01},
        "model": {"hidden": 8, "layers": 1},
        "fanouts": [5],
        "batch_size": 64,
        "iterations": 1,
        "demands": {"graph_store": {resource: asked}},
        "times": dict.fromkeys(
            ("graph_store", "sampler", "worker", "parameter_server"), "1 s"
        ),
    }
    machine = {"name": "m", "count": count, "nic": "1 GB/s", "gpu": 4, resource: room}
    content = {"cluster": {"machines": [machine]}, "job": job}
    with pytest.raises(ScenarioError) as raised:
        loads(json.dumps(content), name="job.json")

    assert raised.value.key == f"job.demands.graph_store.{resource}"
    assert not hasattr(raised.value, "errors")
    assert f"{count - 1} more machines likewise" in raised.value.problem


def test_a_job_among_others_has_the_largest_budget_and_all_candidates() -> None:
    """Each job is searched for: the first is neither the shortest nor the longest."""
    tasks = [{"name": name, "time": "1 s"} for name in ("p", "q", "r")]
    flows = [{"from": "p", "to": "q", "volume": "5 B"}]
    job = {"system": "custom", "iterations": 2, "tasks": tasks, "flows": flows}
    jobs = [
        {"name": f"j{count}", "job": job, "placement": {"iterations": count}}
        for count in (20, 30, 10)
    ]
    machines = [{"name": "m", "count": 3, "nic": "1 B/s", "cpu": 9}]
    content = {"cluster": {"machines": machines}, "jobs": jobs}

    placing = prepare(loads(json.dumps(content))).placing

    each = []
    for item in jobs:
        alone = {"cluster": content["cluster"], "job": job}
        alone["placement"] = item["placement"]
        each.append(prepare(loads(json.dumps(alone))).placing)
    assert placing["budget"] == max(one["budget"] for one in each) == 30
    assert placing["candidates"] == sum(one["candidates"] for one in each)
