"""Section VI-B of the DGTP paper: its job on drawn machines, under several rules.

The paper publishes neither its machines nor its profile. Machines are drawn as it says,
until IFS finds room for the job; bytes are counted in a made-up graph and then given
the peak-to-mean ratio (PMR) that the paper states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from emu.array_types import Floats, Ints
from emu.errors import InfeasiblePlacement
from emu.prediction.placement.baselines import place_ifs
from emu.problem import Job, Realization
from emu.reproduction.claims import Claim, Point, Side, find_claims
from emu.reproduction.figures import compare, experiment_of, scenario_of
from emu.scenario import Experiment, Scenario, load

#: Speeds of NICs in the paper's simulated clusters, each as likely as the others.
NIC_GBITS = (10, 20, 50)
#: Draws of machines until the job has room. With products 1 in 2 has, with papers100M
#: 1 in 4.
MOST_DRAWS = 1000
#: Largest power that flows are raised to for a PMR.
_STEEPEST = 64.0
#: Kinds of task that take time in proportion to the seeds of a batch.
GROWING = ("graph_store", "sampler", "worker")


def draw_machines(count: int, draws: np.random.Generator) -> list[dict[str, Any]]:
    """Return machines of 32 to 128 GB, 4 to 16 cores, 1 to 4 GPUs, and a drawn NIC."""
    machines = []
    for number in range(count):
        # The order of the draws is part of a seed's meaning: another
        # gives other machines. numpy leaves the upper end out, so
        # that 128 GB, 16 cores and 4 GPUs occur.
        nic = draws.choice(NIC_GBITS)
        memory = draws.integers(32, 129)
        cores = draws.integers(4, 17)
        gpus = draws.integers(1, 5)
        machine = {
            "name": f"m{number}",
            "nic": f"{nic} Gbit/s",
            "memory": f"{memory} GB",
            "cpu": int(cores),
            "gpu": int(gpus),
        }
        machines.append(machine)
    return machines


def with_room(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario on drawn machines that hold its job, as many as it states.

    Raises InfeasiblePlacement when `MOST_DRAWS` are in vain.
    """
    draws = np.random.default_rng([seed, 0])
    count = len(scenario.cluster.names)
    for _ in range(MOST_DRAWS):
        machines = draw_machines(count, draws)
        candidate = load(scenario, {"cluster": {"machines": machines}})
        job = candidate.to_job()

        # IFS takes a second to find out that there are too few.
        gpus = sum(machine["gpu"] for machine in machines)
        demand = sum(task.demands.get("gpu", 0.0) for task in job.tasks)
        if demand > gpus:
            continue
        try:
            place_ifs(job, candidate.to_cluster(), draws)
        except InfeasiblePlacement:
            continue
        return candidate
    problem = f"none of {MOST_DRAWS} draws of {count} machines holds the job"
    raise InfeasiblePlacement(problem, resource="cpu", shortfall=0.0)


def peak_to_mean(flows: Floats) -> float:
    """Return the largest flow over the mean flow: the paper's PMR.

    A store and a sampler exchange one flow per iteration, so that rates go as bytes.
    """
    peak = flows.max()
    return float(peak / flows.mean())


def with_peak_to_mean(flows: Floats, ratio: float) -> Floats:
    """Return flows raised to one power, so that their PMR is ``ratio``; the sum stays.

    The paper does not say how it scales. Raises ValueError when no power gives the
    ratio, as for flows that are all equal.
    """
    # Over the largest one: bytes to the power of 64 are beyond a float.
    relative = flows / flows.max()
    low = 0.0
    high = _STEEPEST
    # No mean is above the largest flow.
    if ratio < 1 or peak_to_mean(relative**high) < ratio:
        raise ValueError(f"these flows cannot have a peak-to-mean ratio of {ratio}")

    # Larger powers set the largest flow further apart from the mean.
    for _ in range(60):
        power = (low + high) / 2
        is_too_even = peak_to_mean(relative**power) < ratio
        if is_too_even:
            low = power
        else:
            high = power

    # Not the middle: the upper end is the one that is known to reach the ratio.
    proportions = relative**high
    factor = flows.sum() / proportions.sum()
    return np.asarray(factor * proportions)


