"""Rates of the ports, training curves, and how long flows take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from emu.analysis.link_rates import assigned_rates, mean_rates
from emu.analysis.what_if import edge_kind
from emu.errors import DataError
from emu.report.plot_style import (
    COLOURS,
    Window,
    colours,
    legend_above,
    new_figure,
    palette,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from emu.problem import Schedule
    from emu.runs.recorded_run import RecordedRun


_FEW = 300  # steps of a curve up to which each is marked


def ports(schedule: Schedule, window: Window) -> Figure:
    """Return the rate of every port over time against its capacity (Fig. 5).

    Assigned rates where the schedule holds them, else the mean rates of what moved.

    Parameters
    ----------
    window
        Which machines and what time are shown.

    Raises
    ------
    DataError
        When nothing is left to show.
    """
    problem = schedule.problem
    shown = [
        (port, link)
        for port, link in enumerate(problem.links)
        if window.shows(problem.cluster, link.machine)
    ]
    columns = 1 if window.narrow else 2
    lines = -(-len(shown) // columns)
    figure = new_figure(0.6 + 1.05 * lines, window.width)
    panels = figure.subplots(lines, columns, sharex=True, squeeze=False)
    assigned = assigned_rates(schedule)
    rates = assigned or mean_rates(schedule)
    name = "assigned" if assigned else "mean rate of each flow, summed"
    steps = problem.links.steps
    factor, unit = _rate_unit(float(steps.most.max()))
    for place, (port, link) in enumerate(shown):  # a NIC takes two: out and in
        axes, (since, capacity) = panels.flat[place], steps.of(port)
        times, values = rates[port]
        axes.step(
            np.concatenate([[0.0], times]),
            np.concatenate([[0.0], values / factor]),
            where="post",
            color=palette(1)[0],
            linewidth=1.0,
            label=name,
        )
        _limit(axes, np.append(since, schedule.makespan), capacity / factor)
        highest = max([*capacity.tolist(), *values.tolist()]) / factor
        axes.set_ylim(0, 1.12 * highest)
        axes.set_title(link.name)
        axes.set_ylabel(unit)
        window.time_axis(axes, schedule.makespan)
        axes.label_outer(remove_inner_ticks=False)
        axes.set_ylabel(unit if axes in panels[:, 0] else "")
    for axes in panels.flat[len(shown) :]:
        axes.remove()
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    return figure


def _limit(axes: Axes, times: NDArray[np.float64], rate: NDArray[np.float64]) -> None:
    """Draw what a link can carry: each rate until the next time, the last to the end.

    The end may come before a change, which then had no effect.
    """
    times = np.maximum.accumulate(times)
    limits = np.append(rate, rate[-1])
    axes.step(
        times, limits, where="post", color=COLOURS[5], ls="--", lw=1, label="capacity"
    )


def _rate_unit(largest: float) -> tuple[float, str]:
    """Return bytes per second of the unit that suits ``largest``, and its name."""
    for unit, size in (("Gbit/s", 1.25e8), ("Mbit/s", 1.25e5), ("kB/s", 1e3)):
        if largest >= size:
            return size, unit
    return 1.0, "B/s"


def loss(runs: Sequence[RecordedRun], labels: Sequence[str], window: Window) -> Figure:
    """Return the training loss, and accuracy where known (Fig. 4).

    Each against emulated time, and against steps: a method may need more of these and
    less time for each.

    Parameters
    ----------
    window
        What time is shown.

    Raises
    ------
    DataError
        When no run reported a loss, or nothing is left to show.
    """
    curves = {
        figure: [_curve(run.training, figure) for run in runs]
        for figure in ("loss", "accuracy")
    }
    shown = [f for f, of_runs in curves.items() if any(len(c) for c in of_runs)]
    if not shown:
        names = ", ".join(run.name for run in runs)
        raise DataError(f"no loss was reported in {names}")
    figure = new_figure(0.4 + 2.1 * len(shown) + 0.17 * len(runs), window.width)
    panels = figure.subplots(len(shown), 2, squeeze=False, sharey="row")
    for (by_time, by_step), name in zip(panels, shown, strict=True):
        for label, curve, colour in zip(
            labels, curves[name], palette(len(runs)), strict=True
        ):
            if not len(curve):  # noted in the picture, not left out
                label = f"{label}: no {name} reported"  # noqa: PLW2901
                curve = np.empty((0, 2))  # noqa: PLW2901
            few = len(curve) <= _FEW
            drawn: dict[str, Any] = {"color": colour, "lw": 1.5 if few else 0.7}
            drawn |= {"marker": "." if few else "", "ms": 3}
            by_time.plot(*curve.T, label=label, **drawn)
            by_step.plot(np.arange(1, len(curve) + 1), curve[:, 1], **drawn)
        by_time.set_ylabel(
            "training loss (nats)" if name == "loss" else "accuracy (share)"
        )
        latest = max(curve[-1, 0] for curve in curves[name] if len(curve))
        window.time_axis(by_time, 1.02 * float(latest))
        by_step.set_xlabel("step")
        by_step.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(runs) > 1:
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside upper left"
        )
    return figure


def _curve(training: pd.DataFrame, figure: str) -> NDArray[np.float64]:
    """Return time of the last report and mean per iteration, shape (iterations, 2)."""
    rows = training[training["figure"] == figure]
    grouped = rows.groupby("iteration")
    return np.column_stack([grouped["time"].max(), grouped["value"].mean()])


def cdf(schedules: dict[str, Schedule], window: Window) -> Figure:
    """Return the distribution of how long flows take, per kind of flow.

    Parameters
    ----------
    schedules
        Label to schedule; the first is drawn solid, the others dashed and dotted.
    window
        How wide the figure is.

    Raises
    ------
    DataError
        When no flow of any of them took time.
    """
    figure = new_figure(2.9, window.width)
    axes = figure.subplots()
    lines = ("-", "--", ":", "-.")
    kinds = [_durations(schedule) for schedule in schedules.values()]
    if not any(kinds):
        raise DataError("no flow between machines took time, there is nothing to show")
    colour = colours([kind for found in kinds for kind in found])
    for number, (label, found) in enumerate(zip(schedules, kinds, strict=True)):
        if not found:
            axes.plot([], [], color="none", label=f"{label}: no flow between machines")
        for kind, seconds in found.items():
            ordered = np.sort(seconds)
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            name = kind if len(schedules) == 1 else f"{kind}, {label}"
            style = lines[number % len(lines)]
            axes.step(
                np.concatenate([ordered[:1], ordered]),
                np.concatenate([[0.0], share]),
                where="post",
                color=colour[kind],
                ls=style,
                label=name,
            )
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of flows")
    axes.set_xlabel("time from first to last byte (s)")
    axes.set_xscale("log")
    legend_above(axes, 1 if window.narrow else 2)
    return figure


def _durations(schedule: Schedule) -> dict[str, NDArray[np.float64]]:
    job = schedule.problem.job
    flows = schedule.flows()
    at = tuple(flows.T)
    seconds = schedule.flow_end[at] - schedule.flow_start[at]
    kinds = np.array([edge_kind(job, job.edges[edge]) for edge in flows[:, 0].tolist()])
    moving = seconds > 0
    return {
        str(kind): seconds[moving & (kinds == kind)]
        for kind in dict.fromkeys(kinds[moving].tolist())
    }
