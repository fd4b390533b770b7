"""A measurement made elsewhere, on a real cluster, beside runs and simulations.

It is a CSV file of one of two kinds: ``iteration,seconds`` has the time of every
iteration, ``link,bytes`` what each link carried in all.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from rich.table import Table

from emu.errors import DataError
from emu.host.input_file import one_error, read_text
from emu.prediction.analysis.throughput import pace
from emu.problem import Schedule
from emu.problem.fields.suggestion import nearest
from emu.report.many_runs import schedules_of
from emu.report.terminal import plain_table
from emu.runs.intervals import Interval, interval
from emu.runs.recorded_run import RecordedRun
from emu.runs.result import Result, port_rows, relative_error
from emu.units import format_duration, format_ratio, format_size

_ITERATIONS = ["iteration", "seconds"]
_LINKS = ["link", "bytes"]
#: What was measured, by name: one "iteration", or every link.
Measured: TypeAlias = Mapping[str, Interval]


@dataclass(frozen=True)
class Measurement:
    """Content of such a file."""

    path: Path
    unit: str
    """``seconds`` or ``bytes``."""
    figures: Measured

    def rows(self, runs: Sequence[RecordedRun]) -> Iterator[Result]:
        """Yield every figure beside that of every schedule of the runs.

        ``error`` is of the schedule against the measurement, None where that is 0.
        Raises DataError when a run has no such link, or several jobs.
        """
        for run in runs:
            for kind, schedule in schedules_of(run).items():
                here = self._figures_of(run, schedule)
                for name, measured in self.figures.items():
                    there = measured.mean
                    yield {
                        "run": run.name,
                        "schedule": kind,
                        "what": name,
                        "measured": there,
                        "half": measured.half,
                        "here": here[name],
                        "error": relative_error(here[name], there) if there else None,
                    }

    def _figures_of(self, run: RecordedRun, schedule: Schedule) -> dict[str, float]:
        if self.unit == "seconds":
            seconds = pace(schedule, None).iteration_seconds
            if seconds is None:
                problem = f"{run.name} has several jobs, and no iteration of all"
                raise DataError(problem, path=self.path)
            return {"iteration": seconds}
        here = {row["port"]: row["bytes"] for row in port_rows(schedule)}
        for name in self.figures:
            if name not in here:
                problem = f"{run.name} has no link {name!r}, {nearest(name, here)}"
                raise DataError(problem, path=self.path)
        return here


def read_measurement(path: Path) -> Measurement:
    """Return the content of a file.

    Raises DataError with its line when it is of neither kind, or holds something else
    than numbers of 0 or more, or a link twice.
    """
    with one_error(path):
        lines = list(csv.reader(read_text(path).removeprefix("\ufeff").splitlines()))
    header = [cell.strip() for cell in lines[0]] if lines else []
    if header not in (_ITERATIONS, _LINKS):
        both = " or ".join(",".join(some) for some in (_ITERATIONS, _LINKS))
        raise DataError(f"begins with {','.join(header)!r}, write {both}", path=path)
    values: dict[str, float] = {}
    for number, cells in enumerate(lines[1:], 2):
        if cells:
            name, value = _read_row(cells, number, path)
            if name in values:
                raise DataError(f"line {number}: {name!r} stands twice", path=path)
            values[name] = value
    if not values:
        raise DataError("holds no rows below its header", path=path)
    if header == _ITERATIONS:
        return Measurement(path, "seconds", {"iteration": interval([*values.values()])})
    figures = {name: Interval(value, 0.0, 1) for name, value in values.items()}
    return Measurement(path, "bytes", figures)


def _read_row(cells: Sequence[str], number: int, path: Path) -> tuple[str, float]:
    name, text = (cells[0].strip(), cells[1].strip()) if len(cells) == 2 else ("", "")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not name or not 0 <= value < math.inf:
        problem = f"line {number}: {','.join(cells)!r}, write a name, and 0 or more"
        raise DataError(problem, path=path)
    return name, value


def measurement_table(measurement: Measurement, runs: Sequence[RecordedRun]) -> Table:
    """Return a row per figure and schedule; the error is against the measurement."""
    title = f"Measured elsewhere: {measurement.path.name}"
    columns = (">measured", ">±", ">here", ">error")
    table = plain_table(title, "run", "schedule", "what", *columns)
    is_time = measurement.unit == "seconds"
    write = partial(format_duration, digits=5) if is_time else format_size
    for row in measurement.rows(runs):
        measured, here = (write(row[key]) for key in ("measured", "here"))
        half = write(row["half"]) if row["half"] else ""
        error = "" if row["error"] is None else format_ratio(row["error"])
        cells = measured, half, here, error
        table.add_row(row["run"], row["schedule"], row["what"], *cells)
    return table
