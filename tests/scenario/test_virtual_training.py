"""Training in virtual time: weights, when they were there, until an accuracy."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.scenario import Scenario, build_job, load, prepare
from emu.scenario.run_sections import UntilSection
from emu.scenario.scenario_file import find_errors, loads
from emu.scenario.virtual_training import (
    accuracy_curve,
    progress_along,
    step_ends,
    steps_of,
    train_along,
    virtual_training,
)
from emu.systems.system import system_of
from emu.training import evaluate, reference_training
from emu.training.looks import Progress
from tests import draws
from tests.integration.scenarios import command, tiny_training, written

DORYLUS: dict[str, Any] = {
    "name": "dorylus",
    "cluster": {
        "machines": [
            {"name": "g", "count": 2, "nic": "400 Mbit/s"},
            {"name": "ps", "nic": "400 Mbit/s"},
        ]
    },
    "job": {
        "system": "dorylus",
        "dataset": {"name": "products-like", "scale": 0.0008},
        "model": {"hidden": 6},
        "parameter_servers": ["ps"],
        "intervals": 3,
        "lambdas": 2,
        "mode": "async",
        "epochs": 25,
        "optimizer": {"name": "adam", "lr": 0.05},
        "precision": "float64",
        "times": {"gather": "10 ms", "apply": "20 ms", "scatter": "4 ms"},
        "slow_lambdas": {"share": "30 %", "factor": 5},
    },
    "seed": 3,
}
P3: dict[str, Any] = {
    **tiny_training(12),
    "name": "p3",
    "placement": {},
    "job": {
        "system": "p3",
        "dataset": {"name": "products-like", "scale": 0.001},
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 8,
        "iterations": 12,
        "optimizer": {"name": "sgd", "lr": 0.5},
        "times": {
            "sampler": "10 ms",
            "model_forward": "30 ms",
            "data_forward": "20 ms",
            "data_backward": "20 ms",
            "model_backward": "30 ms",
        },
    },
}
DATA_PARALLEL: dict[str, Any] = {
    **P3,
    "name": "data_parallel",
    "job": {**P3["job"], "system": "data_parallel"},
}
EVERY = {
    "dgtp": tiny_training(15, precision="float64"),
    "p3": P3,
    "data_parallel": DATA_PARALLEL,
    "pipe": {**DORYLUS, "job": {**DORYLUS["job"], "mode": "pipe"}},
}


def _scenario(document: dict[str, Any], **changes: Any) -> Scenario:
    return load(loads(json.dumps(document)), changes)


@pytest.mark.parametrize("name", EVERY)
def test_what_does_not_depend_on_reads_is_the_reference(name: str) -> None:
    found = prepare(_scenario(EVERY[name]))
    job = found.problem.job
    system = system_of(job.settings)
    assert system is not None
    steps = steps_of(job)
    missed = system.updates_missed(job.settings)
    weights, losses = train_along(found.scenario, found.simulate)
    expected, other = reference_training(job.settings, steps, missed)
    assert steps == found.scenario.job.iterations
    np.testing.assert_array_equal(weights, expected)
    np.testing.assert_array_equal(losses, other)


def test_an_asynchronous_training_follows_the_schedule() -> None:
    """Slower lambdas elsewhere, other reads, other weights; but no other first loss."""
    losses = []
    for seed in (3, 4):
        found = prepare(_scenario(DORYLUS, **{"job.dataset.seed": 1, "seed": seed}))
        losses.append(virtual_training(found.scenario, found.simulate())["training"])
    pipe = prepare(_scenario(EVERY["pipe"]))
    _, alone = train_along(pipe.scenario, pipe.simulate)
    stale = prepare(_scenario(DORYLUS))
    _, read = train_along(stale.scenario, stale.simulate)
    assert read[0] == pytest.approx(alone[0], rel=1e-12)
    assert abs(read[-1] / alone[-1] - 1) > 1e-6
    assert [row["loss"] for row in losses[0]] != [row["loss"] for row in losses[1]]


@pytest.mark.parametrize("name", [*EVERY, "async"])
def test_a_step_ends_when_all_its_tasks_have(name: str) -> None:
    """An update needs all gradients: answers to lambdas alone may come later."""
    found = prepare(_scenario(EVERY.get(name, DORYLUS)))
    schedule, job = found.simulate(), found.problem.job
    system = system_of(job.settings)
    assert system is not None
    ends = step_ends(schedule, system.step_kinds)
    assert (np.diff(ends) > 0).all()
    for j, task in enumerate(job.tasks):
        if task.kind not in {"answer", "barrier"}:
            last = min(len(ends), job.rounds[j] - task.behind)
            own = schedule.task_end[j, task.behind : task.behind + last]
            assert (own <= ends[:last] + 1e-9).all(), task.name


@pytest.mark.parametrize("name", draws.rarely_but(2, [*EVERY, "async"]))
def test_until_an_accuracy(name: str) -> None:
    """The job is as long as it takes, and not a step longer."""
    document = EVERY.get(name, DORYLUS)
    whole = prepare(_scenario(document))
    steps = steps_of(whole.problem.job)
    each = UntilSection(accuracy=1.0, every=1)
    made = progress_along(whole.scenario, whole.simulate, until=each)
    accuracy = made.accuracy["valid"]
    want = float(np.quantile(accuracy, 0.6))
    rows = [accuracy[n : n + 3] >= want for n in range(steps - 2)]
    first = next(n for n, row in enumerate(rows) if row.all())
    least = 3 if name == "p3" else 1  # mini-batches under way

    found = prepare(_scenario(document, until={"accuracy": want, "every": 1}))
    assert steps_of(found.problem.job) == max(first + 1, least)
    assert found.scenario.until is None
    assert found.until is not None
    weights, _ = train_along(found.scenario, found.simulate)
    at_the_end = evaluate(found.problem.job.settings, weights)["valid"]
    assert at_the_end == accuracy[max(first, least - 1)]
    assert found.reached is not None
    assert found.reached[::2] == (first + 1, accuracy[first])
    assert load(found.scenario) == found.scenario


def test_looks_are_every_so_many_steps() -> None:
    want = {"accuracy": "0.1 %", "every": 7, "split": "train"}
    found = prepare(_scenario(DORYLUS, until=want))
    assert found.problem.job.iterations == 7


def _learner(system: str, **more: Any) -> dict[str, Any]:
    """Return 12 steps of two workers of 8 seeds each, by one system or another."""
    document = tiny_training(12, epoch="shard")
    if system == "dgtp":
        return {**document, "job": document["job"] | more}
    names = ("dataset", "model", "fanouts", "batch_size", "optimizer")
    job = {name: document["job"][name] for name in (*names, "iterations", "epoch")}
    times = P3["job"]["times"]
    return {
        **document,
        "placement": {},
        "job": {**job, "system": system, "times": times} | more,
    }


def test_systems_with_equal_weights_are_trained_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made, count = [], []
    for document in (
        _learner("dgtp"),
        _learner("data_parallel", partitioner="metis"),
        _learner("p3", pipeline="none"),
        _learner("p3", pipeline="A"),
        _learner("dgtp", epoch="local"),
        _learner("dgtp", epoch="local", partitioner="metis"),
        _learner("dgtp", batch_size=9),
        {**_learner("dgtp"), "seed": 8},
    ):
        found, steps = prepare(_scenario(document)), list[int]()
        tell = partial(_note, steps)
        made.append(progress_along(found.scenario, found.simulate, tell))
        count.append(len(steps))
        expected = train_along(found.scenario, found.simulate)[1]
        np.testing.assert_array_equal(made[-1].loss, expected)
    assert count == [12, 0, 0, 12, 12, 12, 12, 12]


def test_a_longer_training_holds_the_shorter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A part cut from a kept training equals a training of which nothing was kept."""

    def train(iterations: int, share: float, home: str) -> tuple[Progress, int]:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home))
        until = UntilSection(accuracy=share, every=2, split="train")
        found = prepare(_scenario(_learner("dgtp", iterations=iterations)))
        steps = list[int]()
        tell = partial(_note, steps)
        simulate = found.simulate
        made = progress_along(found.scenario, simulate, tell, until, stops=True)
        return made, len(steps)

    asked = [(20, 1.0), (12, 1.0), (40, 0.2), (9, 0.2), (40, 0.1), (30, 1.0)]
    counts = []
    for number, (iterations, share) in enumerate(asked):
        shared, count = train(iterations, share, "one")
        alone, _ = train(iterations, share, f"home-{number}")
        counts.append(count)
        assert shared.spaced == alone.spaced
        assert shared.diverged == alone.diverged
        np.testing.assert_array_equal(shared.loss, alone.loss)
        looks = shared.looks[: shared.spaced]
        np.testing.assert_array_equal(looks, alone.looks[: alone.spaced])
        levels = shared.accuracy["valid"][: shared.spaced]
        np.testing.assert_array_equal(levels, alone.accuracy["valid"][: alone.spaced])
    assert counts[0] == 20
    assert counts[1] == counts[3] == counts[4] == 0
    assert counts[5] == 30


