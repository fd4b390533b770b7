"""Doubles of what an advice searches in."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np

from emu.experiment.advice_search import Search
from emu.experiment.learning_rates import Learning
from emu.experiment.prospects import Prospect, Terms
from emu.experiment.systems import Target
from emu.runs.intervals import Interval, interval

TARGET = Target(0.5, within=30)


@dataclass(frozen=True, eq=False)
class Way:
    """Stands for a choice, or a prospect: its row, seconds and dollars."""

    row: str
    seconds: float
    cost: float | None = None
    terms: Terms = field(default_factory=Terms)
    draws: Any = None

    @property
    def judged(self) -> tuple[float, float]:
        """Return seconds and cost as the terms judge them."""
        return self.terms.judge(self.seconds, self.cost)

    @property
    def aims(self) -> dict[int, float]:
        """Aims by seed; of a way without draws that of seed 0."""
        _, aim = self.judged
        return self.draws or {0: aim}

    @property
    def mean_aim(self) -> float:
        """Their mean."""
        return self.sure.mean

    @property
    def sure(self) -> Interval:
        """Mean over the seeds, with its interval."""
        return interval([*self.aims.values()])

    @property
    def name(self) -> str:
        """Row and machines."""
        return f"{self.row} on all"


def search_of(terms: Terms, **fields: Any) -> Any:
    """Return a search that has not begun, of a scenario that it does not read."""
    search = object.__new__(Search)
    content: dict[str, Any] = {
        "scenario": None,
        "terms": terms,
        "watch": lambda _: None,
        "refused": {},
        "choices": [],
        "rates": {},
        "pool": [],
        "rows": {},
        "timed": {},
        "nearest": {},
        "cpu": 0.0,
        "stage": "",
        "trainings": 0,
        "hope": inf,
    }
    vars(search).update(content | fields)
    return search


def prospect_of(epoch: float, *, row: str = "p3", cost: float | None = None) -> Any:
    """Return a prospect of which an epoch takes some seconds, for some dollars."""
    dollars = None if cost is None else {"total": cost}
    timed: Any = SimpleNamespace(
        epoch_seconds=epoch,
        cost=dollars,
        simulated=SimpleNamespace(makespan=epoch),
        whole_graph=False,
        question=SimpleNamespace(row=row, settings={}, machines=("m0",)),
    )
    return Prospect(timed)


def learning_of(passes: float, level: float = 0.4, rate: float = 0.1) -> Learning:
    levels = np.array([level])
    return Learning(rate, levels, steps=10 * passes, passes=passes)
