"""Data of the chart of accuracy over time: one curve per system, and the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from emu.report.html.chart_data import Charts
from emu.report.lanes import pack_columns

#: Units of the axis of times, by the seconds of one; the longest curve has two or more.
_CLOCKS = {
    "h": 3600.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
}


def choose_clock(longest: float) -> tuple[str, float]:
    """Return the unit of an axis up to so many seconds, and the seconds of one."""
    # Below two the axis would have a single round tick; largest units come first.
    for unit, seconds in _CLOCKS.items():
        if longest >= 2 * seconds:
            return unit, seconds
    return "us", _CLOCKS["us"]


def accuracy_chart(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    target: float,
    *,
    split: str,
    missed: Collection[str] = (),
) -> Charts:
    """Return what the page's script draws, in the order in which curves end.

    Parameters
    ----------
    curves
        (seconds, share) of every look, by name of a system.
    target
        Share of the vertices of ``split`` that is wanted.
    missed
        Names of those that did not reach it; they come last.
    """
    ends = {}
    for name, curve in curves.items():
        ends[name], _ = curve[-1]
    longest = max(ends.values(), default=0.0)
    unit, clock = choose_clock(longest)

    def rank(name: str) -> tuple[bool, float]:
        return name in missed, ends[name]

    rows = []
    for name in sorted(curves, key=rank):
        times, shares = np.transpose(curves[name])
        columns = pack_columns(time=times / clock, share=100 * shares)
        row = {"name": name, "reached": name not in missed}
        rows.append(row | columns)

    return {
        "clock": f"emulated time ({unit})",
        "start": 0.0,
        "end": longest / clock,
        # The page's scripts read these keys of every page, and draw nothing for empty
        # ones.
        "runs": [],
        "training": [],
        "accuracy": {
            "target": 100 * target,
            "split": split,
            "unit": unit,
            "curves": rows,
        },
    }
