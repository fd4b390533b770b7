"""Types of a run directory's JSON files, and a Problem or Schedule as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import Field, TypeAdapter, create_model

from emu.array_types import Floats, Ints
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

#: An object of a JSON file.
Content: TypeAlias = dict[str, Any]

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
#: Of these, what most clusters have none of: such a key is left out.
_OPTIONAL = {"tuners", "speed_changes"}
#: Fields of them that no file holds.
_LEFT_OUT: dict[type, set[str]] = {
    Task: {"phase", "behind", "program", "settings"},
    Link: {"machine", "direction"},
    Tuner: {"path"},
}


def _fields_of(kind: type) -> list[str]:
    left_out = _LEFT_OUT.get(kind, set())
    names = [item.name for item in fields(kind)]
    return [name for name in names if name not in left_out]


def _in_file(hint: Any, number: Any = _Amount) -> Any:
    """Return the type of a field as JSON has it: with bounds, lists and objects."""
    kind = get_origin(hint)
    parts = get_args(hint)
    if kind in {Mapping, dict}:
        key, value = parts
        return dict[key, _in_file(value, number)]  # type: ignore[misc, valid-type]
    if kind in {tuple, list}:
        inner = _in_file(parts[0], number)
        return list_of(inner)

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
    keys: Content = {}
    hints = get_type_hints(kind)
    left_out = _LEFT_OUT.get(kind, set())
    for item in fields(kind):
        if item.name in left_out:
            continue
        make = item.default_factory
        default = ... if make is MISSING else make()
        kind_in_file = _in_file(hints[item.name], number)
        keys[item.name] = (kind_in_file, default)
    return create_model(kind.__name__, **keys)


def read_shape(content: Any, kind: type[T], path: Path) -> T:
    """Return the instance of a dataclass that a JSON object stands for."""
    of_class: Any = kind
    check_shape(content, shape_of(of_class), path)
    instance: T = TypeAdapter(kind).validate_python(content)
    return instance


def shape(name: str, may_lack: Mapping[str, Any] | None = None, /, **keys: Any) -> Any:
    """Return the type of an object that has some keys, and may lack others."""
    rows: Content = {}
    for key, hint in keys.items():
        rows[key] = (hint, ...)
    for key, hint in (may_lack or {}).items():
        rows[key] = (hint, None)
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
    keys: Content = {
        "iterations": (_Count, ...),
        "placement": (list[_Count], ...),
    }
    for key, kind in _ROWS.items():
        default: Any = [] if key in _OPTIONAL else ...
        rows = list_of(shape_of(kind))
        keys[key] = (rows, default)
    return create_model("Problem", **keys)


PAIR = Annotated[list[NUMBER], Field(min_length=2, max_length=2)]


@cache
def manifest_shape() -> Any:
    """Return the type of manifest.json."""
    hints = get_type_hints(EmulationSettings)
    emulation = {}
    for name in EmulationSettings().to_json():
        emulation[name] = _in_file(hints[name]) | None
    emulation["time_scale"] = _Scale
    emulation["byte_scale"] = _Scale
    emulation["burst"] = PAIR

    rule = shape("Rule", {"policy": str, "source": str})
    scenario = {
        "name": str,
        "schedule": rule,
        "placement": rule,
    }
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
    keys: Content = {
        "detection": (_Amount, ...),
        "took": (_Amount, 0.0),
        "began": (_Amount, 0.0),
        "killed": (bool, False),
    }
    return create_model("Attempt", __base__=shape_of(Killed), **keys)


@cache
def result_shape() -> Any:
    """Return the type of result.json, without the rows of its schedule."""
    began: Any = (_Amount, 0.0)  # which older runs do not state
    death = create_model("Death", __base__=shape_of(Killed), began=began)
    may_lack = {"predicted_attempts": list_of(death)}
    attempts = list_of(_attempt_shape())
    recovery = shape("Recovery", may_lack, attempts=attempts)
    keys = {
        "policy": str | None,
        "predicted_makespan": _Amount,
        "recovery": recovery,
        "verdict": shape("Verdict", {"trust": str}),
    }
    return shape("Result", keys)


_TASK_KEYS = ("start", "end")
_FLOW_KEYS = ("ready", "start", "end", "bytes")
#: Iterations of a job that may lack rows: which, is named.
_MANY = 1000


def problem_to_json(problem: Problem) -> Content:
    """Return everything of a problem that a Schedule needs to be understood.

    Rows hold the fields of `emu.problem`'s classes, but for those of programs.
    """
    job = problem.job
    cluster = problem.cluster
    parts = {
        "machines": cluster.machines,
        "links": cluster.shared_links,
        "routes": cluster.routes,
        "changes": cluster.changes,
        "tuners": cluster.tuners,
        "speed_changes": cluster.speed_changes,
        "tasks": job.tasks,
        "edges": job.edges,
    }

    content: Content = {"version": VERSION, "iterations": job.iterations}
    for key, kind in _ROWS.items():
        names = _fields_of(kind)
        rows = [_row_of(item, names) for item in parts[key]]
        if rows or key not in _OPTIONAL:
            content[key] = rows
    content["placement"] = list(problem.placement.machine_of)
    return content


def _row_of(item: Any, names: Iterable[str]) -> Content:
    row = {}
    for name in names:
        value = getattr(item, name)
        row[name] = _plain(value)
    return row


def _plain(value: Any) -> Any:
    """Return a value of a field as JSON has it."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def problem_from_json(data: Any, path: str) -> Problem:
    """Return the problem of `problem_to_json`."""
    version = None
    if isinstance(data, dict):
        version = data.get("version")
    if version != VERSION:
        raise DataError(f"version {version!r}, this emu reads {VERSION}", path=path)
    # The shape first: classes below may be given any type, and raise what they like.
    check_shape(data, _problem_shape(), Path(path))

    try:
        parts = {}
        for key, kind in _ROWS.items():
            parts[key] = _read(data.get(key, []), kind)
        tasks = parts.pop("tasks")
        edges = parts.pop("edges")
        machines = parts.pop("machines")
        links = parts.pop("links")
        cluster = Cluster(machines, links, **parts)
        job = Job(tasks, edges, data["iterations"])
        placement = Placement(tuple(data["placement"]))
        problem = Problem(cluster, job, placement)
        # Both are computed when they are asked for, and raise then.
        _ = problem.capacities
        _ = problem.hops
        for task in tasks:
            if task.pinned is not None:
                cluster.index(str(task.pinned))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a problem: {error}", path=path) from error
    return problem


