"""Scenarios drawn at random, the same for the same seed, to show fidelity on.

Machines 2 to 16 with NICs up to 1:20 apart; DGTP jobs with one-shot and multi-round
sampling, custom ones of the shape of training and random graphs; from computing all the
time to moving bytes all the time; flows from crumbs to most of an iteration; every rate
policy, with and without credit windows. None needs a data file or computes: tasks take
their stated times. What DGTP jobs send is really sampled, on a made-up graph of 2,449
vertices, so batches are small: a sampler's takes 0.1 ms to draw, and every store draws
it too.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from emu.prediction.scheduling import RATE_POLICIES
from emu.problem.workloads import parameter_count

_Tasks: TypeAlias = dict[str, dict[str, Any]]
_Flows: TypeAlias = list[dict[str, Any]]
_Drawn: TypeAlias = tuple[_Tasks, _Flows, dict[str, int]]

#: Policies that are a rule for rates; ``portfolio`` chooses one of them.
RULES = tuple(name for name in RATE_POLICIES if name != "portfolio")
#: Shapes of jobs; their number and that of the rules have no common factor, so that
#: every shape meets every rule within 52 seeds.
SHAPES = ("training", "oneshot", "graph", "multiround")
_GIGABIT = 1e9 / 8
_WINDOWS = (1, 2, 4, "unlimited")
#: Of products-like at this scale; the graph is the same for all seeds, so that it is
#: prepared once per number of machines (50 ms, 1.5 MB) and not once per scenario.
_SCALE, _VERTICES, _FEATURES, _CLASSES = 0.001, 2449, 100, 47
_LAYERS = 2
#: Messages between stores and samplers per iteration: 16 machines with 16 samplers that
#: ask hop by hop have 1,536, of which 2 cores carry no three iterations in 1.5 s.
_MOST_MESSAGES = 320


def draw_scenario(seed: int, *, most_processes: int = 24) -> dict[str, Any]:
    """Return the content of a scenario file: a job that is placed explicitly.

    Parameters
    ----------
    seed
        Shapes and policies take turns with it, so that any run of seeds has them all.
    most_processes
        Processes of the job, at most; at least 8. There are at most a third as many
        machines: 48 allow all 16.

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
    shape = SHAPES[seed % len(SHAPES)]
    job, placed, byte_scale = _job(rng, shape, nics, most_processes)
    return {
        "name": f"drawn-{seed}",
        "cluster": {
            "machines": [
                {"name": name, "nic": f"{nic!r} B/s"}
                for name, nic in zip(names, map(float, nics), strict=True)
            ]
        },
        "job": job
        | {
            "iterations": int(rng.integers(2, 6)),
            "credit_window": _WINDOWS[rng.integers(len(_WINDOWS))],
        },
        "placement": {
            "policy": "explicit",
            "tasks": {task: names[machine] for task, machine in placed.items()},
        },
        "schedule": {"policy": RULES[seed % len(RULES)]},
        "emulation": {"byte_scale": byte_scale},
        "seed": seed,
    }


def _job(
    rng: Generator, shape: str, nics: NDArray[np.float64], most: int
) -> tuple[dict[str, Any], dict[str, int], float | str]:
    """Return a job section, the machine of each process, and the byte scale."""
    if shape in {"oneshot", "multiround"}:
        slowest, multiround = float(nics.min()), shape == "multiround"
        return _draw_dgtp(rng, len(nics), most, slowest, multiround=multiround)
    mean, training = float(nics.mean()), shape == "training"
    job, placed = _draw_custom(rng, len(nics), most, mean, training=training)
    return job, placed, "auto"


def _draw_custom(
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


def _draw_dgtp(
    rng: Generator, machines: int, most: int, nic: float, *, multiround: bool
) -> tuple[dict[str, Any], dict[str, int], float]:
    """Return a job section, the machine of each process, and real per emulated bytes.

    Parameters
    ----------
    most
        Processes, at most.
    nic
        Bytes per second of the slowest machine. It has a store as all have, and if it
        held all others up for long, real work would outlast the tasks around it.
    multiround
        Whether samplers ask the stores hop by hop: tasks that share a process.
    """
    counts = _counts(rng, machines, most, multiround=multiround)
    seconds = {
        kind: float(rng.uniform(0.005, 0.05) * rng.lognormal(0.0, 0.5))
        for kind in _tasks(counts, machines, multiround=multiround)
    }
    each = counts["samplers_per_worker"]
    fanouts = [int(rng.integers(2, 6)), int(rng.integers(2, 9))]
    seeds = int(rng.integers(4, 25))
    hidden = int(rng.choice([8, 32, 128, 512]))
    job = {
        "system": "dgtp",
        "dataset": {"name": "products-like", "scale": _SCALE, "seed": 0},
        "partitioner": "hash",
        "model": {"hidden": hidden, "layers": _LAYERS},
        "fanouts": fanouts,
        "batch_size": seeds * each,
        **counts,
        "times": {
            # Drawn of one task; stated of a whole mini-batch, which samplers share.
            kind: f"{time * (each if kind.startswith('sampler') else 1)!r} s"
            for kind, time in seconds.items()
        },
        "sampling": "multiround" if multiround else "oneshot",
    }
    samplers = counts["workers"] * counts["samplers_per_worker"]
    computing = sum(
        seconds[kind] * number
        for kind, number in _tasks(counts, machines, multiround=multiround).items()
    )
    inputs = min(seeds * math.prod(1 + fanout for fanout in fanouts), _VERTICES)
    model = {"hidden": hidden, "layers": _LAYERS}
    parameters = parameter_count(model, _FEATURES, _CLASSES)
    real = 4 * 2 * (samplers * inputs * _FEATURES + counts["workers"] * parameters)
    byte_scale = real / (nic * computing * 10.0 ** float(rng.uniform(-1, 1)))
    movable = (
        [f"s{s}" for s in range(samplers)]
        + [f"w{w}" for w in range(counts["workers"])]
        + [f"ps{p}" for p in range(counts["parameter_servers"])]
    )
    return job, {name: int(rng.integers(machines)) for name in movable}, byte_scale


def _counts(
    rng: Generator, machines: int, most: int, *, multiround: bool
) -> dict[str, int]:
    """Return how many workers, samplers of each and parameter servers there are."""
    servers = int(rng.integers(1, 3))
    rounds = 2 + 2 * _LAYERS if multiround else 1
    samplers = max(_MOST_MESSAGES // (machines * rounds), 1)
    room = most - machines - servers
    workers = int(rng.integers(1, max(min(room // 3, samplers), 1) + 1))
    each = max(min(room // workers - 1, samplers // workers, 4), 1)
    return {
        "workers": workers,
        "samplers_per_worker": int(rng.integers(1, each + 1)),
        "parameter_servers": servers,
    }


def _tasks(
    counts: dict[str, int], machines: int, *, multiround: bool
) -> dict[str, int]:
    """Return the number of tasks of each kind."""
    samplers = counts["workers"] * counts["samplers_per_worker"]
    found = {
        "graph_store": machines,
        "sampler": samplers,
        "worker": counts["workers"],
        "parameter_server": counts["parameter_servers"],
    }
    if multiround:
        found["graph_store_hop"] = machines * _LAYERS
        found["sampler_hop"] = samplers * _LAYERS
        found["sampler_fetch"] = samplers
    return found
