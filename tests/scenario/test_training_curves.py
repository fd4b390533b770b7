"""Curves of a training in virtual time by hand: ends of steps, looks, divergence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.problem import Job, Task
from emu.problem.workloads import CHECKPOINT
from emu.scenario import virtual_training as training
from emu.scenario.run_sections import UntilSection
from emu.scenario.virtual_training import (
    NotReached,
    accuracy_curve,
    curve_until_divergence,
    look_until,
    step_ends,
    steps_of,
    time_looks,
)
from emu.training.looks import Look, Progress

NAN = np.nan
#: Four iterations of a pipeline in which the last task is a batch behind.
JOB = Job(
    (
        Task("first", "forward"),
        Task("slow", "step", behind=1),
        Task("quick", "step", behind=1),
        Task("copy", CHECKPOINT),
        Task("gate", "barrier", gate=True),
        Task("short", "other", iterations=2),
    ),
    (),
    4,
)
ENDS = [
    [1.0, 2.0, 33.0, 4.0],
    [0.5, 11.0, NAN, 13.0],
    [0.6, 10.0, 12.0, 14.0],
    [90.0, 91.0, 92.0, 93.0],
    [94.0, 95.0, 96.0, 97.0],
    [20.0, 2.5, NAN, NAN],
]


def schedule_of(job: Job = JOB) -> Any:
    problem = SimpleNamespace(job=job)
    return SimpleNamespace(problem=problem, task_end=np.array(ENDS), reads=None)


@pytest.mark.parametrize(
    ("kinds", "ends"),
    [
        # Of a pipeline of two batches three steps are done in four cycles.
        (["step"], [11, 12, 14]),
        (["forward"], [1, 2, 33]),
        # The first kind that the job has, whatever else it has.
        (["absent", "forward", "step"], [1, 2, 33]),
        (["step", "forward"], [11, 12, 14]),
        # Neither gates nor copies of state end a step where none is named.
        (["absent"], [20, 12, 33]),
        ([], [20, 12, 33]),
    ],
)
def test_a_step_ends_with_the_last_task_that_it_needs(
    kinds: list[str], ends: list[float]
) -> None:
    assert steps_of(JOB) == 3
    assert step_ends(schedule_of(), kinds).tolist() == ends


@pytest.mark.parametrize(
    ("losses", "ends_well", "steps", "diverged"),
    [
        ([3.0, 2.0, 1.0], True, 3, None),
        ([3.0, 2.0, 1.0], False, 3, 3),
        ([3.0, NAN, 1.0], True, 1, 1),
        ([3.0, 2.0, np.inf], False, 2, 2),
        ([-np.inf, 2.0, 1.0], True, 0, 0),
    ],
)
def test_a_curve_ends_before_the_first_loss_that_is_no_number(
    losses: list[float], *, ends_well: bool, steps: int, diverged: int | None
) -> None:
    curve = [{"iteration": n, "loss": loss} for n, loss in enumerate(losses)]
    content = curve_until_divergence(curve, ends_well=ends_well)
    assert content["training"] == curve[:steps]
    assert content.get("diverged") == diverged


def scenario_with(
    monkeypatch: pytest.MonkeyPatch,
    accuracy: list[float],
    until: UntilSection | None = None,
    *,
    spaced: int | None = None,
    diverged: int | None = None,
) -> Any:
    """Return a scenario whose training looks every third step, and after the last."""
    looks = np.arange(3, 3 * len(accuracy) + 1, 3)
    shares = np.array(accuracy)
    progress = Progress(
        loss=np.arange(3.0 * len(accuracy), 0.0, -1.0),
        looks=looks,
        accuracy={"train": shares / 2, "valid": shares, "test": shares * NAN},
        spaced=len(accuracy) if spaced is None else spaced,
        diverged=diverged,
    )
    settings = {"system": "dgtp", "model": {}}
    monkeypatch.setattr(training, "progress_along", lambda *_, **__: progress)
    monkeypatch.setattr(
        training, "build_job", lambda _: SimpleNamespace(settings=settings)
    )
    monkeypatch.setattr(training, "open_for", lambda _: SimpleNamespace(train_count=7))
    monkeypatch.setattr(
        training, "count_seeds", lambda _, train, steps: train * np.arange(1, steps + 1)
    )
    times = 0.5 * np.arange(1, len(progress.loss) + 1)
    monkeypatch.setattr(training, "_ends", lambda *_: times)
    job = SimpleNamespace(length="12 iterations")
    return SimpleNamespace(until=until, job=job)


def test_a_curve_has_step_seeds_and_share_of_evenly_spaced_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = scenario_with(monkeypatch, [0.25, 0.5, 0.75], spaced=2)
    assert accuracy_curve(scenario, schedule_of) == [
        Look(3, 21, 0.25),
        Look(6, 42, 0.5),
    ]
    until = UntilSection(accuracy=0.9, split="train")
    scenario = scenario_with(monkeypatch, [0.25, 0.5, 0.75], until)
    assert [look.accuracy for look in accuracy_curve(scenario, schedule_of)] == [
        0.125,
        0.25,
        0.375,
    ]


@pytest.mark.parametrize(("accuracy", "is_reached"), [(0.5, True), (0.51, False)])
def test_what_was_reached_before_a_training_diverged_counts(
    monkeypatch: pytest.MonkeyPatch, accuracy: float, *, is_reached: bool
) -> None:
    until = UntilSection(accuracy=accuracy)
    scenario = scenario_with(monkeypatch, [0.5, 0.6, 0.7], until, diverged=8)
    if is_reached:
        assert len(accuracy_curve(scenario, schedule_of)) == 3
    else:
        with pytest.raises(ScenarioError, match="diverged after step 8: lower its lr"):
            accuracy_curve(scenario, schedule_of)
    endless = scenario_with(monkeypatch, [0.5, 0.6, 0.7], diverged=8)
    with pytest.raises(ScenarioError, match="diverged after step 8"):
        accuracy_curve(endless, schedule_of)


def test_looks_go_to_the_first_of_those_that_hold_the_accuracy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = [0.6, 0.1, 0.5, 0.7, 0.6, 0.9]
    scenario = scenario_with(monkeypatch, shares, UntilSection(accuracy=0.5))
    assert [look.accuracy for look in look_until(scenario, schedule_of)] == [
        0.6,
        0.1,
        0.5,
    ]


def test_what_is_not_reached_is_told_with_what_was_held_at_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looks 2 to 4 hold 0.3, and none after them more; the last look alone is luck."""
    shares = [0.1, 0.3, 0.4, 0.3, 0.2, 0.9]
    scenario = scenario_with(monkeypatch, shares, UntilSection(accuracy=0.5))
    words = "valid vertices is not reached in 12 iterations: at best 3 looks in a row "
    words += r"hold 30.00%, from step 6 on, after 3 s"
    with pytest.raises(NotReached, match=words) as error:
        look_until(scenario, schedule_of)
    assert error.value.nearest == 0.3
    assert error.value.seconds == 3.0
    assert error.value.curve == tuple(
        zip((1.5, 3.0, 4.5, 6.0, 7.5, 9.0), shares, strict=True)
    )
    with pytest.raises(ValueError, match="has no until"):
        look_until(scenario_with(monkeypatch, shares), schedule_of)


