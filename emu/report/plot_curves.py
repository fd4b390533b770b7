"""Figures of curves and bars: NICs, losses, distributions, several runs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator

from emu.array_types import Floats
from emu.errors import DataError
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.prediction.analysis.what_if import edge_kind
from emu.problem import Schedule
from emu.report.comparison import ranks_by_pace
from emu.report.html.accuracy_chart import choose_clock
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
from emu.runs.intervals import Interval, interval
from emu.runs.recorded_run import RecordedRun
from emu.runs.result import Row

#: Units of rates, by their bytes per second.
_UNITS = (
    ("Gbit/s", 1.25e8),
    ("Mbit/s", 1.25e5),
    ("kB/s", 1e3),
    ("B/s", 1.0),
)
#: Styles of lines, which differ in grey too.
_LINES = ("-", "--", ":", "-.")
#: What most figures measure.
_MAKESPAN = "makespan (s)"
#: Steps of a curve up to which each is marked.
_FEW = 300


def ports(schedule: Schedule, window: Window) -> Figure:
    """Return the rate of every port over time against its capacity (Fig. 5).

    Assigned rates where the schedule holds them, else the mean rates of what moved.

    Raises DataError when nothing is left to show.
    """
    problem = schedule.problem
    links = []
    for port, link in enumerate(problem.links):
        if window.shows(problem.cluster, link.machine):
            links.append((port, link))
    columns = 1 if window.narrow else 2  # a NIC takes two: out and in
    lines = -(-len(links) // columns)  # rounded up
    height = 0.6 + 1.05 * lines
    figure = new_figure(height, window.width)
    panels = figure.subplots(lines, columns, sharex=True, squeeze=False)

    assignment = sum_rates(schedule)
    rates = assignment or mean_rates(schedule)
    name = "assigned" if assignment else "mean rate of each flow, summed"
    capacities = problem.links.steps.most
    unit, factor = choose_unit(capacities.max(), _UNITS)
    (colour,) = palette(1)
    # An odd number of links leaves a panel over, which is removed below.
    for axes, (port, link) in zip(panels.flat, links, strict=False):
        times, values = rates[port]
        axes.step(
            # A curve has steps alone: before the first of them its rate is 0.
            np.concatenate([[0.0], times]),
            np.concatenate([[0.0], values / factor]),
            where="post",
            color=colour,
            lw=1.0,
            label=name,
        )
        most = _draw_capacity(axes, schedule=schedule, port=port, factor=factor)
        levels = [most, *values.tolist()]
        highest = max(levels) / factor
        axes.set_title(link.name)
        axes.set_ylim(0, 1.12 * highest)
        window.time_axis(axes, schedule.length)
        # Scales differ, also within a row, so that every panel shows its own.
        is_leftmost = axes in panels[:, 0]
        axes.set_ylabel(unit if is_leftmost else "")

    for axes in panels.flat[len(links) :]:
        axes.remove()
    # All panels have the same two lines, so that those of the first name them.
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    return figure


def choose_unit(
    most: float,
    units: Sequence[tuple[str, float]],
) -> tuple[str, float]:
    """Return the largest unit of which ``most`` bytes per second are one or more.

    ``units``: names and their bytes per second, the largest first.
    """
    for unit in units:
        _, factor = unit
        if most >= factor:
            return unit
    return units[-1]


def _draw_capacity(
    axes: Axes,
    schedule: Schedule,
    port: int,
    factor: float,
) -> float:
    """Draw the capacity of a port over time; return the largest, bytes per second."""
    steps = schedule.problem.links.steps
    since, capacity = steps.of(port)
    # The end may come before a change, which then had no effect.
    ends = np.append(since, schedule.length)
    until = np.maximum.accumulate(ends)

    last_capacity = capacity[-1]
    capacities = np.append(capacity, last_capacity)
    axes.step(
        until,
        capacities / factor,
        where="post",
        color=COLOURS[5],
        ls="--",
        lw=1,
        label="capacity",
    )
    return float(max(capacity.tolist()))


def loss(
    runs: Sequence[RecordedRun],
    labels: Sequence[str],
    window: Window,
) -> Figure:
    """Return the training loss, and accuracy where known (Fig. 4).

    Each against emulated time, and against steps: a method may need more of these and
    less time for each.

    Raises DataError when no run reported a loss, or nothing is left to show.
    """
    curves_by_name: dict[str, list[Floats]] = {}
    for name in ("loss", "accuracy"):
        curves = [_training_curve(run, name) for run in runs]
        if any(map(len, curves)):
            curves_by_name[name] = curves
    if not curves_by_name:
        names = ", ".join(run.name for run in runs)
        raise DataError(f"no loss was reported in {names}")

    rows = len(curves_by_name)
    height = 0.4 + 2.1 * rows + 0.17 * len(runs)
    figure = new_figure(height, window.width)
    panels = figure.subplots(rows, 2, squeeze=False, sharey="row")
    for axes, (name, curves) in zip(panels, curves_by_name.items(), strict=True):
        _draw_training(
            axes,
            name=name,
            curves=curves,
            labels=labels,
            window=window,
        )
    if len(runs) > 1:
        first_panel = panels[0, 0]
        handles, names_of_runs = first_panel.get_legend_handles_labels()
        figure.legend(handles, names_of_runs, loc="outside upper left")
    return figure


def _training_curve(run: RecordedRun, name: str) -> Floats:
    """Return time and value of every iteration's reports, shape (iterations, 2).

    The time is that of the last report of an iteration, the value the mean of all.
    """
    is_named = run.training["figure"] == name
    rows = run.training[is_named].groupby("iteration")
    times = rows["time"].max()
    values = rows["value"].mean()
    return np.column_stack([times, values])


def _draw_training(
    axes: Sequence[Axes],
    name: str,
    curves: Sequence[Floats],
    labels: Sequence[str],
    window: Window,
) -> None:
    """Draw a figure of the training of all runs, over time and over steps."""
    by_time, by_step = axes
    shades = palette(len(curves))
    for label, curve, colour in zip(labels, curves, shades, strict=True):
        has_few = len(curve) <= _FEW
        style: Any = {
            "color": colour,
            "lw": 1.5 if has_few else 0.7,
            "ms": 3,
            "marker": "." if has_few else "",
        }
        # One without is noted in the picture, not left out.
        note = "" if len(curve) else f": no {name} reported"
        times, values = curve.reshape(-1, 2).T
        steps = np.arange(1, len(curve) + 1)
        by_time.plot(times, values, label=f"{label}{note}", **style)
        by_step.plot(steps, values, **style)

    units = {
        "loss": "training loss (nats)",
        "accuracy": "accuracy (share)",
    }
    by_time.set_ylabel(units[name])
    # A margin of 2 % keeps the last mark off the edge.
    ends = [curve[-1, 0] for curve in curves if len(curve)]
    latest = max(ends)
    window.time_axis(by_time, 1.02 * float(latest))
    by_step.set_xlabel("step")
    by_step.xaxis.set_major_locator(MaxNLocator(integer=True))


def cdf(schedules: dict[str, Schedule], window: Window) -> Figure:
    """Return the distribution of how long flows take, per kind of flow.

    By label: the first is drawn solid, the others dashed and dotted.
    Raises DataError when no flow of any of them took time.
    """
    figure = new_figure(2.9, window.width)
    axes = figure.subplots()
    seconds = [_seconds_by_kind(schedule) for schedule in schedules.values()]
    if not any(seconds):
        raise DataError("no flow between machines took time, there is nothing to show")

    # One kind has one colour in all schedules, which differ by their lines.
    kinds = [kind for by_kind in seconds for kind in by_kind]
    colour = colours(kinds)
    lines = cycle(_LINES)
    for label, by_kind, line in zip(schedules, seconds, lines, strict=False):
        if not by_kind:
            axes.plot([], [], color="none", label=f"{label}: no flow between machines")
        for kind, lengths in by_kind.items():
            ranks = np.sort(lengths)
            count = len(ranks)
            kind_label = kind
            if len(schedules) > 1:
                kind_label = f"{kind}, {label}"
            axes.step(
                [ranks[0], *ranks],
                # One step more than flows: the shortest rises from 0.
                np.arange(count + 1) / count,
                where="post",
                color=colour[kind],
                ls=line,
                label=kind_label,
            )

    axes.set(xlabel="time from first to last byte (s)", ylabel="share of flows")
    axes.set(ylim=(0, 1.02), xscale="log")
    # The formatter of log axes writes powers as mathematics, which stays dollars and
    # braces since texts are not parsed (`plot_style.style`).
    axes.xaxis.set(
        major_formatter=LogFormatter(),
        minor_formatter=LogFormatter(),
    )
    legend_above(axes, 1 if window.narrow else 2)
    return figure


def _seconds_by_kind(schedule: Schedule) -> dict[str, Floats]:
    """Return how long the flows of every kind took, of those that took time."""
    job = schedule.problem.job
    flows = schedule.flows()
    positions = tuple(flows.T)
    edges = flows[:, 0].tolist()
    starts = schedule.flow_start[positions]
    seconds = schedule.flow_end[positions] - starts
    edge_kinds = [edge_kind(job, job.edges[number]) for number in edges]
    kinds = np.array(edge_kinds)
    is_moving = seconds > 0
    kinds_that_move = kinds[is_moving].tolist()
    moving_kinds = dict.fromkeys(kinds_that_move)

    seconds_by_kind = {}
    for kind in moving_kinds:
        is_of_kind = is_moving & (kinds == kind)
        seconds_by_kind[kind] = seconds[is_of_kind]
    return seconds_by_kind


def bars(
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    width: float = WIDTH,
    measure: str = _MAKESPAN,
) -> Figure:
    """Return horizontal bars with 95 % intervals, ``width`` inches wide.

    ``groups``: name of the group (a row) -> name of the series -> values, whose mean is
    drawn; ``measure``: what they are, beside the axis.
    """
    names: dict[str, None] = {}
    for row_of_group in groups.values():
        names |= dict.fromkeys(row_of_group)
    series = list(names)
    # A fifth of every row stays free, between the groups.
    pitch = 0.8 / max(len(series), 1)
    row_height = 0.16 + 0.17 * len(series)
    figure_height = 0.9 + len(groups) * row_height
    figure = new_figure(figure_height, width)
    axes = figure.subplots()
    widest = 0.0
    shades = palette(len(series))
    labels: set[str] = set()
    for number, name in enumerate(series):
        for row, values in enumerate(groups.values()):
            if name not in values:
                continue
            span = interval(values[name])
            end = span.mean + span.half
            widest = max(widest, end)
            middle = (len(series) - 1) / 2
            height = row + (number - middle) * pitch
            # Named once, by the first row that has it: a legend has a line for every
            # label.
            label = None if name in labels else name
            bar = axes.barh(
                height,
                span.mean,
                pitch * 0.92,
                color=shades[number],
                label=label,
            )
            labels.add(name)
            bar[0].set_gid(f"bar-{row}-{number}")
            _write_interval(axes, span, height)

    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_xlabel(measure)
    # The figures of the longest bar need a sixth of the width behind it.
    axes.set_xlim(0, 1.16 * widest or 1.0)
    # The first group is the uppermost, as in tables.
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    if len(series) > 1:
        legend_above(axes)
    return figure


def _write_interval(axes: Axes, span: Interval, height: float) -> None:
    """Draw the interval of a bar, and write its figures behind that."""
    text = f" {span.mean:.4g}"
    if span.half:
        text += f" ± {span.half:.2g}"
        axes.errorbar(
            span.mean,
            height,
            xerr=span.half,
            color=ink(),
            lw=0.9,
            capsize=2,
        )

    end = (span.mean + span.half, height)
    axes.annotate(text, end, va="center", fontsize=6.5)


#: Lines differ in grey too.
_MARKERS = "os^Dvx+"
#: Colours of curves that are read as text as well, which the seventh, yellow, is not.
_DISTINCT = 6
#: Distance of two names beside a plot, as a share of its height.
_LABEL_STEP = 0.066


def sweep_figure(
    rows: Sequence[Row], keys: Sequence[str], *, by_makespan: bool = False
) -> Figure:
    """Return a measure as lines over the first varied key of numbers, else as bars.

    It is the one that `sweep_table` ranks by. ``rows`` are those of a `SweepRecord`, at
    least one; ``keys`` vary, in order.
    """
    has_pace = ranks_by_pace(rows, by_makespan=by_makespan)
    measure = "samples per s" if has_pace else _MAKESPAN
    figure_key = "samples_per_second" if has_pace else "makespan"
    across = _key_of_numbers(rows, keys)
    # Bars are grouped by all keys but the last, where there are several.
    inner = across
    if across is None and len(keys) > 1:
        inner = keys[-1]
    outer = [key for key in keys if key != inner]

    groups = _group_values(rows, figure_key, outer, inner, by_number=across is not None)
    if across is None:
        return bars(groups, measure=measure)  # words have no distances

    figure = new_figure(2.9)
    axes = figure.subplots()
    highest = 0.0
    colour_of = palette(len(groups))
    for number, (name, by_place) in enumerate(groups.items()):
        values = sorted(by_place)
        spans = [interval(by_place[value]) for value in values]
        upper_ends = [span.mean + span.half for span in spans]
        highest = max(highest, *upper_ends)
        marker = _MARKERS[number % len(_MARKERS)]
        axes.errorbar(
            values,
            [span.mean for span in spans],
            yerr=[span.half for span in spans],
            label=name,
            color=colour_of[number],
            marker=marker,
            ms=4,
            capsize=2.5,
        )

    axes.set(xlabel=across, ylabel=measure)
    axes.set_ylim(0, 1.08 * highest or 1.0)
    ticks = [float(row["values"][across]) for row in rows]
    axes.set_xticks(np.unique(ticks))
    if outer:
        legend_above(axes)
        if legend := axes.get_legend():
            legend.set_title(", ".join(outer))
    return figure


def _group_values(
    rows: Sequence[Row],
    figure_key: str,
    outer: Sequence[str],
    inner: str | None,
    *,
    by_number: bool,
) -> dict[str, dict[Any, list[float]]]:
    """Return a figure of all seeds by the outer keys, then by the inner one."""
    groups: dict[str, dict[Any, list[float]]] = {}
    for row in rows:
        values = row["values"]
        words = [str(values[key]) for key in outer]
        name = ", ".join(words)
        value = values[inner] if inner else figure_key
        place = float(value) if by_number else str(value)
        by_place = groups.setdefault(name, defaultdict(list))
        figure = float(row["figures"][figure_key])
        by_place[place].append(figure)
    return groups


def _key_of_numbers(rows: Sequence[Row], keys: Sequence[str]) -> str | None:
    """Return the first key of several numbers; None where all are of words."""
    for key in keys:
        with contextlib.suppress(ValueError):  # words
            numbers = {float(row["values"][key]) for row in rows}
            if len(numbers) > 1:
                return key
    return None


def accuracy_figure(
    curves: Mapping[str, Sequence[tuple[float, float]]], target: float
) -> Figure:
    """Return accuracy over emulated time, (seconds, share) by name of a system.

    Each curve is named beside the plot, in the order in which they end.
    """
    figure = new_figure(3.4)
    axes = figure.subplots()
    last_times = {name: points[-1][0] for name, points in curves.items()}
    names = sorted(curves, key=last_times.__getitem__)
    longest = 0.0
    if names:
        last_name = names[-1]
        longest = last_times[last_name]
    unit, clock = choose_clock(longest)

    for position, name in enumerate(names):
        times, shares = np.transpose(curves[name])
        times = times / clock
        # When all colours are taken they come again, with another line.
        colour = COLOURS[position % _DISTINCT]
        round_of_colours = position // _DISTINCT
        line = _LINES[round_of_colours % len(_LINES)]
        axes.plot(
            times,
            100 * shares,
            color=colour,
            ls=line,
            marker=".",
            ms=5,
        )
        end = (times[-1], 100 * shares[-1])
        _name_beside(axes, name=name, position=position, end=end, colour=colour)

    percent = 100 * target
    axes.axhline(percent, color=ink(), ls=":", lw=1)
    axes.annotate(
        f"target {percent:.4g} %",
        xy=(0.01, percent),
        xycoords=("axes fraction", "data"),
        va="bottom",
        fontsize="small",
    )
    axes.set(xlabel=f"emulated time ({unit})", ylabel="accuracy (%)")
    axes.set_xlim(0, 1.02 * longest / clock or 1.0)
    return figure


def _name_beside(
    axes: Axes,
    name: str,
    position: int,
    end: tuple[float, float],
    colour: str,
) -> None:
    """Write the name of a curve right of the axes, by its position from the top."""
    axes.annotate(
        name,
        xy=end,
        xytext=(1.05, 0.97 - position * _LABEL_STEP),
        textcoords="axes fraction",
        color=colour,
        va="center",
        fontsize="small",
        arrowprops={
            "arrowstyle": "-",
            "color": colour,
            "alpha": 0.4,
            "lw": 0.6,
            "relpos": (0, 0.5),
        },
        annotation_clip=False,
    )
