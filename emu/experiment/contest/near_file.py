"""Instances near a scenario file: its speeds, times and sizes within a factor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from emu.errors import ScenarioError
from emu.experiment.contest.instance import Change, unchanged
from emu.problem.fields.section import Trail
from emu.scenario import Scenario, load
from emu.scenario.document import join_trail
from emu.units import DURATION, RATE, SIZE, Quantity

#: What numbers are called -> their quantity.
_QUANTITIES = {"speeds": RATE, "times": DURATION, "sizes": SIZE}
#: Keys whose quantities no flow and no task goes by.
_NO_LOAD = frozenset({"memory", "demands", "latency", "gpu_memory"})


@dataclass(frozen=True)
class Number:
    """One number of a file that may be varied."""

    value: float
    """Seconds, bytes, bytes per second, or a ratio."""
    what: str
    """Word for numbers of its kind: ``speeds``, ``times`` or ``sizes``."""
    is_ratio: bool = False
    """True of a number without a unit, such as a machine's ``speed``."""

    def write(self, factor: float) -> object:
        """Return the number times a factor, as a scenario has it."""
        varied_value = self.value * factor
        value = float(f"{varied_value:.3g}")
        if self.is_ratio:
            return value
        quantity = _QUANTITIES[self.what]
        return quantity.exact(value)


@dataclass(frozen=True)
class NearFile:
    """A scenario with some of its numbers times a factor."""

    file: Scenario
    within: float
    """Greatest factor; the least is one over it."""
    numbers: Mapping[str, Number]
    """By key, all that may be varied."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """By key; a number without one is as in the file."""

    @classmethod
    def of(cls, file: Scenario, within: float) -> Self:
        """Return the file itself.

        Raises ScenarioError where it has no number to vary, or the factor leaves none
        open.
        """
        if not 1.0 < within < np.inf:
            problem = f"found {within:g}, write a factor above 1"
            raise ScenarioError(problem, file="--within")
        content = file.to_json()
        numbers: dict[str, Number] = {}
        for section in ("cluster", "job", "jobs"):
            part = content.get(section)
            numbers.update(_numbers_in(part, (section,)))
        if not numbers:
            problem = "has no speed, time or size to vary in cluster or job"
            raise file.origin.error((), problem)
        return cls(file=file, within=within, numbers=numbers)

    def scenario(self, change: Change = unchanged) -> Scenario:
        """Return it as a scenario, with every number changed.

        Raises ScenarioError where the file cannot have these numbers.
        """
        edit: dict[str, object] = {"expect": None}
        for key, number in self.numbers.items():
            factor = change(self.factors.get(key, 1.0))
            if factor != 1.0:
                edit[key] = number.write(factor)
        return load(self.file, edit)

    def neighbour(self, rng: np.random.Generator) -> Self:
        """Return it with the factor of one number drawn anew."""
        keys = list(self.numbers)
        position = rng.integers(len(keys))
        exponent = rng.uniform(-1.0, 1.0)
        factor = float(self.within**exponent)
        key = keys[position]
        return self._with_factor(key, factor)

    def simpler(self) -> Iterator[Self]:
        """Yield it with one number more as in the file, or with a plainer factor."""
        for key, factor in self.factors.items():
            yield self._without(key)
            plain_factors = (self.within, 1.0 / self.within)
            # One plain factor is no simpler than the other.
            if factor not in plain_factors:
                for plain in plain_factors:
                    yield self._with_factor(key, plain)

    def _with_factor(self, key: str, factor: float) -> Self:
        factors = {**self.factors, key: factor}
        return replace(self, factors=factors)

    def _without(self, key: str) -> Self:
        factors = dict(self.factors)
        del factors[key]
        return replace(self, factors=factors)

    def level(self) -> Mapping[str, Self]:
        """Return it with all speeds, all times or all sizes as in the file."""
        levels = {}
        for what in _QUANTITIES:
            factors = {
                key: factor
                for key, factor in self.factors.items()
                if self.numbers[key].what != what
            }
            if len(factors) < len(self.factors):
                levels[f"{what} as in the file"] = replace(self, factors=factors)
        return levels

    def bounds(self) -> str:
        """Return the words for all scenarios that the search can reach."""
        count = len(self.numbers)
        return f"{self.file.name}, {count} of its numbers within {self.within:g} times"

    def lines(self) -> list[str]:
        """Return a line for each number that is not as in the file."""
        lines = []
        for key, factor in self.factors.items():
            number = self.numbers[key]
            varied = number.write(factor)
            stated = number.write(1.0)
            lines.append(f"{key}: {varied} for {stated}")
        return lines


def _numbers_in(value: object, trail: Trail) -> Iterator[tuple[str, Number]]:
    """Yield key and number of every quantity in a part of a scenario.

    What is 0 stays so: no factor changes it.
    """
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if key not in _NO_LOAD:
                yield from _numbers_in(entry, (*trail, key))
    elif isinstance(value, list):
        for position, entry in enumerate(value):
            yield from _numbers_in(entry, (*trail, position))
    elif trail[-1] == "speed" and isinstance(value, float):
        yield join_trail(trail), Number(value, "speeds", is_ratio=True)
    elif isinstance(value, str):
        for what, quantity in _QUANTITIES.items():
            number = _parse(quantity, value)
            if number:
                yield join_trail(trail), Number(number, what)
                return


def _parse(quantity: Quantity, text: str) -> float:
    """Return a number with its unit; 0 where it is none of that quantity."""
    try:
        return quantity.parse(text)
    except ValueError:
        return 0.0