def test_looks_are_timed_by_the_steps_that_they_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = scenario_with(monkeypatch, [0.1, 0.2])
    looks = [Look(1, 7, 0.1), Look(6, 42, 0.2)]
    assert time_looks(looks, scenario, schedule_of()) == ((0.5, 0.1), (3.0, 0.2))


@pytest.mark.parametrize("diverged", [None, 6])
def test_a_result_has_the_accuracy_of_steps_that_were_looked_at(
    monkeypatch: pytest.MonkeyPatch, diverged: int | None
) -> None:
    scenario = scenario_with(monkeypatch, [0.25, NAN, 0.5, 0.75], diverged=diverged)
    content = training.virtual_training(scenario, schedule_of())
    curve = content["training"]
    assert [step["time"] for step in curve] == [0.5 * n for n in range(1, 13)]
    assert [step["iteration"] for step in curve] == [*range(12)]
    assert [step["loss"] for step in curve] == [float(n) for n in range(12, 0, -1)]
    looked = {step["iteration"]: step["accuracy"] for step in curve if len(step) > 3}
    assert looked == {2: 0.25, 8: 0.5, 11: 0.75}
    # Of a split without vertices there is none, nor of weights that are no numbers.
    last = None if diverged else {"train": 0.375, "valid": 0.75}
    assert content.get("accuracy") == last
    assert content.get("diverged") == (12 if diverged else None)


def trained(
    monkeypatch: pytest.MonkeyPatch,
    weights: list[float],
    shares: list[float],
    looks: list[int],
    target: tuple[str, float] | None = None,
) -> tuple[Progress, list[tuple[int, int]]]:
    """Train with these weights after every step, and shares at every look."""
    told: list[tuple[int, int]] = []
    taken = iter(shares)

    def follow(_scenario: Any, _schedule: Any, watch: Any) -> Any:
        losses = []
        for step, weight in enumerate(weights):
            losses.append(float(step))
            look = lambda: {"valid": next(taken)}  # noqa: E731
            if watch(step, np.array([1.0, weight]), look):
                break
        return np.zeros(2), np.array(losses)

    job = Job((Task("w", "worker"),), (), len(weights))
    monkeypatch.setattr(training, "build_job", lambda _: job)
    monkeypatch.setattr(training, "train_along", follow)
    progress = training._train(
        scenario=None,  # type: ignore[arg-type]
        schedule=schedule_of,
        looks=np.array(looks),
        target=target,
        tell=lambda step, steps: told.append((step, steps)),
    )
    return progress, told


def test_looks_are_taken_where_they_are_due_and_after_the_last_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, told = trained(monkeypatch, [1.0] * 5, [0.25, 0.5, 0.75], [2, 4])
    assert found.looks.tolist() == [2, 4, 5]
    assert found.accuracy["valid"].tolist() == [0.25, 0.5, 0.75]
    assert np.isnan(found.accuracy["train"]).all()
    assert (found.spaced, found.diverged) == (2, None)
    assert found.loss.tolist() == [0, 1, 2, 3, 4]
    assert told == [(step, 5) for step in range(1, 6)]


def test_a_training_has_diverged_at_the_first_step_without_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A training without a target goes on, and later steps change nothing of it."""
    weights = [1.0, 2.0, np.inf, 4.0, NAN]
    found, told = trained(monkeypatch, weights, [0.25, 0.5, 0.75], [2, 4])
    assert found.diverged == 3
    assert len(told) == 5
    ended, _ = trained(monkeypatch, weights, [0.25], [2, 4], ("valid", 0.9))
    assert (ended.diverged, ended.looks.tolist(), len(ended.loss)) == (3, [2], 3)
    assert ended.spaced == 1


def test_a_training_ends_with_the_look_that_makes_its_target_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = [0.4, 0.5, 0.6, 0.5]
    found, told = trained(
        monkeypatch, [1.0] * 9, shares, [1, 3, 5, 7, 9], ("valid", 0.5)
    )
    assert found.looks.tolist() == [1, 3, 5, 7]
    assert found.accuracy["valid"].tolist() == shares
    assert (found.spaced, len(told)) == (4, 7)
