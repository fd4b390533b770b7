"""Curve of accuracy that was recorded elsewhere, by a training or from a paper.

It is a CSV file of ``step,accuracy`` or ``epoch,accuracy``, a look at the training per
line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from emu.errors import DataError
from emu.host.confinement import confine
from emu.interchange.headed_table import number_of, read_headed_table

_UNITS = ("step", "epoch")


@dataclass(frozen=True)
class AccuracyCurve:
    """Content of such a file."""

    path: Path
    unit: str
    """``step`` or ``epoch``."""
    moments: tuple[float, ...]
    """Steps or epochs that were taken at each look, growing."""
    accuracy: tuple[float, ...]
    """Share that each look has seen, from 0 to 1."""


@confine
def read_curve(path: Path) -> AccuracyCurve:
    """Return the content of a file.

    Raises DataError with its line where it is another file: numbers of steps that are
    not whole, moments that do not grow, accuracies that are no shares from 0 to 1.
    """
    header, rows = read_headed_table(path)
    if len(header) != 2 or header[0] not in _UNITS or header[1] != "accuracy":
        columns = ",".join(header)
        problem = f"begins with {columns!r}, write step,accuracy or epoch,accuracy"
        raise DataError(problem, path=path)

    unit = header[0]
    moments: list[float] = []
    shares: list[float] = []
    for number, cells in rows:
        if len(cells) != 2:
            problem = f"{','.join(cells)!r}, write {unit},accuracy"
            raise DataError(f"line {number}: {problem}", path=path)

        moment = number_of(cells[0])
        share = number_of(cells[1])
        last = moments[-1] if moments else 0.0
        problem = _problem_of_moment(unit, moment, last)
        # Written so that what is not a number is refused.
        if not problem and not 0 <= share <= 1:
            problem = f"accuracy {cells[1].strip()!r}, write a share from 0 to 1"
        if problem:
            raise DataError(f"line {number}: {problem}", path=path)
        moments.append(moment)
        shares.append(share)
    return AccuracyCurve(
        path=path,
        unit=unit,
        moments=tuple(moments),
        accuracy=tuple(shares),
    )


def _problem_of_moment(unit: str, moment: float, last: float) -> str:
    """Return what is wrong with a moment behind the last; empty if nothing is."""
    if not 0 < moment < math.inf:
        return f"the {unit} is no number above 0"
    if unit == "step" and not moment.is_integer():
        return f"step {moment:g} is no whole number"
    if moment <= last:
        return f"{unit} {moment:g} stands behind {last:g}, write them in order"
    return ""
