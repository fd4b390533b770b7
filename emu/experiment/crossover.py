"""Where the better of two systems changes as a key of the scenario grows.

At each value each system stands on its own machines with its own settings, as
``emu compare --systems`` chooses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from emu.errors import ScenarioError
from emu.experiment.bisection import WIDE, bisect
from emu.experiment.question import Answer
from emu.experiment.system_rows import measure
from emu.experiment.systems import as_variant
from emu.scenario import Scenario
from emu.units import DURATION, RATE, SIZE

#: A number and the unit behind it: `10 Gbit/s`.
_QUANTITY = re.compile(r"\s*([0-9.]+(?:[eE][-+]?\d+)?)\s*(\D*)")


def _in_unit(text: str, unit: str) -> float:
    """Return the number that stands before ``unit`` where ``text`` is meant."""
    for quantity in (RATE, SIZE, DURATION):
        try:
            number = quantity.parse(text)
            return number / quantity.parse(f"1 {unit}")
        except ValueError:
            continue
    raise ValueError(f"{text} is no number of {unit or 'nothing'}")


@dataclass(frozen=True)
class Values:
    """The values of a key from ``low`` to ``high``, as the scenario writes them."""

    low: float
    high: float
    unit: str = ""
    """Text after the number, empty for a bare one."""
    whole: bool = False
    """True where only whole numbers are meant."""

    @classmethod
    def between(cls, low: str, high: str) -> Values:
        """Return the values between two texts, ``16`` or ``5 Gbit/s``.

        Raises ValueError when one is no number, they are not of one quantity, or not in
        order.
        """
        first = _QUANTITY.fullmatch(low)
        last = _QUANTITY.fullmatch(high)
        if first is None or last is None:
            raise ValueError(f"{low} and {high} are not two numbers")
        unit = last[2].strip()
        start = float(first[1])
        end = float(last[1])
        if first[2].strip() != unit:
            # Both in the unit of the upper end, in which values are written.
            start = _in_unit(low, unit)

        if not 0 < start < end:
            raise ValueError(f"{low} must be more than 0 and less than {high}")
        are_whole = first[1].isdigit() and last[1].isdigit()
        return cls(start, end, unit, whole=are_whole and not unit)

    @classmethod
    def around(cls, value: object) -> Values:
        """Return those from a sixteenth of a number to sixteen times as much.

        Raises ValueError when it is neither a bare number nor one with a unit, such as
        ``10 Gbit/s``.
        """
        if isinstance(value, dict):
            texts = {str(speed) for speed in value.values()}
            if len(texts) == 1:
                value = next(iter(value.values()))  # a NIC, as fast in as out
        if isinstance(value, str):
            match = _QUANTITY.fullmatch(value)
            if match is not None and match[2]:
                number = float(match[1])
                unit = match[2].strip()
                return cls(number / WIDE, number * WIDE, unit)

        # Python takes True for 1.
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is no number")  # noqa: TRY004 - of input
        if isinstance(value, int):
            # A count of 0 is none of workers or columns.
            low = max(1, value // int(WIDE))
            return cls(low, value * WIDE, whole=True)
        return cls(value / WIDE, value * WIDE)

    def write(self, value: float) -> Any:
        """Return a value as a scenario has it."""
        number = int(value) if self.whole else value
        if not self.unit:
            return number
        return f"{number:.6g} {self.unit}"


@dataclass(frozen=True)
class Side:
    """Both systems at one value of the key."""

    value: Any
    answers: tuple[Answer, Answer]

    @property
    def best(self) -> Answer:
        """Answer of more seeds per second; the first where both have as many."""
        first, second = self.answers
        is_ahead = first.samples_per_second >= second.samples_per_second
        return first if is_ahead else second


@dataclass(frozen=True)
class Crossover:
    """Change of the better of two systems along one key."""

    key: str
    below: Side
    above: Side
    """Next to each other where the best changes between them; the ends of the range
    where it does not."""
    estimate: Any | None
    """Value where the busiest link has as much to carry in both systems, which is what
    first principles say, the first such value that was seen; None where no values that
    were tried have it between them."""
    simulations: int
    """Rows that were asked for, each on every set of machines that it tries."""

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both, the lower value first."""
        return self.below, self.above

    @property
    def found(self) -> bool:
        """True where the best changes."""
        below = self.below.best.system
        return below != self.above.best.system


