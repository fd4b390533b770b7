"""Record of a sweep's finished points: one JSON line each, and the table of all.

A line is appended in one piece and flushed to the disk before the next point begins.
Whatever kills the sweep, at most the line being written is torn; it is dropped when the
record is opened again, and its point is carried out anew.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from emu.errors import DataError
from emu.host.input_file import MOST_TEXT, check_shape, open_input, parse_json
from emu.runs.problem_json import Content, shape
from emu.runs.run_directory import RunDirectory, disk_errors

#: Version of the lines.
VERSION = 1


@cache
def _row_shape() -> Any:
    """Return the type of a line."""
    makespan = Annotated[float, Field(ge=0, allow_inf_nan=False)]
    may_lack = {
        "makespan_error": float,
        "replay_error": float,
        "cost": float,
        "value": float,
    }
    figures = shape("Figures", may_lack, makespan=makespan)
    return shape("Row", key=str, values=dict[str, str | int], figures=figures)


class SweepRecord:
    """The finished points of a sweep, in ``points.jsonl`` of a directory.

    ``rows``: key of a point to its row, in the order of finishing.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "points.jsonl"
        self.rows: dict[str, Content] = {}
        with disk_errors("cannot be used", self.path):
            directory.mkdir(parents=True, exist_ok=True)
            content = b""
            if self.path.exists():
                with open_input(self.path, MOST_TEXT) as file:
                    content = file.read()
            # What follows the last line end was torn. It goes at once, or the next line
            # that is appended would be glued to it.
            end = content.rfind(b"\n") + 1
            if end < len(content):
                os.truncate(self.path, end)

        lines = content[:end].splitlines()
        for number, line in enumerate(lines, start=1):
            row = self._read_line(number, line)
            self.rows[row["key"]] = row

    def _read_line(self, number: int, line: bytes) -> Content:
        try:
            row = parse_json(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            problem = f"line {number} is not JSON: {error}"
            raise DataError(problem, path=self.path) from error
        # The version before the shape: a line of another emu is not damaged.
        version = None
        if isinstance(row, dict):
            version = row.get("version")
        if version != VERSION or "key" not in row:
            problem = (
                f"line {number} is of version {version!r}, this emu writes "
                f"{VERSION}; choose another --out"
            )
            raise DataError(problem, path=self.path)

        place = f"line {number}: "
        check_shape(row, shape=_row_shape(), path=self.path, at=place)
        content: Content = row
        return content

    def take(self, key: str, values: Mapping[str, Any]) -> bool:
        """Return True where a point is finished, and name it by this sweep's values.

        One of another sweep is the same scenario, changed by other keys.
        """
        if key not in self.rows:
            return False
        row = self.rows[key]
        self.rows[key] = {**row, "values": dict(values)}
        return True

    def add(
        self,
        key: str,
        values: Mapping[str, Any],
        figures: Mapping[str, Any],
    ) -> None:
        """Append a finished point.

        ``values``: values that were varied, and the seed. ``figures``: results of the
        point; finite numbers or text. Raises DataError when the disk refuses,
        ValueError when a figure is NaN or infinite.
        """
        row = {
            "version": VERSION,
            "key": key,
            "values": dict(values),
            "figures": dict(figures),
        }
        # NaN is no JSON: other readers would refuse the whole file.
        line = json.dumps(row, allow_nan=False) + "\n"

        refusals = disk_errors("cannot be written", self.path)
        # Unbuffered: the line goes to the kernel in one write, torn at its end only.
        with refusals, self.path.open("ab", buffering=0) as file:
            file.write(line.encode())
            os.fsync(file.fileno())
        # Only now: a point whose line the disk refused is not finished.
        self.rows[key] = row

    def write_table(self, keys: Iterable[str]) -> Path:
        """Write ``points.csv`` with the finished ones of ``keys``; return its path."""
        rows = [self.rows[key] for key in keys if key in self.rows]
        # A later point may have keys that the first one
        # lacks, as `value` where it has prices.
        columns: dict[str, None] = {}
        for part in ("values", "figures"):
            for row in rows:
                columns |= dict.fromkeys(row[part])

        text = io.StringIO()
        writer = csv.DictWriter(text, list(columns), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            cells = {**row["values"], **row["figures"]}
            writer.writerow(cells)
        lines = text.getvalue().splitlines()
        directory = RunDirectory(self.directory)
        directory.write_lines("points.csv", lines)
        return self.directory / "points.csv"
