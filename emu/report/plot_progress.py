"""Systems over time: figures 4 and 5 of the DGTP paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.report.plot_style import Window, ink, new_figure, palette
from emu.runs.validation import step_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from emu.problem import Schedule
    from emu.runs.recorded_run import RecordedRun
    from emu.runs.validation import Progress

    Floats = NDArray[np.float64]

#: Accuracy that the paper trains to.
TARGET = 0.9
#: Parts of the longest run over which bytes per second are means.
_PARTS = 100


def compared(
    runs: Sequence[RecordedRun],
    labels: Sequence[str],
    progress: Sequence[Progress],
    window: Window,
) -> Figure:
    """Return loss and validation accuracy (Fig. 4), and bytes per second (Fig. 5).

    Parameters
    ----------
    progress
        Of every run; none where nothing is trained, and bytes alone are drawn.
    window
        What time is shown.

    Raises
    ------
    DataError
        When a run has no schedule, or nothing is left to show.
    """
    panels = 3 if progress else 1
    figure = new_figure(0.5 + 1.9 * panels + 0.17 * len(runs), window.width)
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    shades, end = palette(len(runs)), max(run.best.makespan for run in runs)
    for run, made, colour in zip(runs, progress, shades, strict=False):
        at = step_ends(run)
        seen = ~np.isnan(made.accuracy)
        axes[0].plot(at, made.loss, color=colour)
        axes[1].plot(at[seen], made.accuracy[seen], color=colour, marker=".")
    if progress:
        axes[0].set_ylabel("training loss (nats)")
        axes[1].set_ylabel("validation accuracy")
        axes[1].axhline(TARGET, color=ink(), ls=":", lw=1)
        axes[1].set_ylim(0, 1)
    _bandwidth(axes[-1], [run.best for run in runs], labels, end)
    window.time_axis(axes[-1], end)
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside upper left")
    return figure


def _bandwidth(
    axes: Axes, schedules: Sequence[Schedule], labels: Sequence[str], end: float
) -> None:
    edges = np.linspace(0, end, _PARTS + 1)
    for schedule, label, colour in zip(
        schedules, labels, palette(len(labels)), strict=True
    ):
        rate = np.diff(carried(schedule, edges)) / np.diff(edges)
        axes.stairs(rate / 1e9, edges, color=colour, label=label)
    axes.set_ylabel("between machines (GB/s)")
    axes.set_ylim(bottom=0)


def carried(schedule: Schedule, times: Floats) -> Floats:
    """Return the bytes that crossed between machines until each of ``times``.

    The bytes of a flow count evenly from its start to its end.
    """
    at = tuple(schedule.flows().T)
    start, sent = schedule.flow_start[at], schedule.flow_bytes[at]
    # What took no time to a billionth of the run is a step.
    length = np.maximum(schedule.flow_end[at] - start, 1e-9 * schedule.makespan)
    total = np.zeros(len(times))
    for one, long, volume in zip(start, length, sent, strict=True):
        total += volume * np.clip((times - one) / long, 0.0, 1.0)
    return total


def time_to(target: float, run: RecordedRun, progress: Progress) -> float:
    """Return when the validation accuracy first was ``target``, between two looks.

    Seconds; NaN where it never was.
    """
    seen = np.flatnonzero(~np.isnan(progress.accuracy))
    accuracy, at = progress.accuracy[seen], step_ends(run)[seen]
    reached = np.flatnonzero(accuracy >= target)
    if not len(reached):
        return float("nan")
    last = int(reached[0])
    if not last:
        return float(at[0])
    return float(
        np.interp(target, accuracy[last - 1 : last + 1], at[last - 1 : last + 1])
    )
