"""Makespans of many runs side by side, with intervals where runs were repeated."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.report.plot_style import WIDTH, ink, legend_above, new_figure, palette
from emu.report.statistics import Interval, interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    Values = dict[tuple[str, ...], list[float]]


def bars(
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    width: float = WIDTH,
) -> Figure:
    """Return horizontal bars with 95 % intervals.

    Parameters
    ----------
    groups
        Name of the group (a row) -> name of the series -> values, whose mean is drawn.
    width
        Inches.
    """
    series = list(dict.fromkeys(name for row in groups.values() for name in row))
    thick = 0.8 / max(len(series), 1)
    figure = new_figure(0.9 + len(groups) * (0.16 + 0.17 * len(series)), width)
    axes = figure.subplots()
    widest, shades = 0.0, palette(len(series))
    for number, name in enumerate(series):
        for row, values in enumerate(groups.values()):
            if name not in values:
                continue
            found = interval(values[name])
            widest = max(widest, found.mean + found.half)
            place = row + (number - (len(series) - 1) / 2) * thick
            bar = axes.barh(
                place,
                found.mean,
                thick * 0.92,
                color=shades[number],
                label=name if row == 0 else None,
            )
            bar[0].set_gid(f"bar-{row}-{number}")
            if found.half:
                axes.errorbar(
                    found.mean, place, xerr=found.half, color=ink(), lw=0.9, capsize=2
                )
            axes.annotate(
                f" {found.mean:.4g}" + (f" ± {found.half:.2g}" if found.half else ""),
                (found.mean + found.half, place),
                va="center",
                fontsize=6.5,
            )
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(0, 1.16 * widest or 1.0)
    axes.set_xlabel("makespan (s)")
    axes.grid(visible=False, axis="y")
    if len(series) > 1:
        legend_above(axes)
    return figure


#: Lines differ in grey too.
_MARKERS = "os^Dvx+"


def sweep_figure(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Figure:
    """Return the makespan as lines over the first varied key of numbers, else as bars.

    Parameters
    ----------
    rows
        Of a `SweepRecord`, at least one.
    keys
        The varied keys, in order.
    """
    numeric = [key for key in keys if _all_numbers(rows, key)]
    if not numeric:
        return bars(_groups(rows, keys))
    across = numeric[0]
    others = [key for key in keys if key != across]
    lines: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        name = ", ".join(str(row["values"][key]) for key in others)
        at = float(row["values"][across])
        lines[name][at].append(float(row["figures"]["makespan"]))
    drawn = new_figure(2.9)
    axes = drawn.subplots()
    highest = 0.0
    shades = palette(len(lines))
    for number, (name, line) in enumerate(lines.items()):
        x = sorted(line)
        found: list[Interval] = [interval(line[at]) for at in x]
        highest = max(highest, *(one.mean + one.half for one in found))
        axes.errorbar(
            x,
            [one.mean for one in found],
            yerr=[one.half for one in found],
            color=shades[number],
            marker=_MARKERS[number % len(_MARKERS)],
            ms=4,
            capsize=2.5,
            label=name,
        )
    axes.set_xlabel(across)
    axes.set_xticks(np.unique([float(row["values"][across]) for row in rows]))
    axes.set_ylabel("makespan (s)")
    axes.set_ylim(0, 1.08 * highest or 1.0)
    if others:
        legend_above(axes)
    return drawn


def _all_numbers(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    try:
        values = {float(row["values"][key]) for row in rows}
    except ValueError:
        return False
    return len(values) > 1


def _groups(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Return the values by the first keys (row) and by the last of several (series)."""
    groups: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        texts = [str(row["values"][key]) for key in keys]
        first, last = (texts[:-1], texts[-1]) if len(texts) > 1 else (texts, "makespan")
        group = groups.setdefault(", ".join(first), {})
        group.setdefault(last, []).append(float(row["figures"]["makespan"]))
    return groups
