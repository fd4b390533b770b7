"""Figures of several trainings: loss, accuracy and bytes per second over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from emu.array_types import Floats
from emu.problem import Schedule
from emu.report.plot_curves import choose_unit
from emu.report.plot_style import Window, ink, new_figure, palette
from emu.runs.recorded_run import RecordedRun
from emu.runs.retraining import step_ends
from emu.training.looks import Progress

#: Accuracy that the paper trains to.
TARGET = 0.9
#: Units of bytes per second, the largest first.
_UNITS = (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0))
#: Parts of the longest run over which bytes per second are means.
_PARTS = 100


def plot_comparison(
    runs: Sequence[RecordedRun],
    labels: Sequence[str],
    progress: Sequence[Progress],
    window: Window,
) -> Figure:
    """Return loss and validation accuracy (Fig. 4), and bytes per second (Fig. 5).

    ``progress`` is that of every run; where nothing is trained bytes alone are drawn.
    Raises DataError when a run has no schedule, or nothing is left to show.
    """
    panels = 3 if progress else 1
    height = 0.5 + 1.9 * panels + 0.17 * len(runs)
    figure = new_figure(height, window.width)
    grid = figure.subplots(panels, 1, sharex=True, squeeze=False)
    axes = grid[:, 0]
    traffic = axes[-1]
    shades = palette(len(runs))
    lengths = [run.best.length for run in runs]
    end = max(lengths)
    if progress:
        losses = axes[0]
        accuracies = axes[1]
        _draw_progress(losses, accuracies, runs=runs, progress=progress)

    edges = np.linspace(0, end, _PARTS + 1)
    seconds = np.diff(edges)
    rates = []
    for run in runs:
        crossed_bytes = sum_crossed(run.best, edges)
        rates.append(np.diff(crossed_bytes) / seconds)

    most = max(rate.max() for rate in rates)
    unit, factor = choose_unit(most, _UNITS)
    curves = zip(rates, labels, shades, strict=True)
    for rate, label, colour in curves:
        traffic.stairs(rate / factor, edges, color=colour, label=label)
    traffic.set_ylabel(f"between machines ({unit})")
    traffic.set_ylim(bottom=0)
    window.time_axis(traffic, end)
    handles, names = traffic.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left")
    return figure


def _draw_progress(
    losses: Axes,
    accuracies: Axes,
    runs: Sequence[RecordedRun],
    progress: Sequence[Progress],
) -> None:
    shades = palette(len(runs))
    curves = zip(runs, progress, shades, strict=False)
    for run, curve, colour in curves:
        ends = step_ends(run)
        losses.plot(ends, curve.loss, color=colour)
        shares = curve.accuracy["valid"]
        # Looks count steps from 1, and see the weights at the end of theirs.
        times = ends[curve.looks - 1]
        accuracies.plot(times, shares, color=colour, marker=".")

    losses.set_ylabel("training loss (nats)")
    accuracies.set_ylabel("validation accuracy")
    accuracies.set_ylim(0, 1)
    accuracies.axhline(TARGET, color=ink(), ls=":", lw=1)
    accuracies.annotate(
        f"{TARGET:.0%}, what the paper trains to",
        xy=(0, TARGET),
        xycoords=("axes fraction", "data"),
        va="bottom",
        fontsize="small",
    )


def sum_crossed(schedule: Schedule, times: Floats) -> Floats:
    """Return the bytes that crossed between machines until each of ``times``.

    The bytes of a flow count evenly from its start to its end.
    """
    flows = tuple(schedule.flows().T)
    starts = schedule.flow_start[flows]
    sizes = schedule.flow_bytes[flows]
    ends = schedule.flow_end[flows]
    # What took no time to a billionth of the run is a step.
    shortest = 1e-9 * schedule.length
    lengths = np.maximum(ends - starts, shortest)

    total = np.zeros(len(times))
    spans = zip(starts, lengths, sizes, strict=True)
    for start, length, size in spans:
        # Clipped, a flow has crossed nothing before its start and all after its end.
        progress = (times - start) / length
        share = np.clip(progress, 0.0, 1.0)
        total += size * share
    return total


def time_to(target: float, run: RecordedRun, progress: Progress) -> float:
    """Return when the validation accuracy reached ``target``, by `Progress.reach`.

    Seconds; NaN where it never did.
    """
    place = progress.reach("valid", target)
    if place is None:
        return float("nan")
    ends = step_ends(run)
    # Looks count steps from 1.
    step = progress.looks[place] - 1
    return float(ends[step])
