"""A measurement made elsewhere, on a real cluster, to be held against runs.

It is a CSV file of one of two kinds: ``iteration,seconds`` has the time of every
iteration, ``link,bytes`` what each link carried in all.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emu.errors import DataError
from emu.host.confinement import confine
from emu.host.input_file import one_error, read_text

_ITERATIONS = ["iteration", "seconds"]
_LINKS = ["link", "bytes"]


@dataclass(frozen=True)
class Measurement:
    """Content of such a file."""

    path: Path
    unit: str
    """``seconds`` or ``bytes``."""
    values: Mapping[str, Sequence[float]]
    """Seconds of all iterations as "iteration", or the bytes of every link by name."""


@confine
def read_measurement(path: Path) -> Measurement:
    """Return the content of a file.

    Raises DataError with its line when it is of neither kind, or holds something else
    than numbers of 0 or more, or a link twice.
    """
    with one_error(path):
        lines = list(csv.reader(read_text(path).removeprefix("\ufeff").splitlines()))
    header = [cell.strip() for cell in lines[0]] if lines else []
    if header not in (_ITERATIONS, _LINKS):
        kinds = f"{','.join(_ITERATIONS)} or {','.join(_LINKS)}"
        raise DataError(f"begins with {','.join(header)!r}, write {kinds}", path=path)

    values: dict[str, float] = {}
    for number, cells in enumerate(lines[1:], 2):
        if not cells:
            continue
        name, value = _read_row(cells, number, path)
        if name in values:
            raise DataError(f"line {number}: {name!r} stands twice", path=path)
        values[name] = value
    if not values:
        raise DataError("holds no rows below its header", path=path)

    if header == _ITERATIONS:
        return Measurement(path, "seconds", {"iteration": [*values.values()]})
    return Measurement(path, "bytes", {name: [size] for name, size in values.items()})


def _read_row(cells: Sequence[str], number: int, path: Path) -> tuple[str, float]:
    name = ""
    value = math.nan
    if len(cells) == 2:
        name = cells[0].strip()
        value = _read_number(cells[1])
    if not name or not 0 <= value < math.inf:
        problem = f"line {number}: {','.join(cells)!r}, write a name, and 0 or more"
        raise DataError(problem, path=path)
    return name, value


def _read_number(text: str) -> float:
    """Return a number, not a number where the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
