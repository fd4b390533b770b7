"""Types of a run directory's JSON files, and a Problem or Schedule as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
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
    SpeedChange,
    Task,
    Tuner,
)

if TYPE_CHECKING:
    Item = TypeVar("Item")

#: Seconds, bytes or bytes per second: beyond it products of two are soon no numbers.
MOST = 1e18
_Count = Annotated[int, Field(ge=0, lt=1 << 62)]
_Amount = Annotated[float, Field(ge=0, lt=MOST, allow_inf_nan=False)]
_Number = Annotated[float, Field(gt=-MOST, lt=MOST, allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, lt=MOST, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1)]


class TaskShape(TypedDict):
    """Fields of `emu.problem.Task` that a file holds."""

    name: _Name
    kind: str
    process: str
    demands: dict[str, _Amount]
    pinned: str | None
    iterations: _Count | None
    takes: str
    frees: str | None
    gate: bool
    slowness: dict[str, _Number]


class EdgeShape(TypedDict):
    """Fields of `emu.problem.Edge`."""

    source: _Count
    destination: _Count
    lag: _Count
    credit: bool
    channel: str
    latest: bool


class MachineShape(TypedDict):
    """Fields of `emu.problem.Machine`."""

    name: _Name
    bandwidth_in: _Number
    bandwidth_out: _Number
    resources: dict[str, _Amount]
    slots: dict[str, _Count]
    speed: _Scale


class LinkShape(TypedDict):
    """Fields of `emu.problem.Link` of a link that is no NIC."""

    name: _Name
    capacity: _Scale


class RouteShape(TypedDict):
    """Fields of `emu.problem.Route`."""

    sources: list[_Count]
    destinations: list[_Count]
    through: list[str]


class ChangeShape(TypedDict):
    """Fields of `emu.problem.CapacityChange`."""

    time: _Amount
    link: str
    capacity: _Amount


class SpeedShape(TypedDict):
    """Fields of `emu.problem.SpeedChange`."""

    time: _Amount
    machine: str
    share: _Amount


class TunerShape(TypedDict):
    """Fields of `emu.problem.Tuner`."""

    machine: _Count
    pool: _Name
    watched: _Name
    most: _Count
    period: _Scale


class ProblemShape(TypedDict):
    """problem.json; what fits together, the classes of `emu.problem` check."""

    iterations: _Count
    tasks: list[TaskShape]
    edges: list[EdgeShape]
    machines: list[MachineShape]
    links: list[LinkShape]
    routes: list[RouteShape]
    changes: list[ChangeShape]
    tuners: NotRequired[list[TunerShape]]
    speed_changes: NotRequired[list[SpeedShape]]
    placement: list[_Count]


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


VERSION = 1
_OUTAGES = ("seconds", "recovery")
#: Iterations of a job that may lack rows: which, is named.
_MANY = 1000


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return everything of a problem that a Schedule needs to be understood.

    Rows hold the fields of `emu.problem` that `emu.runs.problem_json` names.
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
        for pin in {task.pinned for task in tasks} - {None}:
            cluster.index(str(pin))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a problem: {error}", path=path) from error
    return problem


def _read(
    rows: list[dict[str, Any]], kind: Callable[..., Item], shape: type
) -> tuple[Item, ...]:
    """Return one item of a class per row; its name, if any, can be printed."""
    for row in rows:
        check_name(row.get("name", "unnamed"))
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
    ready, began, over, size = _fill(
        (len(job.edges), job.iterations),
        data["flows"],
        lambda row: _remote_edge(problem, row),
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


def _remote_edge(problem: Problem, row: dict[str, Any]) -> int:
    """Return the position of the edge of a row of ``flows``."""
    name = str(row["edge"])
    edge = problem.job.edge_positions[name]
    if not problem.hops[edge]:
        raise ValueError(f"flow {name} stays on one machine")
    return edge


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