def _read(rows: list[Content], kind: type) -> tuple[Any, ...]:
    """Return one item of a class per row; its name, if any, can be printed."""
    for row in rows:
        check_name(row.get("name", "unnamed"))
    names = _fields_of(kind)
    items = []
    for row in rows:
        values = {}
        for name in names:
            value = row[name]
            values[name] = tuple(value) if isinstance(value, list) else value
        items.append(kind(**values))
    return tuple(items)


def schedule_from_json(problem: Problem, data: Content, path: str) -> Schedule:
    """Return the schedule that `Schedule.to_json` wrote for ``problem``.

    Handoffs within a machine are not in the file; they follow from the task ends.
    """
    try:
        return schedule_of(problem, data)
    except (LookupError, TypeError, ValueError) as error:
        text = f"not a schedule of this problem: {error}"
        raise DataError(text, path=path) from error


def _reads(job: Job, rows: Content) -> Ints | None:
    """Return `Schedule.reads` of the rows of ``reads``."""
    # -1 stays where nothing was read.
    reads = np.full((len(job.edges), job.iterations), -1)
    reads_latest = False
    for number, edge in enumerate(job.edges):
        if edge.latest:
            count = job.rounds[edge.destination]
            name = job.edge_names[number]
            reads[number, :count] = rows[name]
            reads_latest = True
    return reads if reads_latest else None