@dataclass
class _Search:
    scenario: Scenario
    key: str
    between: tuple[str, str]
    values: Values
    watch: Callable[[str], None]
    seen: dict[float, Side] = field(default_factory=dict)

    def at(self, value: float) -> Side:
        """Return both systems at a value, asked once."""
        # The search for the estimate bisects the same range, and shares its values.
        if value not in self.seen:
            text = self.values.write(value)
            place = len(self.seen) + 1
            self.watch(f"{self.key} {text}, value {place}")
            first, second = self.between
            answers = (self._ask(first, text), self._ask(second, text))
            self.seen[value] = Side(text, answers)
        return self.seen[value]

    def _ask(self, system: str, text: Any) -> Answer:
        with self._errors_of_range():
            return measure(self.scenario, system, {self.key: text})

    @contextmanager
    def _errors_of_range(self) -> Iterator[None]:
        """Name ``--range`` in errors of the key.

        The range may be of this search's making, and sixteen times as much is not
        always allowed.
        """
        try:
            yield
        except ScenarioError as error:
            if error.key != self.key:
                raise
            problem = f"{error.problem}; --range LOW,HIGH names the values to try"
            raise ScenarioError(problem, file=f"--key {self.key}") from error

    @property
    def ends(self) -> tuple[Side, Side]:
        """Both systems at the least and at the largest value."""
        return self.at(self.values.low), self.at(self.values.high)

    def change_of(self, condition: Callable[[Side], bool]) -> tuple[Side, Side] | None:
        """Return neighbours between which a condition changes, or None.

        Of several changes it is the first between two values that were tried before.
        """
        for low, high in pairwise(sorted(self.seen)):
            holds = condition(self.at(low))
            # Bisection finds one change, and needs ends that differ.
            if condition(self.at(high)) == holds:
                continue

            def is_low(value: float) -> bool:
                return condition(self.at(value)) == holds  # noqa: B023 - called below

            below, above = bisect(low, high, is_low, whole=self.values.whole)
            return self.at(below), self.at(above)
        return None

    def check_key(self) -> None:
        """Refuse a key of no magnitude, or that changes nothing of a system."""
        if self.key.rpartition(".")[2] == "seed":
            problem = "numbers draws, of which none is more: emu compare --seeds N"
            raise ScenarioError(problem, file=f"--key {self.key}")
        low = {self.key: self.values.write(self.values.low)}
        high = {self.key: self.values.write(self.values.high)}
        for system in self.between:
            with self._errors_of_range():
                least = as_variant(self.scenario, system, low)
                most = as_variant(self.scenario, system, high)
            if least == most:
                problem = f"changes nothing of {system}: name a key that both have"
                raise ScenarioError(problem, file=f"--key {self.key}")


def find_crossover(
    scenario: Scenario,
    key: str,
    between: tuple[str, str],
    values: Values,
    watch: Callable[[str], None] = lambda _: None,
) -> Crossover:
    """Return where the better of two systems changes as a key grows.

    One change is looked for, by bisection: the range's ends say whether there is one.
    What first principles see is looked for between the values that this has tried.
    ``watch`` is called with the value that is tried. Raises ScenarioError,
    PlacementError, DataError as `measure`; among others where the key is unknown or
    changes nothing of a system, or a value is impossible.
    """
    first, second = between
    if first == second:
        names = ",".join(between)
        raise ScenarioError("write two systems", file=f"--between {names}")
    search = _Search(scenario, key, between, values, watch)
    # Before anything is simulated, which may take minutes.
    search.check_key()
    ends = search.ends

    change = search.change_of(lambda side: side.best.system == first)
    below, above = change or ends
    estimate = None
    estimated_change = search.change_of(_has_fewer_bytes)
    if estimated_change is not None and _have_bytes(estimated_change):
        lower_side, _ = estimated_change
        estimate = lower_side.value
    return Crossover(
        key=key,
        below=below,
        above=above,
        estimate=estimate,
        simulations=2 * len(search.seen),
    )


def _have_bytes(sides: tuple[Side, Side]) -> bool:
    """Return True where both systems use links at both values.

    Where one moves to a single machine its bytes fall to none: nowhere are they equal.
    """
    return all(answer.busiest_link > 0 for side in sides for answer in side.answers)


def _has_fewer_bytes(side: Side) -> bool:
    first, second = side.answers
    return first.busiest_link <= second.busiest_link
