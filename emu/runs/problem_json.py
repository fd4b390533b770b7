"""Problem and Schedule as JSON maps and back, for files that outlive the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from emu.errors import DataError
from emu.input_file import check_shape
from emu.names import checked_name
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Route,
    Schedule,
    SpeedChange,
    Task,
    Tuner,
)
from emu.runs.file_shapes import (
    MOST,
    ChangeShape,
    EdgeShape,
    LinkShape,
    MachineShape,
    ProblemShape,
    RouteShape,
    SpeedShape,
    TaskShape,
    TunerShape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Item = TypeVar("Item")

VERSION = 1
#: Iterations of a job that may lack rows: which, is named.
_MANY = 1000


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return everything of a problem that a Schedule needs to be understood.

    Rows hold the fields of `emu.problem` that `emu.runs.file_shapes` names.
    """
    job, cluster = problem.job, problem.cluster
    tuners = _rows(cluster.tuners, TunerShape)
    speeds = _rows(cluster.speed_changes, SpeedShape)
    return {
        "version": VERSION,
        "machines": _rows(cluster.machines, MachineShape),
        "links": _rows(cluster.shared_links, LinkShape),
        "routes": _rows(cluster.routes, RouteShape),
        "changes": _rows(cluster.changes, ChangeShape),
        **({"tuners": tuners} if tuners else {}),
        **({"speed_changes": speeds} if speeds else {}),
        "iterations": job.iterations,
        "tasks": _rows(job.tasks, TaskShape),
        "edges": _rows(job.edges, EdgeShape),
        "placement": list(problem.placement.machine_of),
    }


def _rows(items: Iterable[object], shape: type) -> list[dict[str, Any]]:
    keys = shape.__annotations__
    return [{key: _plain(getattr(item, key)) for key in keys} for item in items]


