"""Which system on which machines: against brute force, never worse than the file."""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from emu.cli import app
from emu.errors import EmulatorError, ScenarioError
from emu.experiment.advice import (
    Advice,
    Choice,
    Lever,
    Terms,
    advise,
    list_levers,
)
from emu.experiment.job_shares import combine_counts, list_counts, share_machines
from emu.experiment.systems import Target, chosen_system, list_variants
from emu.prediction.analysis.throughput import job_times, pace, seeds_per_iteration
from emu.scenario import Scenario, load, prepare
from emu.scenario.scenario_file import loads
from emu.training.looks import epoch_of

# Of seconds of processor time; more on a busy machine.
pytestmark = pytest.mark.timeout(600)

RATES = {
    "aggregate": "20 ps", "multiply": {"default": "4 ps", "old": "40 ps"},
    "sample": "3 ns", "collect": "200 ps", "step": "1 ns", "launch": "50 us",
}  # fmt: skip
JOB: dict[str, Any] = {
    "system": "dgtp",
    "workers": 3,
    "dataset": {"name": "products-like", "scale": 0.001},
    "model": {"kind": "gcn", "hidden": 16, "layers": 2},
    "fanouts": [4, 4],
    "batch_size": 16,
    "iterations": 5,
    "optimizer": {"name": "adam", "lr": 0.05},
    "rates": RATES,
}
FILE: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "a", "count": 2, "nic": "5 Gbit/s", "price": "1 $/h"},
            {"name": "b", "nic": "1 Gbit/s", "price": "0.2 $/h", "device": "old"},
        ]
    },
    "job": JOB,
    "placement": {"iterations": 50},
}
WHOLE = {
    "system": "dgcl",
    "dataset": JOB["dataset"],
    "model": {**JOB["model"], "norm": "mean"},
    "epochs": 4,
    "rates": RATES,
}


def scenario_of(**keys: Any) -> Scenario:
    return loads(json.dumps({**FILE, **keys}), name="advice.json")


def without_prices() -> dict[str, Any]:
    machines = [dict(machine) for machine in FILE["cluster"]["machines"]]
    for machine in machines:
        del machine["price"]
    return {"cluster": {"machines": machines}}


def seconds_of(scenario: Scenario) -> float:
    """Return the seconds of an epoch from the speed in seeds."""
    schedule = prepare(scenario).simulate()
    speed = pace(schedule, epoch_of(schedule.problem.job.settings))
    train = 197  # training vertices of the graph
    if (rate := speed.samples_per_second) is not None:
        return train / rate
    return cast("float", speed.iteration_seconds)


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise(scenario_of(), Terms(seeds=2))


def test_no_system_on_any_machines_is_better(advice: Advice) -> None:
    scenario = scenario_of()
    names, least = scenario.cluster.names, float("inf")
    subsets = [some for n in (1, 2, 3) for some in combinations(names, n)]
    for row, some in product(list_variants(["all"]), subsets):
        if row != "one_machine" or len(some) == 1:
            plain = chosen_system(scenario, row, None, some, spread=True)
            least = min(least, Choice.simulate(row, plain, None).seconds)

    assert advice.best.seconds <= least * (1 + 1e-9)
    assert isinstance(advice.stated, Choice)
    assert advice.best.seconds < advice.stated.seconds
    assert [one.seconds for one in advice.others] == sorted(
        one.seconds for one in advice.others
    )


def test_a_time_of_an_epoch_is_that_of_its_speed(advice: Advice) -> None:
    for choice in (advice.best, *advice.others):
        assert choice.seconds == pytest.approx(seconds_of(choice.plain))


def test_what_is_written_simulates_to_what_is_printed(tmp_path: Path) -> None:
    file, out = tmp_path / "file.json", tmp_path / "best.yaml"
    file.write_text(json.dumps(FILE))
    arguments = ["advise", str(file), "--seeds", "1", "--max-staleness", "0"]
    arguments += ["--write", str(out)]
    arguments += ["--json", str(tmp_path / "advice.json")]

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "advice.json").read_text())

    assert prepare(load(out)).simulate().makespan == content["best"]["makespan"]
    assert "what would change it" in result.stdout
    assert content["best"]["machines"] == [*load(out).job.ranks(["a0", "a1", "b"])]
    refused = content["refused"].keys()
    assert refused >= {"p3.A", "dorylus.async"}
    assert not refused & {"p3.none", "dorylus.pipe", "dgtp"}


