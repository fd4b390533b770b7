"""The runner of all studies: options, rows that are never computed again, a table."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from pydantic import TypeAdapter

from emu.errors import DataError, EmulatorError
from emu.host.files import whole_file, write_atomic


class Case(Protocol):
    """A row: a frozen dataclass of words and numbers with the name of its case."""

    @property
    def case(self) -> str:
        """The name; several rows may share one."""


R = TypeVar("R", bound=Case)
#: The name of a case, and what computes its rows.
Work: TypeAlias = tuple[str, Callable[[], Sequence[R]]]


class Ledger(Generic[R]):
    """Rows of one CSV file by case; read when it is opened, written after additions.

    Raises
    ------
    DataError
        When the file is there and holds something else.
    """

    def __init__(self, path: Path, row: type[R]) -> None:
        self._path, self._cases = path, dict[str, list[R]]()
        self._columns = [field.name for field in dataclasses.fields(row)]  # type: ignore[arg-type]
        if not path.exists():
            return
        adapter = TypeAdapter(row)
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                try:
                    found = adapter.validate_python(line)
                except ValueError as error:
                    problem = f"holds no rows of this version: {error}; name another"
                    raise DataError(problem, path=str(path)) from error
                self._cases.setdefault(found.case, []).append(found)

    def __contains__(self, case: str) -> bool:
        return case in self._cases

    @property
    def rows(self) -> list[R]:
        """All, in the order in which they were added."""
        return [row for rows in self._cases.values() for row in rows]

    def add(self, rows: Iterable[R]) -> None:
        """Take rows up, and write all of them, whole or not at all."""
        for row in rows:
            self._cases.setdefault(row.case, []).append(row)
        with whole_file(self._path) as partial, partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(dataclasses.asdict(row) for row in self.rows)  # type: ignore[call-overload]


def insist(path: Path, settings: dict[str, Any]) -> None:
    """Keep the settings of a folder of rows; refuse to mix in rows of others.

    Raises DataError when the folder holds rows with other settings.
    """
    if not path.exists():
        write_atomic(path, json.dumps(settings) + "\n")
    elif (found := json.loads(path.read_text())) != settings:
        problem = f"its rows were made with {found}, not {settings}; choose another"
        raise DataError(problem, path=str(path))


def _nothing(parser: argparse.ArgumentParser) -> None:
    """Add no option."""


@dataclass(frozen=True, kw_only=True)
class Study(Generic[R]):
    """One study.

    Parameters
    ----------
    row
        Class of its rows, which stand in OUT/rows.csv.
    work
        Yields every case, also those that are there already.
    table
        Returns the lines that all rows together come to.
    options
        Adds options to those of all studies.
    line
        Words on one row, printed when it is new.
    settled
        Options that the rows of one folder have in common.
    wrong
        Whether the rows show something that must not be: the exit status is 1 then.
    """

    row: type[R]
    work: Callable[[argparse.Namespace], Iterable[Work[R]]]
    table: Callable[[list[R], argparse.Namespace], Iterable[str]]
    options: Callable[[argparse.ArgumentParser], None] = _nothing
    line: Callable[[R], str] = str
    settled: tuple[str, ...] = ()
    wrong: Callable[[list[R]], bool] = lambda _: False

    def main(self, name: str, about: str, arguments: Sequence[str]) -> int:
        """Compute the rows that are missing, and print the table.

        Return 1 where a case failed or the rows are wrong, 0 otherwise.
        """
        options = self.parsed(name, about, arguments)
        out: Path = options.out
        out.mkdir(parents=True, exist_ok=True)
        if self.settled:
            settings = {word: getattr(options, word) for word in self.settled}
            insist(out / "settings.json", settings)
        ledger, failed = Ledger(out / "rows.csv", self.row), False
        began = time.monotonic()
        for number, (case, found) in enumerate(self._missing(ledger, options), 1):
            if isinstance(found, EmulatorError):
                print(f"{case}: {found}", flush=True)
                failed = True
                continue
            ledger.add(found)
            took = f"{number:4} {time.monotonic() - began:7.1f} s  "
            print(*(took + self.line(row) for row in found[:1]), sep="\n", flush=True)
        lines = list(self.table(ledger.rows, options)) if ledger.rows else []
        write_atomic(out / "table.txt", "\n".join(lines) + "\n")
        print("\n".join(lines))
        return int(failed or self.wrong(ledger.rows))

    def parsed(
        self, name: str, about: str, arguments: Sequence[str]
    ) -> argparse.Namespace:
        """Return the options, those of all studies and its own."""
        parser = argparse.ArgumentParser(
            prog=f"study {name}",
            description=about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = parser.add_argument
        add("out", type=Path, nargs="?", default=Path("runs", name), help="folder")
        add("--only", action="append", help="cases whose name holds this; repeatable")
        add("--budget", type=float, default=math.inf, help="minutes until none starts")
        add("--jobs", type=int, default=1, help="cases at a time; 1 over sockets")
        self.options(parser)
        return parser.parse_args(arguments)

    def _missing(
        self, ledger: Ledger[R], options: argparse.Namespace
    ) -> Iterator[tuple[str, Sequence[R] | EmulatorError]]:
        """Yield the rows of what is not there yet, as long as there is time."""
        until = time.monotonic() + 60 * options.budget
        todo = (
            (case, measure)
            for case, measure in self.work(options)
            if case not in ledger
            and (not options.only or any(text in case for text in options.only))
        )
        if options.jobs > 1:
            with ProcessPoolExecutor(options.jobs) as pool:
                jobs = {pool.submit(_tried, measure): case for case, measure in todo}
                for job in as_completed(jobs):
                    yield jobs[job], job.result()
            return
        for case, measure in todo:
            if time.monotonic() > until:
                return
            yield case, _tried(measure)


def _tried(measure: Callable[[], Sequence[R]]) -> Sequence[R] | EmulatorError:
    try:
        return measure()
    except EmulatorError as error:
        return error


POINTS = (0, 5, 25, 50, 75, 90, 95, 99, 100)


def heading(name: str, count: str = "") -> str:
    """Return the line above lines of `distribution`."""
    cells = ["min", *(f"p{point}" for point in POINTS[1:-1]), "max"]
    return _line(name, count, cells)


def distribution(name: str, values: Iterable[float], factor: float = 100.0) -> str:
    """Return a line of percentiles of what is finite; 100 makes per cent of shares."""
    known = np.array([value for value in values if math.isfinite(value)])
    if not len(known):
        return _line(name, "0", ["-"] * len(POINTS))
    points = np.percentile(known, POINTS) * factor
    return _line(name, str(len(known)), [f"{value:.3f}" for value in points])


def _line(name: str, count: str, cells: Sequence[str]) -> str:
    return f"{name:28}{count:>8}" + "".join(f"{cell:>9}" for cell in cells)
