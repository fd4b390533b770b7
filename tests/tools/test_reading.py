"""Figures of what a file costs its reader, by hand, and the files of the product."""

from __future__ import annotations

import pytest

from tools import reading
from tools.reading import AIMS, Figures, find_worse, measure

DENSE = '''
def measure(one, x):
    """Return what it is."""
    capacity, sizes = x.most, x.sent
    low, high = high, low
    what = x, capacity
    return f(*what, [y for at, y in sizes])
'''


def test_a_dense_function_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair, for a swap is none; `one`, `what` and `at` are no nouns."""
    assert measure(DENSE).density == 0.0  # a small file is not held
    monkeypatch.setattr(reading, "SMALL", 4)
    figures = measure(DENSE)

    assert (figures.pairs, figures.packed, figures.words) == (1, 1, 3)
    # 8, 11, 7, 5 and 16 tokens on five lines; the docstring is none.
    assert figures.density == pytest.approx(47 / 5)


@pytest.mark.parametrize(("blank", "unparted"), [("", 1), ("\n", 0)])
def test_a_long_function_has_a_blank_line(blank: str, unparted: int) -> None:
    lines = [f"    line{n} = {n}\n" for n in range(13)]
    source = "def name():\n" + "".join(lines[:6]) + blank + "".join(lines[6:])

    assert measure(source).unparted == unparted


def test_figures_only_go_down() -> None:
    noted = Figures(density=10.0, pairs=2, packed=0, words=3, unparted=1)
    now = Figures(density=9.5, pairs=3, packed=0, words=2, unparted=1)

    assert now.exceeds(noted)
    assert now.lower(noted) == Figures(9.5, 2, 0, 2, 1)
    assert not now.lower(noted).exceeds(noted)


def test_a_new_file_has_the_aims(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = Figures(9.1, 0, 0, 0, 0)
    monkeypatch.setattr(reading, "list_files", lambda: {"emu/new.py": dense})

    (line,) = find_worse()

    assert line.startswith("emu/new.py: Figures(density=9.1")
    assert not AIMS.exceeds(AIMS)
