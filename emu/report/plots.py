"""The figures of runs by name, drawn and written to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.report import plot_compare, plot_curves, plot_gantt, plot_style

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from emu.report.recorded_run import RecordedRun
    from emu.schedule import Schedule

FIGURES = ("gantt", "ports", "loss", "cdf", "compare")


def plot(
    runs: Sequence[RecordedRun], figure: str, out: Path, *, dark: bool = False
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

    Raises
    ------
    ValueError
        When there is no such figure.
    DataError
        When a run lacks what the figure shows, there are more runs than it can show,
        or the file cannot be written.
    """
    if figure not in FIGURES:
        raise ValueError(f"no figure is called {figure}; there are {FIGURES}")
    if figure in ("gantt", "ports") and len(runs) != 1:
        raise DataError(f"{figure} is of one run, found {len(runs)}")
    with plot_style.style(dark=dark):
        plot_style.save(_drawn(runs, figure), out)


def _drawn(runs: Sequence[RecordedRun], figure: str) -> Figure:
    match figure:
        case "gantt":
            return plot_gantt.gantt(_schedules(runs[0]))
        case "ports":
            return plot_curves.ports(runs[0].best)
        case "loss":
            return plot_curves.loss(runs, _labels(runs))
        case "cdf":
            schedules = (
                _schedules(runs[0])
                if len(runs) == 1
                else {
                    label: run.best
                    for label, run in zip(_labels(runs), runs, strict=True)
                }
            )
            return plot_curves.cdf(schedules)
        case _:
            return plot_compare.bars(_makespans(runs))


def _schedules(run: RecordedRun) -> dict[str, Schedule]:
    """Return the schedules that a run has, at least one.

    Raises
    ------
    DataError
        When it has none.
    """
    found = {"emulated": run.emulated, "simulated": run.simulated}
    schedules = {name: made for name, made in found.items() if made is not None}
    return schedules or {"": run.best}


def _labels(runs: Sequence[RecordedRun]) -> list[str]:
    """Return scenario, placement and policy of every run, its directory if alike."""
    labels = [_label(run) for run in runs]
    return [
        run.name if labels.count(label) > 1 else label
        for run, label in zip(runs, labels, strict=True)
    ]


def _label(run: RecordedRun) -> str:
    scenario = run.manifest.get("scenario", {})
    name = run.result.get("scenario") or scenario.get("name") or run.name
    placement = run.result.get("placement") or "?"
    return f"{name}, {placement}, {run.policy}"


def _makespans(runs: Sequence[RecordedRun]) -> dict[str, dict[str, list[float]]]:
    """Return the makespans, runs of one scenario, placement and policy together."""
    groups: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        row = groups.setdefault(_label(run), {})
        for name, made in _schedules(run).items():
            row.setdefault(name, []).append(made.makespan)
        if "predicted_makespan" in run.result:
            predicted = float(run.result["predicted_makespan"])
            row.setdefault("predicted", []).append(predicted)
    return groups
