"""Rates, sizes, times and ratios as text: ``50 Gbit/s``, ``48 GB``, ``15 ms``, ``2 %``.

A unit is a fraction (numerator, denominator) of the inside unit, so that ``35 ms`` is
the float nearest to 0.035 (35 * 0.001 is not).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_TEXT = re.compile(rf"\s*({_NUMBER})\s*(.*?)\s*")

_PREFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def _prefixed(unit: str, per: int = 1) -> dict[str, tuple[int, int]]:
    return {f"{prefix}{unit}": (n, per) for prefix, n in _PREFIXES.items()}


@dataclass(frozen=True)
class Quantity:
    """One kind of quantity and how it is written.

    Parameters
    ----------
    what
        Its name in an error message, with the article.
    units
        Unit -> (numerator, denominator) of the inside unit.
    inside
        The unit with factor 1, that of the floats inside the code.
    usual
        The unit proposed to whoever wrote none.
    people
        Units for display, ascending.
    """

    what: str
    units: Mapping[str, tuple[int, int]]
    inside: str
    usual: str
    people: tuple[str, ...]

    def parse(self, text: object) -> float:
        """Return ``text`` in the inside unit.

        Raises
        ------
        ValueError
            When it is a bare number, has no known unit, is negative or overflows; the
            message says what was found and what would be right.
        """
        match = None if isinstance(text, bool) else _TEXT.fullmatch(str(text))
        if match is None:
            raise ValueError(f"found {text!r} for {self.what}, write {self._example()}")
        number, unit = match.groups()
        if unit not in self.units:
            raise ValueError(self._wrong_unit(number, unit))
        numerator, denominator = self.units[unit]
        value = float(number) * numerator / denominator
        if not math.isfinite(value):
            raise ValueError(f"{self.what} of {text!r} is too large")
        if value < 0:
            raise ValueError(f"{self.what} cannot be negative, found {text!r}")
        return value + 0.0  # "-0 s" is 0.0, so that equal scenarios print alike

    def _example(self) -> str:
        return f"{self.what} with its unit, as in {'50 ' + self.usual!r}"

    def _wrong_unit(self, number: str, unit: str) -> str:
        if not unit:
            return (
                f"a bare number ({number}) does not say its unit, "
                f"write {number} {self.usual}"
            )
        proposal = self.usual
        plain = unit.lower().replace("bps", "bit/s")
        for known in self.units:
            if known.lower() == plain:
                proposal = known
                break
        return (
            f"{unit!r} is not a unit of {self.what}, write {number} {proposal} "
            f"(known: {', '.join(self.units)})"
        )

    def exact(self, value: float) -> str:
        """Return text that parses back to exactly ``value``, in a handy unit.

        ``value`` is finite and not negative.
        """
        for unit in reversed(self.people):
            numerator, denominator = self.units[unit]
            scaled = value * denominator / numerator
            text = f"{scaled:.12g} {unit}"
            if scaled >= 1 and self.parse(text) == value:
                return text
        return f"{value!r} {self.inside}".rstrip()

    def format(self, value: float, digits: int = 4) -> str:
        """Return ``value`` for people, with ``digits`` significant digits."""
        if not math.isfinite(value):
            return "-"
        unit = self.people[0]
        for larger in self.people:
            numerator, denominator = self.units[larger]
            if abs(value) * denominator / numerator >= 1:
                unit = larger
        numerator, denominator = self.units[unit]
        scaled = value * denominator / numerator
        if abs(scaled) >= 10**digits:
            return f"{scaled:,.0f} {unit}"
        return f"{scaled:.{digits}g} {unit}"


RATE = Quantity(
    what="a rate",
    units=MappingProxyType(_prefixed("bit/s", 8) | _prefixed("B/s")),
    inside="B/s",
    usual="Gbit/s",
    people=("B/s", "kB/s", "MB/s", "Mbit/s", "GB/s", "Gbit/s"),
)
SIZE = Quantity(
    what="a size",
    units=MappingProxyType(_prefixed("B")),
    inside="B",
    usual="GB",
    people=("B", "kB", "MB", "GB", "TB"),
)
DURATION = Quantity(
    what="a time",
    units=MappingProxyType(
        {"s": (1, 1), "ms": (1, 10**3), "us": (1, 10**6), "µs": (1, 10**6)}
    ),
    inside="s",
    usual="s",
    people=("us", "ms", "s"),
)
RATIO = Quantity(
    what="a share",
    units=MappingProxyType({"%": (1, 100), "": (1, 1)}),
    inside="",
    usual="%",
    people=("%",),
)


def format_rate(value: float) -> str:
    """Return bytes per second as people write NIC speeds: ``50 Gbit/s``.

    Below 1 Mbit/s bytes are the readable unit (``10 B/s``).
    """
    for unit in ("Gbit/s", "Mbit/s"):
        numerator, denominator = RATE.units[unit]
        if value * denominator / numerator >= 1:
            return f"{value * denominator / numerator:.4g} {unit}"
    return SIZE.format(value) + "/s"


def format_size(value: float) -> str:
    """Return bytes for people: ``1.5 GB``."""
    return SIZE.format(value)


def format_duration(value: float, digits: int = 4) -> str:
    """Return seconds for people: ``15 ms``."""
    return DURATION.format(value, digits)


def format_ratio(value: float) -> str:
    """Return a ratio in percent with its sign: ``+1.2 %``."""
    return f"{100 * value:+.3g} %" if math.isfinite(value) else "-"
