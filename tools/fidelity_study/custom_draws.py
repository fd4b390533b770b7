"""Jobs of ``system: custom`` drawn at random: the shape of training, or any graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.random import Generator

_Tasks: TypeAlias = dict[str, dict[str, Any]]
_Flows: TypeAlias = list[dict[str, Any]]
_Drawn: TypeAlias = tuple[_Tasks, _Flows, dict[str, int]]


def draw_custom(
    rng: Generator, machines: int, most: int, nic: float, *, training: bool
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return a job section and the machine of each task.

    Parameters
    ----------
    most
        Tasks, at most.
    nic
        Bytes per second of an average machine.
    training
        Whether it has the shape of a training job, or is a random graph.
    """
    drawn = (_training if training else _random_graph)(rng, machines, most)
    tasks, flows, pinned = drawn
    _vary(rng, flows)
    _balance(rng, tasks, flows, nic, machines)
    job = {
        "system": "custom",
        "tasks": [task | {"time": f"{task['time']!r} s"} for task in tasks.values()],
        "flows": [flow | {"volume": f"{flow['volume']!r} B"} for flow in flows],
    }
    return job, pinned


def _training(rng: Generator, machines: int, most: int) -> _Drawn:
    """Return stores -> samplers -> workers -> parameter server -> workers."""
    workers = int(rng.integers(1, max((most - machines - 1) // 3, 1) + 1))
    each = int(rng.integers(1, max((most - machines - 1 - workers) // workers, 1) + 1))
    kinds = (
        [("g", "graph_store", m) for m in range(machines)]
        + [("s", "sampler", s) for s in range(workers * each)]
        + [("w", "worker", w) for w in range(workers)]
        + [("p", "parameter_server", 0)]
    )
    tasks = {
        f"{letter}{n}": {"name": f"{letter}{n}", "kind": kind, "time": _time(rng)}
        for letter, kind, n in kinds
    }
    pinned = {name: int(rng.integers(machines)) for name in tasks}
    pinned |= {f"g{m}": m for m in range(machines)}
    edges = [
        (f"g{m}", f"s{s}", 0) for m in range(machines) for s in range(workers * each)
    ]
    edges += [(f"s{s}", f"w{s // each}", 0) for s in range(workers * each)]
    edges += [(f"w{w}", "p0", 0) for w in range(workers)]
    edges += [("p0", f"w{w}", 1) for w in range(workers)]
    return tasks, [_flow(*edge) for edge in edges], pinned


def _random_graph(rng: Generator, machines: int, most: int) -> _Drawn:
    """Return tasks with edges to later ones, and some to earlier ones with a lag."""
    count = int(rng.integers(4, most + 1))
    names = [f"t{n}" for n in range(count)]
    tasks = {name: {"name": name, "time": _time(rng)} for name in names}
    pinned = {name: int(rng.integers(machines)) for name in names}
    pinned[names[0]], pinned[names[1]] = 0, 1
    edges = {("t0", "t1"): 0}
    for here in range(1, count):
        for _ in range(int(rng.integers(1, 4))):
            edges[names[int(rng.integers(here))], names[here]] = 0
        if rng.random() < 0.2:
            lag = int(rng.integers(1, 3))
            edges.setdefault((names[here], names[int(rng.integers(here))]), lag)
    return tasks, [_flow(*pair, lag) for pair, lag in edges.items()], pinned


def _time(rng: Generator) -> float:
    return float(rng.lognormal(0.0, 0.5))


def _flow(source: str, destination: str, lag: int) -> dict[str, Any]:
    return {"from": source, "to": destination, "lag": lag, "volume": 1.0}


def _vary(rng: Generator, flows: _Flows) -> None:
    """Draw volumes: from all alike to a few long ones among crumbs."""
    spread = float(rng.choice([0.3, 0.8, 2.0]))
    for flow in flows:
        flow["volume"] = float(rng.lognormal(0.0, spread))


def _balance(
    rng: Generator,
    tasks: _Tasks,
    flows: _Flows,
    nic: float,
    machines: int,
) -> None:
    """Scale times to milliseconds, volumes to between 0.1 and 10 times as long."""
    seconds = float(rng.uniform(0.005, 0.05))
    for task in tasks.values():
        task["time"] *= seconds
    computing = sum(task["time"] for task in tasks.values()) / machines
    moving = sum(flow["volume"] for flow in flows) / nic / machines
    ratio = 10.0 ** float(rng.uniform(-1, 1))
    for flow in flows:
        flow["volume"] = max(round(flow["volume"] * ratio * computing / moving), 1)
