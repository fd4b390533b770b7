"""The draws that tests try: a fifth in `make test`, all in `make nightly`.

Of examples and seeds of tests of the prediction and of trust, which take least per
draw, a third is tried. Their loops over `some` and `count` name how ``few`` are tried,
or have longer ranges: these do not know their test.

A draw is an example of Hypothesis, a number of a parameter `seed`, one that a test
loops over by `some`, or a row of a `grid`. What once found a fault is no draw: tests
name it beside them.

Tests marked `nightly` are tried by `make nightly` alone: each takes seconds, and
another that does not would see the same kind of fault.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest
from hypothesis import settings

_TRIES_ALL = os.environ.get("EMU_DRAWS") == "all"
#: 1 of so many draws is tried.
SHARE = 1 if _TRIES_ALL else 5
#: Rooms whose tests take least per draw, and 1 of how many is tried of these.
_CHEAP = ("tests/prediction/", "tests/trust/")
_CHEAP_SHARE = 1 if _TRIES_ALL else 3
#: 1 of so many rows of a grid: of a fifth short axes would lose values.
_GRID_SHARE = 1 if _TRIES_ALL else 3
#: Seeds or examples of a test that are so few are tried in any case.
FEW = 2
_SETTINGS = "_hypothesis_internal_use_settings"
_ROW_WITH_MARKS = type(pytest.param())
T = TypeVar("T")


def count(
    most: int, few: int = FEW, *, dear: bool = False, share: int | None = None
) -> int:
    """Return how many of so many draws are tried.

    ``dear``: they take seconds of CPU together; half as many are tried, of all still
    all. ``share``: 1 of so many is tried, by default of `SHARE`.
    """
    share = share or SHARE
    if dear and share > 1:
        share = 2 * share
    return max(min(most, few), -(-most // share))


def some(draws: Sequence[T], few: int = FEW, *, dear: bool = False) -> Sequence[T]:
    """Return the draws that are tried of these, where there are so few all."""
    return draws[: count(len(draws), few, dear=dear)]


def grid(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the rows that are tried of all combinations of some values.

    Every value of every axis is among them, with a share of those of each other axis.
    """
    numbered = product(*map(enumerate, axes))
    return [
        tuple(value for _, value in row)
        for row in numbered
        if sum(position for position, _ in row) % _GRID_SHARE == 0
    ]


def rarely(*row: Any) -> Any:
    """Return a row of parameters that `make nightly` alone tries."""
    return pytest.param(*row, marks=pytest.mark.nightly)


def rarely_but(step: int, rows: Iterable[Any], *, several: bool = False) -> list[Any]:
    """Return rows of a parameter of which `make nightly` alone tries all.

    Each so many-th of them is tried in any case. ``several``: a row has a value for
    each of several parameters.
    """
    found = []
    for number, row in enumerate(rows):
        if number % step == 0:
            found.append(row)
        elif isinstance(row, _ROW_WITH_MARKS):
            marks = (*row.marks, pytest.mark.nightly)
            found.append(pytest.param(*row.values, id=row.id, marks=marks))
        else:
            found.append(rarely(*row) if several else rarely(row))
    return found


def select(items: list[pytest.Item], named: Sequence[str]) -> list[pytest.Item]:
    """Return the items that are tried, and ask for fewer examples.

    ``named``: what the command line names is tried, all rows and seeds of a function.
    """
    lengths: dict[str, set[int]] = {}
    changed: set[object] = set()
    for item in items:
        function = getattr(item, "function", None)
        asked = getattr(function, _SETTINGS, None)
        if asked is not None and function not in changed:
            changed.add(function)
            dear = item.get_closest_marker("dear") is not None
            tried = count(asked.max_examples, dear=dear, share=_share_of(item))
            fewer = settings(asked, max_examples=tried)
            setattr(function, _SETTINGS, fewer)
        if (seed := _seed(item)) is not None:
            lengths.setdefault(_name(item), set()).add(seed)
    # Beyond the first gap there are seeds that were chosen.
    lasts = {
        name: next(n for n in range(len(seeds) + 1) if n not in seeds)
        for name, seeds in lengths.items()
    }
    return [
        item
        for item in items
        if SHARE == 1
        or not {item.nodeid, _name(item)}.isdisjoint(named)
        or _is_tried_daily(item, lasts)
    ]


def _is_tried_daily(item: pytest.Item, lasts: Mapping[str, int]) -> bool:
    is_rare = item.get_closest_marker("nightly") is not None
    return not is_rare and _seed(item) not in _left_out(lasts, item)


def _left_out(lasts: Mapping[str, int], item: pytest.Item) -> range:
    """Return the seeds of a test that are not tried, where it has seeds."""
    last = lasts.get(_name(item), 0)
    return range(count(last, share=_share_of(item)), last)


def _share_of(item: pytest.Item) -> int:
    return _CHEAP_SHARE if item.nodeid.startswith(_CHEAP) else SHARE


def _name(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _seed(item: pytest.Item) -> int | None:
    """Return the seed that is a parameter of a test, None where none is."""
    call = getattr(item, "callspec", None)
    found = call.params.get("seed") if call is not None else None
    return found if type(found) is int else None