def test_to_an_accuracy_batches_are_tried_and_the_file_is_never_better() -> None:
    target, alike = (
        Target(0.4, within=20),
        {"machines": FILE["cluster"]["machines"][:1]},
    )
    job = {**JOB, "workers": 2, "rates": {**RATES, "multiply": "4 ps"}}
    found = advise(scenario_of(cluster=alike, job=job), Terms(target, seeds=1))

    assert isinstance(found.stated, Choice)
    assert found.best.seconds <= found.stated.seconds
    again = prepare(found.best.scenario)
    assert again.simulate().makespan == found.best.schedule.makespan
    assert again.reached is not None
    assert again.reached.accuracy >= 0.4


def test_no_setting_is_advised_that_changes_nothing() -> None:
    """More parameter servers are better, and a ring, which has none, better still."""
    times = {"graph_store": "20 ms", "sampler": "15 ms", "worker": "40 ms"}
    job = {
        "system": "dgtp",
        "workers": 3,
        "dataset": {"name": "products-like", "scale": 0.01},
        "model": {"hidden": 128, "layers": 2},
        "fanouts": [10, 10],
        "batch_size": 200,
        "iterations": 10,
        "times": times | {"parameter_server": "5 ms"},
    }
    room = {"cpu": 16, "gpu": 1, "memory": "64 GB", "nic": "10 Gbit/s"}
    alike = {"machines": [{"name": "a", "count": 3, **room}]}
    stated = loads(json.dumps({"cluster": alike, "job": job}), name="three.json")
    best = advise(stated, Terms(seeds=1)).best

    assert best.keys == {"sync": "ring"}


def test_a_deadline_alone_asks_for_the_cheapest(advice: Advice) -> None:
    slow = advice.best.seconds * 10

    cheap = advise(scenario_of(), Terms(seeds=1, deadline=slow))
    assert cheap.best.seconds <= slow
    assert (cheap.best.cost or 0.0) <= (advice.best.cost or 0.0)
    assert any(
        what.startswith("the dearest machines") for what, _ in cheap.changes
    ) or ("b" in cheap.best.machines)


def test_what_cannot_be_is_one_line(advice: Advice) -> None:
    with pytest.raises(
        ScenarioError, match=r"cluster.machines: no machine has a price"
    ):
        advise(scenario_of(**without_prices()), Terms(budget=1.0))
    terms = Terms(seeds=1, budget=1e-12, deadline=advice.best.seconds / 2)
    with pytest.raises(ScenarioError, match=r"the fastest is .*, the cheapest"):
        advise(scenario_of(), terms)
    with pytest.raises(ScenarioError, match="custom"):
        advise(load("golden"), Terms(seeds=1))


def test_systems_that_a_file_cannot_be_say_why() -> None:
    times = {"sampler": "3 ms", "worker": "5 ms", "graph_store": "1 ms"}
    times |= {"parameter_server": "1 ms"}
    job = {**JOB, "times": times}
    del job["rates"]

    found = advise(scenario_of(job=job, **without_prices()), Terms(seeds=1))
    assert {"dgcl", "dorylus.pipe"} <= found.refused.keys()
    assert found.rate is not None
    assert found.best.cost is None


@given(st.floats(1.2, 15.0), st.booleans())
def test_a_crossover_is_where_the_rival_begins_to_win(
    at: float,
    up: bool,  # noqa: FBT001
) -> None:
    best, rival = (cast("Choice", name) for name in ("best", "rival"))
    lever = Lever("x", lambda value: {"x": value}, str)

    def judge(one: Choice, edit: Any) -> tuple[bool, float]:
        value = edit["x"] if up else 1 / edit["x"]
        return False, value if one is best else at

    ((words, ahead),) = lever.find_changes(best, [rival], judge)
    value = float(words.split()[-1])
    assert ahead is rival
    assert 1 <= (value if up else 1 / value) / at <= 1.06
    assert words.startswith("x from" if up else "x down to")


