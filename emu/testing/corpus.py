"""Scenarios drawn at random, the same for the same seed, to show fidelity on.

Machines 2 to 16 with NICs up to 1:20 apart; the shape of a GNN training job or a random
graph of tasks; from computing all the time to moving bytes all the time; flows from
crumbs to most of an iteration; every rate policy, with and without credit windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from emu.scheduling import POLICIES

if TYPE_CHECKING:
    from numpy.random import Generator

#: Policies that are a rule for rates; ``portfolio`` chooses one of them.
RULES = tuple(name for name in POLICIES if name != "portfolio")
_GIGABIT = 1e9 / 8
_WINDOWS = (1, 2, 4, "unlimited")


def draw_scenario(seed: int, *, most_processes: int = 24) -> dict[str, Any]:
    """Return the content of a scenario file: a custom job, placed explicitly.

    Parameters
    ----------
    seed
        Policies take turns with it, so that any run of seeds has them all.
    most_processes
        Tasks of the job, at most; at least 8.

    Raises
    ------
    ValueError
        When fewer than 8 processes are allowed.
    """
    if most_processes < 8:
        raise ValueError("a job that trains has 8 processes or more")
    rng = np.random.default_rng([seed, 0x5EED])
    machines = min(int(rng.integers(2, 17)), most_processes // 3)
    names = [f"m{m}" for m in range(machines)]
    nics = _GIGABIT * rng.choice([1, 2, 5, 10, 20], machines)
    job = _training if rng.random() < 0.7 else _random_graph
    tasks, flows, pinned = job(rng, machines, most_processes)
    iterations = int(rng.integers(2, 6))
    _balance(rng, tasks, flows, float(np.mean(nics)), machines)
    window = _WINDOWS[rng.integers(len(_WINDOWS))]
    return {
        "name": f"drawn-{seed}",
        "cluster": {
            "machines": [
                {"name": name, "nic": f"{nic!r} B/s"}
                for name, nic in zip(names, map(float, nics), strict=True)
            ]
        },
        "job": {
            "system": "custom",
            "iterations": iterations,
            "tasks": [
                task | {"time": f"{task['time']!r} s"} for task in tasks.values()
            ],
            "flows": [flow | {"volume": f"{flow['volume']!r} B"} for flow in flows],
            "credit_window": window,
        },
        "placement": {
            "policy": "explicit",
            "tasks": {name: names[machine] for name, machine in pinned.items()},
        },
        "schedule": {"policy": RULES[seed % len(RULES)]},
        "emulation": {"byte_scale": "auto"},
        "seed": seed,
    }


Drawn = tuple[dict[str, dict[str, Any]], list[dict[str, Any]], dict[str, int]]


def _training(rng: Generator, machines: int, most: int) -> Drawn:
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
    return tasks, [_flow(rng, *edge) for edge in edges], pinned


def _random_graph(rng: Generator, machines: int, most: int) -> Drawn:
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
    return tasks, [_flow(rng, *pair, lag) for pair, lag in edges.items()], pinned


def _time(rng: Generator) -> float:
    return float(rng.lognormal(0.0, 0.5))


def _flow(rng: Generator, source: str, destination: str, lag: int) -> dict[str, Any]:
    volume = float(rng.lognormal(0.0, 0.8))
    return {"from": source, "to": destination, "lag": lag, "volume": volume}


def _balance(
    rng: Generator,
    tasks: dict[str, dict[str, Any]],
    flows: list[dict[str, Any]],
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
