"""Makespans of many runs side by side, with intervals where runs were repeated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.report.plot_style import ink, legend_above, new_figure, palette

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

#: Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom, then normal.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % confidence interval, 0 for one value."""

    mean: float
    half: float
    count: int


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of ``values``, at least one, and its 95 % interval.

    Student's t, which supposes that the values are independent and near to normal.
    """
    count = len(values)
    mean = float(np.mean(values))
    if count < 2:
        return Interval(mean, 0.0, count)
    quantile = _T95[count - 2] if count - 2 < len(_T95) else 1.96
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, half, count)


def bars(
    groups: Mapping[str, Mapping[str, Sequence[float]]], *, axis: str = "makespan (s)"
) -> Figure:
    """Return horizontal bars with 95 % intervals.

    Parameters
    ----------
    groups
        Name of the group (a row) -> name of the series -> values, whose mean is drawn.
    axis
        Name and unit of what the values are.
    """
    series = list(dict.fromkeys(name for row in groups.values() for name in row))
    thick = 0.8 / max(len(series), 1)
    figure = new_figure(0.9 + len(groups) * (0.16 + 0.17 * len(series)))
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
    axes.set_xlabel(axis)
    axes.grid(visible=False, axis="y")
    if len(series) > 1:
        legend_above(axes)
    return figure
