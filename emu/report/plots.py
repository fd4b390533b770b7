"""The figures of runs by name, drawn and written to a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.report import (
    plot_compare,
    plot_curves,
    plot_gantt,
    plot_progress,
    plot_style,
)
from emu.report.many_runs import labels, makespans, schedules_of
from emu.report.plot_style import Window

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from emu.runs.recorded_run import RecordedRun
    from emu.runs.validation import Progress

FIGURES = ("gantt", "ports", "loss", "cdf", "compare", "progress")
_WHOLE = Window()


def plot(
    runs: Sequence[RecordedRun],
    figure: str,
    out: Path,
    *,
    dark: bool = False,
    window: Window = _WHOLE,
    progress: Sequence[Progress] = (),
) -> None:
    """Draw a figure of one or several runs and write it to ``out``.

    Parameters
    ----------
    figure
        One of `FIGURES`. ``gantt`` and ``ports`` are of one run.
    out
        Ends in ``.svg``, ``.pdf`` or ``.png``.
    dark
        Light on dark.
    window
        What part of the runs is shown, and how wide.
    progress
        Training of every run, for ``progress``.

    Raises
    ------
    ValueError
        When there is no such figure.
    DataError
        When every run lacks what the figure shows, it can show fewer runs, the window
        leaves nothing, or the file cannot be written.
    """
    if figure not in FIGURES:
        raise ValueError(f"no figure is called {figure}; there are {FIGURES}")
    if figure in ("gantt", "ports") and len(runs) != 1:
        raise DataError(f"{figure} is of one run, found {len(runs)}")
    shown = [window.of(run) for run in runs]
    clocks = {"emulated" if run.emulated else "simulated" for run in shown}
    window = replace(window, clock=clocks.pop() if len(clocks) == 1 else "")
    with plot_style.style(dark=dark):
        plot_style.save(_drawn(shown, figure, window, progress), out)


def _drawn(
    runs: Sequence[RecordedRun],
    figure: str,
    window: Window,
    progress: Sequence[Progress],
) -> Figure:
    match figure:
        case "gantt":
            return plot_gantt.gantt(schedules_of(runs[0]), window)
        case "ports":
            return plot_curves.ports(runs[0].best, window)
        case "loss":
            return plot_curves.loss(runs, labels(runs), window)
        case "cdf":
            schedules = (
                schedules_of(runs[0])
                if len(runs) == 1
                else {
                    label: run.best
                    for label, run in zip(labels(runs), runs, strict=True)
                }
            )
            return plot_curves.cdf(schedules, window)
        case "progress":
            return plot_progress.compared(runs, labels(runs), progress, window)
        case _:
            return plot_compare.bars(makespans(runs), width=window.width)
