"""Types of a run directory's JSON files, and a Problem or Schedule as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, create_model

from emu.emulation.shaping import EmulationSettings
from emu.errors import DataError
from emu.host.input_file import check_shape
from emu.names import check_name
from emu.prediction.simulation.attempts import Killed
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
NUMBER = Annotated[float, Field(gt=-MOST, lt=MOST, allow_inf_nan=False)]
_Scale = Annotated[float, Field(gt=0, lt=MOST, allow_inf_nan=False)]
T = TypeVar("T")
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


def _in_file(hint: Any, number: Any = _Amount) -> Any:
    """Return the type of a field as JSON has it: with bounds, lists and objects."""
    kind = get_origin(hint)
    parts = get_args(hint)
    if kind in {Mapping, dict}:
        return dict[parts[0], _in_file(parts[1], number)]  # type: ignore[misc, valid-type]
    if kind in {tuple, list}:
        return list[_in_file(parts[0], number)]  # type: ignore[misc]
    if kind is UnionType:
        return Union[tuple(_in_file(part, number) for part in parts)]  # noqa: UP007 - of any number
    if is_dataclass(hint):
        return shape_of(cast("Any", hint), number)
    return {int: _Count, float: number}.get(hint, hint)


@cache
def shape_of(kind: Any, number: Any = _Amount) -> Any:
    """Return the type of a class's fields as JSON has them; its lists may be missing.

    ``number``: type of its floats.
    """
    return create_model(
        kind.__name__,
        **{
            one.name: (
                _in_file(hint, number),
                ... if one.default_factory is MISSING else one.default_factory(),
            )
            for one, hint in zip(
                fields(kind), get_type_hints(kind).values(), strict=True
            )
            if one.name not in _LEFT_OUT.get(kind, ())
        },
    )  # type: ignore[call-overload]


def read_shape(content: Any, kind: type[T], path: Path, at: str = "") -> T:
    """Return the instance of a dataclass that a JSON object stands for."""
    check_shape(content, shape_of(cast("Any", kind)), path, at)
    instance: T = TypeAdapter(kind).validate_python(content)
    return instance


def shape(name: str, may_lack: Mapping[str, Any] | None = None, /, **keys: Any) -> Any:
    """Return the type of an object that has some keys, and may lack others."""
    rows: dict[str, Any] = {key: (hint, ...) for key, hint in keys.items()}
    rows |= {key: (hint, None) for key, hint in (may_lack or {}).items()}
    return create_model(name, **rows)


def list_of(kind: Any) -> Any:
    """Return the type of lists of a type that is made when it is needed."""
    return list[kind]


def by_name(kind: Any) -> Any:
    """Return the type of objects that have such a thing under every name."""
    return dict[str, kind]


@cache
def _problem_shape() -> Any:
    """Return the type of problem.json; what fits together, the classes check."""
    rows: dict[str, Any] = {
        key: (list_of(shape_of(kind)), [] if key in _OPTIONAL else ...)
        for key, kind in _ROWS.items()
    }
    return create_model(
        "Problem", iterations=(_Count, ...), placement=(list[_Count], ...), **rows
    )


PAIR = Annotated[list[NUMBER], Field(min_length=2, max_length=2)]


@cache
def manifest_shape() -> Any:
    """Return the type of manifest.json."""
    hints = get_type_hints(EmulationSettings)
    names = EmulationSettings().to_json()
    emulation = {name: _in_file(hints[name]) | None for name in names}
    emulation |= {"time_scale": _Scale, "byte_scale": _Scale, "burst": PAIR}
    rule = shape("Rule", {"policy": str, "source": str})
    scenario = {"name": str, "schedule": rule, "placement": rule}
    return shape(
        "Manifest",
        {
            "scenario": shape("Scenario", scenario),
            "emulation": shape("Emulation", emulation),
            "first_iteration": _Count,
            "began": _Amount,
            "killed": list[_Count],
            "attempts": list_of(_attempt_shape()),
        },
    )


@cache
def _attempt_shape() -> Any:
    """Return the type of an attempt that a death has ended, with what it took here."""
    beside: dict[str, Any] = {"detection": (_Amount, ...), "took": (_Amount, 0.0)}
    beside |= {"began": (_Amount, 0.0), "killed": (bool, False)}
    return create_model("Attempt", __base__=shape_of(Killed), **beside)


@cache
def result_shape() -> Any:
    """Return the type of result.json, without the rows of its schedule."""
    began: Any = (_Amount, 0.0)  # which older runs do not state
    death = create_model("Death", __base__=shape_of(Killed), began=began)
    predicted = {"predicted_attempts": list_of(death)}
    recovery = shape("Recovery", predicted, attempts=list_of(_attempt_shape()))
    keys = {"policy": str | None, "predicted_makespan": _Amount, "recovery": recovery}
    return shape("Result", {**keys, "verdict": shape("Verdict", {"trust": str})})


_OUTAGES = ("seconds", "recovery")
#: Iterations of a job that may lack rows: which, is named.
_MANY = 1000


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return everything of a problem that a Schedule needs to be understood.

    Rows hold the fields of `emu.problem`'s classes, but for those of programs.
    """
    job = problem.job
    cluster = problem.cluster

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        return list(value) if isinstance(value, tuple) else value

    rows = {
        key: [
            {name: plain(getattr(item, name)) for name in _fields_of(kind)}
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


def problem_from_json(data: Any, path: str) -> Problem:
    """Return the problem of `problem_to_json`."""
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise DataError(f"version {version!r}, this emu reads {VERSION}", path=path)
    check_shape(data, _problem_shape(), Path(path))
    try:
        parts = {key: _read(data.get(key, []), kind) for key, kind in _ROWS.items()}
        tasks = parts.pop("tasks")
        edges = parts.pop("edges")
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
    """
    try:
        schedule = schedule_of(problem, data)
        job = problem.job
        latest = {e: edge for e, edge in enumerate(job.edges) if edge.latest}
        reads = np.full((len(job.edges), job.iterations), -1)
        for e, edge in latest.items():
            row = data.get("reads", {})[job.edge_names[e]]
            reads[e, : job.rounds[edge.destination]] = row
        quotas = _quotas(problem, data.get("quotas", {}))
        return replace(schedule, reads=reads if latest else None, quotas=quotas)
    except (LookupError, TypeError, ValueError) as error:
        problem_text = f"not a schedule of this problem: {error}"
        raise DataError(problem_text, path=path) from error


def schedule_of(problem: Problem, data: dict[str, Any]) -> Schedule:
    """Return the schedule of the rows ``tasks`` and ``flows``, without what was read.

    Raises KeyError, TypeError or ValueError when a row is missing, unknown, occurs
    twice, or holds what is no number.
    """
    job = problem.job
    count = len(data["tasks"])
    iterations = job.iterations
    if iterations > max(count, _MANY):  # before memory is taken for them
        text = f"the job has {iterations} iterations, and {count} of all tasks"
        raise ValueError(text)
    sizes = [(len(parts), iterations) for parts in (job.tasks, job.edges)]

    def index(row: dict[str, Any]) -> int:
        return job.index(row["task"])

    start, end = _fill(sizes[0], data["tasks"], index, ("start", "end"))

    def remote_edge(row: dict[str, Any]) -> int:
        edge = job.edge_positions[str(row["edge"])]
        if not problem.hops[edge]:
            raise ValueError(f"flow {row['edge']} stays on one machine")
        return edge

    names = ("ready", "start", "end", "bytes")
    ready, began, over, size = _fill(sizes[1], data["flows"], remote_edge, names)
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
    spans = {key: float(data["outages"][key]) for key in _OUTAGES if "outages" in data}
    outages = Outages(**spans)
    return Schedule(problem, start, end, ready, began, over, size, outages=outages)


def _hold_all(name: str, ends: NDArray[np.float64]) -> None:
    is_missing = np.isnan(ends)
    if is_missing.any():
        raise ValueError(f"{name} lacks iteration {int(is_missing.argmax())}")


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
