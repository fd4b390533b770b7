"""Drawn pools of storage beside machines that compute, and their bytes by own count."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np

from emu.graph_data import BatchPlan, open_for
from emu.problem import Schedule
from emu.problem.workloads import parameter_count
from emu.scenario import Experiment, Scenario
from emu.scenario.scenario_file import loads

#: Bytes of a vertex's number, of an answered edge, of an edge of a block, of a label.
ID, ANSWER, BLOCK_EDGE, LABEL = 8, 16, 8, 4
TIMES = (
    "graph_store", "graph_store_hop", "sampler", "sampler_hop", "sampler_fetch",
    "worker",
)  # fmt: skip

Pairs = Counter[tuple[str, str]]


def drawn_pool(seed: int, system: str, **job: Any) -> dict[str, Any]:
    """Return a document: storage without gpus, machines with gpus, of unlike NICs."""
    rng = np.random.default_rng(seed)
    machines: list[dict[str, Any]] = []
    for kind, count in (("s", rng.integers(2, 5)), ("c", rng.integers(1, 4))):
        for number in range(count):
            rates = rng.choice([0.5, 1, 2, 5], 2).tolist()
            nic = {"in": f"{rates[0]} Gbit/s", "out": f"{rates[1]} Gbit/s"}
            gpus = {"gpu": 2} if kind == "c" else {}
            machines.append({"name": f"{kind}{number}", "nic": nic, **gpus})
    names = [one["name"] for one in machines if one["name"].startswith("s")]
    owners = rng.permutation(names)[: rng.integers(1, len(names) + 1)].tolist()
    computing = sum("gpu" in machine for machine in machines)

    whole: dict[str, Any] = {
        "system": system,
        "stores": owners,
        "dataset": {"name": "products-like", "scale": 0.001},
        "partitioner": str(rng.choice(["hash", "metis"])),
        "model": {"hidden": 8, "layers": 2},
        "fanouts": [3, 4],
        "batch_size": 8,
        "iterations": 4,
        "epoch": "replicate",
        "times": dict.fromkeys(TIMES, "5 ms"),
        "credit_window": "unlimited",
        **job,
    }
    if system == "dgtp":
        whole["workers"] = computing + int(rng.integers(0, computing + 1))
        whole["samplers_per_worker"] = int(rng.integers(1, 3))
        whole["sync"] = "ring"
    return {
        "name": "pool",
        "cluster": {"machines": machines},
        "job": whole,
        "placement": {"policy": "best", "iterations": 40},
        "emulation": {"compute": "timed", "deadline": "60 s"},
        "seed": seed,
    }


def read_pool(document: dict[str, Any]) -> Scenario:
    """Return the scenario of a document."""
    return loads(json.dumps(document))


def sent(schedule: Schedule) -> Pairs:
    """Return the bytes between every two machines that a schedule has."""
    names = schedule.problem.machine_of_task
    job = schedule.problem.job
    pairs = Pairs()
    for edge, row in zip(job.edges, schedule.flow_bytes, strict=True):
        source, destination = job.tasks[edge.source], job.tasks[edge.destination]
        here, there = names[source.name], names[destination.name]
        if here != there:
            pairs[here, there] += int(np.nansum(row))
    return +pairs


def counted(ready: Experiment, owners: list[str]) -> Pairs:
    """Return the same from mini-batches alone; ``owners``: machines as stated."""
    settings, tasks = ready.problem.job.settings, ready.tasks
    dataset, plan = open_for(settings), BatchPlan.from_settings(settings)
    row = 4 * dataset.feature_length
    pairs = Pairs()
    for sampler in range(plan.samplers):
        here = tasks[f"s{sampler}"]
        worker = tasks[f"w{sampler // settings['samplers_per_worker']}"]
        for iteration in range(ready.problem.job.iterations):
            train = plan.walk(dataset)
            batch = plan.batch(dataset.structure, train, sampler, iteration)
            of_vertex = np.asarray(dataset.owner)[batch.vertices]
            for number, owner in enumerate(owners):
                mine = of_vertex == number
                pairs[owner, here] += row * int(mine.sum())
                if settings["sampling"] == "oneshot":
                    continue
                pairs[here, owner] += ID * int(mine.sum())
                for size, (_, ends) in zip(
                    batch.sizes[:0:-1], batch.edges[::-1], strict=True
                ):
                    pairs[here, owner] += ID * int(mine[:size].sum())
                    pairs[owner, here] += ANSWER * int(mine[ends].sum())
            edges = sum(len(ends) for _, ends in batch.edges)
            block = BLOCK_EDGE * edges + LABEL * batch.sizes[-1]
            pairs[here, worker] += row * len(batch.vertices) + block
    pairs += gradients(ready)
    return Pairs({ends: n for ends, n in pairs.items() if ends[0] != ends[1] and n})


def gradients(ready: Experiment) -> Pairs:
    """Return the bytes of a ring: 2 (N - 1) parts of each worker to the next."""
    settings, tasks = ready.problem.job.settings, ready.tasks
    dataset, ranks = open_for(settings), settings["workers"]
    sizes = settings["model"], dataset.feature_length, dataset.classes
    even, rest = divmod(parameter_count(*sizes), ranks)
    parts = [even + (part < rest) for part in range(ranks)]  # the first are larger
    pairs = Pairs()
    for rank in range(ranks):
        to = tasks[f"w{(rank + 1) % ranks}"]
        for step in range(ranks - 1):
            of_both = parts[(rank - step) % ranks] + parts[(rank + 1 - step) % ranks]
            pairs[tasks[f"w{rank}"], to] += 4 * of_both * ready.problem.job.iterations
    return pairs
