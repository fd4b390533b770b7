"""A measurement made elsewhere, on a real cluster, to be held against runs.

It is a CSV file of one of two kinds: ``iteration,seconds`` has the time of every
iteration, ``link,bytes`` what each link carried in all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise, takewhile
from pathlib import Path

from emu.errors import DataError
from emu.host.confinement import confine
from emu.interchange.headed_table import number_of, read_headed_table

_ITERATIONS = ["iteration", "seconds"]
_LINKS = ["link", "bytes"]
#: How far the first rows have to be from the others, over the others' median and over
#: the width between their quartiles, to be asked about.
_FAR = 0.1
_WIDTHS = 3.0
#: The same over the median where the others are too few to have quartiles.
_FAR_OF_FEW = 0.5
#: Iterations from which the later half tells what is usual.
_MANY = 12


class TimeUnit(StrEnum):
    """Unit of the times of a file."""

    S = "s"
    MS = "ms"
    US = "us"

    @property
    def seconds(self) -> float:
        """Seconds of one."""
        return {"s": 1.0, "ms": 1e-3, "us": 1e-6}[self]


@dataclass(frozen=True)
class Measurement:
    """Content of such a file."""

    path: Path
    unit: str
    """``seconds`` or ``bytes``."""
    values: Mapping[str, Sequence[float]]
    """Seconds of all iterations as "iteration", or the bytes of every link by name."""
    skipped: int = 0
    """Rows in front that are left out of ``values``."""
    unit_stated: bool = True
    """False where times are taken for seconds, and nobody said so."""


@confine
def read_measurement(
    path: Path, skip: int | None = None, unit: TimeUnit | None = None
) -> Measurement:
    """Return the content of a file.

    Raises DataError with its line when it is of neither kind, or holds something else
    than numbers of 0 or more, or a link twice; and when iterations in front are far
    from the others, unless ``skip`` says how many to leave out.

    Parameters
    ----------
    skip
        Number of rows in front that are left out of a file of iterations.
    unit
        Unit of the times of a file of iterations, seconds where it is None.
    """
    header, rows = read_headed_table(path)
    if header not in (_ITERATIONS, _LINKS):
        kinds = f"{','.join(_ITERATIONS)} or {','.join(_LINKS)}"
        raise DataError(f"begins with {','.join(header)!r}, write {kinds}", path=path)

    values: dict[str, float] = {}
    for number, cells in rows:
        name, value = _read_row(cells, number, path)
        if name in values:
            raise DataError(f"line {number}: {name!r} stands twice", path=path)
        values[name] = value
    if not values:
        raise DataError("holds no rows below its header", path=path)

    if header == _LINKS:
        return Measurement(
            path, "bytes", {name: [size] for name, size in values.items()}
        )
    # Rows in front are those that `skip` leaves out.
    numbers = [*map(number_of, values)]
    # Words are no numbers, of which none is below another.
    are_growing = all(earlier < later for earlier, later in pairwise(numbers))
    if not are_growing:
        problem = "has iterations that are not in order: number and sort them"
        raise DataError(problem, path=path)
    scale = (unit or TimeUnit.S).seconds
    times = [scale * value for value in values.values()]
    if skip is None:
        _check_warm_up(times, path)
    counted_times = times[skip or 0 :]
    if not counted_times:
        problem = f"--skip {skip} leaves none of its {len(times)} iterations"
        raise DataError(problem, path=path)
    return Measurement(
        path=path,
        unit="seconds",
        values={"iteration": counted_times},
        skipped=skip or 0,
        unit_stated=unit is not None,
    )


def _check_warm_up(times: Sequence[float], path: Path) -> None:
    """Raise DataError where the first times are far from all others.

    They are compared with the later half of the file, of a short one with all that
    follow. Where a quarter of the file or more is far off, it drifts: that is shown.
    """
    count = len(times)
    later = times[count // 2 :] if count >= _MANY else times[1:]
    if not later:
        return
    median = statistics.median(later)
    limit = _FAR_OF_FEW * median
    if len(later) > 2:
        first, _, third = statistics.quantiles(later, method="inclusive")
        limit = max(_FAR * median, _WIDTHS * (third - first))
    far = [*takewhile(lambda time: abs(time - median) > limit, times)]
    if not 0 < len(far) <= max(1, count // 4):
        return

    # Lengths that change bit by bit do not warm up: they have no step behind them.
    if abs(far[-1] - times[len(far)]) > limit / 2:
        rows = "row is" if len(far) == 1 else f"{len(far)} rows are"
        problem = (
            f"its first {rows} far from the others ({times[0]:.4g} s, their median "
            f"{median:.4g} s), as of a program that warms up: write --skip {len(far)} "
            "to leave out, --skip 0 to count"
        )
        raise DataError(problem, path=path)


def _read_row(
    cells: Sequence[str],
    number: int,
    path: Path,
) -> tuple[str, float]:
    name = ""
    value = math.nan
    if len(cells) == 2:
        name = cells[0].strip()
        value = number_of(cells[1])
    if not name or not 0 <= value < math.inf:
        problem = f"line {number}: {','.join(cells)!r}, write a name, and 0 or more"
        raise DataError(problem, path=path)
    return name, value