def _note(steps: list[int], step: int, _of: int) -> None:
    steps.append(step)


def _no_schedule() -> Any:
    raise AssertionError("a schedule was simulated for nothing")


def test_a_curve_ends_at_the_look_that_makes_the_target_sure() -> None:
    scenario = _scenario(
        EVERY["pipe"], until={"accuracy": "0.1 %", "split": "train", "every": 2}
    )
    curve = accuracy_curve(scenario, _no_schedule)
    train = open_for(build_job(scenario).settings).train_count
    assert [look[:2] for look in curve] == [(n, n * train) for n in (2, 4, 6)]
    weights, _ = train_along(scenario, _no_schedule)  # of all epochs
    assert len(accuracy_curve(_scenario(EVERY["pipe"]), _no_schedule)) == 25
    settings = build_job(scenario).settings
    assert evaluate(settings, weights)["valid"] == pytest.approx(
        accuracy_curve(_scenario(EVERY["pipe"]), _no_schedule)[-1].accuracy
    )


def test_mini_batches_and_whole_graphs_are_looked_at_after_as_many_seeds() -> None:
    """Spacing counts seeds: 120 steps of an epoch or one, as often."""
    curves = [
        accuracy_curve(_scenario(document), _no_schedule)
        for document in (_learner("dgtp", iterations=60), _whole(4))
    ]
    assert [look.step for look in curves[1]] == [1, 2, 3, 4]
    for short, whole in zip(*curves, strict=True):
        assert whole.seeds <= short.seeds < whole.seeds + 16


