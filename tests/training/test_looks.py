"""When a training is looked at, and which look reaches a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.graph_data import BatchPlan
from emu.training import evaluate, reference_training
from emu.training.looks import (
    HELD,
    Progress,
    Question,
    count_seeds,
    hold,
    reach,
    space_looks,
)

SHARES = st.sampled_from([0.0, 0.5, 0.7, 0.9, 1.0])


def _mini_batches(workers: int, samplers: int, batch: int, epoch: str) -> Any:
    return {
        "workers": workers,
        "samplers_per_worker": samplers,
        "batch_size": batch * samplers,
        "epoch": epoch,
        "fanouts": [2],
        "seed": 1,
    }


@given(
    workers=st.integers(1, 3),
    samplers=st.integers(1, 3),
    batch=st.integers(1, 5),
    train=st.integers(9, 60),
    epoch=st.sampled_from(["replicate", "shard", "local"]),
)
def test_seeds_are_those_that_the_samplers_have(
    workers: int, samplers: int, batch: int, train: int, epoch: str
) -> None:
    settings = _mini_batches(workers, samplers, batch, epoch)
    plan, vertices = BatchPlan.from_settings(settings), np.arange(train)
    seen = count_seeds(settings, train, 40)
    each = [
        sum(len(plan.seeds(vertices, s, step)) for s in range(plan.samplers))
        for step in range(40)
    ]
    # Within an epoch whose shares differ, its last batch alone may hold one more.
    np.testing.assert_array_equal(seen, np.cumsum(each))


@given(
    train=st.integers(1, 60),
    spacing=st.integers(1, 200),
    steps=st.integers(1, 60),
    batch=st.integers(1, 7),
)
def test_looks_are_at_the_multiples_of_the_spacing(
    train: int, spacing: int, steps: int, batch: int
) -> None:
    """Whatever a step sees: the step before had not yet seen as many seeds."""
    whole = count_seeds({}, train, steps)
    small = count_seeds(_mini_batches(1, 1, batch, "shard"), train, steps)
    for seen in (whole, small):
        looks = space_looks(seen, spacing)
        before = np.concatenate([[0], seen])[looks - 1]
        expected = [
            n + 1
            for n in range(steps)
            if any(
                (seen[n - 1] if n else 0) < k * spacing <= seen[n]
                for k in range(1, int(seen[-1]) // spacing + 1)
            )
        ]
        assert looks.tolist() == expected
        assert (before // spacing < seen[looks - 1] // spacing).all()


def test_the_same_spacing_gives_the_same_places() -> None:
    """In seeds: a step of all 840 vertices, of 40, or of 120 of them, twice over."""
    spacing, train = 1680, 840
    systems = [
        ({}, 12),
        (_mini_batches(2, 1, 20, "shard"), 12 * 21),
        (_mini_batches(2, 2, 30, "local"), 12 * 7),
    ]
    for settings, steps in systems:
        seen = count_seeds(settings, train, steps)
        looks = space_looks(seen, spacing)
        assert seen[looks - 1].tolist() == [spacing * k for k in range(1, 7)]


@given(accuracy=st.lists(SHARES, max_size=12), target=SHARES)
def test_a_target_is_reached_where_three_looks_hold_it(
    accuracy: list[float], target: float
) -> None:
    first = None
    for place in range(len(accuracy) - 2):
        if min(accuracy[place : place + 3]) >= target:
            first = place
            break
    row = np.array(accuracy)
    assert reach(row, target) == first
    assert len(hold(row)) == max(len(accuracy) - HELD + 1, 0)
    if len(hold(row)):  # what is held at best is what could be reached
        assert reach(row, hold(row).max()) == int(hold(row).argmax())
        assert reach(row, np.nextafter(hold(row).max(), 2)) is None


def test_an_unknown_accuracy_holds_nothing() -> None:
    assert reach(np.array([1.0, np.nan, 1.0, 1.0]), 0.0) is None


@given(
    valid=st.lists(SHARES, min_size=1, max_size=12),
    every=st.integers(1, 4),
    steps=st.integers(1, 14),
    target=st.none() | SHARES,
    diverged=st.none() | st.integers(1, 12),
)
def test_a_longer_training_answers_as_one_of_its_own(
    valid: list[float],
    every: int,
    steps: int,
    target: float | None,
    diverged: int | None,
) -> None:
    """Brute force: step by step, until it is sure."""
    count = len(valid)
    whole = Progress(
        np.arange(count) + 0.5,
        np.arange(1, count + 1),
        {"valid": np.array(valid)},
        count,
        None if diverged is None or diverged > count else diverged,
    )
    question = Question(steps, np.arange(every, steps + 1, every), "valid", target)
    held, last = 0, None
    for step in range(1, min(steps, count) + 1):
        if step % every == 0 and target is not None:
            held = held + 1 if valid[step - 1] >= target else 0
        if step == steps or (
            target is not None and (held == HELD or whole.diverged == step)
        ):
            last = step
            break
    answer = question.answer(whole)
    if last is None:
        assert answer is None
        return
    assert answer is not None
    at = sorted({*range(every, last + 1, every), *([steps] if last == steps else [])})
    assert answer.loss.tolist() == whole.loss[:last].tolist()
    assert answer.looks.tolist() == at
    assert answer.accuracy["valid"].tolist() == [valid[n - 1] for n in at]
    assert answer.spaced == last // every
    is_off = whole.diverged is not None and whole.diverged <= last
    assert answer.diverged == (whole.diverged if is_off else None)


def test_a_training_without_a_look_that_is_asked_for_does_not_answer() -> None:
    made = Progress(np.zeros(8), np.array([4, 8]), {"valid": np.ones(2)}, 2)
    assert Question(8, np.array([4, 8])).answer(made) is not None
    assert Question(8, np.array([2, 4, 6, 8])).answer(made) is None
    assert Question(6, np.array([4])).answer(made) is None
    assert Question(9, np.array([4, 8])).answer(made) is None


@pytest.mark.parametrize("spacing", [1, 10**9])
def test_no_more_looks_than_steps(spacing: int) -> None:
    looks = space_looks(count_seeds({}, 50, 4), spacing)
    assert looks.tolist() == ([1, 2, 3, 4] if spacing == 1 else [])


WHOLE = {
    "model": {
        "kind": "gcn", "hidden": 6, "layers": 2, "norm": "mean", "activation": "relu"
    }
}  # fmt: skip


@pytest.mark.parametrize("whole", [False, True])
def test_a_look_is_an_evaluation_of_its_step(
    settings: dict[str, Any], *, whole: bool
) -> None:
    """On the whole graph it is the next step's forward pass, but for the last step."""
    if whole:
        settings = {k: v for k, v in settings.items() if k != "batch_size"} | WHOLE
    looks, weights = [], []

    def watch(
        step: int, parameters: NDArray[Any], look: Callable[[], dict[str, float]]
    ) -> bool:
        assert step == len(looks)
        looks.append(look())
        weights.append(parameters.copy())
        return step == 6

    left, losses = reference_training(settings, 7, 0, watch)
    assert looks == [evaluate(settings, one) for one in weights]
    assert len({*map(str, looks)}) > 1
    for steps in (4, 7):  # neither looks nor what follows them changes a step
        alone, alone_losses = reference_training(settings, steps)
        np.testing.assert_array_equal(weights[steps - 1], alone)
        assert losses[:steps] == alone_losses
    shorter, few = reference_training(settings, 7, 0, lambda step, *_: step == 3)
    np.testing.assert_array_equal(shorter, weights[3])
    assert few == losses[:4]
    np.testing.assert_array_equal(left, weights[-1])
