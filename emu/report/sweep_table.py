"""A sweep in a terminal: one row per combination, seeds together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.report.statistics import interval, paired, paired_text
from emu.report.terminal import plain_table
from emu.units import format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

#: Figures of emulated points, and their columns.
_ERRORS = {"makespan_error": ">makespan error", "replay_error": ">replay error"}


def sweep_table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Table:
    """Return mean, 95 % interval and number of seeds of the makespan, best in bold.

    Every combination is compared with the best, seed by seed: a difference within its
    own 95 % interval is a tie.

    Parameters
    ----------
    rows
        Of a `SweepRecord`, at least one.
    keys
        The varied keys.
    """
    groups: dict[tuple[str, ...], dict[Any, Mapping[str, Any]]] = {}
    for row in rows:
        group = tuple(str(row["values"][key]) for key in keys)
        groups.setdefault(group, {})[row["values"]["seed"]] = row["figures"]
    errors = [key for key in _ERRORS if key in rows[0]["figures"]]
    columns = [*keys, ">makespan", ">± (95 %)", ">seeds", ">against the best"]
    table = plain_table("", *columns, *(_ERRORS[key] for key in errors))
    makespans = {
        group: {seed: float(figures["makespan"]) for seed, figures in found.items()}
        for group, found in groups.items()
    }
    means = {group: interval([*found.values()]) for group, found in makespans.items()}
    best = min(means, key=lambda group: means[group].mean)
    for group, found in means.items():
        cells = [*group, format_duration(found.mean, 6)]
        cells += [format_duration(found.half) if found.half else "", str(found.count)]
        beside = paired(makespans[group], makespans[best])
        cells.append("" if group == best else paired_text(beside))
        for key in errors:
            mean = interval([float(f[key]) for f in groups[group].values()]).mean
            cells.append(format_ratio(mean))
        table.add_row(*cells, style="bold" if group == best else "")
    return table
