"""Questions about files that can be read in more than one way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.errors import DataError
from emu.names import printable
from emu.units import format_count

#: Letters of a question, and names that it lists.
_MOST = 900
_SHOWN = 8


@dataclass(frozen=True)
class Reading:
    """One way to read a file."""

    meaning: str
    """Columns or lines, and the use they are put to."""
    counts: str
    """Counts that come of it: vertices, edges, matches."""
    option: str
    """Option that decides for it."""


def ask(
    question: str,
    readings: Sequence[Reading],
    path: Path,
) -> DataError:
    """Return the one error that names every way to read a file, and its option."""
    ways = [f"{way.meaning} ({way.counts}): {way.option}" for way in readings]
    text = "; or ".join(ways)
    problem = f"{question} {text}"
    return DataError(printable(problem, limit=_MOST), path=path)


def size_of(vertices: int, edges: int) -> str:
    """Return the size of a graph for people."""
    return f"{vertices:,} vertices, {edges:,} edges"


def name_some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many follow."""
    shown_names = [printable(name, 60) for name in names[:_SHOWN]]
    text = ", ".join(shown_names)
    rest = len(names) - _SHOWN
    if rest > 0:
        text += f" and {rest} more"
    return text


def count_left_out(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return how many columns or arrays nobody asked for, and their names."""
    if not names:
        return ()
    count = format_count(len(names), kind)
    return (f"{count}: {name_some(names)}",)
