"""Figures of runs by name, drawn and written to a file; the Gantt chart among them."""

from __future__ import annotations

from collections.abc import Sequence
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

Floats: TypeAlias = NDArray[np.floating[Any]]
#: A task or port by its position, and the row that it has.
Rows: TypeAlias = dict[tuple[str, int], int]
#: Inches of a row; 23 tasks and 8 ports twice fill a page.
_ROW = 0.13
#: Part of a row that its bars take.
_FILLED = 0.8


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
    for axes, (name, schedule) in zip(panels, schedules.items(), strict=True):
        _draw_schedule(axes, schedule, rows, colour, name)
        _shade_attempts(axes, name, deaths)
        axes.set_title(f"{name}, makespan {schedule.makespan:.4g} s")
        if not window.narrow:
            remark = "NIC rows: flows, coloured by sender"
            axes.set_title(remark, loc="right", fontsize=6.5)

    begin = min((band.since for band in deaths), default=0.0)
    end = max(schedule.length for schedule in schedules.values())
    for axes in panels:
        window.time_axis(axes, end, begin)
        axes.label_outer()

    handles = [Patch(color=shade, label=kind) for kind, shade in colour.items()]
    handles.append(Patch(fill=False, edgecolor=ink(), label="critical path"))
    shades = {band.what: _shade(band) for band in deaths}
    handles += [Patch(label=state, **shade) for state, shade in shades.items()]
    columns = min(len(handles), 2 if window.narrow else 5)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure


def _shade_attempts(axes: Axes, name: str, deaths: Sequence[DeathBand]) -> None:
    """Shade what came before the last attempt of the run of that name."""
    for band in deaths:
        if band.run == name:
            span = axes.axvspan(band.since, band.until, **_shade(band))
            span.set_gid(f"{name}-{band.what.replace(' ', '-')}-{band.since:.9g}")


def _shade(band: DeathBand) -> Any:
    alphas = {"done": 0.04, "done again": 0.12, "down": 0.3}
    return {
        "facecolor": ink(),
        "alpha": alphas[band.what],
        "linewidth": 0,
    }


def _rows(problem: Problem, window: Window) -> Rows:
    """Return the row of every task and port, machine by machine from the top.

    Links that are no NIC come last; what nothing crosses has no row.
    """
    rows: Rows = {}
    links = problem.links
    crossed_ports = {port for hops in problem.hops for port in hops}
    machines = [*range(len(problem.cluster.machines)), -1]
    for machine in machines:
        if not window.shows(problem.cluster, machine):
            continue

        for task, host in enumerate(problem.placement.machine_of):
            if host == machine:
                rows["task", task] = len(rows)
        for port in links.shared if machine < 0 else links.of_machine(machine):
            if port in crossed_ports:
                rows["port", port] = len(rows)
    return rows


def _draw_schedule(
    axes: Axes, schedule: Schedule, rows: Rows, colour: dict[str, str], name: str
) -> None:
    _shade_disturbances(axes, schedule, rows, name)
    _draw_tasks(axes, schedule, rows, colour, name)
    _draw_flows(axes, schedule, rows, colour, name)
    _draw_critical_path(axes, schedule, rows)
    _label_rows(axes, schedule.problem, rows)


def _draw_tasks(
    axes: Axes, schedule: Schedule, rows: Rows, colour: dict[str, str], name: str
) -> None:
    """Draw a bar per task and iteration, in the colour of its kind."""
    job = schedule.problem.job
    for kind, shade in colour.items():
        boxes: list[Floats] = []
        for task, count in enumerate(job.rounds):
            if job.tasks[task].kind == kind and ("task", task) in rows:
                start = schedule.task_start[task, :count]
                end = schedule.task_end[task, :count]
                top = np.full(count, rows["task", task] - _FILLED / 2)
                boxes += [*_boxes(start, end, top, _FILLED)]

        if boxes:
            bars = PolyCollection(boxes, facecolor=shade)
            bars.set_gid(f"{name}-tasks-{kind}")
            axes.add_collection(bars)


def _draw_flows(
    axes: Axes, schedule: Schedule, rows: Rows, colour: dict[str, str], name: str
) -> None:
    """Draw the flows over every port; those that overlap share its row."""
    problem = schedule.problem
    job = problem.job
    flows = schedule.flows()
    edges = flows[:, 0].tolist()
    for (subject, port), row in rows.items():
        if subject != "port":
            continue
        is_crossing = [port in problem.hops[edge] for edge in edges]
        positions = tuple(flows[is_crossing].T)
        start = schedule.flow_start[positions]
        end = schedule.flow_end[positions]
        lane, lanes = pack_lanes(start, end)
        thickness = _FILLED / max(lanes, 1)
        top = row - _FILLED / 2 + lane * thickness

        sources = [job.edges[edge].source for edge in positions[0].tolist()]
        bars = PolyCollection(
            [*_boxes(start, end, top, thickness)],
            facecolor=[colour[job.tasks[source].kind] for source in sources],
            alpha=0.75,
            linewidth=0,
        )
        bars.set_gid(f"{name}-flows-{problem.links[port].name.replace(' ', '-')}")
        axes.add_collection(bars)


