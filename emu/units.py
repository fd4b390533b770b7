"""The one place for units: text with a unit becomes a float, and back.

Inside the code there are seconds, bytes, bytes per second, plain ratios, dollars and
dollars per hour, nothing else. Must not know: what a quantity is for.

A unit is a fraction (numerator, denominator) of the inside unit, so that ``35 ms`` is
the float nearest to 0.035 (35 * 0.001 is not).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_TEXT = re.compile(rf"\s*({_NUMBER})\s*((?:[^\d\s.,_'+-].*)?)")

#: From here on a float has no digit behind the point, and most are not its own.
_MOST_EXACT = 1e15
#: A number that is not zero: a digit above that stands before its exponent.
_NOT_ZERO = re.compile(r"[^eE]*[1-9]")

#: What rounding leaves of a difference of makespans: seconds, and a share.
_NO_TIME = 1e-12
_NO_RATIO = 1e-9
#: Unit of shares above 1 that no number of percent is exactly.
_TIMES = "x"
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
#: ``mbps`` is as usual as ``Mbps``: nothing here has thousandths of a bit.
_LOOSE = _PREFIXES | {"K": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_STRICT = _PREFIXES | {"K": 10**3}

Units: TypeAlias = "Mapping[str, tuple[int, int]]"


def _with_prefixes(
    *words: str, per: int = 1, prefixes: Mapping[str, int] = _PREFIXES
) -> dict[str, tuple[int, int]]:
    factors = {}
    for word in words:
        for prefix, factor in prefixes.items():
            factors[prefix + word] = (factor, per)
    return factors


def _spellings(factors: Mapping[str, tuple[int, int]]) -> Units:
    """Return the factor of each word of the keys."""
    spellings: dict[str, tuple[int, int]] = {}
    for key, factor in factors.items():
        for word in key.split():
            spellings[word] = factor
    return spellings


@dataclass(frozen=True)
class Quantity:
    """One kind of quantity and how it is written."""

    what: str
    """Its name in an error message, with the article."""
    units: Units
    """Every accepted spelling -> (numerator, denominator) of the inside unit."""
    inside: str
    """The unit with factor 1, that of the floats inside the code."""
    example: str
    """A value as people write it."""
    people: tuple[str, ...]
    """Units for display, ascending."""
    longer: tuple[str, ...] = ()
    """Further units that an error names."""
    unclear: Mapping[str, str] = field(default_factory=dict)
    """Spelling, in small letters -> what it may mean; refused, whatever is usual."""
    most_bare: float = math.inf
    """Largest number that may stand without a unit, where one may: 5 for a share is
    5 % to most who write it, and 500 % to us."""
    limit: float = math.inf
    """In the inside unit; from it on what people write is refused."""

    def parse(self, text: object) -> float:
        """Return ``text`` in the inside unit.

        Raises ValueError when it is a bare number, has no known unit, is negative or
        overflows; the message says what was found and what would be right.
        """
        match = None if isinstance(text, bool) else _TEXT.fullmatch(str(text).rstrip())
        if match is None:
            raise ValueError(
                f"found {text!r} for {self.what}, write a number and its unit, "
                f"as in {self.example!r}"
            )

        number = match[1]
        unit = "".join(match[2].split())
        if unit not in self.units:
            units = ", ".join((*reversed(self.people), *self.longer))
            problem = f"{unit!r} is not a unit of {self.what}, write one of {units}, "
            problem += f"as in {self.example!r}"
            if not unit:
                problem = f"a bare number ({number}) does not say its unit: "
                problem += f"add one of {units}"
            elif unit.lower() in self.unclear:  # a value only where one alone is meant
                problem = f"{unit!r} may be {self.unclear[unit.lower()]}: write which"
            raise ValueError(problem)

        numerator, denominator = self.units[unit]
        value = float(number) * numerator / denominator
        if not math.isfinite(value) or value >= self.limit:
            raise ValueError(f"{self.what} of {text!r} is too large")
        if value < 0:
            raise ValueError(f"{self.what} cannot be negative, found {text!r}")
        if not value and _NOT_ZERO.match(number):
            raise ValueError(f"{self.what} of {text!r} is too small")
        if not unit and value > self.most_bare:
            raise ValueError(
                f"found {text!r} for {self.what}, write {number} {self.people[0]} "
                f"(or {100 * value:g} {self.people[0]})"
            )
        return value + 0.0  # "-0 s" is 0.0, so that equal scenarios print alike

    def exact(self, value: float) -> str:
        """Return text that parses back to exactly ``value``, in a handy unit.

        ``value`` is finite and not negative; from `limit` on the text is one that
        `parse` refuses.
        """
        for unit in reversed(self.people):
            numerator, denominator = self.units[unit]
            ratio = value * denominator / numerator
            number = f"{ratio:.12g}"
            is_exact = float(number) * numerator / denominator == value
            if ratio >= 1 and is_exact:
                return f"{number} {unit}"
        inside = self.inside if value <= self.most_bare else _TIMES
        return f"{value!r} {inside}".rstrip()

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
        ratio = value * denominator / numerator
        if 10**digits <= abs(ratio) < _MOST_EXACT:
            return f"{ratio:,.0f} {unit}"
        return f"{ratio:.{digits}g} {unit}"


#: Of seconds and bytes: sums and products of larger ones are soon no numbers, and no
#: run of them could be read again.
_LIMIT = 1e18

RATE = Quantity(
    what="a rate",
    units=(
        _with_prefixes("bit/s", "bits/s", "bit/sec", "bps", per=8, prefixes=_LOOSE)
        | _with_prefixes("b/s", "b/sec", per=8, prefixes=_STRICT)
        | _with_prefixes("B/s", "B/sec", "Bps", "byte/s", "bytes/s", prefixes=_STRICT)
    ),
    inside="B/s",
    example="50 Gbit/s",
    people=("B/s", "kB/s", "MB/s", "Mbit/s", "GB/s", "Gbit/s"),
    unclear={
        f"{p}{end}": f"{p.upper()}bit/s or {p.upper()}B/s"
        for p in "mgt"
        for end in ("b/s", "b/sec", "bps")
    },
)
SIZE = Quantity(
    what="a size",
    units=_with_prefixes("B", "byte", "bytes", prefixes=_STRICT),
    inside="B",
    example="48 GB",
    people=("B", "kB", "MB", "GB", "TB"),
    limit=_LIMIT,
    unclear={
        f"{p.lower()}{word}": f"{p}B (bytes) or an eighth of it (bits)"
        for p in ("k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti")
        for word in ("b", "bit", "bits")
    },
)
DURATION = Quantity(
    what="a time",
    units=_spellings(
        {
            "s sec secs second seconds": (1, 1),
            "ms msec msecs millisecond milliseconds": (1, 10**3),
            "us µs \u03bcs usec usecs microsecond microseconds": (1, 10**6),
            "ns nsec nanosecond nanoseconds": (1, 10**9),
            "ps": (1, 10**12),
            "min mins minute minutes": (60, 1),
            "h hr hrs hour hours": (3600, 1),
        }
    ),
    inside="s",
    example="15 ms",
    people=("us", "ms", "s"),
    longer=("min", "h"),
    limit=_LIMIT,
    unclear={"m": "min or ms", "mi": "min or ms"},
)
RATIO = Quantity(
    what="a share",
    units={"%": (1, 100), "percent": (1, 100), _TIMES: (1, 1), "": (1, 1)},
    inside="",
    example="2 %",
    people=("%",),
    most_bare=1.0,
)


MONEY = Quantity(
    what="an amount of money",
    units=_spellings({"$ USD dollars": (1, 1)}),
    inside="$",
    example="0.20 $",
    people=("$",),
)
PRICE = Quantity(
    what="a price of time",
    units=_spellings({"$/h $/hour USD/h": (1, 1), "$/s $/second USD/s": (3600, 1)}),
    inside="$/h",
    example="0.34 $/h",
    people=("$/h",),
    longer=("$/s",),
)


def read_number(text: str) -> float:
    """Return the number that a text of others states.

    Raises ValueError where it states none, or parts digits as Python's ``1_0`` does.
    """
    if "_" in text:
        raise ValueError(f"{text!r} is no number")
    return float(text)


def format_money(value: float) -> str:
    """Return dollars for people: ``0.79 $``."""
    return MONEY.format(value, 3)


def format_rate(value: float) -> str:
    """Return bytes per second as people write NIC speeds: ``50 Gbit/s``.

    Below 1 Mbit/s bytes are the readable unit (``10 B/s``).
    """
    for unit in ("Gbit/s", "Mbit/s"):
        numerator, denominator = RATE.units[unit]
        if (ratio := value * denominator / numerator) >= 1:
            return f"{ratio:.4g} {unit}"
    return SIZE.format(value) + "/s"


def format_size(value: float) -> str:
    """Return bytes for people: ``1.5 GB``."""
    return SIZE.format(value)


def format_duration(value: float, digits: int = 4) -> str:
    """Return seconds for people: ``15 ms``; what only rounding left is 0."""
    return DURATION.format(0.0 if abs(value) < _NO_TIME else value, digits)


def format_ratio(value: float) -> str:
    """Return a ratio in percent with its sign: ``+1.2 %``; rounding leaves ``0 %``."""
    if not math.isfinite(value):
        return "-"
    text = format_number(100 * value, 3, "+") if abs(value) >= _NO_RATIO else "0"
    return f"{text} %"


def format_number(value: float, digits: int, sign: str = "") -> str:
    """Return a number of so many digits for people: ``10,480`` and not 1.048e+04."""
    text = f"{value:{sign}.{digits}g}"
    large = "e+" in text or abs(value) >= 1000
    return f"{float(text):{sign},.0f}" if large else text


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun for people: ``1 flow``, ``1,200 processes``."""
    if count == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count:,} {noun}{ending}"
