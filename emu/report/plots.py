"""Figures of runs by name, drawn and written to a file; the Gantt chart among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from emu.errors import DataError
from emu.prediction.analysis.critical_path import Cause, critical_path
from emu.problem import Problem, Schedule, disturbances
from emu.report import plot_curves as curves
from emu.report import plot_style
from emu.report.facts import DeathBand, death_bands
from emu.report.many_runs import labels, makespans, schedules_of
from emu.report.plot_style import Window, colours, ink, new_figure
from emu.report.trace import pack_lanes
from emu.runs.recorded_run import RecordedRun
from emu.training.looks import Progress

Floats: TypeAlias = NDArray[np.float64]
#: A task or port by its position, and the row that it has.
Rows: TypeAlias = dict[tuple[str, int], int]
_ROW = 0.13  # inches; 23 tasks and 8 ports twice fill a page
_FILLED = 0.8  # part of a row that its bars take


def gantt(
    schedules: dict[str, Schedule], window: Window, deaths: Sequence[DeathBand] = ()
) -> Figure:
    """Return a panel per schedule, one below the other, on one time axis.

    ``schedules``, all of one problem, are by title of the panel; ``deaths`` are shaded
    on all rows of their runs.
    Raises DataError when nothing is left to show.
    """
    deaths = [band for band in deaths if band.run in schedules]
    problem = next(iter(schedules.values())).problem
    rows = _rows(problem, window)
    height = 0.9 + len(schedules) * (0.35 + _ROW * len(rows))
    figure = new_figure(height, window.width)
    panels = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)[:, 0]
    colour = colours([task.kind for task in problem.job.tasks])
    end = max(schedule.length for schedule in schedules.values())
    for axes, (name, schedule) in zip(panels, schedules.items(), strict=True):
        _panel(axes, schedule, rows, colour, name)
        for band in (band for band in deaths if band.run == name):
            span = axes.axvspan(band.since, band.until, **_shade(band))
            span.set_gid(f"{name}-{band.what.replace(' ', '-')}-{band.since:.9g}")
        axes.set_title(f"{name}, makespan {schedule.makespan:.4g} s")
        if not window.narrow:
            remark = "NIC rows: flows, coloured by sender"
            axes.set_title(remark, loc="right", fontsize=6.5)
    for axes in panels:
        window.time_axis(axes, end, min((band.since for band in deaths), default=0.0))
        axes.label_outer()
    handles = [Patch(color=c, label=kind) for kind, c in colour.items()]
    handles.append(Patch(fill=False, edgecolor=ink(), label="critical path"))
    shades = {band.what: _shade(band) for band in deaths}
    handles += [Patch(label=what, **shade) for what, shade in shades.items()]
    columns = min(len(handles), 2 if window.narrow else 5)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure


def _shade(band: DeathBand) -> Any:
    alpha = {"done": 0.04, "done again": 0.12, "down": 0.3}[band.what]
    return {"facecolor": ink(), "alpha": alpha, "linewidth": 0}


def _rows(problem: Problem, window: Window) -> Rows:
    """Return the row of every task and port, machine by machine from the top.

    Links that are no NIC come last; what nothing crosses has no row.
    """
    rows: Rows = {}
    ports = {port for hops in problem.hops for port in hops}
    machines = [*range(len(problem.cluster.machines)), -1]
    for machine in [m for m in machines if window.shows(problem.cluster, m)]:
        for task, place in enumerate(problem.placement.machine_of):
            if place == machine:
                rows["task", task] = len(rows)
        links = problem.links
        for port in links.shared if machine < 0 else links.of_machine(machine):
            if port in ports:
                rows["port", port] = len(rows)
    return rows


def _panel(
    axes: Axes, schedule: Schedule, rows: Rows, colour: dict[str, str], name: str
) -> None:
    _bands(axes, schedule, rows, name)
    problem = schedule.problem
    job = schedule.problem.job
    start = schedule.task_start
    end = schedule.task_end
    all_flows = schedule.flows()
    for kind, shade in colour.items():
        boxes: list[Floats] = []
        for j, count in enumerate(job.rounds):
            if job.tasks[j].kind == kind and ("task", j) in rows:
                top = np.full(count, rows["task", j] - _FILLED / 2)
                boxes += [*_boxes(start[j, :count], end[j, :count], top, _FILLED)]
        if boxes:
            bars = PolyCollection(boxes, facecolor=shade)
            bars.set_gid(f"{name}-tasks-{kind}")
            axes.add_collection(bars)
    for (what, port), row in rows.items():
        if what == "port":
            crossing = [port in problem.hops[e] for e in all_flows[:, 0].tolist()]
            at = tuple(all_flows[crossing].T)
            start = schedule.flow_start[at]
            end = schedule.flow_end[at]
            lane, _ = pack_lanes(start, end)
            thickness = _FILLED / (lane.max() + 1) if len(lane) else _FILLED
            top = row - _FILLED / 2 + lane * thickness
            boxes = [*_boxes(start, end, top, thickness)]
            sources = [job.edges[edge].source for edge in at[0].tolist()]
            shades = [colour[job.tasks[source].kind] for source in sources]
            bars = PolyCollection(boxes, facecolor=shades, alpha=0.75, linewidth=0)
            bars.set_gid(f"{name}-flows-{problem.links[port].name.replace(' ', '-')}")
            axes.add_collection(bars)
    _chain(axes, schedule, rows)
    _label_rows(axes, problem, rows)


def _bands(axes: Axes, schedule: Schedule, rows: Rows, name: str) -> None:
    """Shade when links are cut or slow, and the tasks of machines paused or slow."""
    machines = schedule.problem.placement.machine_of
    spans: dict[str, list[Floats]] = {"cut": [], "pause": [], "slow": []}
    for band in disturbances(schedule.problem.cluster, schedule.length):
        subjects = {("port", band.port)}
        if band.machine >= 0:
            tasks = [j for j, m in enumerate(machines) if m == band.machine]
            subjects = {("task", task) for task in tasks}
        for row in [row for subject, row in rows.items() if subject in subjects]:
            spans[band.what].append(_box(band.since, band.until, row, 1.0))
    for what, boxes in spans.items():
        alpha = 0.12 if what == "slow" else 0.3
        bars = PolyCollection(boxes, facecolor=ink(), alpha=alpha, linewidth=0)
        bars.set_gid(f"{name}-{what}")
        if boxes:
            axes.add_collection(bars)


def _box(start: float, end: float, row: int, thickness: float) -> Floats:
    """Return the corners of one bar in the middle of a row."""
    top = row - thickness / 2
    bottom = row + thickness / 2
    return np.array([[start, top], [end, top], [end, bottom], [start, bottom]])


def _boxes(start: Floats, end: Floats, top: Floats, thickness: float) -> Floats:
    """Return the corners of bars, shape (bars, 4, 2)."""
    bottom = top + thickness
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x, y], axis=2)


def _chain(axes: Axes, schedule: Schedule, rows: Rows) -> None:
    """Draw the critical path: around its bars, and down or up where it moves on."""
    moves: list[tuple[tuple[float, float], tuple[float, float]]] = []
    boxes = []
    last = None
    for link in critical_path(schedule).links:
        if link.cause is Cause.GAP:
            continue
        at = ("port", link.port) if link.edge >= 0 else ("task", link.task)
        if at not in rows:  # on a machine that is not shown
            last = None
            continue
        row = rows[at]
        boxes.append(_box(link.start, link.end, row, _FILLED))
        if last is not None and last != row:
            moves.append(((link.start, last), (link.start, row)))
        last = row
    if boxes:
        outline: Any = {"facecolor": "none", "edgecolor": ink(), "linewidth": 0.7}
        axes.add_collection(PolyCollection(boxes, **outline))
        axes.add_collection(LineCollection(moves, color=ink(), linewidth=0.5))


def _label_rows(axes: Axes, problem: Problem, rows: Rows) -> None:
    """Name every row, with a line above the first of each machine."""
    tasks = problem.job.tasks
    machine_of = problem.placement.machine_of
    names = []
    before = None
    for row, (what, of) in enumerate(rows):
        link = problem.links[of if what == "port" else 0]
        names.append(tasks[of].name if what == "task" else link.name)
        machine = machine_of[of] if what == "task" else link.machine
        if row and machine != before:
            axes.axhline(row - 0.5, color=ink(), linewidth=0.4)
        before = machine
    axes.set_yticks(range(len(rows)), names, fontsize=5.5)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


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

    ``figure`` is one of `FIGURES`; ``gantt`` and ``ports`` are of one run, and
    ``progress`` needs the training of every run. ``out`` ends in .svg, .pdf or .png.

    Raises ValueError when there is no such figure; DataError when every run lacks what
    the figure shows, it can show fewer runs, the window leaves nothing, or the file
    cannot be written.
    """
    if figure not in FIGURES:
        raise ValueError(f"no figure is called {figure}; there are {FIGURES}")
    if figure in ("gantt", "ports") and len(runs) != 1:
        raise DataError(f"{figure} is of one run, found {len(runs)}")
    windows = [window.of(run) for run in runs]
    clocks = {"emulated" if run.emulated else "simulated" for run in windows}
    window = replace(window, clock=clocks.pop() if len(clocks) == 1 else "")
    first = windows[0]
    names = labels(windows)

    def cdf() -> Figure:
        bests = dict(zip(names, (run.best for run in windows), strict=True))
        return curves.cdf(bests if len(runs) > 1 else schedules_of(first), window)

    drawings: dict[str, Callable[[], Figure]] = {
        "gantt": lambda: gantt(schedules_of(first), window, death_bands(first.result)),
        "ports": lambda: curves.ports(first.best, window),
        "loss": lambda: curves.loss(windows, names, window),
        "cdf": cdf,
        "compare": lambda: curves.bars(makespans(windows), width=window.width),
        "progress": lambda: curves.plot_comparison(windows, names, progress, window),
    }
    with plot_style.style(dark=dark):
        plot_style.save(drawings[figure](), out)
