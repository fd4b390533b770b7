"""Learning rates of the rows of a table to a target: each row at its best."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

from emu.errors import EmulatorError
from emu.experiment.learning_rates import KEY, Rates, find_rate, rate_of
from emu.experiment.question import Question, scenario_of
from emu.experiment.row_figures import weight_causes
from emu.experiment.systems import Target
from emu.scenario import Scenario
from emu.systems import Edit

#: A row with its machines, or the reason why it cannot be.
Planned: TypeAlias = Question | EmulatorError


def choose_rates(
    planned: Sequence[Planned],
    target: Target,
    share: Callable[..., list[Rates | None]],
) -> list[Planned]:
    """Return rows at the best learning rate of their class of weights.

    By the first seed; where the file states a rate for a row, that is kept. A row that
    cannot be trained is as it was: its answer says so. ``share``: as `Workers.share`.
    """
    scenarios = [_open_scenario(question) for question in planned]
    classes: dict[str, Scenario] = {}
    for scenario in scenarios:
        if scenario is not None:
            # Rows of one class learn alike at every rate: one search serves them all.
            classes.setdefault(class_of(scenario), scenario)

    def find(scenario: Scenario) -> Rates | None:
        with suppress(EmulatorError):
            return find_rate(scenario, target)
        return None

    items = [(scenario,) for scenario in classes.values()]
    class_rates = share("learning rates, one search per class of weights", find, items)
    rates_of = dict(zip(classes, class_rates, strict=True))
    grid: set[float] = set()
    for rates in class_rates:
        if rates is not None:
            grid.update(rates.tried)
    choices: list[Planned] = []
    for question, scenario in zip(planned, scenarios, strict=True):
        rates = rates_of[class_of(scenario)] if scenario else None
        if isinstance(question, EmulatorError) or scenario is None or rates is None:
            choices.append(question)
        else:
            rate = rates.best.rate
            is_stated = rate == rate_of(scenario)
            # The file's own rate is no setting, or the row
            # would differ from the file in words.
            other = None if is_stated else rate
            choices.append(_at_rate(question, other, sorted(grid)))
    return choices


def _at_rate(question: Question, rate: float | None, grid: Sequence[float]) -> Question:
    """Return a question at another learning rate; None: at that of the file."""
    settings = {**question.settings}
    if rate is not None:
        settings[KEY] = rate
    return replace(
        question,
        settings=settings,
        grid={**question.grid, KEY: grid},
        # What the file expects is of the rate that it states.
        exact=question.exact and rate is None,
    )


def _open_scenario(question: Planned) -> Scenario | None:
    """Return the scenario of a row that trains at a rate of the search's choice."""
    if isinstance(question, EmulatorError) or question.has_steps:
        return None  # steps are found at the rate of the file
    if _states_rate(question.settings):
        return None
    with suppress(EmulatorError):
        scenario = scenario_of(question, question.scenario.seed)
        if scenario.job.trains:
            return scenario
    return None


def _states_rate(settings: Edit) -> bool:
    optimizer = settings.get("job.optimizer")
    is_in_section = isinstance(optimizer, Mapping) and "lr" in optimizer
    return KEY in settings or is_in_section


def class_of(scenario: Scenario) -> str:
    """Return what decides the weights of a training but its learning rate, as text."""
    causes = weight_causes(scenario)
    optimizer = causes["optimizer"]
    causes["optimizer"] = {**optimizer, "lr": None}
    return json.dumps(causes, sort_keys=True, default=str)
