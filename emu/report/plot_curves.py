"""Figures of curves and bars: NICs, losses, distributions, several runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from emu.errors import DataError
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.prediction.analysis.what_if import edge_kind
from emu.problem import Schedule
from emu.report.many_runs import Interval, interval
from emu.report.plot_style import (
    COLOURS,
    WIDTH,
    Window,
    colours,
    ink,
    legend_above,
    new_figure,
    palette,
)
from emu.runs.recorded_run import RecordedRun
from emu.runs.retraining import step_ends
from emu.scenario.virtual_training import Progress

if TYPE_CHECKING:
    import pandas as pd

    Values = dict[tuple[str, ...], list[float]]

    Floats = NDArray[np.float64]


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
    assigned = sum_rates(schedule)
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
        _limit(axes, np.append(since, schedule.length), capacity / factor)
        highest = max([*capacity.tolist(), *values.tolist()]) / factor
        axes.set_ylim(0, 1.12 * highest)
        axes.set_title(link.name)
        axes.set_ylabel(unit)
        window.time_axis(axes, schedule.length)
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
    figures_with_data = [
        f for f, of_runs in curves.items() if any(len(c) for c in of_runs)
    ]
    if not figures_with_data:
        names = ", ".join(run.name for run in runs)
        raise DataError(f"no loss was reported in {names}")
    figure = new_figure(
        0.4 + 2.1 * len(figures_with_data) + 0.17 * len(runs), window.width
    )
    panels = figure.subplots(len(figures_with_data), 2, squeeze=False, sharey="row")
    for (by_time, by_step), name in zip(panels, figures_with_data, strict=True):
        for label, curve, colour in zip(
            labels, curves[name], palette(len(runs)), strict=True
        ):
            if not len(curve):  # noted in the picture, not left out
                label = f"{label}: no {name} reported"  # noqa: PLW2901
                curve = np.empty((0, 2))  # noqa: PLW2901
            few = len(curve) <= _FEW
            style: dict[str, Any] = {"color": colour, "lw": 1.5 if few else 0.7}
            style |= {"marker": "." if few else "", "ms": 3}
            by_time.plot(*curve.T, label=label, **style)
            by_step.plot(np.arange(1, len(curve) + 1), curve[:, 1], **style)
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
    groups = rows.groupby("iteration")
    return np.column_stack([groups["time"].max(), groups["value"].mean()])


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
    colour = colours([kind for seconds_of_kind in kinds for kind in seconds_of_kind])
    for number, (label, seconds_of_kind) in enumerate(
        zip(schedules, kinds, strict=True)
    ):
        if not seconds_of_kind:
            axes.plot([], [], color="none", label=f"{label}: no flow between machines")
        for kind, seconds in seconds_of_kind.items():
            ranks = np.sort(seconds)
            share = np.arange(1, len(ranks) + 1) / len(ranks)
            name = kind if len(schedules) == 1 else f"{kind}, {label}"
            style = lines[number % len(lines)]
            axes.step(
                np.concatenate([ranks[:1], ranks]),
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
            span = interval(values[name])
            widest = max(widest, span.mean + span.half)
            place = row + (number - (len(series) - 1) / 2) * thick
            bar = axes.barh(
                place,
                span.mean,
                thick * 0.92,
                color=shades[number],
                label=name if row == 0 else None,
            )
            bar[0].set_gid(f"bar-{row}-{number}")
            if span.half:
                axes.errorbar(
                    span.mean, place, xerr=span.half, color=ink(), lw=0.9, capsize=2
                )
            axes.annotate(
                f" {span.mean:.4g}" + (f" ± {span.half:.2g}" if span.half else ""),
                (span.mean + span.half, place),
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
    canvas = new_figure(2.9)
    axes = canvas.subplots()
    highest = 0.0
    shades = palette(len(lines))
    for number, (name, line) in enumerate(lines.items()):
        x = sorted(line)
        intervals: list[Interval] = [interval(line[at]) for at in x]
        highest = max(highest, *(one.mean + one.half for one in intervals))
        axes.errorbar(
            x,
            [one.mean for one in intervals],
            yerr=[one.half for one in intervals],
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
    return canvas


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


#: Accuracy that the paper trains to.
TARGET = 0.9
#: Parts of the longest run over which bytes per second are means.
_PARTS = 100


def plot_comparison(
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
    shades, end = palette(len(runs)), max(run.best.length for run in runs)
    for run, curve, colour in zip(runs, progress, shades, strict=False):
        at = step_ends(run)
        is_known = ~np.isnan(curve.accuracy)
        axes[0].plot(at, curve.loss, color=colour)
        axes[1].plot(at[is_known], curve.accuracy[is_known], color=colour, marker=".")
    if progress:
        axes[0].set_ylabel("training loss (nats)")
        axes[1].set_ylabel("validation accuracy")
        axes[1].axhline(TARGET, color=ink(), ls=":", lw=1)
        target = f"{TARGET:.0%}, what the paper trains to"
        place = {"xy": (0, TARGET), "xycoords": ("axes fraction", "data")}
        axes[1].annotate(target, **place, va="bottom", fontsize="small")
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
        rate = np.diff(sum_crossed(schedule, edges)) / np.diff(edges)
        axes.stairs(rate / 1e9, edges, color=colour, label=label)
    axes.set_ylabel("between machines (GB/s)")
    axes.set_ylim(bottom=0)


def sum_crossed(schedule: Schedule, times: Floats) -> Floats:
    """Return the bytes that crossed between machines until each of ``times``.

    The bytes of a flow count evenly from its start to its end.
    """
    at = tuple(schedule.flows().T)
    start, sizes = schedule.flow_start[at], schedule.flow_bytes[at]
    # What took no time to a billionth of the run is a step.
    length = np.maximum(schedule.flow_end[at] - start, 1e-9 * schedule.length)
    total = np.zeros(len(times))
    for one, long, volume in zip(start, length, sizes, strict=True):
        total += volume * np.clip((times - one) / long, 0.0, 1.0)
    return total


def time_to(target: float, run: RecordedRun, progress: Progress) -> float:
    """Return when the validation accuracy first was ``target``, between two looks.

    Seconds; NaN where it never was.
    """
    looks = np.flatnonzero(~np.isnan(progress.accuracy))
    accuracy, at = progress.accuracy[looks], step_ends(run)[looks]
    hits = np.flatnonzero(accuracy >= target)
    if not len(hits):
        return float("nan")
    last = int(hits[0])
    if not last:
        return float(at[0])
    return float(
        np.interp(target, accuracy[last - 1 : last + 1], at[last - 1 : last + 1])
    )
