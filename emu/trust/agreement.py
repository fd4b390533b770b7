"""Compare what a file says with what it should say, key by key."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from emu.trust.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.trust.violation import Findings

#: Share by which a number may be off that was computed again: sums in another order.
EXACT = 1e-9
#: Differences that are named of one file: whoever has more mends these first.
_MOST = 50
#: Characters of a value that are shown.
_TOLD = 60


def differences(found: Any, wanted: Any, by: str, at: str = "") -> Iterator[str]:
    """Yield a sentence per value that differs, is missing, or should not be there.

    Parameters
    ----------
    found, wanted
        JSON values; lists and tuples are alike.
    by
        Name of what ``wanted`` follows from.
    at
        Where both are, for the sentences.
    """
    here = at or "the whole"
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in {**wanted, **found}:
            below = f"{at}.{key}".removeprefix(".")
            if key not in found:
                yield f"{below} is missing, {by} says {_told(wanted[key])}"
            elif key not in wanted:
                yield f"{below} is {_told(found[key])}, {by} has no such key"
            else:
                yield from differences(found[key], wanted[key], by, below)
    elif isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        if len(wanted) != len(found):
            yield f"{here} has {len(found)} items, {by} says {len(wanted)}"
            return
        for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(one, other, by, f"{at}[{place}]")
    elif not _alike(found, wanted):
        yield f"{here} is {_told(found)}, {by} says {_told(wanted)}"


def _alike(found: Any, wanted: Any) -> bool:
    numbers = (int, float)
    plain = not isinstance(found, bool) and not isinstance(wanted, bool)
    if plain and isinstance(found, numbers) and isinstance(wanted, numbers):
        return found == wanted or math.isclose(found, wanted, rel_tol=EXACT)
    return type(found) is type(wanted) and bool(found == wanted)


def _told(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= _TOLD else f"{said[:_TOLD]}..."


def agreement(name: str, found: Any, wanted: Any, by: str) -> Findings:
    """Return how many values were compared, and those that differ, as violations.

    Parameters
    ----------
    name
        File, which is the constraint that a difference breaks.
    """
    said = [*islice(differences(found, wanted, by), _MOST)]
    return _count(wanted), [disagreement(name, sentence) for sentence in said]


def disagreement(name: str, sentence: str) -> Violation:
    """Return the violation of a file that does not say what it should."""
    return Violation(name, name, 1, "values", sentence)


def _count(value: Any) -> int:
    if isinstance(value, dict | list | tuple):
        items = value.values() if isinstance(value, dict) else value
        return sum(map(_count, items))
    return 1
