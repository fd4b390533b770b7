"""A sweep in a terminal: one row per combination, seeds together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.report.statistics import interval
from emu.report.terminal import plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

#: Figures of emulated points, and their columns.
_ERRORS = {"makespan_error": ">makespan error", "replay_error": ">replay error"}


def sweep_table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Table:
    """Return mean, 95 % interval and number of seeds of the makespan, best in bold.

    Parameters
    ----------
    rows
        Of a `SweepRecord`, at least one.
    keys
        The varied keys.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        group = tuple(str(row["values"][key]) for key in keys)
        groups.setdefault(group, []).append(row["figures"])
    errors = [key for key in _ERRORS if key in rows[0]["figures"]]
    columns = [*keys, ">makespan", ">± (95 %)", ">seeds"]
    table = plain_table("", *columns, *(_ERRORS[key] for key in errors))
    means = {
        group: interval([float(figures["makespan"]) for figures in of_group])
        for group, of_group in groups.items()
    }
    best = min(found.mean for found in means.values())
    for group, found in means.items():
        cells = [*group, format_duration(found.mean, 6)]
        cells += [format_duration(found.half) if found.half else "", str(found.count)]
        for key in errors:
            mean = interval([float(f[key]) for f in groups[group]]).mean
            cells.append(format_ratio(mean))
        table.add_row(*cells, style="bold" if found.mean == best else "")
    return table
