"""Instances, as a search for the worst of them needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, Self, TypeAlias

import numpy as np

from emu.scenario import Scenario

#: Returns a number of an instance as it is to be written.
Change: TypeAlias = Callable[[float], float]


def unchanged(number: float) -> float:
    """Return the number itself."""
    return number


def jitter(rng: np.random.Generator, share: float) -> Change:
    """Return a change of every number by a share at most, drawn for each of them."""

    def change(number: float) -> float:
        deviation = share * rng.uniform(-1.0, 1.0)
        return number * (1.0 + deviation)

    return change


class Instance(Protocol):
    """One job on one cluster, and those beside it."""

    def scenario(self, change: Change = unchanged) -> Scenario:
        """Return it as a scenario, with every number changed.

        Raises ScenarioError where it cannot be one.
        """

    def neighbour(self, rng: np.random.Generator) -> Self:
        """Return an instance that differs in one thing, drawn at random."""

    def simpler(self) -> Iterator[Self]:
        """Yield instances of which there is less to read, the simplest first."""

    def level(self) -> Mapping[str, Self]:
        """Return what may make a side lose -> the instance without it."""

    def bounds(self) -> str:
        """Return the words for all instances that the search can reach."""

    def lines(self) -> list[str]:
        """Return the lines that state it to a person."""
