"""Data of the charts of the page, as a JSON map with packed arrays."""

from __future__ import annotations

import contextlib
import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints
from emu.errors import DataError
from emu.host.input_file import read_text
from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.analysis.link_load import fluid_bytes, mean_rates, pieces, sum_rates
from emu.problem import Problem, RateHistory, Schedule, disturbances
from emu.report.death_bands import death_bands
from emu.report.lanes import Crossings, crossings, pack_columns
from emu.runs.recorded_run import RecordedRun

#: Of a link of the critical path, beside its cause.
_OF_LINKS = ("start", "end", "task", "edge", "iteration", "port")
#: Points of one rate curve; more than a screen can show even after zooming in 5 times.
CURVE_POINTS = 10_000


#: Data of charts, as ``assets/`` reads it.
Charts: TypeAlias = dict[str, Any]


def chart_data(run: RecordedRun) -> Charts:
    """Return machines, tasks, and per run its bars, critical path and rate curves.

    Times are seconds, rates bytes per second. Arrays are packed by `pack_columns`.
    """
    problem = run.problem
    runs = []
    if run.emulated is not None:
        runs.append(run_bars("emulated", run.emulated))
    if run.simulated is not None:
        runs.append(run_bars("simulated", run.simulated))
    makespans = [bars["makespan"] for bars in runs]
    end = max(makespans, default=0.0)
    deaths = death_bands(run.result)
    cluster_bands = disturbances(problem.cluster, end)
    bands = [*cluster_bands, *deaths]
    begins = [band.since for band in deaths]

    job = problem.job
    edges = []
    for edge, name in zip(job.edges, job.edge_names, strict=True):
        row = [edge.source, edge.destination, name]
        edges.append(row)
    return {
        "iterations": job.iterations,
        "machines": [*problem.cluster.names],
        "tasks": list_tasks(problem),
        "edges": edges,
        "ports": _list_ports(problem),
        "bands": [vars(band) for band in bands],
        # Below 0 where deaths ended attempts: the last one begins at 0.
        "start": min(begins, default=0.0),
        "end": end,
        "runs": runs,
    }


def list_tasks(problem: Problem) -> list[Charts]:
    """Return the name, kind and machine of every task, and the lane that it is in."""
    job = problem.job
    machine_of = problem.placement.machine_of
    rows = []
    for position, task in enumerate(job.tasks):
        row = {
            "name": task.name,
            "kind": task.kind,
            "machine": machine_of[position],
            "lane": job.lanes[position],
            "lane_name": job.lane_name(position),
        }
        rows.append(row)

    return rows


def _list_ports(problem: Problem) -> list[Charts]:
    """Return every link, with its capacities from the times on when it has them."""
    steps = problem.links.steps
    rows = []
    for port, link in enumerate(problem.links):
        limits = np.transpose(steps.of(port))
        row = {
            "name": link.name,
            # The height of a chart is by the most that a link ever has; `limits` are
            # drawn.
            "capacity": float(steps.most[port]),
            "machine": link.machine,
            "direction": link.direction,
            "limits": limits.tolist(),
        }
        rows.append(row)

    return rows


def run_bars(name: str, schedule: Schedule) -> Charts:
    """Return the bars, chain and curves of one schedule."""
    job = schedule.problem.job
    numbers = np.arange(len(job.tasks))
    has_own_lane = np.array(job.lanes) == numbers
    # Bars of a lane must not overlap: in one of many tasks none without length is.
    is_long = schedule.task_end > schedule.task_start
    has_place = has_own_lane[:, None] | is_long
    is_shown = schedule.bars() & has_place
    task, iteration = np.nonzero(is_shown)
    flows = schedule.flows()
    positions = tuple(flows.T)
    chain = []
    for link in critical_path(schedule).links:
        row = {key: getattr(link, key) for key in _OF_LINKS}
        cause = link.cause.value
        chain.append({"cause": cause, **row})

    return {
        "name": name,
        "makespan": schedule.length,
        "tasks": pack_columns(
            row=task,
            iteration=iteration,
            start=schedule.task_start[task, iteration],
            end=schedule.task_end[task, iteration],
        ),
        "flows": pack_flows(
            edge=flows[:, 0],
            iteration=flows[:, 1],
            start=schedule.flow_start[positions],
            end=schedule.flow_end[positions],
            size=schedule.flow_bytes[positions],
            crossed=crossings(schedule),
        ),
        "chain": chain,
        "curves": _rate_curves(schedule),
    }


def _rate_curves(schedule: Schedule) -> dict[str, list[Charts]]:
    """Return the rates through every link: ``moved``, and ``allocated`` where known."""
    steps_by_name = {}
    assignment = sum_rates(schedule)
    # Where TCP shares the NICs nobody assigns rates: means of flows stand in for them.
    if assignment is None or schedule.rates is None:
        steps_by_name["moved"] = mean_rates(schedule)
    else:
        rates = rates_by_bytes(schedule, schedule.rates)
        steps_by_name["allocated"] = assignment
        moved_schedule = replace(schedule, rates=rates)
        steps_by_name["moved"] = sum_rates(moved_schedule) or []

    curves: dict[str, list[Charts]] = {}
    for name, steps_of_ports in steps_by_name.items():
        curves[name] = []
        for times, rates_of_port in steps_of_ports:
            time, rate = thin(times, rates_of_port, schedule.length)
            curve = pack_columns(time=time, rate=rate)
            curves[name].append(curve)
    return curves


