"""The picture of a sweep: makespan over what was varied, with intervals."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.report.plot_compare import bars
from emu.report.plot_style import legend_above, new_figure, palette
from emu.report.statistics import Interval, interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    Values = dict[tuple[str, ...], list[float]]


#: Lines are told apart in grey too.
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
