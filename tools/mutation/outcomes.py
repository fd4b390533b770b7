"""The table of outcomes: a row as soon as one is known, and what was killed before."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from tools.mutation.campaign import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tools.mutation.campaign import Fault

COLUMNS = ("file", "means", "new", "fate", "seen by", "seconds")


def append(path: Path, found: Outcome) -> None:
    """Add a row to the table at ``path``, which is made where there is none."""
    fault, exists = found.fault, path.exists()
    row = (fault.file, fault.means, fault.new, found.fate, found.seen_by)
    with path.open("a", newline="") as file:
        rows = csv.writer(file)
        if not exists:
            rows.writerow(COLUMNS)
        rows.writerow((*row, f"{found.seconds:.1f}"))


def killed(path: Path, chosen: Sequence[Fault]) -> list[Outcome]:
    """Return the outcomes of those of ``chosen`` that the table says were killed."""
    if not path.exists():
        return []
    faults = {(fault.file, fault.means, fault.new): fault for fault in chosen}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["fate"] == "killed"]
    return [
        Outcome(fault, "killed", row["seen by"], float(row["seconds"]))
        for row in rows
        if (fault := faults.get((row["file"], row["means"], row["new"])))
    ]
