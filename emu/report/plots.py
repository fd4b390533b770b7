"""Figures of runs by name, drawn and written to a file; the Gantt chart among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from emu.report.death_bands import DeathBand, death_bands
from emu.report.lanes import pack_lanes
from emu.report.many_runs import labels, makespans, schedules_of
from emu.report.plot_progress import plot_comparison
from emu.report.plot_style import Window, colours, ink, new_figure
from emu.runs.recorded_run import RecordedRun
from emu.training.looks import Progress

Floats: TypeAlias = NDArray[np.floating[Any]]
#: A task or port by its position, and the row that it has.
Rows: TypeAlias = dict[tuple[str, int], int]
#: Inches of a row; 23 tasks and 8 ports twice fill a page.
_ROW = 0.13
#: Part of a row that its bars take.
_FILLED = 0.8
#: Seconds below which a state before the last attempt is rounding.
_NO_TIME = 1e-9


def gantt(
    schedules: dict[str, Schedule],
    window: Window,
    deaths: Sequence[DeathBand] = (),
) -> Figure:
    """Return a panel per schedule, one below the other, on one time axis.

    ``schedules``, all of one problem, are by title of the panel; ``deaths`` are shaded
    on all rows of their runs.
    Raises DataError when nothing is left to show.
    """
    deaths = [band for band in deaths if band.run in schedules]
    first = next(iter(schedules.values()))
    problem = first.problem
    rows = _rows(problem, window)
    panel_height = 0.35 + _ROW * len(rows)
    height = 0.9 + len(schedules) * panel_height
    figure = new_figure(height, window.width)
    grid = figure.subplots(len(schedules), 1, sharex=True, squeeze=False)
    panels = grid[:, 0]

    kinds = [task.kind for task in problem.job.tasks]
    colour = colours(kinds)
    for axes, (name, schedule) in zip(panels, schedules.items(), strict=True):
        panel = _Panel(
            axes=axes,
            name=name,
            schedule=schedule,
            rows=rows,
            colour=colour,
        )
        panel.draw()
        run_deaths = [band for band in deaths if band.run == name]
        panel.shade_attempts(run_deaths)
        axes.set_title(f"{name}, makespan {schedule.makespan:.4g} s")
        if not window.narrow:
            remark = "NIC rows: flows, coloured by sender"
            axes.set_title(remark, loc="right", fontsize=6.5)

    # Attempts before the last one lie before time 0.
    begins = [band.since for band in deaths]
    begin = min(begins, default=0.0)
    end = max(schedule.length for schedule in schedules.values())
    for axes in panels:
        window.time_axis(axes, end, begin)
        axes.label_outer()

    handles = _legend(colour, deaths)
    most_columns = 2 if window.narrow else 5
    columns = min(len(handles), most_columns)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    return figure


def _legend(colour: dict[str, str], deaths: Sequence[DeathBand]) -> list[Patch]:
    handles = [Patch(color=shade, label=kind) for kind, shade in colour.items()]
    path = Patch(
        fill=False,
        edgecolor=ink(),
        label="critical path",
    )
    handles.append(path)
    # A state stands once, however often it comes, and not where it takes no time: who
    # began anew from the start kept nothing of what was done.
    bands = [band for band in deaths if band.until - band.since > _NO_TIME]
    shades = {band.what: _shade(band) for band in bands}
    for state, shade in shades.items():
        handles.append(Patch(label=state, **shade))
    return handles


def _shade(band: DeathBand) -> Any:
    # The more was lost the darker: what was done stays, what is done again does not.
    alphas = {
        "done": 0.04,
        "done again": 0.12,
        "down": 0.3,
    }
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
    crossed_ports = set[int]().union(*problem.hops)
    # Links that are no NIC have the machine -1.
    machines = [*range(len(problem.cluster.machines)), -1]
    for machine in machines:
        if not window.shows(problem.cluster, machine):
            continue

        for task, host in enumerate(problem.placement.machine_of):
            has_own_lane = problem.job.lanes[task] == task
            if host == machine and has_own_lane:
                rows["task", task] = len(rows)
        ports = links.of_machine(machine)
        if machine < 0:
            ports = links.shared
        for port in ports:
            if port in crossed_ports:
                rows["port", port] = len(rows)
    return rows


@dataclass(frozen=True)
class _Panel:
    """The chart of one schedule."""

    axes: Axes
    name: str
    schedule: Schedule
    rows: Rows
    colour: dict[str, str]
    """Colour by kind of task."""

    def draw(self) -> None:
        # What is drawn first lies below: shades under bars, the path on top.
        self._shade_disturbances()
        self._draw_tasks()
        self._draw_flows()
        self._draw_critical_path()
        self._label_rows()

    def shade_attempts(self, bands: Sequence[DeathBand]) -> None:
        """Shade what came before the last attempt of the run."""
        for band in bands:
            shade = _shade(band)
            span = self.axes.axvspan(band.since, band.until, **shade)
            state = band.what.replace(" ", "-")
            # Names in an SVG, by which tests count what is drawn; so are those of bars.
            span.set_gid(f"{self.name}-{state}-{band.since:.9g}")

    def _add(self, boxes: list[Floats], identifier: str, **style: Any) -> None:
        bars = PolyCollection(boxes, **style)
        bars.set_gid(f"{self.name}-{identifier}")
        self.axes.add_collection(bars)

    def _shade_disturbances(self) -> None:
        """Shade when links are cut or slow, and tasks of machines paused or slow."""
        problem = self.schedule.problem
        machine_of = problem.placement.machine_of
        boxes_by_state: dict[str, list[Floats]] = {
            "cut": [],
            "pause": [],
            "slow": [],
        }
        bands = disturbances(problem.cluster, self.schedule.length)
        for band in bands:
            for (subject, position), row in self.rows.items():
                if band.machine >= 0:
                    is_task = subject == "task"
                    is_met = is_task and machine_of[position] == band.machine
                else:
                    is_met = subject == "port" and position == band.port
                if is_met:
                    box = _box(band.since, end=band.until, row=row, thickness=1.0)
                    boxes_by_state[band.what].append(box)

        for state, boxes in boxes_by_state.items():
            if boxes:
                alpha = 0.12 if state == "slow" else 0.3
                self._add(
                    boxes,
                    identifier=state,
                    facecolor=ink(),
                    alpha=alpha,
                    linewidth=0,
                )

    def _draw_tasks(self) -> None:
        """Draw a bar per task and iteration, in the colour of its kind."""
        job = self.schedule.problem.job
        boxes_by_kind: dict[str, list[Floats]] = {kind: [] for kind in self.colour}
        # Arrays are as wide as the longest task; a task may have fewer iterations.
        for position, count in enumerate(job.rounds):
            subject = ("task", job.lanes[position])
            row = self.rows.get(subject)
            if row is None:
                continue
            start = self.schedule.task_start[position, :count]
            end = self.schedule.task_end[position, :count]
            top_of_row = row - _FILLED / 2
            top = np.full(count, top_of_row)
            boxes = _boxes(start, end, top, thickness=_FILLED)
            kind = job.tasks[position].kind
            boxes_by_kind[kind] += [*boxes]

        for kind, boxes_of_kind in boxes_by_kind.items():
            if boxes_of_kind:
                colour = self.colour[kind]
                self._add(boxes_of_kind, f"tasks-{kind}", facecolor=colour)

    def _draw_flows(self) -> None:
        """Draw the flows over every port; those that overlap share its row."""
        problem = self.schedule.problem
        tasks = problem.job.tasks
        flows = self.schedule.flows()
        edges = flows[:, 0].tolist()
        for (subject, port), row in self.rows.items():
            if subject != "port":
                continue
            is_crossing = [port in problem.hops[edge] for edge in edges]
            positions = tuple(flows[is_crossing].T)
            start = self.schedule.flow_start[positions]
            end = self.schedule.flow_end[positions]
            lane, lanes = pack_lanes(start, end)
            # A row is as high on every port: flows get thinner where many overlap.
            thickness = _FILLED / max(lanes, 1)
            top = row - _FILLED / 2 + lane * thickness

            colours_of_senders = []
            for number in positions[0].tolist():
                edge = problem.job.edges[number]
                sender = tasks[edge.source]
                colour = self.colour[sender.kind]
                colours_of_senders.append(colour)
            link_name = problem.links[port].name
            link = link_name.replace(" ", "-")
            boxes = _boxes(
                start,
                end=end,
                top=top,
                thickness=thickness,
            )
            self._add(
                [*boxes],
                f"flows-{link}",
                facecolor=colours_of_senders,
                alpha=0.75,
                linewidth=0,
            )

    def _draw_critical_path(self) -> None:
        """Draw the critical path: around its bars, and down or up where it moves on."""
        boxes = []
        moves: list[tuple[tuple[float, int], tuple[float, int]]] = []
        last_row = None
        for link in critical_path(self.schedule).links:
            if link.cause is Cause.GAP:
                continue
            subject = ("port", link.port)
            if link.edge < 0:
                lanes = self.schedule.problem.job.lanes
                lane = lanes[link.task]
                subject = ("task", lane)
            row = self.rows.get(subject)  # none on a machine that is not shown
            if row is not None:
                box = _box(link.start, end=link.end, row=row, thickness=_FILLED)
                boxes.append(box)
                if last_row is not None and last_row != row:
                    begin = (link.start, last_row)
                    end = (link.start, row)
                    moves.append((begin, end))
            # None counts, too: no line leads across a machine that is not shown.
            last_row = row

        if boxes:
            outline = PolyCollection(
                boxes,
                facecolor="none",
                edgecolor=ink(),
                linewidth=0.7,
            )
            self.axes.add_collection(outline)
            steps = LineCollection(moves, color=ink(), linewidth=0.5)
            self.axes.add_collection(steps)

    def _label_rows(self) -> None:
        """Name every row, with a line above the first of each machine."""
        problem = self.schedule.problem
        names = []
        last_machine = None
        for row, (subject, position) in enumerate(self.rows):
            if subject == "task":
                names.append(problem.job.lane_name(position))
                machine = problem.placement.machine_of[position]
            else:
                link = problem.links[position]
                names.append(link.name)
                machine = link.machine
            if row and machine != last_machine:
                self.axes.axhline(row - 0.5, color=ink(), linewidth=0.4)
            last_machine = machine

        ticks = range(len(names))
        self.axes.set_yticks(ticks, names, fontsize=5.5)
        # Downwards: the first machine is the uppermost.
        self.axes.set_ylim(len(names) - 0.4, -0.6)
        self.axes.tick_params(axis="y", length=0)
        self.axes.grid(visible=False, axis="y")


def _box(
    start: float,
    end: float,
    row: int,
    thickness: float,
) -> Floats:
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


def _boxes(
    start: Floats,
    end: Floats,
    top: Floats,
    thickness: float,
) -> Floats:
    """Return the corners of bars, shape (bars, 4, 2)."""
    bottom = top + thickness
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x, y], axis=2)


#: Names of figures, as ``emu report --figure`` has them.
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
    clocks = set()
    for run in runs:
        kind = "emulated" if run.emulated else "simulated"
        clocks.add(kind)
    # An axis of emulated and simulated runs is called time, and no more.
    clock = ""
    if len(clocks) == 1:
        (clock,) = clocks
    window = replace(window, clock=clock)
    # It is saved inside as well: fonts and ids of SVG are settings of the writing.
    with plot_style.style(dark=dark):
        drawing = _draw(
            figure,
            runs=runs,
            window=window,
            progress=progress,
        )
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
        deaths = death_bands(first.result)
        drawing = gantt(schedules_of(first), window, deaths)
    elif figure == "ports":
        drawing = curves.ports(first.best, window)
    elif figure == "loss":
        drawing = curves.loss(runs, names, window)
    elif figure == "cdf":
        bests = [run.best for run in runs]
        schedules = dict(zip(names, bests, strict=True))
        # One run shows both of its schedules; of several each shows its best one.
        if len(runs) == 1:
            schedules = schedules_of(first)
        drawing = curves.cdf(schedules, window)
    elif figure == "compare":
        drawing = curves.bars(makespans(runs), width=window.width)
    else:
        drawing = plot_comparison(
            runs,
            labels=names,
            progress=progress,
            window=window,
        )

    return drawing
