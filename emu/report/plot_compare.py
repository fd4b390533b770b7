"""Makespans of many runs side by side, with intervals where runs were repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.report.plot_style import WIDTH, ink, legend_above, new_figure, palette
from emu.report.statistics import interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure


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