def pack_flows(
    edge: Ints,
    iteration: Ints,
    start: Floats,
    end: Floats,
    size: Floats,
    crossed: Crossings,
) -> Charts:
    """Return flows, or messages, with the lanes that they have on links."""
    columns = pack_columns(
        edge=edge,
        iteration=iteration,
        start=start,
        end=end,
        bytes=size.astype(float),
        crossing=crossed.flow,
        port=crossed.port,
        lane=crossed.lane,
    )
    return {**columns, "lanes": crossed.lanes}


def rates_by_bytes(schedule: Schedule, rates: RateHistory) -> RateHistory:
    """Return ``rates`` scaled, flow by flow, to the bytes and the end measured.

    A flow that arrives late moved more slowly than it was allowed to. Only its end is
    measured, so its lateness is spread over all of it.
    """
    # NaN is of flows that did not take place.
    rate_pieces = pieces(schedule, rates)
    moved_bytes = fluid_bytes(rate_pieces)
    sizes = np.nan_to_num(moved_bytes)
    volumes = np.nan_to_num(schedule.flow_bytes)
    # Rates that amount to no byte cannot be scaled to any, and stay 0.
    unscaled = np.ones_like(sizes)
    scale = np.divide(volumes, sizes, out=unscaled, where=sizes > 0)
    scale_of_rates = scale[rates.edge, rates.iteration]
    scaled_rate = rates.rate * scale_of_rates
    return replace(rates, rate=scaled_rate)


def thin(
    time: Floats,
    rate: Floats,
    end: float,
    points: int = CURVE_POINTS,
) -> tuple[Floats, Floats]:
    """Return a step curve with at most ``points`` steps and the same area.

    ``rate`` holds from each ``time`` on, which are sorted; the last until ``end``.
    """
    if len(time) <= points:
        return time, rate
    # Means over equal spans keep the area, which is bytes: samples would not.
    seconds = np.diff(time)
    steps = rate[:-1] * seconds
    area_after = np.cumsum(steps)
    area = np.concatenate([[0.0], area_after])
    last = time[-1]
    curve_end = max(end, float(last))
    edges = np.linspace(time[0], curve_end, points + 1)
    sums = np.interp(edges, time, area)

    # Beyond its last step a curve goes on, while np.interp stands still.
    is_beyond = edges > last
    seconds_beyond = edges[is_beyond] - last
    sums[is_beyond] += rate[-1] * seconds_beyond
    means = np.diff(sums) / np.diff(edges)
    return edges[:-1], means


class Point(NamedTuple):
    """A figure that a task has reported."""

    time: float
    task: str
    iteration: int
    value: float


def training_data(path: Path) -> list[Charts]:
    """Return per figure of training.csv that is a loss or an accuracy its points.

    Each is ``{"figure", "points": [[time, task, iteration, value]], "means": [[time,
    value]]}``: means over the tasks of an iteration, at the time of the last of them.
    A last line that was cut off is left out, and so is what is no number, as the loss
    of a training that has diverged: JSON has none, and a chart no place for it.

    Raises DataError when the file cannot be read.
    """
    try:
        points_by_figure = _read_points(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", path=path) from error

    # The sort is stable, so that accuracies stay in the order of the file.
    losses_first = sorted(points_by_figure, key=lambda figure: figure != "loss")
    rows = []
    for figure in losses_first:
        points = points_by_figure[figure]
        row = {
            "figure": figure,
            "points": points,
            "means": _means(points),
        }
        rows.append(row)
    return rows


def _read_points(path: Path) -> dict[str, list[Point]]:
    points_by_figure = defaultdict[str, list[Point]](list)
    lines = read_text(path).splitlines()
    for row in csv.DictReader(lines):
        with contextlib.suppress(KeyError, TypeError, ValueError):  # cut off
            figure = row["figure"]
            point = Point(
                time=float(row["time"]),
                task=row["task"],
                iteration=int(row["iteration"]),
                value=float(row["value"]),
            )
            is_shown = figure == "loss" or "accuracy" in figure
            if is_shown and math.isfinite(point.value):
                points_by_figure[figure].append(point)

    return points_by_figure


def _means(points: Sequence[Point]) -> list[list[float]]:
    """Return time and mean value of every iteration."""
    by_iteration = defaultdict[int, list[Point]](list)
    for point in points:
        by_iteration[point.iteration].append(point)

    means = []
    for _, group in sorted(by_iteration.items()):
        # A point begins with its time, by which the largest is the last.
        last = max(group)
        values = [point.value for point in group]
        mean = math.fsum(values) / len(group)
        means.append([last.time, mean])
    return means
