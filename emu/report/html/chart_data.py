"""Data of the charts of the page, as a JSON map with packed arrays."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.errors import DataError
from emu.host.input_file import read_text
from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.analysis.link_load import fluid_bytes, mean_rates, pieces, sum_rates
from emu.problem import Problem, RateHistory, Schedule, disturbances
from emu.report.facts import death_bands
from emu.report.trace import Crossings, crossings, pack_columns
from emu.runs.recorded_run import RecordedRun

#: Of a link of the critical path, beside its cause.
_OF_LINKS = ("start", "end", "task", "edge", "iteration", "port")
#: Points of one rate curve; more than a screen can show even after zooming in 5 times.
CURVE_POINTS = 10_000


#: Data of charts, as ``assets/`` reads it.
Charts: TypeAlias = dict[str, Any]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


def chart_data(run: RecordedRun) -> Charts:
    """Return machines, tasks, and per run its bars, critical path and rate curves.

    Times are seconds, rates bytes per second. Arrays are packed by `pack_columns`.
    """
    problem = run.problem
    schedules = {"emulated": run.emulated, "simulated": run.simulated}
    runs = [run_bars(name, one) for name, one in schedules.items() if one is not None]
    end = max((one["makespan"] for one in runs), default=0.0)
    deaths = death_bands(run.result)
    job = problem.job
    edges = zip(job.edges, job.edge_names, strict=True)
    return {
        "iterations": job.iterations,
        "machines": [machine.name for machine in problem.cluster.machines],
        "tasks": list_tasks(problem),
        "edges": [[edge.source, edge.destination, name] for edge, name in edges],
        "ports": [
            {
                "name": link.name,
                "capacity": float(problem.links.steps.most[port]),
                "machine": link.machine,
                "direction": link.direction,
                "limits": np.transpose(problem.links.steps.of(port)).tolist(),
            }
            for port, link in enumerate(problem.links)
        ],
        "bands": [vars(b) for b in (*disturbances(problem.cluster, end), *deaths)],
        "start": min((band.since for band in deaths), default=0.0),
        "end": end,
        "runs": runs,
    }


def list_tasks(problem: Problem) -> list[Charts]:
    """Return the name, kind and machine of every task."""
    places = zip(problem.job.tasks, problem.placement.machine_of, strict=True)
    return [
        {"name": task.name, "kind": task.kind, "machine": machine}
        for task, machine in places
    ]


def run_bars(name: str, schedule: Schedule) -> Charts:
    """Return the bars, chain and curves of one schedule."""
    task, iteration = np.nonzero(schedule.bars())
    flows = schedule.flows()
    at = tuple(flows.T)
    rates = sum_rates(schedule)
    if rates is None or schedule.rates is None:
        curves = {"moved": mean_rates(schedule)}
    else:
        by_bytes = replace(schedule, rates=rates_by_bytes(schedule, schedule.rates))
        curves = {"allocated": rates, "moved": sum_rates(by_bytes) or []}
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
            flows[:, 0],
            flows[:, 1],
            schedule.flow_start[at],
            schedule.flow_end[at],
            schedule.flow_bytes[at],
            crossings(schedule),
        ),
        "chain": [
            {"cause": link.cause.value} | {key: getattr(link, key) for key in _OF_LINKS}
            for link in critical_path(schedule).links
        ],
        "curves": {
            name: [
                pack_columns(time=time, rate=rate)
                for time, rate in (thin(*steps, schedule.length) for steps in ports)
            ]
            for name, ports in curves.items()
        },
    }


def pack_flows(
    edge: Ints,
    iteration: Ints,
    start: Floats,
    end: Floats,
    size: Floats,
    crossed: Crossings,
) -> Charts:
    """Return flows, or messages, with the lanes that they have on links."""
    columns = {"edge": edge, "iteration": iteration, "start": start, "end": end}
    lanes = {"crossing": crossed.flow, "port": crossed.port, "lane": crossed.lane}
    charts = pack_columns(**columns, bytes=size.astype(float), **lanes)
    return {**charts, "lanes": crossed.lanes}


def rates_by_bytes(schedule: Schedule, rates: RateHistory) -> RateHistory:
    """Return ``rates`` scaled, flow by flow, to the bytes and the end measured.

    A flow that arrives late moved more slowly than it was allowed to. Only its end is
    measured, so its lateness is spread over all of it.
    """
    sizes = np.nan_to_num(fluid_bytes(pieces(schedule, rates)))
    volumes = np.nan_to_num(schedule.flow_bytes)
    scale = np.divide(volumes, sizes, out=np.ones_like(sizes), where=sizes > 0)
    return replace(rates, rate=rates.rate * scale[rates.edge, rates.iteration])


def thin(
    time: Floats, rate: Floats, end: float, points: int = CURVE_POINTS
) -> tuple[Floats, Floats]:
    """Return a step curve with at most ``points`` steps and the same area.

    ``rate`` holds from each ``time`` on, which are sorted; the last until ``end``.
    """
    if len(time) <= points:
        return time, rate
    area = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(time))])
    at = np.linspace(time[0], max(end, float(time[-1])), points + 1)
    sums = np.interp(at, time, area)
    sums[at > time[-1]] += (rate[-1] * (at - time[-1]))[at > time[-1]]
    return at[:-1], np.diff(sums) / np.diff(at)


def training_data(path: Path) -> list[Charts]:
    """Return per figure of training.csv that is a loss or an accuracy its points.

    Each is ``{"figure", "points": [[time, task, iteration, value]], "means": [[time,
    value]]}``: means over the tasks of an iteration, at the time of the last of them.
    A last line that was cut off is left out.

    Raises DataError when the file cannot be read.
    """
    figures: dict[str, list[tuple[float, str, int, float]]] = {}
    try:
        for row in csv.DictReader(read_text(path).splitlines()):
            try:
                figure = row["figure"]
                task = row["task"]
                time = float(row["time"])
                value = float(row["value"])
                point = time, task, int(row["iteration"]), value
                if figure == "loss" or "accuracy" in figure:
                    figures.setdefault(figure, []).append(point)
            except (KeyError, TypeError, ValueError):
                continue
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read: {error}", path=str(path)) from error
    rows = []
    for figure, points in sorted(figures.items(), key=lambda item: item[0] != "loss"):
        groups = defaultdict[int, list[tuple[float, float]]](list)
        for time, _, iteration, value in points:
            if math.isfinite(value):
                groups[iteration].append((time, value))
        means = [
            [max(group)[0], math.fsum(value for _, value in group) / len(group)]
            for _, group in sorted(groups.items())
        ]
        rows.append({"figure": figure, "points": points, "means": means})
    return rows
