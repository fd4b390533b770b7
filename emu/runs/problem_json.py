"""Types of a run directory's JSON files, and a Problem or Schedule as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, create_model
from typing_extensions import TypedDict

from emu.errors import DataError
from emu.host.input_file import check_shape
from emu.names import check_name
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Outages,
    Placement,
    Problem,
    Route,
    Schedule,
    Task,
    Tuner,
)
from emu.problem.changes import SpeedChange

#: Seconds, bytes or bytes per second: beyond it products of two are soon no numbers.
MOST = 1e18
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_Amount = Annotated[float, Field(ge=0, lt=MOST, allow_inf_nan=False)]
_Number = Annotated[float, Field(gt=-MOST, lt=MOST, allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, lt=MOST, allow_inf_nan=False)]


VERSION = 1
#: Keys of problem.json with rows, of the fields of which class.
_ROWS: dict[str, type] = {
    "machines": Machine,
    "links": Link,
    "routes": Route,
    "changes": CapacityChange,
    "tuners": Tuner,
    "speed_changes": SpeedChange,
    "tasks": Task,
    "edges": Edge,
}
_OPTIONAL = {"tuners", "speed_changes"}
#: Fields of them that no file holds.
_LEFT_OUT: dict[type, set[str]] = {
    Task: {"phase", "behind", "program", "settings"},
    Link: {"machine", "direction"},
    Tuner: {"path"},
}


def _fields_of(kind: type) -> list[str]:
    left_out = _LEFT_OUT.get(kind, set())
    return [one.name for one in fields(kind) if one.name not in left_out]


def _in_file(hint: Any) -> Any:
    """Return the type of a field as JSON has it: with bounds, lists and objects."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Mapping:
        return dict[parts[0], _in_file(parts[1])]  # type: ignore[misc, valid-type]
    if kind is tuple:
        return list[_in_file(parts[0])]  # type: ignore[misc]
    if kind is UnionType:
        return Union[tuple(map(_in_file, parts))]  # noqa: UP007 - of any number
    return {int: _Count, float: _Amount}.get(hint, hint)


@cache
def _problem_shape() -> Any:
    """Return the type of problem.json; what fits together, the classes check."""
    keys: dict[str, Any] = {
        "iterations": (_Count, ...),
        "placement": (list[_Count], ...),
    }
    for key, kind in _ROWS.items():
        hints = get_type_hints(kind)
        row: dict[str, Any] = {
            name: (_in_file(hints[name]), ...) for name in _fields_of(kind)
        }
        rows = list[create_model(kind.__name__, **row)]  # type: ignore[misc, valid-type]
        keys[key] = rows, [] if key in _OPTIONAL else ...
    return create_model("Problem", **keys)


class _Payload(TypedDict):
    edge: _Count
    kind: str
    bytes: _Count


class _Received(TypedDict):
    payloads: NotRequired[list[_Payload]]


class _Sent(TypedDict):
    late_sends: _Count
    max_behind: _Number
    max_stale: _Number


class _Pacer(TypedDict):
    wakes: _Count
    max_lag: _Number
    mean_lag: _Number


class _Use(TypedDict):
    busy: _Number
    idle: _Number
    steal: _Number


class _HostMetrics(TypedDict):
    seconds: _Number
    loop_lag_mean: _Number
    loop_lag_max: _Number
    waited: _Number
    host: _Use


_Pair = Annotated[list[_Number], Field(min_length=2, max_length=2)]


class _Statistics(TypedDict):
    received: NotRequired[_Received]
    sent: list[_Sent]
    pacer: _Pacer
    host_metrics: _HostMetrics
    clock: NotRequired[_Pair]
    answered: NotRequired[_Pair]


class ProcessesShape(TypedDict):
    """processes.json."""

    statistics: Annotated[dict[str, _Statistics], Field(min_length=1)]


class _Emulation(TypedDict):
    time_scale: NotRequired[_Scale]
    byte_scale: NotRequired[_Scale]
    compute: NotRequired[str]
    flow_ends: NotRequired[Literal["arrival", "fluid"]]
    burst: NotRequired[_Pair]
    catch_up: NotRequired[_Amount | None]


class _Policy(TypedDict):
    policy: NotRequired[str]


class _Schedule(_Policy):
    source: NotRequired[str]


class _Scenario(TypedDict):
    name: NotRequired[str]
    schedule: NotRequired[_Schedule]
    placement: NotRequired[_Policy]


class _Killed(TypedDict):
    first_iteration: _Count
    next_iteration: _Count
    began: NotRequired[_Amount]
    ran: _Amount
    again: _Amount
    recovery: _Amount
    error: str


class _Attempt(_Killed):
    detection: _Amount
    killed: NotRequired[bool]
    took: NotRequired[_Amount]


class ManifestShape(TypedDict):
    """manifest.json."""

    scenario: NotRequired[_Scenario]
    emulation: NotRequired[_Emulation]
    first_iteration: NotRequired[_Count]
    began: NotRequired[_Amount]
    killed: NotRequired[list[_Count]]
    attempts: NotRequired[list[_Attempt]]


class _Verdict(TypedDict):
    trust: NotRequired[str]