def _edges_between(
    job: Job,
    source: str,
    destination: str,
) -> Ints:
    """Return the positions of the edges from one kind of task to another."""
    positions = []
    for position, edge in enumerate(job.edges):
        sender, receiver = job.ends(edge)
        if sender.kind == source and receiver.kind == destination:
            positions.append(position)
    return np.array(positions, dtype=np.int64)


def scale_flows(
    job: Job,
    realization: Realization,
    ratio: float,
) -> Realization:
    """Return a realization whose flows from stores to samplers have a PMR.

    What a sampler sends to its worker grows and shrinks with what it gets.
    """
    store_edges = _edges_between(job, "graph_store", "sampler")
    worker_edges = _edges_between(job, "sampler", "worker")
    volumes = realization.volumes.copy()
    store_flows = volumes[store_edges]
    volumes[store_edges] = with_peak_to_mean(store_flows, ratio)

    # By task: what every sampler gets more than before, negative where less.
    change = volumes - realization.volumes
    growth = np.zeros_like(realization.times)
    for position in store_edges:
        sampler = job.edges[position].destination
        growth[sampler] += change[position]

    for position in worker_edges:
        sampler = job.edges[position].source
        volumes[position] += growth[sampler]
    # A sampler may get less by more than what it hands on.
    volumes = np.maximum(volumes, 0.0)
    return replace(realization, volumes=volumes)


# Points and sides of a figure stand on the same machines: one search for all.
@cache
def place_by_etp(base: str, seed: int) -> Scenario:
    """Return a base of the data file on drawn machines, placed by ETP, explicitly."""
    claims = find_claims("dgtp")
    claim = next(claim for claim in claims if claim.base == base)
    scenario = scenario_of(
        claim,
        point=Point(),
        side=Side(),
        seed=seed,
    )
    variant = with_room(scenario, seed)

    tasks = experiment_of(variant).tasks
    # Explicit, or another batch or rule would search for a placement of its own.
    placement = {"policy": "explicit", "tasks": tasks}
    return load(variant, {"placement": placement})


# Counting in the graph takes longest: sides that differ in their rule share it.
@cache
def _count(
    base: str,
    seed: int,
    batch: int,
    placement: str,
) -> Experiment:
    """Return a base with a batch size, to which times of tasks are in proportion."""
    scenario = place_by_etp(base, seed)
    section = scenario.to_json()["job"]
    edits: dict[str, object] = {"job.batch_size": batch}
    growth = batch / section["batch_size"]
    for kind in GROWING:
        time = section["times"][kind]
        number, unit = time.split()
        longer = growth * float(number)
        edits[f"job.times.{kind}"] = f"{longer:g} {unit}"

    if placement == "distdgl":
        edits["placement"] = {"policy": "distdgl"}
    variant = load(scenario, edits)
    return experiment_of(variant)


def measure_rules(
    claim: Claim,
    seed: int,
    options: Mapping[str, Any],
) -> list[float]:
    """Return what DGTP saves on the rule or system of the second side, by point.

    The placement is searched at the base's batch size and held at the others.
    ``options["pmr"]``: of the paper's profile; a point may have another.
    """

    def simulate(point: Point, side: Side) -> float:
        settings = {**options, **point.edits, **side.edits}
        ready = _count(
            claim.base,
            seed,
            settings["batch"],
            settings["placement"],
        )
        flows = scale_flows(
            ready.problem.job,
            ready.realization,
            ratio=settings["pmr"],
        )
        # The rule alone: what was placed and counted stays.
        rule = {"schedule.policy": settings["rule"]}
        scenario = load(ready.scenario, rule)
        experiment = replace(ready, scenario=scenario, realization=flows)
        return experiment.simulate().makespan

    values = []
    for point in claim.points:
        first = simulate(point, claim.first)
        second = simulate(point, claim.second)
        values.append(compare(claim, first, second))
    return values
