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
from numpy.typing import NDArray

from emu.errors import InfeasiblePlacement
from emu.experiment.reproduction.claims import Claim, Point, Side, find_claims
from emu.experiment.reproduction.figures import compare, experiment_of, scenario_of
from emu.prediction.placement.baselines import place_ifs
from emu.problem import Job, Realization
from emu.scenario import Experiment, Scenario, load

NIC_GBITS = (10, 20, 50)
#: Draws of machines until the job has room. With products 1 in 2 has, with papers100M
#: 1 in 4.
MOST_DRAWS = 1000
#: Largest power that flows are raised to for a PMR.
_STEEPEST = 64.0


def draw_machines(count: int, draws: np.random.Generator) -> list[dict[str, Any]]:
    """Return machines of 32 to 128 GB, 4 to 16 cores, 1 to 4 GPUs, and a drawn NIC."""
    return [
        {
            "name": f"m{number}",
            "nic": f"{draws.choice(NIC_GBITS)} Gbit/s",
            "memory": f"{draws.integers(32, 129)} GB",
            "cpu": int(draws.integers(4, 17)),
            "gpu": int(draws.integers(1, 5)),
        }
        for number in range(count)
    ]


def with_room(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario on drawn machines that hold its job, as many as it states.

    Raises InfeasiblePlacement when `MOST_DRAWS` are in vain.
    """
    draws = np.random.default_rng([seed, 0])
    count = len(scenario.cluster.names)
    for _ in range(MOST_DRAWS):
        drawn = load(scenario, {"cluster": {"machines": draw_machines(count, draws)}})
        job = drawn.to_job()
        cluster = drawn.to_cluster()
        needed = sum(task.demands.get("gpu", 0.0) for task in job.tasks)
        if needed > sum(machine.resources["gpu"] for machine in cluster.machines):
            continue  # IFS takes a second to find that out
        try:
            place_ifs(job, cluster, draws)
        except InfeasiblePlacement:
            continue
        return drawn
    problem = f"none of {MOST_DRAWS} draws of {count} machines holds the job"
    raise InfeasiblePlacement(problem, resource="cpu", shortfall=0.0)


def peak_to_mean(flows: NDArray[np.float64]) -> float:
    """Return the largest flow over the mean flow: the paper's PMR.

    A store and a sampler exchange one flow per iteration, so that rates go as bytes.
    """
    return float(flows.max() / flows.mean())


def with_peak_to_mean(flows: NDArray[np.float64], ratio: float) -> NDArray[np.float64]:
    """Return flows raised to one power, so that their PMR is ``ratio``; the sum stays.

    The paper does not say how it scales. Raises ValueError when no power gives the
    ratio, as for flows that are all equal.
    """
    relative = flows / flows.max()
    low = 0.0
    high = _STEEPEST
    if ratio < 1 or peak_to_mean(relative**high) < ratio:
        raise ValueError(f"these flows cannot have a peak-to-mean ratio of {ratio}")

    for _ in range(60):
        power = (low + high) / 2
        if peak_to_mean(relative**power) < ratio:
            low = power
        else:
            high = power
    scaled = relative**high
    return np.asarray(scaled * (flows.sum() / scaled.sum()))


def _edges_between(job: Job, source: str, destination: str) -> NDArray[np.int64]:
    """Return the positions of the edges from one kind of task to another."""
    kinds = [task.kind for task in job.tasks]
    positions = [
        number
        for number, edge in enumerate(job.edges)
        if (kinds[edge.source], kinds[edge.destination]) == (source, destination)
    ]
    return np.array(positions, dtype=np.int64)


def scale_flows(job: Job, realization: Realization, ratio: float) -> Realization:
    """Return a realization whose flows from stores to samplers have a PMR.

    What a sampler sends to its worker grows and shrinks with what it gets.
    """
    gathered = _edges_between(job, "graph_store", "sampler")
    assembled = _edges_between(job, "sampler", "worker")
    volumes = realization.volumes.copy()
    volumes[gathered] = with_peak_to_mean(volumes[gathered], ratio)

    # By task: what every sampler gets more than before, negative where less.
    growth = np.zeros((len(job.tasks), volumes.shape[1]))
    destinations = [job.edges[number].destination for number in gathered]
    np.add.at(growth, destinations, volumes[gathered] - realization.volumes[gathered])
    for number in assembled:
        volumes[number] += growth[job.edges[number].source]
    return replace(realization, volumes=np.maximum(volumes, 0.0))


@cache
def place_by_etp(base: str, seed: int) -> Scenario:
    """Return a base of the data file on drawn machines, placed by ETP, explicitly."""
    claim = next(claim for claim in find_claims("dgtp") if claim.base == base)
    drawn = with_room(scenario_of(claim, Point(), Side(), seed), seed)
    tasks = experiment_of(drawn).tasks
    return load(drawn, {"placement": {"policy": "explicit", "tasks": tasks}})


@cache
def _counted(base: str, seed: int, batch: int, by_distdgl: bool) -> Experiment:  # noqa: FBT001
    scenario = place_by_etp(base, seed)
    edits: dict[str, object] = {"job.batch_size": batch}
    stated = scenario.to_json()["job"]
    growth = batch / stated["batch_size"]
    for kind, time in stated["times"].items():
        if kind in {"graph_store", "sampler", "worker"}:
            milliseconds = growth * float(time.split()[0])
            edits[f"job.times.{kind}"] = f"{milliseconds:g} ms"
    if by_distdgl:
        edits["placement"] = {"policy": "distdgl"}
    return experiment_of(load(scenario, edits))


def hold_contest(claim: Claim, seed: int, options: Mapping[str, Any]) -> list[float]:
    """Return what DGTP saves on the rule or system of the second side, by point.

    The placement is searched at the base's batch size and held at the others.
    ``options["pmr"]``: of the paper's profile; a point may have another.
    """
    values = []
    for point in claim.points:
        makespans = []
        for side in (claim.first, claim.second):
            batch = point.edits.get("batch", options["batch"])
            by_distdgl = side.edits["placement"] == "distdgl"
            ready = _counted(claim.base, seed, batch, by_distdgl)

            ratio = point.edits.get("pmr", options["pmr"])
            scaled = scale_flows(ready.problem.job, ready.realization, ratio)
            policy = load(ready.scenario, {"schedule.policy": side.edits["rule"]})
            other = replace(ready, scenario=policy, realization=scaled)
            makespans.append(other.simulate().makespan)
        first, second = makespans
        values.append(compare(claim, first, second))
    return values