def _whole(epochs: int) -> dict[str, Any]:
    job = {**EVERY["pipe"]["job"], "epochs": epochs}
    job["dataset"] = tiny_training()["job"]["dataset"]
    return {**EVERY["pipe"], "job": job, "seed": 7}


@pytest.mark.parametrize(
    ("document", "changes", "problem"),
    [
        (
            DORYLUS,
            {"until": {"accuracy": 1.0}, "job.epochs": 4},
            r"valid .* not reached in 4 epochs: at best 3 .* from step [12] on, after ",
        ),
        (
            EVERY["dgtp"],
            {"until": {"accuracy": "99 %", "every": 1}, "job.iterations": 3},
            r"not reached in 3 iterations: at best",
        ),
        (
            EVERY["dgtp"],
            {"until": {"accuracy": "99 %", "seeds": 160}, "job.iterations": 20},
            r"until.seeds: 3 looks in a row .*, and 20 steps have 2: write a smaller",
        ),
        (
            EVERY["dgtp"],
            {"until": {"accuracy": "99 %", "every": 8}, "job.iterations": 20},
            r"until.every: 3 looks",
        ),
        (
            EVERY["dgtp"],
            {"until": {"accuracy": "99 %"}, "job.iterations": 2},
            r"until: 3 looks .*, and 2 steps have 0: looks are an epoch apart, \d+ ",
        ),
        (
            DORYLUS,
            {"until": {"accuracy": "99 %", "seeds": 100}},
            r"until.seeds: found 100, but a step sees \d+: write as many, or more",
        ),
        (
            DORYLUS,
            {"until": {"accuracy": "99 %", "seeds": 100, "every": 1}},
            "until: found seeds and every, which space the same looks",
        ),
        (DORYLUS, {"until": {"accuracy": 0}}, "until.accuracy"),
        (DORYLUS, {"until": {"accuracy": "101 %"}}, "until.accuracy"),
        (DORYLUS, {"until": {"accuracy": 0.5, "split": "dev"}}, "until.split"),
    ],
)
def test_bad_input(
    document: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ScenarioError, match=problem):
        prepare(_scenario(document, **changes))


@pytest.mark.parametrize(
    ("until", "steps", "key"),
    [
        ({"seeds": 160}, 32, ""),
        ({"seeds": 160}, 31, "until.seeds"),
        ({}, 40, ""),
        ({}, 39, "until"),
        ({"every": 5}, 15, ""),
        ({"every": 5}, 14, "until.every"),
        ({"seeds": 15}, 15, "until.seeds"),
    ],
)
def test_looks_that_do_not_fit_are_seen_before_anything_is_trained(
    until: dict[str, Any], steps: int, key: str, tmp_path: Path
) -> None:
    """Steps of 16, every 13th of 4, of 197 training vertices: one is left out."""
    document = tiny_training(steps, epoch="shard")
    document["until"] = {"accuracy": "99 %", **until}
    found = [error.key for error in find_errors(written(document, tmp_path))]
    assert found == ([key] if key else [])


def test_nothing_to_train() -> None:
    with pytest.raises(ScenarioError, match="a custom job trains nothing"):
        load("golden", {"until": {"accuracy": 0.5}})
    golden = prepare(load("golden"))
    with pytest.raises(ScenarioError, match="trains no model"):
        train_along(golden.scenario, golden.simulate)


def test_the_command_prints_accuracy_over_simulated_time(tmp_path: Path) -> None:
    file = written(DORYLUS, tmp_path)
    told = json.loads(command("simulate", file, "--train", "--json", "-"))
    found = prepare(load(file))
    schedule = found.simulate()
    _, losses = train_along(found.scenario, lambda: schedule)
    assert [row["loss"] for row in told["training"]] == losses.tolist()
    times = [row["time"] for row in told["training"]]
    assert times[-1] <= told["makespan"] == schedule.makespan
    assert sum("accuracy" in row for row in told["training"]) == 25  # an epoch each
    assert told["accuracy"].keys() == {"train", "valid", "test"}
    text = command("simulate", file, "--train", "--set", "until={accuracy: 1 %}")
    assert "until 1.0% of valid vertices: " in text
    assert "reached after " in text
    assert "a run reads other values" in text
    pipe = ("--set", "job.mode=pipe", "--set", "until={accuracy: 1 %}")
    assert "a run reads other values" not in command("simulate", file, *pipe)
    assert "validation accuracy" in text
