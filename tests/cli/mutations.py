"""Ways to make a valid schedule false, each in the JSON that a command reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Content = dict[str, Any]
    Row = dict[str, Any]


def _all(table: str, **values: Callable[[Row], Any]) -> Callable[[Content], None]:
    """Change every row of a table."""

    def mutate(content: Content) -> None:
        for row in content[table]:
            row |= {key: value(row) for key, value in values.items()}

    return mutate


def _one(
    table: str, at: int, name: str, /, **values: Callable[[Row], Any]
) -> Callable[[Content], None]:
    """Change the row of one task or flow."""

    def mutate(content: Content) -> None:
        row = _row(content, table, at, name)
        row |= {key: value(row) for key, value in values.items()}

    return mutate


def _row(content: Content, table: str, iteration: int, name: str) -> Row:
    key = "task" if table == "tasks" else "edge"
    rows = [r for r in content[table] if r[key] == name and r["iteration"] == iteration]
    found: Row = rows[0]
    return found


def _flow(**values: Callable[[Row], Any]) -> Callable[[Content], None]:
    return _one("flows", 1, "g0->s1", **values)


def _task(**values: Callable[[Row], Any]) -> Callable[[Content], None]:
    return _one("tasks", 1, "w0", **values)


def _without(table: str, iteration: int, name: str) -> Callable[[Content], None]:
    return lambda content: content[table].remove(_row(content, table, iteration, name))


def _twice(table: str, iteration: int, name: str) -> Callable[[Content], None]:
    return lambda content: content[table].append(
        dict(_row(content, table, iteration, name))
    )


def _both(*mutations: Callable[[Content], None]) -> Callable[[Content], None]:
    def mutate(content: Content) -> None:
        for one in mutations:
            one(content)

    return mutate


def _last_iteration_gone(content: Content) -> None:
    last = max(row["iteration"] for row in content["tasks"])
    for table in ("tasks", "flows"):
        content[table] = [r for r in content[table] if r["iteration"] < last]
    kept = [r for r in content["flows"] if r["iteration"] < last - 1 or r["to"] != "w0"]
    content["flows"] = [r for r in kept if r["iteration"] < last]
    content["makespan"] = max(row["end"] for row in content["tasks"])


def _shifted(seconds: float) -> Callable[[Content], None]:
    def mutate(content: Content) -> None:
        for row in content["tasks"]:
            row["start"], row["end"] = row["start"] + seconds, row["end"] + seconds
        for row in content["flows"]:
            for key in ("ready", "start", "end"):
                row[key] += seconds
        content["makespan"] += seconds

    return mutate


def _scaled(factor: float) -> Callable[[Content], None]:
    def mutate(content: Content) -> None:
        for row in (*content["tasks"], *content["flows"]):
            for key in {"ready", "start", "end"} & row.keys():
                row[key] *= factor
        content["makespan"] *= factor

    return mutate


def _swapped(content: Content) -> None:
    one, other = (_row(content, "flows", n, "g0->s1") for n in (0, 1))
    one["iteration"], other["iteration"] = other["iteration"], one["iteration"]


def _set(key: str, value: Any) -> Callable[[Content], None]:
    return lambda content: content.update({key: value})


NAN = float("nan")
#: What is done, and what has to be said of it (in one of the constraints named).
MUTATIONS: dict[str, tuple[str, Callable[[Content], None]]] = {
    "all bytes halved": ("(12)", _all("flows", bytes=lambda r: r["bytes"] / 2)),
    "all bytes zero": ("(12)", _all("flows", bytes=lambda _: 0.0)),
    "all bytes negative": ("(12)", _all("flows", bytes=lambda r: -r["bytes"])),
    "all bytes doubled": ("(12)", _all("flows", bytes=lambda r: 2 * r["bytes"])),
    "one flow's bytes halved": ("(12)", _flow(bytes=lambda r: r["bytes"] / 2)),
    "one flow's bytes a tenth more": ("(12)", _flow(bytes=lambda r: 1.1 * r["bytes"])),
    "one flow's bytes zero": ("(12)", _flow(bytes=lambda _: 0)),
    "one flow's bytes negative": ("(12)", _flow(bytes=lambda _: -40.0)),
    "bytes NaN": ("bytes is nan", _flow(bytes=lambda _: NAN)),
    "bytes infinite": ("bytes is inf", _flow(bytes=lambda _: float("inf"))),
    "bytes as text": ("bytes is '40'", _flow(bytes=lambda _: "40")),
    "bytes missing": ("bytes", _flow(bytes=lambda _: None)),
    "every task 1 ms": ("(6)", _all("tasks", end=lambda r: r["start"] + 1e-3)),
    "every task half its time": (
        "(6)", _all("tasks", end=lambda r: (r["start"] + r["end"]) / 2),
    ),
    "every task twice its time": (
        "(6)", _all("tasks", end=lambda r: 2 * r["end"] - r["start"]),
    ),
    "one task too short": ("(6)", _task(end=lambda r: r["end"] - 0.5)),
    "one task starts late and ends in time": (
        "(6)", _task(start=lambda r: r["start"] + 0.5),
    ),
    "one task too long": ("(10)", _one("tasks", 0, "g0", end=lambda r: r["end"] + 3)),
    "a task ends before it starts": ("(6)", _task(end=lambda r: r["start"] - 1)),
    "a task starts before time 0": (
        "(5)", _one("tasks", 0, "g0", start=lambda _: -1.0),
    ),
    "a task NaN": ("start is nan", _task(start=lambda _: NAN)),
    "a task's end NaN": ("end is nan", _task(end=lambda _: NAN)),
    "a task's end infinite": ("end is inf", _task(end=lambda _: float("inf"))),
    "a task before its inputs": (
        "(8)", _task(start=lambda r: r["start"] - 3, end=lambda r: r["end"] - 3),
    ),
    "a task before its neighbour's hand": (
        "(9)", _one("tasks", 0, "s0", start=lambda _: 0.0, end=lambda _: 1.0),
    ),
    "two iterations at once": (
        "(10)", _one("tasks", 1, "g0", start=lambda _: 0.5, end=lambda _: 1.5),
    ),
    "a task missing": ("w0", _without("tasks", 1, "w0")),
    "a task twice": ("twice", _twice("tasks", 1, "w0")),
    "a task of another iteration": ("iteration", _task(iteration=lambda _: 99)),
    "a negative iteration": ("none of the job", _task(iteration=lambda _: -1)),
    "half an iteration": ("none of the job", _task(iteration=lambda _: 0.5)),
    "a task nobody knows": ("w9", _task(task=lambda _: "w9")),
    "all ready 0": ("(7)", _all("flows", ready=lambda _: 0.0)),
    "one ready 0": ("(7)", _flow(ready=lambda _: 0.0)),
    "one ready late": ("(7)", _flow(ready=lambda r: r["end"])),
    "ready negative": ("(7)", _flow(ready=lambda _: -5.0)),
    "ready NaN": ("ready is nan", _flow(ready=lambda _: NAN)),
    "a flow before its source": ("(7)", _flow(start=lambda r: r["ready"] - 1)),
    "a flow before the one before": ("(11)", _flow(start=lambda r: r["ready"])),
    "a flow ends before it starts": ("(7)", _flow(end=lambda r: r["start"] - 1)),
    "a flow of no length": ("(13)", _flow(end=lambda r: r["start"])),
    "a flow at twice its NIC": (
        "(13)", _flow(end=lambda r: r["start"] + r["bytes"] / 20),
    ),
    "a flow ends after its task began": ("(8)", _flow(end=lambda r: r["end"] + 5)),
    "a flow's end NaN": ("end is nan", _flow(end=lambda _: NAN)),
    "a flow missing": ("g0->s1", _without("flows", 1, "g0->s1")),
    "a flow twice": ("twice", _twice("flows", 1, "g0->s1")),
    "a flow nobody knows": ("g0->g1", _flow(edge=lambda _: "g0->g1")),
    "a flow within a machine": ("stays on one machine", _flow(edge=lambda _: "g0->s0")),
    "a flow that nobody waits for": (
        "ps0->w0", _one("flows", 1, "ps0->w0", iteration=lambda _: 2),
    ),
    "two flows swapped": ("(7)", _swapped),
    "makespan 1": ("(15)", _set("makespan", 1.0)),
    "makespan a tenth less": ("(15)", _set("makespan", 34.2)),
    "makespan NaN": ("(15)", _set("makespan", NAN)),
    "makespan gone": ("(15)", lambda content: content.pop("makespan")),
    "all a tenth faster": ("(13)", _scaled(0.9)),
    "all twice as fast": ("(13)", _scaled(0.5)),
    "all a tenth slower": ("(6)", _scaled(1.1)),
    "all 5 s later": ("(5)", _shifted(5.0)),
    "all 5 s earlier": ("(5)", _shifted(-5.0)),
    "the last iteration gone": ("", _last_iteration_gone),
    "no tasks": ("", _set("tasks", [])),
    "no flows": ("", _set("flows", [])),
    "tasks cut and bytes halved": (
        "(12)",
        _both(
            _all("tasks", end=lambda r: r["start"] + 1e-3),
            _all("flows", bytes=lambda r: r["bytes"] / 2),
        ),
    ),
}  # fmt: skip
