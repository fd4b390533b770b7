"""Learning rates of the rows of a table to a target: each row at its best."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from emu.errors import EmulatorError
from emu.experiment.learning_rates import KEY, Rates, find_rate, rate_of
from emu.experiment.question import Question, scenario_of
from emu.experiment.row_figures import weight_causes
from emu.experiment.systems import Target
from emu.scenario import Scenario
from emu.systems import Edit

#: Rows with machines, or the reason why there is none.
Planned = Sequence[Question | EmulatorError]


def choose_rates(
    planned: Planned,
    target: Target,
    share: Callable[..., list[Rates | None]],
) -> list[Question | EmulatorError]:
    """Return rows at the best learning rate of their class of weights.

    By the first seed; where the file states a rate for a row, that is kept. A row that
    cannot be trained is as it was: its answer says so. ``share``: as `Workers.share`.
    """
    scenarios = [_open_scenario(question) for question in planned]
    classes: dict[str, Scenario] = {}
    for scenario in scenarios:
        if scenario is not None:
            classes.setdefault(class_of(scenario), scenario)

    def find(scenario: Scenario) -> Rates | None:
        with suppress(EmulatorError):
            return find_rate(scenario, target)
        return None

    items = [(scenario,) for scenario in classes.values()]
    found = share("learning rates, one search per class of weights", find, items)
    rates = dict(zip(classes, found, strict=True))
    grid = sorted({rate for tried in found if tried for rate in tried.tried})
    chosen: list[Question | EmulatorError] = []
    for question, scenario in zip(planned, scenarios, strict=True):
        tried = rates[class_of(scenario)] if scenario else None
        if isinstance(question, EmulatorError) or scenario is None or tried is None:
            chosen.append(question)
        else:
            rate = tried.best.rate
            is_stated = rate == rate_of(scenario)
            chosen.append(_at_rate(question, None if is_stated else rate, grid))
    return chosen


def _at_rate(question: Question, rate: float | None, grid: Sequence[float]) -> Question:
    """Return a question at another learning rate; None: at that of the file."""
    settings = {**question.settings}
    if rate is not None:
        settings[KEY] = rate
    return replace(
        question,
        settings=settings,
        grid={**question.grid, KEY: grid},
        exact=question.exact and rate is None,
    )


def _open_scenario(question: Question | EmulatorError) -> Scenario | None:
    """Return the scenario of a row that trains at a rate of the search's choice."""
    if isinstance(question, EmulatorError) or _states_rate(question.settings):
        return None
    with suppress(EmulatorError):
        scenario = scenario_of(question, question.scenario.seed)
        if scenario.job.trains:
            return scenario
    return None


def _states_rate(settings: Edit) -> bool:
    optimizer = settings.get("job.optimizer")
    inner = optimizer if isinstance(optimizer, Mapping) else {}
    return KEY in settings or "lr" in inner


def class_of(scenario: Scenario) -> str:
    """Return what decides the weights of a training but its learning rate, as text."""
    causes = weight_causes(scenario)
    causes["optimizer"] = {**causes["optimizer"], "lr": None}
    return json.dumps(causes, sort_keys=True, default=str)
