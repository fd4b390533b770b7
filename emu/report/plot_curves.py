"""Figures of curves and bars: NICs, losses, distributions, several runs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, MaxNLocator
from numpy.typing import NDArray

from emu.errors import DataError
from emu.prediction.analysis.link_load import mean_rates, sum_rates
from emu.prediction.analysis.what_if import edge_kind
from emu.problem import Schedule
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
from emu.runs.intervals import interval
from emu.runs.recorded_run import RecordedRun
from emu.runs.result import Row
from emu.runs.retraining import step_ends
from emu.training.looks import Progress

if TYPE_CHECKING:
    Floats = NDArray[np.float64]


_UNITS = (("Gbit/s", 1.25e8), ("Mbit/s", 1.25e5), ("kB/s", 1e3), ("B/s", 1.0))
_LINES = ("-", "--", ":", "-.")
_FEW = 300  # steps of a curve up to which each is marked


def ports(schedule: Schedule, window: Window) -> Figure:
    """Return the rate of every port over time against its capacity (Fig. 5).

    Assigned rates where the schedule holds them, else the mean rates of what moved.

    Raises DataError when nothing is left to show.
    """
    problem = schedule.problem
    links = enumerate(problem.links)
    cluster = problem.cluster
    pairs = [(p, link) for p, link in links if window.shows(cluster, link.machine)]
    columns = 1 if window.narrow else 2
    lines = -(-len(pairs) // columns)
    figure = new_figure(0.6 + 1.05 * lines, window.width)
    panels = figure.subplots(lines, columns, sharex=True, squeeze=False)
    assigned = sum_rates(schedule)
    rates = assigned or mean_rates(schedule)
    name = "assigned" if assigned else "mean rate of each flow, summed"
    steps = problem.links.steps
    fitting = [one for one in _UNITS if steps.most.max() >= one[1]]
    unit, factor = fitting[0] if fitting else _UNITS[-1]
    for place, (port, link) in enumerate(pairs):  # a NIC takes two: out and in
        axes = panels.flat[place]
        (since, capacity) = steps.of(port)
        times, values = rates[port]
        curve = np.concatenate([[0.0], times]), np.concatenate([[0.0], values / factor])
        solid: Any = {"color": palette(1)[0], "lw": 1.0, "label": name}
        axes.step(*curve, where="post", **solid)
        # The end may come before a change, which then had no effect.
        until = np.maximum.accumulate(np.append(since, schedule.length))
        limits = np.append(capacity, capacity[-1]) / factor
        style: Any = {"color": COLOURS[5], "ls": "--", "lw": 1, "label": "capacity"}
        axes.step(until, limits, where="post", **style)
        highest = max([*capacity.tolist(), *values.tolist()]) / factor
        axes.set(title=link.name, ylim=(0, 1.12 * highest))
        window.time_axis(axes, schedule.length)
        axes.label_outer(remove_inner_ticks=False)
        axes.set_ylabel(unit if axes in panels[:, 0] else "")
    for axes in panels.flat[len(pairs) :]:
        axes.remove()
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3)
    return figure


def loss(runs: Sequence[RecordedRun], labels: Sequence[str], window: Window) -> Figure:
    """Return the training loss, and accuracy where known (Fig. 4).

    Each against emulated time, and against steps: a method may need more of these and
    less time for each.

    Raises DataError when no run reported a loss, or nothing is left to show.
    """
    curves: dict[str, list[Floats]] = {"loss": [], "accuracy": []}
    for run in runs:
        for name, of_runs in curves.items():
            rows = run.training[run.training["figure"] == name].groupby("iteration")
            # At the time of the last report of an iteration, the mean of all.
            of_runs.append(np.column_stack([rows["time"].max(), rows["value"].mean()]))
    curves = {f: of_runs for f, of_runs in curves.items() if any(map(len, of_runs))}
    if not curves:
        names = ", ".join(run.name for run in runs)
        raise DataError(f"no loss was reported in {names}")
    height = 0.4 + 2.1 * len(curves) + 0.17 * len(runs)
    figure = new_figure(height, window.width)
    shades = palette(len(runs))
    panels = figure.subplots(len(curves), 2, squeeze=False, sharey="row")
    for (by_time, by_step), (name, of_runs) in zip(panels, curves.items(), strict=True):
        for label, curve, colour in zip(labels, of_runs, shades, strict=True):
            few = len(curve) <= _FEW
            style: Any = {"color": colour, "lw": 1.5 if few else 0.7, "ms": 3}
            style["marker"] = "." if few else ""
            # One without is noted in the picture, not left out.
            note = "" if len(curve) else f": no {name} reported"
            values = curve.reshape(-1, 2)
            by_time.plot(*values.T, label=f"{label}{note}", **style)
            by_step.plot(np.arange(1, len(curve) + 1), values[:, 1], **style)
        units = {"loss": "training loss (nats)", "accuracy": "accuracy (share)"}
        by_time.set_ylabel(units[name])
        latest = max(curve[-1, 0] for curve in of_runs if len(curve))
        window.time_axis(by_time, 1.02 * float(latest))
        by_step.set_xlabel("step")
        by_step.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(runs) > 1:
        entries = panels[0, 0].get_legend_handles_labels()
        figure.legend(*entries, loc="outside upper left")
    return figure


def cdf(schedules: dict[str, Schedule], window: Window) -> Figure:
    """Return the distribution of how long flows take, per kind of flow.

    By label: the first is drawn solid, the others dashed and dotted.
    Raises DataError when no flow of any of them took time.
    """
    figure = new_figure(2.9, window.width)
    axes = figure.subplots()
    kinds = []
    for schedule in schedules.values():
        job = schedule.problem.job
        flows = schedule.flows()
        at = tuple(flows.T)
        seconds = schedule.flow_end[at] - schedule.flow_start[at]
        names = np.array([edge_kind(job, job.edges[e]) for e in flows[:, 0].tolist()])
        moving = seconds > 0
        labels = dict.fromkeys(names[moving].tolist())
        kinds.append({kind: seconds[moving & (names == kind)] for kind in labels})
    if not any(kinds):
        raise DataError("no flow between machines took time, there is nothing to show")
    colour = colours([kind for by_kind in kinds for kind in by_kind])
    for label, by_kind, line in zip(schedules, kinds, cycle(_LINES), strict=False):
        if not by_kind:
            axes.plot([], [], color="none", label=f"{label}: no flow between machines")
        for kind, seconds in by_kind.items():
            ranks = np.sort(seconds)
            share = np.arange(len(ranks) + 1) / len(ranks)
            name = kind if len(schedules) == 1 else f"{kind}, {label}"
            style: Any = {"color": colour[kind], "ls": line, "label": name}
            axes.step([ranks[0], *ranks], share, where="post", **style)
    axes.set(xlabel="time from first to last byte (s)", ylabel="share of flows")
    axes.set(ylim=(0, 1.02), xscale="log")
    axes.xaxis.set(major_formatter=LogFormatter(), minor_formatter=LogFormatter())
    legend_above(axes, 1 if window.narrow else 2)
    return figure


def bars(
    groups: Mapping[str, Mapping[str, Sequence[float]]], *, width: float = WIDTH
) -> Figure:
    """Return horizontal bars with 95 % intervals, ``width`` inches wide.

    ``groups``: name of the group (a row) -> name of the series -> values, whose mean is
    drawn.
    """
    series = list(dict.fromkeys(name for row in groups.values() for name in row))
    thick = 0.8 / max(len(series), 1)
    figure = new_figure(0.9 + len(groups) * (0.16 + 0.17 * len(series)), width)
    axes = figure.subplots()
    widest = 0.0
    shades = palette(len(series))
    for number, name in enumerate(series):
        for row, values in enumerate(groups.values()):
            if name not in values:
                continue
            span = interval(values[name])
            widest = max(widest, span.mean + span.half)
            place = row + (number - (len(series) - 1) / 2) * thick
            how: Any = {"color": shades[number], "label": None if row else name}
            bar = axes.barh(place, span.mean, thick * 0.92, **how)
            bar[0].set_gid(f"bar-{row}-{number}")
            text = f" {span.mean:.4g}"
            if span.half:
                how = {"xerr": span.half, "color": ink(), "lw": 0.9, "capsize": 2}
                axes.errorbar(span.mean, place, **how)
                text += f" ± {span.half:.2g}"
            end = span.mean + span.half
            axes.annotate(text, (end, place), va="center", fontsize=6.5)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set(xlabel="makespan (s)", xlim=(0, 1.16 * widest or 1.0))
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    if len(series) > 1:
        legend_above(axes)
    return figure


#: Lines differ in grey too.
_MARKERS = "os^Dvx+"
#: Colours of curves that are read as text as well, which the seventh, yellow, is not.
_DISTINCT = 6
#: Distance of two names beside a plot, as a share of its height.
_LABEL_STEP = 0.066


def sweep_figure(rows: Sequence[Row], keys: Sequence[str]) -> Figure:
    """Return the makespan as lines over the first varied key of numbers, else as bars.

    ``rows`` are those of a `SweepRecord`, at least one; ``keys`` vary, in order.
    """
    across = None
    for key in reversed(keys):
        with contextlib.suppress(ValueError):  # words
            if len({float(row["values"][key]) for row in rows}) > 1:
                across = key
    # Bars are grouped by all keys but the last, where there are several.
    inner = across or (keys[-1] if len(keys) > 1 else None)
    others = [key for key in keys if key != inner]
    groups: dict[str, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        name = ", ".join(str(row["values"][key]) for key in others)
        value = row["values"][inner] if inner else "makespan"
        place = float(value) if across else str(value)
        groups[name][place].append(float(row["figures"]["makespan"]))
    if across is None:
        return bars(groups)
    canvas = new_figure(2.9)
    axes = canvas.subplots()
    highest = 0.0
    shades = zip(palette(len(groups)), cycle(_MARKERS), strict=False)
    for (name, line), (colour, marker) in zip(groups.items(), shades, strict=True):
        x = sorted(line)
        intervals = [interval(line[at]) for at in x]
        highest = max(highest, *(one.mean + one.half for one in intervals))
        how: Any = {"color": colour, "marker": marker, "ms": 4, "capsize": 2.5}
        means, halves = zip(*((one.mean, one.half) for one in intervals), strict=True)
        axes.errorbar(x, means, yerr=halves, label=name, **how)
    axes.set(xlabel=across, ylabel="makespan (s)", ylim=(0, 1.08 * highest or 1.0))
    axes.set_xticks(np.unique([float(row["values"][across]) for row in rows]))
    if others:
        legend_above(axes)
    return canvas


def accuracy_figure(
    curves: Mapping[str, Sequence[tuple[float, float]]], target: float
) -> Figure:
    """Return accuracy over emulated time, (seconds, share) by name of a system.

    Each curve is named beside the plot, in the order in which they end.
    """
    figure = new_figure(3.4)
    axes = figure.subplots()
    names = sorted(curves, key=lambda name: curves[name][-1][0])
    longest = curves[names[-1]][-1][0] if names else 0.0
    unit, clock = choose_clock(longest)

    for place, name in enumerate(names):
        times, shares = np.transpose(curves[name])
        times = times / clock
        colour = COLOURS[place % _DISTINCT]
        line = _LINES[place // _DISTINCT % len(_LINES)]
        axes.plot(times, 100 * shares, color=colour, ls=line, marker=".", ms=5)
        end = times[-1], 100 * shares[-1]
        _name_beside(axes, name, place, end, colour)

    axes.axhline(100 * target, color=ink(), ls=":", lw=1)
    axes.annotate(
        f"target {100 * target:.4g} %",
        xy=(0.01, 100 * target),
        xycoords=("axes fraction", "data"),
        va="bottom",
        fontsize="small",
    )
    axes.set(xlabel=f"emulated time ({unit})", ylabel="accuracy (%)")
    axes.set_xlim(0, 1.02 * longest / clock or 1.0)
    return figure


def _name_beside(
    axes: Axes, name: str, place: int, end: tuple[float, float], colour: str
) -> None:
    """Write the name of a curve right of the axes, the ``place``-th from the top."""
    leader = {"arrowstyle": "-", "color": colour, "alpha": 0.4, "lw": 0.6}
    axes.annotate(
        name,
        xy=end,
        xytext=(1.05, 0.97 - place * _LABEL_STEP),
        textcoords="axes fraction",
        color=colour,
        va="center",
        fontsize="small",
        arrowprops={**leader, "relpos": (0, 0.5)},
        annotation_clip=False,
    )


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

    ``progress`` is that of every run; where nothing is trained bytes alone are drawn.
    Raises DataError when a run has no schedule, or nothing is left to show.
    """
    panels = 3 if progress else 1
    figure = new_figure(0.5 + 1.9 * panels + 0.17 * len(runs), window.width)
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    shades = palette(len(runs))
    end = max(run.best.length for run in runs)
    for run, curve, colour in zip(runs, progress, shades, strict=False):
        at = step_ends(run)
        axes[0].plot(at, curve.loss, color=colour)
        shares = curve.accuracy["valid"]
        axes[1].plot(at[curve.looks - 1], shares, color=colour, marker=".")
    if progress:
        axes[0].set_ylabel("training loss (nats)")
        axes[1].set(ylabel="validation accuracy", ylim=(0, 1))
        axes[1].axhline(TARGET, color=ink(), ls=":", lw=1)
        target = f"{TARGET:.0%}, what the paper trains to"
        place = {"xy": (0, TARGET), "xycoords": ("axes fraction", "data")}
        axes[1].annotate(target, **place, va="bottom", fontsize="small")
    edges = np.linspace(0, end, _PARTS + 1)
    for run, label, colour in zip(runs, labels, shades, strict=True):
        rate = np.diff(sum_crossed(run.best, edges)) / np.diff(edges)
        axes[-1].stairs(rate / 1e9, edges, color=colour, label=label)
    axes[-1].set_ylabel("between machines (GB/s)")
    axes[-1].set_ylim(bottom=0)
    window.time_axis(axes[-1], end)
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside upper left")
    return figure


def sum_crossed(schedule: Schedule, times: Floats) -> Floats:
    """Return the bytes that crossed between machines until each of ``times``.

    The bytes of a flow count evenly from its start to its end.
    """
    at = tuple(schedule.flows().T)
    start = schedule.flow_start[at]
    sizes = schedule.flow_bytes[at]
    # What took no time to a billionth of the run is a step.
    length = np.maximum(schedule.flow_end[at] - start, 1e-9 * schedule.length)
    total = np.zeros(len(times))
    for one, long, volume in zip(start, length, sizes, strict=True):
        total += volume * np.clip((times - one) / long, 0.0, 1.0)
    return total


def time_to(target: float, run: RecordedRun, progress: Progress) -> float:
    """Return when the validation accuracy reached ``target``, by `Progress.reach`.

    Seconds; NaN where it never did.
    """
    place = progress.reach("valid", target)
    at = np.nan if place is None else step_ends(run)[progress.looks[place] - 1]
    return float(at)
