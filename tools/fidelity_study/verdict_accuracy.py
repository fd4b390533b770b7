"""Whether verdicts of runs on a host that cannot keep up can be believed."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Row = dict[str, Any]

#: Off by more must be flagged; within this must not be.
OFF, NEAR = 0.03, 0.01
#: A bound this close to the error, as a share of the makespan, is that error.
_EXACT = 1e-6


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that `write_rows` wrote, none where there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write every run; a figure that one run lacks is left empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)


def row_of(trial: Mapping[str, Any], verdict: Mapping[str, Any]) -> Row:
    """Return one run, flat: the trial, the host's figures, lateness and reasons."""
    host = {f"host_{name}": value for name, value in verdict.get("host", {}).items()}
    late = {f"late_{n}": value for n, value in verdict.get("lateness", {}).items()}
    reasons = " / ".join(verdict.get("reasons", ()))
    return {**trial, **late, **host, "reasons": reasons}


def errors(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return how far each run is off, as a share.

    Against the replay of its own times or against the simulation before the run,
    whichever is more: a task that a host prolonged is replayed as long as it was.
    """
    apart = [
        [abs(float(row[n])) for n in ("replay_error", "makespan_error")] for row in rows
    ]
    worst: NDArray[np.float64] = np.array(apart).reshape(-1, 2).max(axis=1)
    return worst


def table(rows: Sequence[Row]) -> list[str]:
    """Return a line per condition and one for all."""
    names = list(dict.fromkeys(row["condition"] for row in rows))
    title = (
        "condition   runs failed | error p50    p95    max % | off flagged | "
        "near alarms untrusted | covered  bound/error p50"
    )
    lines = [_line(n, [r for r in rows if r["condition"] == n]) for n in names]
    return [title, *lines, _line("all", rows)]


def _line(name: str, rows: Sequence[Row]) -> str:
    done = [row for row in rows if row["trust"] != "failed"]
    start = f"{name:11} {len(rows):4} {len(rows) - len(done):6}"
    if not done:
        return start
    error, bound = errors(done), np.array([float(row["bound"]) for row in done])
    trust = np.array([row["trust"] for row in done])
    off, near = error > OFF, error <= NEAR
    p50, p95 = 100 * np.percentile(error, [50, 95])
    ratio = float(np.median(bound / np.maximum(error, 1e-9)))
    return (
        f"{start} | {p50:9.3f} {p95:6.2f} {100 * error.max():8.2f} "
        f"| {off.sum():3} {(off & (trust != 'trusted')).sum():7} "
        f"| {near.sum():4} {(near & (trust != 'trusted')).sum():6} "
        f"{(near & (trust == 'untrusted')).sum():9} "
        f"| {100 * (bound >= error - _EXACT).mean():5.1f} % {ratio:12.2f}"
    )
