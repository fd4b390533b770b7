"""Memory of devices that a training takes: ``gpu_memory`` of machines.

Counted are rows or columns of features that lie there, parameters with what their
optimizer keeps, and mini-batches: the features and edges of a batch, and what each
layer computes with its gradient. Not the code, nor what a library takes for itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import mul

import numpy as np

from emu.errors import ScenarioError
from emu.problem import Cluster, Job, Task
from emu.problem.workloads import SampleCounts, model_shapes
from emu.systems import JobSettings
from emu.units import format_size

RESOURCE = "gpu_memory"
#: Features that lie there, in words.
ROWS = "rows of features"
COLUMNS = "columns of features"

#: What takes it -> bytes, of one task.
Parts = Mapping[str, float]


def batch_bytes(
    counts: SampleCounts,
    model: JobSettings,
    classes: int,
    row: int,
    number: int,
) -> float:
    """Return the bytes of one sampler's batch and of what a model computes of it.

    ``row``, ``number``: bytes of an input vertex's features, and of a number. Of a
    program nobody knows what it computes: its batch alone is counted.
    """
    features = row * counts.inputs
    edges = model_shapes.BLOCK_EDGE_BYTES * counts.edges
    if "program" in model:
        return float(features + edges)

    hidden: int = model["hidden"]
    widths = [hidden] * (model["layers"] - 1)
    widths.append(classes)
    outputs = counts.block_vertices[1:]
    activations = sum(map(mul, outputs, widths))
    # Each number has a gradient beside it.
    return float(features + edges + 2 * number * activations)


def most_of_batches(sizes: Sequence[Sequence[float]]) -> float:
    """Return the most bytes of an iteration, from those of each sampler's batches."""
    by_sampler = np.array(sizes, float)
    totals = np.sum(by_sampler, axis=0)
    return float(totals.max())


def weight_bytes(settings: JobSettings, parameters: int, *, steps: bool) -> float:
    """Return the bytes of parameters, their gradients, and moments of who steps."""
    vectors = 2
    takes_moments = settings["optimizer"]["name"] == "adam"
    if steps and takes_moments:
        vectors += 2
    precision = np.dtype(settings["precision"])
    return float(vectors * parameters * precision.itemsize)


def demand_devices(
    job: Job,
    cluster: Cluster,
    parts: Mapping[str, Parts],
    byte_scale: float,
) -> Job:
    """Return the job with what its tasks take among their demands of ``gpu_memory``.

    ``parts``: task -> real bytes; ``byte_scale``: real bytes per emulated byte. What a
    file states for a kind of task holds in place of what is counted. Raises
    ScenarioError where it does not fit.
    """
    demands: dict[str, Parts] = {}
    tasks = []
    for task in job.tasks:
        # Stated demands hold: the user may know what a library takes beside.
        is_stated = RESOURCE in task.demands
        if is_stated or task.name not in parts:
            tasks.append(task)
            continue

        sizes = parts[task.name]
        demand = {cause: size / byte_scale for cause, size in sizes.items()}
        demands[task.name] = demand
        total = sum(demand.values())
        tasks.append(_with_demand(task, total))

    for machines, room, group in _groups(tasks, cluster):
        problem = _lack_of(machines, room, group, demands)
        if problem:
            raise ScenarioError(problem, key="cluster.machines")
    return replace(job, tasks=tuple(tasks))


def _with_demand(task: Task, size: float) -> Task:
    demands = {**task.demands, RESOURCE: size}
    return replace(task, demands=demands)


def _groups(
    tasks: Sequence[Task],
    cluster: Cluster,
) -> Iterator[tuple[str, float, Sequence[Task]]]:
    """Yield (machines, their room, tasks that need it wherever others are placed).

    Those are the tasks pinned to a machine; where every machine has bounds, also each
    of those that may move, on the roomiest, and all tasks together.
    """
    rooms = {}
    for machine in cluster.machines:
        if RESOURCE in machine.resources:
            rooms[machine.name] = machine.resources[RESOURCE]
    for name, room in rooms.items():
        group = [task for task in tasks if task.pinned == name]
        yield name, room, group
    # A machine that states none has no bound: what can move fits there.
    if len(rooms) < len(cluster.machines):
        return

    roomiest = max(rooms, key=rooms.__getitem__)
    for task in tasks:
        if task.pinned is None:
            yield roomiest, rooms[roomiest], [task]
    # Necessary, not sufficient: placement finds out whether each fits on one machine.
    names = ", ".join(rooms)
    total = sum(rooms.values())
    yield names, total, tasks


def _lack_of(
    machines: str,
    room: float,
    tasks: Sequence[Task],
    counted: Mapping[str, Parts],
) -> str:
    """Return what devices of some machines have no room for, if anything."""
    need = sum(task.demands.get(RESOURCE, 0.0) for task in tasks)
    if need <= room:
        return ""

    totals = defaultdict[str, float](float)
    for task in tasks:
        sizes = counted.get(task.name, {})
        for cause, size in sizes.items():
            totals[cause] += size
    amounts = [f"{format_size(size)} of {cause}" for cause, size in totals.items()]
    words = ", ".join(amounts)

    # Features are all that can lie elsewhere.
    movable = totals.get(ROWS, 0.0) + totals.get(COLUMNS, 0.0)
    rest = need - movable
    hint = ""
    if rest <= room:
        hint = "; job.features: host keeps features elsewhere"
    lacking = format_size(need - room)
    return (
        f"{format_size(need)} of gpu_memory are needed on {machines}, "
        f"{lacking} more than there are: {words}{hint}"
    )
