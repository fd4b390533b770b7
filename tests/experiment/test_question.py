"""One question, one answer; two that differ say in what."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import emu
from emu.errors import ScenarioError
from emu.experiment.bisection import CLOSE, bisect
from emu.experiment.premises import premise_line
from emu.experiment.question import Answer, Question, answer, ask
from emu.experiment.row_machines import RecentRows, Row
from emu.experiment.system_rows import measure
from emu.experiment.systems import Target
from emu.graph_data import BatchPlan, open_for
from emu.scenario import Scenario, load
from emu.scenario.scenario_file import loads
from emu.scenario.setup import setup_rows
from tests import draws

FILE: dict[str, Any] = {
    "cluster": {
        "machines": [
            {"name": "a", "nic": "1 Gbit/s", "price": "1 $/h"},
            {"name": "b", "nic": "10 Gbit/s", "price": "2 $/h"},
            {"name": "c", "nic": "10 Gbit/s", "price": "4 $/h"},
        ]
    },
    "job": {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": 0.002, "feature_length": 20},
        "model": {"kind": "gcn", "hidden": 8, "layers": 2},
        "fanouts": [3, 3],
        "batch_size": 60,
        "workers": 3,
        "iterations": 14,
        "epoch": "local",
        "rates": {
            "aggregate": "2 ns", "multiply": "20 ps", "sample": "300 ns",
            "collect": "10 ns", "step": "1 ns", "launch": "40 us",
        },
    },
}  # fmt: skip
DEATH = {
    "events": [{"at": "1 ms", "kill": "b"}],
    "on_failure": "restart",
    "recovery": "3 ms",
}


def scenario_of(**edits: Any) -> Scenario:
    keys = {key.replace("__", "."): value for key, value in edits.items()}
    return load(loads(json.dumps(FILE), name="q.json"), keys)


def test_python_and_the_engine_agree_on_deaths() -> None:
    scenario = load(scenario_of(), DEATH)
    found = ask(scenario)

    assert found.deaths.killed
    assert found.makespan == emu.simulate(scenario).makespan
    assert found.makespan > ask(scenario_of()).makespan
    assert ask(emu.place(scenario)).makespan == found.makespan


def test_cores_beyond_any_pool_bind_nothing() -> None:
    """Cores become slots of a pool, whose number has a limit of its own."""
    many = [{**machine, "cpu": 20_000} for machine in FILE["cluster"]["machines"]]
    scenario = scenario_of(cluster__machines=many)

    assert setup_rows(emu.place(scenario)) == setup_rows(emu.place(scenario_of()))
    assert ask(scenario).makespan == ask(scenario_of()).makespan


def test_several_jobs_have_each_its_own_length() -> None:
    scenario = scenario_of()
    jobs = [
        {"name": name, "job": {**FILE["job"], "iterations": count}}
        for name, count in (("x", 3), ("y", 2))
    ]
    both = load(scenario, {"job": None, "jobs": jobs})

    assert ask(both).premises.length == "iterations of each job"


@pytest.mark.parametrize("row", ["", "dgtp", "distdgl", "p3.none", "dgcl"])
def test_an_answer_asked_again_is_the_same(row: str) -> None:
    """Its question holds the machines that were chosen."""
    found = answer(Question(scenario_of(), row, seeds=2)).checked()
    again = answer(found.question).checked()

    assert again.makespans == found.makespans
    assert again.held == bool(row)
    assert found.chosen == (row in ("p3.none", "dgcl"))
    assert not found.held
    for seed, scenario in found.scenarios.items():
        assert scenario.seed == seed
        assert emu.simulate(scenario).makespan == found.makespans[seed]


def test_a_row_is_translated_once_for_the_very_same_question() -> None:
    rows = RecentRows(most=2)
    scenario = scenario_of()
    asked = Row(scenario, "dgtp", {"seed": 1}, per_machine=True)
    first = rows.first_like(asked)
    assert first is asked
    assert (
        rows.first_like(Row(scenario, "dgtp", {"seed": 1}, per_machine=True)) is asked
    )

    # 1, 1.0 and true are equal, and not the same settings.
    for settings in ({"seed": 1.0}, {"seed": True}, {}):
        other = Row(scenario, "dgtp", settings, per_machine=True)
        assert rows.first_like(other) is other
    # Three others came: it went, and is kept anew.
    again = Row(scenario, "dgtp", {"seed": 1}, per_machine=True)
    assert rows.first_like(again) is again
    others = [
        Row(scenario, "dgtp", {"seed": 1}, per_machine=False),
        Row(scenario, "p3", {"seed": 1}, per_machine=True),
        Row(scenario_of(), "dgtp", {"seed": 1}, per_machine=True),
    ]
    for other in others:
        assert RecentRows(most=9).first_like(other) is other
        assert rows.first_like(other) is other


def test_an_epoch_ends_with_a_short_batch() -> None:
    """393 vertices, 180 a step: a third step of 33, as long epochs show."""
    found = ask(scenario_of())
    ready, _ = found.first
    plan = BatchPlan.from_settings(ready.problem.job.settings)
    steps = plan.steps_per_epoch(open_for(ready.problem.job.settings).train_count)
    assert steps == 3
    lengths = [ask(scenario_of(job__iterations=n)).makespan for n in (30, 60)]
    real = (lengths[1] - lengths[0]) / 10

    assert found.epoch_seconds == pytest.approx(real, rel=0.02)
    assert 393 / 180 * found.iteration_seconds < 0.8 * real


def test_seeds_seen_are_those_that_are_drawn() -> None:
    found = ask(scenario_of(job__iterations=8))
    ready, _ = found.first
    settings = ready.problem.job.settings
    plan = BatchPlan.from_settings(settings)
    dataset = open_for(settings)
    drawn = [
        len(plan.seeds(plan.walk(dataset), sampler, step))
        for sampler in range(plan.samplers)
        for step in range(8)
    ]
    assert found.seeds_seen == sum(drawn) != 8 * 180


CHANGES: dict[str, dict[str, Any]] = {
    "walk": {"scenario": scenario_of(job__epoch="shard")},
    "seeds": {"scenario": scenario_of(job__batch_size=40)},
    "length": {"scenario": scenario_of(job__iterations=9)},
    "seed": {"scenario": scenario_of(seed=5)},
    "seeds of an interval": {"seeds": 2},
    "machines": {"machines": ("b",)},
    "settings": {"settings": {"job.model.hidden": 30}},
    "target": {"target": Target(0.15, within=30)},
    "a worker per machine": {"per_machine": True, "machines": ("b", "c")},
}


@pytest.mark.parametrize("change", draws.rarely_but(2, CHANGES))
def test_another_question_has_another_line(change: str) -> None:
    base = Question(scenario_of(), "dgtp")
    other = answer(replace(base, **CHANGES[change])).checked()
    first = answer(base).checked()

    assert other.makespan != first.makespan
    assert other.premises.line() != first.premises.line()


def test_the_line_of_several_rows_says_what_differs() -> None:
    rows = [measure(scenario_of(), row) for row in ("distdgl", "one_machine")]
    held = answer(Question(scenario_of(job__epoch="shard"), "dgtp", machines=("b",)))
    lines = premise_line([row.premises for row in rows])

    assert lines == (
        "each on its own machines; walk: as the file (local); 180 seeds per step; "
        "14 iterations; seed 0"
    )
    assert held.premises.line().startswith(
        "held: on b alone; walk: as the file (shard)"
    )
    larger = replace(rows[0].premises, seeds_per_step=1200)
    assert "; 180 to 1,200 seeds per step; " in premise_line([larger, rows[1].premises])
    both = premise_line([rows[0].premises, held.premises])
    assert both.startswith("each on its own machines, some held")
    assert "walk: as the file (local) | as the file (shard)" in both


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (Question(scenario_of(), "dgtp", machines=("d",)), "no machine 'd'"),
        (Question(scenario_of(), "dgtp", machines=()), "found none, write one"),
        (Question(scenario_of(), "vanilla"), "not among the systems"),
        (Question(scenario_of(), target=Target(1.0, within=3)), "is not reached"),
    ],
)
def test_a_question_that_cannot_be_says_why(question: Question, problem: str) -> None:
    found = answer(question)

    assert isinstance(found, Answer)
    assert found.makespan == float("inf")
    with pytest.raises(ScenarioError, match=problem):
        found.checked()


def test_a_walk_for_a_system_that_has_none_is_refused() -> None:
    rows = {"dgcl": {"epoch": "shard"}}
    with pytest.raises(ScenarioError, match="changes nothing of dgcl: leave it out"):
        measure(scenario_of(systems=rows), "dgcl")
    rows = {"p3": {"epoch": "shard"}}
    assert "shard" in measure(scenario_of(systems=rows), "p3.none").premises.walk


@pytest.mark.parametrize("seed", range(30))
def test_bisection_finds_the_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, change, high = sorted(rng.uniform(1, 2000, 3))
    below, above = bisect(low, high, lambda value: value < change)
    assert below < change <= above
    assert above / below <= 1 + CLOSE
    whole = int(low), int(high) + 1
    below, above = bisect(*whole, lambda value: value < int(change) + 1, whole=True)
    assert (below, above) == (int(change), int(change) + 1)
