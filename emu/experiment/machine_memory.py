"""Memory that a job needs on every machine, and what has none for it.

Features, also of others, weights with what their optimizer keeps, what each layer keeps
of the whole graph, and messages at a time. Not the code, nor the graph's structure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Floats, Mask
from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.graph_data.sampling import bounds_of, entries_of
from emu.problem import Schedule
from emu.scenario import Experiment
from emu.systems.cache_section import cache_bytes
from emu.systems.device_memory import RESOURCE
from emu.systems.setup import COLUMNS, GHOSTS, WEIGHTS, Transfer
from emu.systems.system import list_unfilled, state_bytes
from emu.systems.training_section import feature_bytes
from emu.units import format_size

#: Numbers of machines: where one end of each edge of a job stands.
Homes: TypeAlias = NDArray[np.int64]
#: Bytes by machine.
Sizes: TypeAlias = dict[str, float]

#: Buffers have four sizes per power of two, and one more is filled meanwhile.
_ROUNDING = 1.25
#: Sums of the same numbers in two orders differ by less than this factor.
_ABOVE = 1 + 1e-9


class _Payloads:
    """Payloads of a schedule, from where they are made until they are read.

    ``volumes`` are bytes by edge and iteration, also of edges within a machine.
    """

    def __init__(self, schedule: Schedule, volumes: Floats) -> None:
        job = schedule.problem.job
        columns = job.columns
        counts = np.array(job.flow_counts, np.int64)
        carries_nothing = np.array(job.control, np.bool_) | columns.credit
        counts[carries_nothing] = 0

        # Edge by edge, and of each its iterations, as sums round by order.
        iterations = np.arange(job.iterations)
        is_sent = iterations < counts[:, np.newaxis]
        edge, iteration = np.nonzero(is_sent)
        source = columns.source[edge]
        destination = columns.destination[edge]
        # What goes over an edge of lag 1 waits for the iteration after.
        turn = iteration + columns.lag[edge]
        ends = schedule.task_end[destination, turn]
        # What is newest may be read at any time.
        ends[columns.latest[edge]] = schedule.makespan

        self._edges = np.flatnonzero(counts)
        sent = np.where(is_sent, volumes, 0.0)
        self._largest = sent.max(axis=1)[self._edges]
        self._totals = sent.sum(axis=1)[self._edges]
        self._bounds = bounds_of(is_sent.sum(axis=1))
        self._sizes = volumes[edge, iteration]
        self._starts = schedule.task_start[source, iteration]
        self._ends = ends

    def most_possible(self, senders: Homes, receivers: Homes, count: int) -> Floats:
        """Return the bytes of all payloads by machine: no fewer than at any time.

        ``senders``, ``receivers``: the machine of each end of an edge, below ``count``.
        """
        sizes = self._totals + self._largest
        sender = senders[self._edges]
        receiver = receivers[self._edges]
        most = np.bincount(sender, weights=sizes, minlength=count)
        # What stays within a machine is counted already, where it is sent.
        coming = sizes * (receiver != sender)
        most += np.bincount(receiver, weights=coming, minlength=count)
        scaled = _ROUNDING * _ABOVE * most
        return np.asarray(scaled, np.float64)

    def most_waiting(self, is_asked: Mask) -> float:
        """Return the most bytes that payloads of some edges hold at a time.

        ``is_asked``: a mark per edge of the job.
        """
        # A mark for each payload, machine by machine, took a third of the time.
        _, rows = entries_of(self._bounds, np.flatnonzero(is_asked))
        if not rows.size:
            return 0.0

        sizes = self._sizes[rows]
        starts = self._starts[rows]
        ends = self._ends[rows]
        times = np.concatenate([starts, ends])
        change = np.concatenate([sizes, -sizes])
        leaves = change < 0
        # What ends as something begins is still there: the new comes before the old
        # goes.
        order = np.lexsort((leaves, times))
        held = np.cumsum(change[order])
        most = held.max()

        # Edge by edge, as sums round by order.
        edges = is_asked[self._edges]
        largest = self._largest[edges]
        sums = np.cumsum(largest)
        twice = sums[-1]
        return float(most + twice) * _ROUNDING


def most_waiting(schedule: Schedule, volumes: Floats) -> float:
    """Return the most bytes that payloads hold at a time, emulated ones.

    A payload is there from the start of the task that makes it until the end of the one
    that reads it, or of the run. Of every edge between processes the largest is there
    twice: it leaves while it comes. ``volumes`` are bytes by edge and iteration, also
    of edges within a machine.
    """
    edges = len(schedule.problem.job.edges)
    every_edge = np.ones(edges, np.bool_)
    payloads = _Payloads(schedule, volumes)
    return payloads.most_waiting(every_edge)


def memory_by_machine(
    experiment: Experiment,
    schedule: Schedule,
    rooms: Mapping[str, float] | None = None,
) -> Sizes:
    """Return the bytes that a training needs at most, by machine that takes part.

    ``rooms``: bytes that machines have; those whose payloads would fit all at once are
    left out then. Raises DataError when the data set is missing or damaged.
    """
    job = experiment.problem.job
    volumes = experiment.realization.volumes
    scale = experiment.scenario.emulation.stated_byte_scale
    real = defaultdict[str, float](float)
    # Caches are counted whole, by their size: what fills them is not asked for.
    transfers = list_unfilled(job)
    _add_features(real, experiment, transfers)
    _add_weights(real, experiment, transfers)

    payloads = _Payloads(schedule, volumes)
    machines = experiment.placing["machines"]
    numbers = {machine: number for number, machine in enumerate(machines)}
    # A gate stands on no machine that takes part: it has a number beyond them.
    beyond = len(machines)
    home_numbers = []
    for task in job.tasks:
        machine = experiment.tasks[task.name]
        number = numbers.get(machine, beyond)
        home_numbers.append(number)
    homes = np.array(home_numbers)
    senders = homes[job.columns.source]
    receivers = homes[job.columns.destination]
    possible = payloads.most_possible(senders, receivers, beyond + 1)

    needs = Sizes()
    for number, machine in enumerate(machines):
        # Machines state emulated bytes; the data set on disk has real ones.
        staying = real[machine] / scale
        if rooms is not None:
            room = rooms.get(machine, np.inf)
            if staying + possible[number] < room:
                continue
        is_held = (senders == number) | (receivers == number)
        needs[machine] = staying + payloads.most_waiting(is_held)
    return needs


def _add_features(
    real: Sizes, experiment: Experiment, transfers: Sequence[Transfer]
) -> None:
    """Add features, rows of every layer that stay, and caches: bytes by machine."""
    job = experiment.problem.job
    settings = job.settings
    dataset = open_for(settings)
    scenario = experiment.scenario
    owners = scenario.job.owners(scenario.cluster.names)
    precision = np.dtype(settings["precision"])
    itemsize = precision.itemsize
    feature_row = dataset.feature_length * feature_bytes(settings)
    row_bytes = 0
    if "batch_size" not in settings:  # rows of every layer stay for its gradients
        model = settings["model"]
        inner_layers = model["layers"] - 1
        columns = model["hidden"] * inner_layers
        columns += dataset.classes
        row_bytes = columns * itemsize
    # Whoever gets columns of all vertices holds no rows of its own.
    if all(transfer.cause != COLUMNS for transfer in transfers):
        row_bytes += feature_row
    rows_of_parts = np.bincount(dataset.owner, minlength=len(owners))
    counts = rows_of_parts.tolist()
    for machine, count in zip(owners, counts, strict=True):
        real[machine] += count * row_bytes

    cache = settings.get("cache", {})
    samplers = [task.name for task in job.tasks if task.kind == "sampler"]
    stated_homes = cache.get("homes", ())
    homes = dict(zip(stated_homes, samplers, strict=False))
    for home, sampler in homes.items():
        local = 0
        if home < len(counts):
            local = counts[home]
        machine = experiment.tasks[sampler]
        # A cache takes in no row that its own machine owns.
        remote_rows = dataset.vertices - local
        real[machine] += cache_bytes(settings, dataset, remote_rows)


def _add_weights(
    real: Sizes, experiment: Experiment, transfers: Sequence[Transfer]
) -> None:
    """Add weights with the state of their optimizer, and rows of others: bytes."""
    job = experiment.problem.job
    machine_of = experiment.tasks
    kinds = {task.name: task.kind for task in job.tasks}
    states = {}
    for name, sizes in state_bytes(job).items():
        largest = sizes.max()
        states[name] = float(largest)
    # A set: those who read the same weights on one machine share them.
    weights = {(name, machine_of[name], size) for name, size in states.items()}
    for cause, source, to, size in transfers:
        machine = machine_of[to]
        if cause == WEIGHTS and to not in states:
            if kinds[source] == kinds[to]:
                weights.add((to, machine, states[source]))
            else:
                weights.add((source, machine, size))
        elif cause == COLUMNS or (cause == GHOSTS and machine_of[source] != machine):
            real[machine] += size

    for _, machine, size in weights:
        real[machine] += size


def gpu_memory_by_machine(experiment: Experiment) -> Sizes:
    """Return the bytes of ``gpu_memory`` that tasks demand, by machine with any."""
    needs = defaultdict[str, float](float)
    for task in experiment.problem.job.tasks:
        size = task.demands.get(RESOURCE)
        if size:
            machine = experiment.tasks[task.name]
            needs[machine] += size
    return dict(needs)


def check_memory(experiment: Experiment, schedule: Schedule) -> None:
    """Refuse a training for which machines that take part state too little memory.

    Raises ScenarioError with how much is lacking where; DataError as
    `memory_by_machine`.
    """
    machines = experiment.problem.cluster.machines
    # A machine that states no memory has enough of it.
    rooms = {}
    for machine in machines:
        if "memory" in machine.resources:
            rooms[machine.name] = machine.resources["memory"]
    if not (rooms and experiment.scenario.job.trains):
        return
    needs = memory_by_machine(experiment, schedule, rooms)
    lacks = []
    for name, room in rooms.items():
        need = needs.get(name, 0.0)
        if need > room:
            size = format_size(need)
            lack = format_size(need - room)
            lacks.append(f"{name} needs {size}, {lack} more than it has")

    if lacks:
        lines = "; ".join(lacks)
        problem = f"does not fit into memory: {lines}"
        raise ScenarioError(problem, key="cluster.machines")
