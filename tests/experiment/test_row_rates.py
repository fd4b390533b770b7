"""Which rows of a table to a target have their learning rate chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import ScenarioError
from emu.experiment import learning_rates
from emu.experiment.learning_rates import KEY, Learning, Rates
from emu.experiment.question import Question
from emu.experiment.row_rates import Planned, choose_rates
from emu.experiment.systems import Target
from emu.scenario.scenario_file import load, loads
from tests.experiment.test_target import FILE

#: Rates that a search has tried: at 0.2 the target is reached in fewer steps, and less
#: is held later.
TRIED = Rates(
    {
        0.05: Learning(0.05, np.array([0.6]), steps=70.0),
        0.2: Learning(0.2, np.array([0.5]), steps=30.0),
    }
)


def test_a_training_ends_with_the_first_of_the_looks_that_hold_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass apart each, of 40 steps: the third one holds, and the first did not."""
    shown = [0.7, 0.5, 0.6, 0.8, 0.65]
    looks = [
        SimpleNamespace(accuracy=accuracy, step=40 * (place + 1))
        for place, accuracy in enumerate(shown)
    ]
    monkeypatch.setattr(learning_rates, "accuracy_curve", lambda *_: looks)
    plain = loads(json.dumps(FILE))

    learning = learning_rates._train(plain, Target(0.55, within=9), 0.5, 7)
    assert (learning.rate, learning.steps, learning.passes) == (0.5, 120, 3)
    np.testing.assert_array_equal(learning.levels, [0.5, 0.5, 0.6])
    missed = learning_rates._train(plain, Target(0.65, within=9), 0.5, 7)
    assert missed.passes == missed.steps == math.inf


def test_rows_that_train_at_no_rate_of_their_own_get_the_best_one(
    tmp_path: Path,
) -> None:
    """Steps that were recorded are of the file's rate; what states one keeps it."""
    (tmp_path / "steps.csv").write_text("step,accuracy\n20,0.8\n")
    file = tmp_path / "rates.json"
    file.write_text(json.dumps({**FILE, "accuracy": {"p3.none": "steps.csv"}}))
    scenario = load(file)
    searched: list[Any] = []

    def share(_what: str, _find: Callable[..., Any], items: Sequence[Any]) -> Any:
        searched.extend(items)
        return [TRIED for _ in items]

    def question_of(row: str, **settings: Any) -> Question:
        keys = {f"job.{key}": value for key, value in settings.items()}
        return Question(scenario, row, settings=keys, target=Target(0.5))

    by_key = question_of("data_parallel", **{"optimizer.lr": 0.3})
    by_section = question_of("data_parallel", optimizer={"name": "adam", "lr": 0.3})
    recorded = question_of("p3.none")
    refused = ScenarioError("it has no machine")
    kept: list[Planned] = [by_key, by_section, recorded, refused]

    assert choose_rates(kept, Target(0.5), share) == kept
    assert not searched
    (found,) = choose_rates([question_of("data_parallel")], Target(0.5), share)
    assert isinstance(found, Question)
    assert len(searched) == 1
    assert found.settings == {KEY: 0.2}
    assert found.grid == {KEY: [0.05, 0.2]}
    assert not found.exact