def schedule_of(problem: Problem, data: Content) -> Schedule:
    """Return the schedule of the rows ``tasks`` and ``flows``, with what was read.

    Raises KeyError, TypeError or ValueError when a row is missing, unknown, occurs
    twice, or holds what is no number.
    """
    job = problem.job
    # First of all: arrays of a size that a damaged file states may not fit into memory.
    _check_count(job.iterations, len(data["tasks"]))

    def task_of(row: Content) -> int:
        return job.index(row["task"])

    def remote_edge(row: Content) -> int:
        edge = job.edge_positions[str(row["edge"])]
        if not problem.hops[edge]:
            raise ValueError(f"flow {row['edge']} stays on one machine")
        return edge

    of_tasks = (len(job.tasks), job.iterations)
    of_edges = (len(job.edges), job.iterations)
    start, end = _fill(of_tasks, data["tasks"], task_of, _TASK_KEYS)
    ready, began, over, size = _fill(of_edges, data["flows"], remote_edge, _FLOW_KEYS)
    for number, task in enumerate(job.tasks):
        _hold_all(f"task {task.name}", end[number], job.rounds[number])
    for number, edge in enumerate(job.edges):
        count = job.flow_counts[number]
        if problem.hops[number]:
            _hold_all(f"flow {job.edge_names[number]}", over[number], count)
        else:
            for times in (ready, began, over):  # handed over at once
                times[number, :count] = end[edge.source, :count]
            # Bytes of a handoff cross no link; realization.npz alone has them.
            size[number, :count] = 0.0

    return Schedule(
        problem,
        task_start=start,
        task_end=end,
        flow_ready=ready,
        flow_start=began,
        flow_end=over,
        flow_bytes=size,
        reads=_reads(job, data.get("reads", {})),
        quotas=_quotas(problem, data.get("quotas", {})),
        outages=_outages_of(data),
    )


def _check_count(iterations: int, count: int) -> None:
    """Raise ValueError for far more iterations than rows, before they take memory."""
    if iterations > max(count, _MANY):
        text = f"the job has {iterations} iterations, and {count} of all tasks"
        raise ValueError(text)


def _outages_of(data: Content) -> Outages:
    if "outages" not in data:
        return Outages()
    spans = data["outages"]
    seconds = float(spans["seconds"])
    recovery = float(spans["recovery"])
    return Outages(seconds, recovery)


def _hold_all(name: str, ends: Floats, count: int) -> None:
    """Raise ValueError where one of the first iterations has no end, or a later one."""
    is_missing = np.isnan(ends)
    is_hole = is_missing[:count]
    if is_hole.any():
        first = int(is_hole.argmax())
        raise ValueError(f"{name} lacks iteration {first}")
    if not is_missing[count:].all():
        raise ValueError(f"{name} has too many iterations")


def _quotas(problem: Problem, rows: dict[str, list[int]]) -> Ints | None:
    """Return `Schedule.quotas` of the rows of ``quotas``."""
    paths = [rows[name] for name in problem.cluster.tuned_names]
    if not paths:
        return None

    longest = max(map(len, paths))
    quotas = np.zeros((longest, len(paths)), np.int64)
    for column, path in enumerate(paths):
        for quota in path:
            # ``isinstance`` would take True for 1.
            if type(quota) is not int or quota < 1:
                raise ValueError(f"a quota is no number of slots: {path}")
        count = len(path)
        quotas[:count, column] = path
    return quotas


def _fill(
    shape: tuple[int, int],
    rows: list[Content],
    position: Callable[[Content], int],
    keys: tuple[str, ...],
) -> list[Floats]:
    """Return one array per key, NaN where no row has a value."""
    arrays = [np.full(shape, np.nan) for _ in keys]
    _, iterations = shape
    places = set()
    for row in rows:
        number = position(row)
        iteration = row["iteration"]
        place = (number, iteration)
        # ``isinstance`` would take True for 1.
        if type(iteration) is not int or not 0 <= iteration < iterations:
            raise ValueError(f"iteration {iteration!r} of {row} is none of the job's")

        # The second row would take the place of the first without a word.
        if place in places:
            raise ValueError(f"a row occurs twice: {row}")
        places.add(place)

        for array, key in zip(arrays, keys, strict=True):
            value = row[key]
            # `not <` refuses NaN as well, and the type a truth value.
            if type(value) not in (int, float) or not abs(value) < MOST:
                raise ValueError(f"{key} is {value!r} in {row}")
            array[place] = value
    return arrays
