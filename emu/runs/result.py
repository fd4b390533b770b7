"""Result files: the numbers of a run, and the scenario that they are of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from pydantic import ValidationError

from emu.array_types import Floats
from emu.errors import DataError
from emu.host.input_file import read_json
from emu.problem import Job, Placement, Problem, Schedule
from emu.problem.schedule import ROUNDING
from emu.runs.problem_json import schedule_of
from emu.scenario.placements import following_placement
from emu.scenario.realize import build_job, with_figures
from emu.scenario.scenario import Scenario
from emu.units import format_count

VERSION = 1
#: Content of result.json, key by key in docs/results.md, or a part of it; so is a row.
Result: TypeAlias = dict[str, Any]
Row: TypeAlias = Mapping[str, Any]


def relative_error(found: float, expected: float) -> float:
    """Return found / expected - 1; 0 when both are 0 but for rounding."""
    # 1 stands for infinity, which no JSON file may hold.
    if not expected:
        return float(found > ROUNDING)
    return found / expected - 1


def task_rows(schedule: Schedule, late: Floats) -> dict[str, dict[str, float]]:
    """Return per kind of task: how many, mean and greatest time, greatest lateness.

    Times are from start to end, also where a machine is slow or paused. Cycles of a
    pipeline in which a task has no mini-batch are not counted.

    ``late``: seconds of (task, iteration), its end after the profiled time.
    """
    job = schedule.problem.job
    lengths = schedule.task_end - schedule.task_start
    lengths = np.nan_to_num(lengths)  # what never ran took none
    times = np.maximum(lengths, 0.0)
    depth = Counter[str]()
    for task in job.tasks:
        name = task.job_name
        depth[name] = max(depth[name], task.behind)
    # A task of a pipeline has no mini-batch in the first and the last cycles.
    first = np.array([task.behind for task in job.tasks], dtype=np.int64)
    idle = np.array([depth[task.job_name] for task in job.tasks])
    last = first + job.rounds - idle
    cycle = np.arange(job.iterations)
    has_begun = first[:, None] <= cycle
    has_ended = last[:, None] <= cycle
    has_batch = has_begun & ~has_ended

    table = {}
    kinds = np.array([task.kind for task in job.tasks])
    for kind in dict.fromkeys(kinds):
        is_kind = kinds == kind
        mask = is_kind[:, None] & has_batch
        seconds = times[mask]
        lateness = late[mask]
        # Of the rest of a pipeline after a cut a kind may have nothing to do.
        mean = float(seconds.mean()) if seconds.size else 0.0
        is_late = lateness > 0
        table[str(kind)] = {
            "tasks": int(is_kind.sum()),
            "mean_seconds": mean,
            "max_seconds": float(seconds.max(initial=0.0)),
            "max_late_seconds": float(lateness.max(initial=0.0)),
            "late_iterations": int(is_late.sum()),
        }
    return table


def flow_rows(schedule: Schedule, simulated: Schedule | None = None) -> list[Result]:
    """Return, per kind of edge, flows and bytes and how long they took on average.

    Flows of no bytes, as of iterations without a checkpoint, are not counted.

    ``simulated``: the simulation that stands beside a run.
    """
    job = schedule.problem.job
    groups = defaultdict(list)
    for number, iteration in schedule.flows().tolist():
        # Iterations without a checkpoint, say, send nothing on that edge.
        if schedule.flow_bytes[number, iteration] == 0:
            continue
        edge = job.edges[number]
        sender, reader = job.ends(edge)
        kinds = (sender.kind, reader.kind)
        groups[kinds].append((number, iteration))

    rows = []
    for (source, destination), flows in groups.items():
        places = tuple(np.array(flows).T)
        starts = schedule.flow_start[places]
        waits = starts - schedule.flow_ready[places]
        size = schedule.flow_bytes[places].sum()
        row = {
            "from": source,
            "to": destination,
            "flows": len(flows),
            "bytes": float(size),
            "mean_waiting_seconds": float(waits.mean()),
            "mean_seconds": _mean_length(schedule, places),
        }
        if simulated is not None:
            row["simulated_mean_seconds"] = _mean_length(simulated, places)
        rows.append(row)
    return rows


def _mean_length(schedule: Schedule, places: Any) -> float:
    starts = schedule.flow_start[places]
    ends = schedule.flow_end[places]
    lengths = ends - starts
    return float(lengths.mean())


def port_rows(schedule: Schedule) -> list[Result]:
    """Return bytes of every link, and the share of the makespan used."""
    problem = schedule.problem
    steps = problem.links.steps
    edge, iteration = schedule.flows().T
    flow_bytes = schedule.flow_bytes[edge, iteration]
    # Flow by flow, and of each port by port, as sums round by order.
    hops = problem.hops
    crossed = [hops[row] for row in edge.tolist()]
    ports = np.fromiter(chain.from_iterable(crossed), np.int64)
    hop_counts = np.fromiter(map(len, crossed), np.int64)
    sizes = np.bincount(
        ports,
        np.repeat(flow_bytes, hop_counts),
        minlength=len(problem.capacities),
    )

    makespan = schedule.length
    until = np.array([makespan])
    rows = []
    for port, link in enumerate(problem.links):
        size = sizes[port]
        share = 0.0
        if makespan:
            # Over what it could carry until then: capacities change with events.
            (capacity,) = steps.carry(port, until)
            share = size / capacity
        row = {
            "port": link.name,
            "bytes_per_second": link.capacity,
            "bytes": float(size),
            "used": float(share),
        }
        rows.append(row)
    return rows


def flow_error(emulated: Schedule, simulated: Schedule) -> dict[str, float]:
    """Return the distances of flow ends in the two, seconds: median, 95th, greatest."""
    places = tuple(emulated.flows().T)
    ends = emulated.flow_end[places]
    simulated_ends = simulated.flow_end[places]
    distances = np.abs(ends - simulated_ends)
    # A job on one machine has no flows, and numpy no percentile of none.
    percentiles = [0.0, 0.0, 0.0]
    if len(distances):
        percentiles = np.percentile(distances, [50, 95, 100]).tolist()

    median, high, most = percentiles
    return {
        "median_seconds": median,
        "p95_seconds": high,
        "max_seconds": most,
    }


def training_curve(
    reports: list[tuple[float, str, int, dict[str, float]]],
) -> list[dict[str, float]]:
    """Return per iteration the run time of its last report and the mean loss."""
    rows = defaultdict(list)
    for time, _, iteration, figures in reports:
        if "loss" in figures:
            report = (time, figures["loss"])
            rows[iteration].append(report)

    curve = []
    for iteration in sorted(rows):
        times, losses = zip(*rows[iteration], strict=True)
        point = {
            "iteration": iteration,
            # The step is over when the last worker has reported.
            "time": max(times),
            "loss": float(np.mean(losses)),
        }
        curve.append(point)
    return curve


def result_of(
    scenario: Scenario,
    schedule: Schedule,
    *,
    emulated: bool = False,
) -> Result:
    """Return the content of a result file of ``schedule``."""
    return {
        **schedule.to_json(),
        "emulated": emulated,
        "policy": scenario.schedule.rule,
        "placement": schedule.problem.machine_of_task,
        "scenario": with_figures(scenario).to_json(),
    }


def _job_of(scenario: Scenario) -> Job:
    """Return the job of a result, whose data set is opened where nothing else tells."""
    by_data = any(job.shaped_by_data for *_, job in scenario.each_job())
    # Epochs would need the data set; the result itself has the iterations of one job.
    # Of several each has a number of its own.
    has_epochs = any(getattr(job, "epochs", None) for *_, job in scenario.each_job())
    if scenario.jobs and (by_data or has_epochs):
        return build_job(scenario)
    return scenario.to_job(train_vertices=1, opened=by_data)


def read_result(path: str | Path) -> tuple[Scenario, Schedule]:
    """Read a result file, or ``result.json`` of a run directory."""
    file = Path(path)
    if file.is_dir():
        file /= "result.json"

    try:
        content = read_json(file)
        scenario = Scenario.model_validate(content["scenario"])
        cluster = scenario.to_cluster()
        job = _job_of(scenario)
        last_iteration = max(row["iteration"] for row in content["tasks"])
        job = replace(job, iterations=1 + last_iteration)
        places = content["placement"]
        machines = [cluster.index(places[task.name]) for task in job.tasks]
        placement = Placement(tuple(machines))
        placed = Problem(cluster, job, placement)
        problem_of_run = following_placement(scenario, placed)
        return scenario, schedule_of(problem_of_run, content)
    except ValidationError as error:
        count = format_count(error.error_count(), "error")
        problem = f"is not a result: its scenario has {count}"
    except (
        AttributeError,
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
    ) as error:
        kind = type(error).__name__
        problem = f"is not a whole result: {kind} {error}"
    raise DataError(problem, path=file)
