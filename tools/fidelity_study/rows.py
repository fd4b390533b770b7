"""Trials on disk, one row each, so that what was run is never run again."""

from __future__ import annotations

import csv
import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from emu.atomic_file import write_atomic
from emu.errors import DataError
from tools.fidelity_study.trial import Trial

if TYPE_CHECKING:
    from pathlib import Path

_TRIAL = TypeAdapter(Trial)


@dataclass(frozen=True)
class Row:
    """One trial and its place.

    Parameters
    ----------
    group
        A scenario that is repeated, ``name@scale``, or what is compared with each
        other.
    number
        Repeat, or variant, from 0.
    expected
        Makespan that was simulated before the run, seconds.
    seconds
        Wall time of the trial from the first process to the last file, with retries.
    """

    group: str
    number: int
    expected: float
    seconds: float
    trial: Trial

    @property
    def scenario(self) -> str:
        """The group without its scale."""
        return self.group.partition("@")[0]

    @property
    def scale(self) -> str:
        """The word for its time scale, see `Manner`; empty where there is none."""
        return self.group.partition("@")[2]

    def to_csv(self) -> dict[str, Any]:
        """Return the row with the trial's figures beside its own."""
        own = {name: getattr(self, name) for name in _OWN}
        return own | self.trial.to_json()

    @classmethod
    def from_csv(cls, row: dict[str, str]) -> Row:
        """Return what `to_csv` gave.

        Raises
        ------
        ValueError
            When a figure is missing or no number.
        """
        rest = {name: value for name, value in row.items() if name not in _OWN}
        try:
            own = row["group"], int(row["number"])
            took = float(row["expected"]), float(row["seconds"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no such column: {error}") from error
        return cls(*own, *took, _TRIAL.validate_python(rest))


_OWN = ("group", "number", "expected", "seconds")
_COLUMNS = [*_OWN, *(field.name for field in dataclasses.fields(Trial))]


class Ledger:
    """Rows of one file; read when it is opened, written after every addition.

    Raises
    ------
    DataError
        When the file is there and holds something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, int], Row] = {}
        if path.exists():
            with path.open(newline="") as file:
                for line in csv.DictReader(file):
                    self._keep(self._read(line))

    def _read(self, line: dict[str, str]) -> Row:
        try:
            return Row.from_csv(line)
        except ValueError as error:
            problem = f"holds no trials of this version: {error}; choose another folder"
            raise DataError(problem, path=str(self._path)) from error

    def _keep(self, row: Row) -> None:
        self._rows[row.group, row.number] = row

    @property
    def rows(self) -> list[Row]:
        """All, in the order in which they were added."""
        return list(self._rows.values())

    def get(self, group: str, number: int) -> Row | None:
        """Return a row, None when it has not been run yet."""
        return self._rows.get((group, number))

    def of(self, group: str) -> list[Row]:
        """Return the rows of a group by number."""
        mine = [row for row in self._rows.values() if row.group == group]
        return sorted(mine, key=lambda row: row.number)

    def add(self, row: Row) -> None:
        """Take a row up and write all of them, whole or not at all."""
        self._keep(row)
        self.write()

    def write(self) -> None:
        """Write all rows."""
        partial = self._path.with_suffix(".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS)
            writer.writeheader()
            writer.writerows(row.to_csv() for row in self._rows.values())
        partial.replace(self._path)


def insist(path: Path, settings: dict[str, Any]) -> None:
    """Keep the settings of a folder of trials; refuse to mix trials of others.

    Raises
    ------
    DataError
        When the folder holds trials with other settings.
    """
    if not path.exists():
        write_atomic(path, json.dumps(settings) + "\n")
        return
    found = json.loads(path.read_text())
    if found != settings:
        problem = f"its trials were run with {found}, not {settings}; choose another"
        raise DataError(problem, path=str(path))
