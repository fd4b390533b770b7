"""Memory that a job needs on every machine, and what has none for it.

Features, also of others, weights with what their optimizer keeps, what each layer keeps
of the whole graph, and messages at a time. Not the code, nor the graph's structure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.problem import Schedule
from emu.scenario import Experiment
from emu.systems.device_memory import RESOURCE
from emu.systems.setup import COLUMNS, GHOSTS, WEIGHTS
from emu.systems.system import list_transfers, state_bytes
from emu.units import format_size

#: Buffers have four sizes per power of two, and one more is filled meanwhile.
_ROUNDING = 1.25


def most_waiting(
    schedule: Schedule,
    volumes: NDArray[np.float64],
    edges: Collection[int] | None = None,
) -> float:
    """Return the most bytes that payloads hold at a time, emulated ones.

    A payload is there from the start of the task that makes it until the end of the one
    that reads it, or of the run. Of every edge between processes the largest is there
    twice: it leaves while it comes. ``volumes`` are bytes by edge and iteration, also
    of edges within a machine; of some ``edges`` alone, by default of all.
    """
    job = schedule.problem.job
    starts = []
    ends = []
    sizes = []
    twice = 0.0
    for e, edge in enumerate(job.edges):
        count = job.flow_counts[e]
        beside = edges is not None and e not in edges
        if job.control[e] or edge.credit or not count or beside:
            continue
        reads = np.arange(count) + edge.lag
        end = np.full(count, schedule.makespan)
        if not edge.latest:  # it may be read at any time
            end = schedule.task_end[edge.destination, reads]
        starts.append(schedule.task_start[edge.source, :count])
        ends.append(end)
        sizes.append(volumes[e, :count])
        twice += float(volumes[e, :count].max())
    if not sizes:
        return 0.0
    size = np.concatenate(sizes)
    times = np.concatenate([*starts, *ends])
    # What ends as something begins is still there: the new comes before the old goes.
    change = np.concatenate([size, -size])
    order = np.lexsort((change < 0, times))
    return float(np.cumsum(change[order]).max() + twice) * _ROUNDING


def memory_by_machine(experiment: Experiment, schedule: Schedule) -> dict[str, float]:
    """Return the bytes that a training needs at most, by machine that takes part.

    Raises DataError when the data set is missing or damaged.
    """
    job = experiment.problem.job
    machine_of = experiment.tasks
    scale = experiment.scenario.emulation.stated_byte_scale
    real = defaultdict[str, float](float)
    transfers = list_transfers(job)
    owners = experiment.scenario.job.owners(experiment.scenario.cluster.names)
    dataset = open_for(job.settings)
    settings = job.settings
    itemsize = np.dtype(settings["precision"]).itemsize
    width = 0
    if "batch_size" not in settings:  # rows of every layer stay for its gradients
        model = settings["model"]
        width = model["hidden"] * (model["layers"] - 1) + dataset.classes
    if not any(one.cause == COLUMNS for one in transfers):
        width += dataset.feature_length
    counts = np.bincount(dataset.owner, minlength=len(owners)).tolist()
    for name, count in zip(owners, counts, strict=True):
        real[name] += count * width * itemsize
    cache = settings.get("cache", {})
    samplers = [task.name for task in job.tasks if task.kind == "sampler"]
    homes = dict(zip(cache.get("homes", ()), samplers, strict=False))
    for home, sampler in homes.items():
        own = counts[home] if home < len(counts) else 0
        others = (dataset.vertices - own) * dataset.feature_length * itemsize
        real[machine_of[sampler]] += min(cache["size"], others)
    states = {name: float(sizes.max()) for name, sizes in state_bytes(job).items()}
    weights = {(name, machine_of[name], size) for name, size in states.items()}
    kinds = {task.name: task.kind for task in job.tasks}
    for cause, source, to, size in transfers:
        here = machine_of[to]
        if cause == WEIGHTS and to not in states:  # who only reads shares a machine's
            steps = kinds[source] == kinds[to]
            weights.add((to, here, states[source]) if steps else (source, here, size))
        elif cause == COLUMNS or (cause == GHOSTS and machine_of[source] != here):
            real[here] += size
    for _, here, size in weights:
        real[here] += size
    volumes = experiment.realization.volumes
    needs = dict[str, float]()
    edges = [(n, {edge.source, edge.destination}) for n, edge in enumerate(job.edges)]
    for name in experiment.placing["machines"]:
        tasks = {t for t, one in enumerate(job.tasks) if machine_of[one.name] == name}
        flows = {n for n, ends in edges if ends & tasks}
        needs[name] = real[name] / scale + most_waiting(schedule, volumes, flows)
    return needs


def gpu_memory_by_machine(experiment: Experiment) -> dict[str, float]:
    """Return the bytes of ``gpu_memory`` that tasks demand, by machine with any."""
    needs = defaultdict[str, float](float)
    for task in experiment.problem.job.tasks:
        if size := task.demands.get(RESOURCE):
            needs[experiment.tasks[task.name]] += size
    return dict(needs)


def check_memory(experiment: Experiment, schedule: Schedule) -> None:
    """Refuse a training for which machines that take part state too little memory.

    Raises ScenarioError with how much is lacking where; DataError as
    `memory_by_machine`.
    """
    machines = experiment.problem.cluster.machines
    rooms = {m.name: m.resources["memory"] for m in machines if "memory" in m.resources}
    if not (rooms and experiment.scenario.job.trains):
        return
    needs = memory_by_machine(experiment, schedule)
    lack = "; ".join(
        f"{name} needs {format_size(needs[name])}, {format_size(needs[name] - room)} "
        "more than it has"
        for name, room in rooms.items()
        if needs.get(name, 0.0) > room
    )
    if lack:
        raise ScenarioError(f"does not fit into memory: {lack}", key="cluster.machines")
