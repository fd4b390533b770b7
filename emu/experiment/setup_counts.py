"""Second counts of what a training moves before its time 0, from who receives it.

Senders and receivers derive a set-up by one definition: where it is wrong, both agree.
Caches are counted here by the rows that a machine has room for and does not own, and
weights by what came over the same edge in training.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from emu.array_types import Array
from emu.graph_data import CachePlan, open_for
from emu.graph_data.caches import FIXED
from emu.prediction.analysis.traffic import count_kinds
from emu.problem import Job
from emu.problem.payloads import payload_kind
from emu.scenario import Experiment
from emu.scenario.setup import jobs_as_placed
from emu.systems.cache_section import CACHED
from emu.systems.setup import WEIGHTS, Transfer
from emu.systems.system import list_transfers
from emu.systems.training_section import feature_bytes
from emu.trust.violation import Findings, agreement

_PARAMETERS = payload_kind("parameters")


def check_setup(
    experiment: Experiment,
    statistics: Mapping[str, Mapping[str, Any]],
    received: Array,
) -> Findings:
    """Return how many sizes of set-ups have a second count, and which differ from it.

    ``statistics``: of every process; ``received``: rows of the frames that came. Ghost
    features, caches that change, and weights that no edge of the training carries whole
    have none. Raises DataError as `emu.scenario.setup.setup_bytes`.
    """
    machine_of = experiment.problem.machine_of_task
    job_of_all = experiment.problem.job
    parameters = list_parameter_bytes(job_of_all, statistics, received)
    found: dict[str, float] = {}
    expected: dict[str, float] = {}
    for prefix, job in jobs_as_placed(experiment):
        transfers = list_transfers(job)
        places = {}
        for task in job.tasks:
            name_in_all = prefix + task.name
            places[task.name] = machine_of[name_in_all]

        for machine, size in count_cached_bytes(job, places):
            key = f"{prefix}{CACHED} of {machine}"
            expected[key] = size
            found[key] = _sum_received(transfers, places, machine)

        for transfer in transfers:
            source = prefix + transfer.source
            destination = prefix + transfer.destination
            edge = (source, destination)
            if transfer.cause == WEIGHTS and edge in parameters:
                key = f"{WEIGHTS} from {source} to {destination}"
                expected[key] = parameters[edge]
                found_before = found.get(key, 0.0)
                found[key] = found_before + transfer.size

    return agreement(
        "setup",
        found=found,
        wanted=expected,
        by="a count by who receives it",
    )


def count_cached_bytes(
    job: Job, places: Mapping[str, str]
) -> Iterator[tuple[str, float]]:
    """Yield machines, and real bytes of rows that fill their caches before time 0.

    A machine on which samplers stand has room for so many rows, and begins with as many
    of those that its store does not own. ``places``: machine of every task.
    """
    if "cache" not in job.settings:
        return
    dataset = open_for(job.settings)
    cache = CachePlan.from_settings(job.settings, dataset)
    if cache is None or cache.policy not in FIXED:
        return

    own_rows: dict[str, int] = defaultdict(int)
    rows_of_part = np.bincount(dataset.owner, minlength=dataset.parts)
    stores = [task.name for task in job.tasks if task.kind == "graph_store"]
    for store, rows in zip(stores, rows_of_part.tolist(), strict=True):
        machine = places[store]
        own_rows[machine] += rows
    row_bytes = feature_bytes(job.settings) * dataset.feature_length
    samplers = [task.name for task in job.tasks if task.kind == "sampler"]
    machines = [places[sampler] for sampler in samplers]
    for machine in dict.fromkeys(machines):
        remote_rows = dataset.vertices - own_rows[machine]
        rows = min(cache.rows, remote_rows)
        yield machine, float(row_bytes * rows)


def _sum_received(
    transfers: Iterable[Transfer], places: Mapping[str, str], machine: str
) -> float:
    """Return bytes of cached rows that other machines send one."""
    total = 0.0
    for transfer in transfers:
        is_cached = transfer.cause == CACHED
        is_sent = places[transfer.source] != machine
        is_received = places[transfer.destination] == machine
        if is_cached and is_sent and is_received:
            total += transfer.size
    return total


def list_parameter_bytes(
    job: Job, statistics: Mapping[str, Mapping[str, Any]], received: Array
) -> dict[tuple[str, str], float]:
    """Return real bytes that came with every iteration, by tasks, of parameters alone.

    Of edges over which receivers read nothing but parameters, as many each time.
    """
    kinds = defaultdict(set)
    for (edge, kind), count in count_kinds(statistics).items():
        if count:
            kinds[edge].add(kind)
    sizes = defaultdict(set)
    rows = received[["edge", "bytes"]].tolist()
    for edge, size in rows:
        sizes[edge].add(size)

    found = {}
    for position, kinds_of_edge in kinds.items():
        sizes_of_edge = sizes[position]
        if kinds_of_edge != {_PARAMETERS} or len(sizes_of_edge) != 1:
            continue
        ends = job.edges[position]
        source, destination = job.ends(ends)
        (size,) = sizes_of_edge
        found[source.name, destination.name] = float(size)
    return found