def _shade_disturbances(axes: Axes, schedule: Schedule, rows: Rows, name: str) -> None:
    """Shade when links are cut or slow, and the tasks of machines paused or slow."""
    machine_of = schedule.problem.placement.machine_of
    boxes_by_state: dict[str, list[Floats]] = {"cut": [], "pause": [], "slow": []}
    for band in disturbances(schedule.problem.cluster, schedule.length):
        for (subject, position), row in rows.items():
            if band.machine >= 0:
                is_met = subject == "task" and machine_of[position] == band.machine
            else:
                is_met = subject == "port" and position == band.port
            if is_met:
                box = _box(band.since, band.until, row, 1.0)
                boxes_by_state[band.what].append(box)

    for state, boxes in boxes_by_state.items():
        if boxes:
            alpha = 0.12 if state == "slow" else 0.3
            bars = PolyCollection(boxes, facecolor=ink(), alpha=alpha, linewidth=0)
            bars.set_gid(f"{name}-{state}")
            axes.add_collection(bars)


def _box(start: float, end: float, row: int, thickness: float) -> Floats:
    """Return the corners of one bar in the middle of a row."""
    top = row - thickness / 2
    bottom = row + thickness / 2
    return np.array(
        [
            [start, top],
            [end, top],
            [end, bottom],
            [start, bottom],
        ]
    )


def _boxes(start: Floats, end: Floats, top: Floats, thickness: float) -> Floats:
    """Return the corners of bars, shape (bars, 4, 2)."""
    bottom = top + thickness
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x, y], axis=2)


def _draw_critical_path(axes: Axes, schedule: Schedule, rows: Rows) -> None:
    """Draw the critical path: around its bars, and down or up where it moves on."""
    boxes = []
    moves: list[tuple[tuple[float, float], tuple[float, float]]] = []
    last_row = None
    for link in critical_path(schedule).links:
        if link.cause is Cause.GAP:
            continue
        subject = ("port", link.port) if link.edge >= 0 else ("task", link.task)
        row = rows.get(subject)  # none on a machine that is not shown
        if row is not None:
            boxes.append(_box(link.start, link.end, row, _FILLED))
            if last_row is not None and last_row != row:
                moves.append(((link.start, last_row), (link.start, row)))
        last_row = row

    if boxes:
        outline = PolyCollection(
            boxes, facecolor="none", edgecolor=ink(), linewidth=0.7
        )
        axes.add_collection(outline)
        axes.add_collection(LineCollection(moves, color=ink(), linewidth=0.5))


def _label_rows(axes: Axes, problem: Problem, rows: Rows) -> None:
    """Name every row, with a line above the first of each machine."""
    names = []
    last_machine = None
    for row, (subject, position) in enumerate(rows):
        if subject == "task":
            names.append(problem.job.tasks[position].name)
            machine = problem.placement.machine_of[position]
        else:
            link = problem.links[position]
            names.append(link.name)
            machine = link.machine
        if row and machine != last_machine:
            axes.axhline(row - 0.5, color=ink(), linewidth=0.4)
        last_machine = machine

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
    runs = [window.of(run) for run in runs]
    clocks = {"emulated" if run.emulated else "simulated" for run in runs}
    window = replace(window, clock=clocks.pop() if len(clocks) == 1 else "")
    with plot_style.style(dark=dark):
        drawing = _draw(figure, runs, window, progress)
        plot_style.save(drawing, out)


def _draw(
    figure: str,
    runs: Sequence[RecordedRun],
    window: Window,
    progress: Sequence[Progress],
) -> Figure:
    """Return the figure of that name of runs that hold what is to be shown alone."""
    first = runs[0]
    names = labels(runs)
    if figure == "gantt":
        drawing = gantt(schedules_of(first), window, death_bands(first.result))
    elif figure == "ports":
        drawing = curves.ports(first.best, window)
    elif figure == "loss":
        drawing = curves.loss(runs, names, window)
    elif figure == "cdf":
        schedules = {name: run.best for name, run in zip(names, runs, strict=True)}
        if len(runs) == 1:
            schedules = schedules_of(first)
        drawing = curves.cdf(schedules, window)
    elif figure == "compare":
        drawing = curves.bars(makespans(runs), width=window.width)
    else:
        drawing = curves.plot_comparison(runs, names, progress, window)
    return drawing
