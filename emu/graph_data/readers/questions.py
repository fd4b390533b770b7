"""Questions about files that can be read in more than one way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.errors import DataError
from emu.names import printable

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


def ask(question: str, readings: Sequence[Reading], path: Path) -> DataError:
    """Return the one error that names every way to read a file, and its option."""
    ways = [f"{way.meaning} ({way.counts}): {way.option}" for way in readings]
    problem = f"{question} {'; or '.join(ways)}"
    return DataError(printable(problem, limit=_MOST), path=path)


def size_of(vertices: int, edges: int) -> str:
    """Return the size of a graph for people."""
    return f"{vertices:,} vertices, {edges:,} edges"


def name_some(names: Sequence[str]) -> str:
    """Return the first of some names, and how many follow."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(printable(name, 60) for name in names[:_SHOWN]) + more


def count_left_out(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return how many columns or arrays nobody asked for, and their names."""
    if not names:
        return ()
    plural = kind if len(names) == 1 else f"{kind}s"
    return (f"{len(names)} {plural}: {name_some(names)}",)