def test_a_network_is_faster_in_all_of_its_links() -> None:
    nic = {"in": "5 Gbit/s", "out": "5 Gbit/s", "latency": {"in": "1 ms", "out": "0 s"}}
    nics = [{"name": name, "nic": nic} for name in ("a", "b")]
    racks = [
        {"name": f"r{name}", "machines": [name], "uplink": {"in": "1 GB/s", "out": out}}
        for name, out in (("a", "2 GB/s"), ("b", "3 GB/s"))
    ]
    job = {**JOB, "rates": {**RATES, "multiply": "4 ps"}}
    scenario = scenario_of(cluster={"machines": nics, "racks": racks}, job=job)
    levers = {one.name: one for one in list_levers(scenario, priced=False)}
    faster = load(scenario, levers["network"].edit(4.0))

    was, now = (one.cluster.build().links for one in (scenario, faster))
    assert [one.capacity for one in now] == [4 * one.capacity for one in was]
    assert any("up" in one.name for one in was)
    assert levers["latency of NICs"].now == 1e-3


@given(st.floats(0.9, 1.2))
def test_what_is_ahead_as_it_is_is_no_change(rival_takes: float) -> None:
    """A tie may be ahead with the seed of the file."""
    best, rival = (cast("Choice", name) for name in ("best", "rival"))
    lever = Lever("x", lambda value: {"x": value}, str)

    def judge(one: Choice, edit: Any) -> tuple[bool, float]:
        return False, edit["x"] if one is best else rival_takes

    changes = [*lever.find_changes(best, [rival], judge)]
    assert [one for _, one in changes] == [rival] * (rival_takes >= 1)


counts = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(0, 2)).filter(any),
    st.integers(1, 9).map(float),
    min_size=1,
    max_size=5,
)


@given(st.lists(counts, min_size=1, max_size=3), st.booleans())
def test_combinations_are_the_best_of_all(
    seconds: list[dict[tuple[int, ...], float]],
    sums: bool,  # noqa: FBT001
) -> None:
    aim: Any = sum if sums else max
    free = (2, 2)
    every = [
        aim(times[one] for times, one in zip(seconds, some, strict=True))
        for some in product(*seconds)
        if all(sum(column) <= 2 for column in zip(*some, strict=True))
    ]

    best = combine_counts(seconds, free, aim, 3)
    found = [aim(s[c] for s, c in zip(seconds, one, strict=True)) for one in best]
    assert found == sorted(every)[:3]


def test_many_machines_are_divided_in_halves() -> None:
    assert len(list_counts([["a", "b"], ["c"]])) == 5
    kinds = [[f"m{k}{n}" for n in range(4)] for k in range(4)]
    found = list_counts(kinds)

    assert {sum(one) for one in found} == {1, 2, 4, 8, 16}
    assert {(4, 4, 0, 0), (0, 0, 4, 4), (0, 2, 2, 0)} <= {*found}


@pytest.mark.parametrize("by_weight", [False, True])
def test_jobs_get_machines_of_their_own(by_weight: bool) -> None:  # noqa: FBT001
    parallel = {**JOB, "system": "data_parallel"}
    del parallel["workers"]
    jobs: list[dict[str, Any]] = [
        {"name": "x", "job": parallel},
        {"name": "y", "job": WHOLE},
    ]
    content = {"cluster": FILE["cluster"], "jobs": jobs}
    if by_weight:
        jobs[0]["weight"] = 5.0
        content |= {"place_jobs": "joint", "joint_cost": "weighted"}
    scenario = loads(json.dumps(content), name="jobs.json")

    found = share_machines(scenario)
    assert not isinstance(found.stated, EmulatorError)
    assert found.best.aim < found.stated.aim
    x, y = found.best.machines.values()
    assert not {*x} & {*y}
    times = found.best.seconds
    assert found.best.aim == (
        5 * times["x"] + times["y"] if by_weight else max(times.values())
    )
    ready = prepare(found.best.scenario)
    together = job_times(ready.simulate(), ready.realization, ready.policy, epoch_of)
    epochs = 5 * (seeds_per_iteration(ready.problem.job.settings_of("x")) or 0) / 197
    assert together[0].seconds / epochs == pytest.approx(times["x"])
    assert together[1].seconds / 4 == pytest.approx(times["y"])