def _plain(value: Any) -> Any:
    """Return a field as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def problem_from_json(data: Any, path: str) -> Problem:
    """Return the problem of `problem_to_json`.

    Raises
    ------
    DataError
        When it is of another version or not a problem.
    """
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise DataError(f"version {version!r}, this emu reads {VERSION}", path=path)
    check_shape(data, ProblemShape, Path(path))
    try:
        cluster = Cluster(
            _read(data["machines"], Machine, MachineShape),
            _read(data["links"], Link, LinkShape),
            _read(data["routes"], Route, RouteShape),
            _read(data["changes"], CapacityChange, ChangeShape),
            _read(data.get("tuners", []), Tuner, TunerShape),
            _read(data.get("speed_changes", []), SpeedChange, SpeedShape),
        )
        tasks = _read(data["tasks"], Task, TaskShape)
        job = Job(tasks, _read(data["edges"], Edge, EdgeShape), data["iterations"])
        problem = Problem(cluster, job, Placement(tuple(data["placement"])))
        _ = problem.capacities, problem.hops
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a problem: {error}", path=path) from error
    return problem


def _read(
    rows: list[dict[str, Any]], kind: Callable[..., Item], shape: type
) -> tuple[Item, ...]:
    """Return one item of a class per row; its name, if any, can be printed."""
    for row in rows:
        checked_name(row.get("name", "unnamed"))
    fields = shape.__annotations__
    return tuple(
        kind(**{k: tuple(v) if isinstance(v := row[k], list) else v for k in fields})
        for row in rows
    )


def schedule_from_json(problem: Problem, data: dict[str, Any], path: str) -> Schedule:
    """Return the schedule that `Schedule.to_json` wrote for ``problem``.

    Handoffs within a machine are not in the file; they follow from the task ends.

    Raises
    ------
    DataError
        When a task, flow or iteration is missing, unknown, or not a number.
    """
    try:
        made = schedule_of(problem, data)
        reads = _reads(problem.job, data.get("reads", {}))
        quotas = _quotas(problem, data.get("quotas", {}))
        return replace(made, reads=reads, quotas=quotas)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"not a schedule of this problem: {error}", path=path
        ) from error


def schedule_of(problem: Problem, data: dict[str, Any]) -> Schedule:
    """Return the schedule of the rows ``tasks`` and ``flows``, without what was read.

    Raises
    ------
    KeyError, TypeError, ValueError
        When a row is missing, unknown, occurs twice, or holds what is no number.
    """
    job = problem.job
    held, asked = len(data["tasks"]), job.iterations
    if asked > max(held, _MANY):  # before memory is taken for them
        raise ValueError(f"the job has {asked} iterations, and {held} of all tasks")
    start, end = _filled(
        (len(job.tasks), job.iterations),
        data["tasks"],
        lambda row: job.index(row["task"]),
        ("start", "end"),
    )
    ready, began, over, size = _filled(
        (len(job.edges), job.iterations),
        data["flows"],
        lambda row: _remote_edge(problem, row),
        ("ready", "start", "end", "bytes"),
    )
    for task, rounds in enumerate(job.rounds):
        _hold_all(f"task {job.tasks[task].name}", end[task, :rounds])
    for e, edge in enumerate(job.edges):
        sent = slice(job.flow_counts[e])
        if problem.hops[e]:
            _hold_all(f"flow {job.edge_names[e]}", over[e, sent])
            if not np.isnan(over[e, job.flow_counts[e] :]).all():
                raise ValueError(f"flow {job.edge_names[e]} has too many iterations")
            continue
        for times in (ready, began, over):  # handed over at once
            times[e, sent] = end[edge.source, sent]
        size[e, sent] = 0.0
    return Schedule(problem, start, end, ready, began, over, size)


def _hold_all(name: str, ends: NDArray[np.float64]) -> None:
    lost = np.isnan(ends)
    if lost.any():
        raise ValueError(f"{name} lacks iteration {int(lost.argmax())}")


def _reads(job: Job, rows: dict[str, list[int]]) -> NDArray[np.int64] | None:
    """Return `Schedule.reads` of the rows of ``reads``."""
    latest = {e: edge for e, edge in enumerate(job.edges) if edge.latest}
    reads = np.full((len(job.edges), job.iterations), -1)
    for e, edge in latest.items():
        reads[e, : job.rounds[edge.destination]] = rows[job.edge_names[e]]
    return reads if latest else None


def _quotas(problem: Problem, rows: dict[str, list[int]]) -> NDArray[np.int64] | None:
    """Return `Schedule.quotas` of the rows of ``quotas``."""
    paths = [rows[name] for name in problem.cluster.tuned_names]
    quotas = np.zeros((max(map(len, paths), default=0), len(paths)), np.int64)
    for column, path in enumerate(paths):
        if any(type(quota) is not int or quota < 1 for quota in path):
            raise ValueError(f"a quota is no number of slots: {path}")
        quotas[: len(path), column] = path
    return quotas if paths else None


def _remote_edge(problem: Problem, row: dict[str, Any]) -> int:
    """Return the position of the edge of a row of ``flows``."""
    name = str(row["edge"])
    edge = problem.job.edge_positions[name]
    if not problem.hops[edge]:
        raise ValueError(f"flow {name} stays on one machine")
    return edge


def _filled(
    shape: tuple[int, int],
    rows: list[dict[str, Any]],
    position: Callable[[dict[str, Any]], int],
    keys: tuple[str, ...],
) -> list[NDArray[np.float64]]:
    """Return one array per key, NaN where no row has a value."""
    arrays = [np.full(shape, np.nan) for _ in keys]
    seen = set()
    for row in rows:
        place = position(row), row["iteration"]
        if type(place[1]) is not int or not 0 <= place[1] < shape[1]:
            raise ValueError(f"iteration {place[1]!r} of {row} is none of the job's")
        if place in seen:
            raise ValueError(f"a row occurs twice: {row}")
        seen.add(place)
        for array, key in zip(arrays, keys, strict=True):
            if type(row[key]) not in (int, float) or not abs(row[key]) < MOST:
                raise ValueError(f"{key} is {row[key]!r} in {row}")
            array[place] = row[key]
    return arrays