class _Recovery(TypedDict):
    attempts: list[_Attempt]
    predicted_attempts: NotRequired[list[_Killed]]


class ResultShape(TypedDict):
    """result.json, without the rows of its schedule."""

    policy: NotRequired[str | None]
    predicted_makespan: NotRequired[_Amount]
    verdict: NotRequired[_Verdict]
    recovery: NotRequired[_Recovery]


_OUTAGES = ("seconds", "recovery")
#: Iterations of a job that may lack rows: which, is named.
_MANY = 1000


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return everything of a problem that a Schedule needs to be understood.

    Rows hold the fields of `emu.problem`'s classes, but for those of programs.
    """
    job, cluster = problem.job, problem.cluster
    rows = {
        key: [
            {name: _plain(getattr(item, name)) for name in _fields_of(kind)}
            for item in (
                cluster.shared_links
                if key == "links"
                else getattr(job if kind in {Task, Edge} else cluster, key)
            )
        ]
        for key, kind in _ROWS.items()
    }
    return {
        "version": VERSION,
        "iterations": job.iterations,
        **{key: rows[key] for key in rows if rows[key] or key not in _OPTIONAL},
        "placement": list(problem.placement.machine_of),
    }


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
    check_shape(data, _problem_shape(), Path(path))
    try:
        parts = {key: _read(data.get(key, []), kind) for key, kind in _ROWS.items()}
        tasks, edges = parts.pop("tasks"), parts.pop("edges")
        cluster = Cluster(parts.pop("machines"), parts.pop("links"), **parts)
        job = Job(tasks, edges, data["iterations"])
        problem = Problem(cluster, job, Placement(tuple(data["placement"])))
        _ = problem.capacities, problem.hops
        for pin in {task.pinned for task in tasks} - {None}:
            cluster.index(str(pin))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a problem: {error}", path=path) from error
    return problem


def _read(rows: list[dict[str, Any]], kind: type) -> tuple[Any, ...]:
    """Return one item of a class per row; its name, if any, can be printed."""
    for row in rows:
        check_name(row.get("name", "unnamed"))
    names = _fields_of(kind)
    return tuple(
        kind(**{k: tuple(v) if isinstance(v := row[k], list) else v for k in names})
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
        schedule = schedule_of(problem, data)
        reads = _reads(problem.job, data.get("reads", {}))
        quotas = _quotas(problem, data.get("quotas", {}))
        return replace(schedule, reads=reads, quotas=quotas)
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
    count, iterations = len(data["tasks"]), job.iterations
    if iterations > max(count, _MANY):  # before memory is taken for them
        raise ValueError(
            f"the job has {iterations} iterations, and {count} of all tasks"
        )
    start, end = _fill(
        (len(job.tasks), job.iterations),
        data["tasks"],
        lambda row: job.index(row["task"]),
        ("start", "end"),
    )

    def remote_edge(row: dict[str, Any]) -> int:
        edge = job.edge_positions[str(row["edge"])]
        if not problem.hops[edge]:
            raise ValueError(f"flow {row['edge']} stays on one machine")
        return edge

    ready, began, over, size = _fill(
        (len(job.edges), job.iterations),
        data["flows"],
        remote_edge,
        ("ready", "start", "end", "bytes"),
    )
    for task, rounds in enumerate(job.rounds):
        _hold_all(f"task {job.tasks[task].name}", end[task, :rounds])
    for e, edge in enumerate(job.edges):
        columns = slice(job.flow_counts[e])
        if problem.hops[e]:
            _hold_all(f"flow {job.edge_names[e]}", over[e, columns])
            if not np.isnan(over[e, job.flow_counts[e] :]).all():
                raise ValueError(f"flow {job.edge_names[e]} has too many iterations")
            continue
        for times in (ready, began, over):  # handed over at once
            times[e, columns] = end[edge.source, columns]
        size[e, columns] = 0.0
    added = {key: float(data["outages"][key]) for key in _OUTAGES if "outages" in data}
    outages = Outages(**added)
    return Schedule(problem, start, end, ready, began, over, size, outages=outages)


def _hold_all(name: str, ends: NDArray[np.float64]) -> None:
    is_missing = np.isnan(ends)
    if is_missing.any():
        raise ValueError(f"{name} lacks iteration {int(is_missing.argmax())}")


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


def _fill(
    shape: tuple[int, int],
    rows: list[dict[str, Any]],
    position: Callable[[dict[str, Any]], int],
    keys: tuple[str, ...],
) -> list[NDArray[np.float64]]:
    """Return one array per key, NaN where no row has a value."""
    arrays = [np.full(shape, np.nan) for _ in keys]
    pairs = set()
    for row in rows:
        place = position(row), row["iteration"]
        if type(place[1]) is not int or not 0 <= place[1] < shape[1]:
            raise ValueError(f"iteration {place[1]!r} of {row} is none of the job's")
        if place in pairs:
            raise ValueError(f"a row occurs twice: {row}")
        pairs.add(place)
        for array, key in zip(arrays, keys, strict=True):
            if type(row[key]) not in (int, float) or not abs(row[key]) < MOST:
                raise ValueError(f"{key} is {row[key]!r} in {row}")
            array[place] = row[key]
    return arrays
