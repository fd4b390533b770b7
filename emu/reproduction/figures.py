"""Figures of one simulated scenario. The only module here that simulates scenarios."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from emu.errors import DataError
from emu.experiment.systems import as_variant
from emu.graph_data.synthetic_graph import PRESETS
from emu.prediction.analysis.throughput import Cost, pace
from emu.problem import Schedule
from emu.reproduction.claims import Claim, Point, Side, read_papers
from emu.scenario import Experiment, Scenario, load, prepare
from emu.scenario.experiment import cost_of
from emu.scenario.scenario_file import loads


def scenario_of(
    claim: Claim,
    point: Point,
    side: Side,
    seed: int,
) -> Scenario:
    """Return the scenario of one side of a claim at one of its points.

    Edits of the side come last. Raises ScenarioError, DataError as `load`.
    """
    edits = {
        "seed": seed,
        # What a shipped scenario expects holds for its own keys, not for these edits.
        "expect": None,
        **claim.edits,
        **point.edits,
    }
    # Keys of another system are known only once the file is one of that
    # system: they come after the translation.
    if not side.system:
        edits |= side.edits

    content = read_papers().bases.get(claim.base)
    if content is None:
        scenario = load(claim.base, edits)
    else:
        # YAML reads JSON: a base passes the same checks as a file.
        scenario = loads(json.dumps(content), edits, name=claim.base)
    if not side.system:
        return scenario
    variant = as_variant(scenario, side.system)
    return load(variant, side.edits)


def experiment_of(scenario: Scenario) -> Experiment:
    """Return a scenario made ready: counted in its graph, placed, perhaps trained.

    Raises ScenarioError, PlacementError, DataError.
    """
    return prepare(scenario)


def describe(scenario: Scenario) -> str:
    """Return the walk of seeds and the graph of a scenario, for the row of a claim."""
    job = scenario.job
    dataset = getattr(job, "dataset", None)
    if dataset is None:
        return ""  # flows, or money alone

    walk = getattr(job, "epoch", None)
    batches = f"walk {walk}" if walk else "whole graph"
    graph = dataset.name
    if graph in PRESETS:
        graph += f" at {dataset.scale:g}"
    machines = getattr(job, "machines", None)
    count = len(machines or scenario.cluster.names)
    return f"{batches}, {graph}, {count} machines"


def _remote_bytes(ready: Experiment, _: Schedule) -> float:
    """Return the bytes between machines of one iteration, the mean."""
    # A flow without hops stays on its machine, and costs nothing there (A6).
    crosses = [bool(hops) for hops in ready.problem.hops]
    is_remote = np.array(crosses)
    volumes = ready.realization.volumes[is_remote]
    by_iteration = volumes.sum(axis=0)
    return float(by_iteration.mean())


def _network_rate(ready: Experiment, schedule: Schedule) -> float:
    """Return the bytes per second that cross the network, the mean of the run."""
    iterations = ready.problem.job.iterations
    volume = iterations * _remote_bytes(ready, schedule)
    return volume / schedule.makespan


def _flow_rate(ready: Experiment, schedule: Schedule) -> float:
    """Return the largest flow over the makespan, GB/s."""
    largest = ready.realization.volumes.max()
    rate = largest / schedule.makespan
    return float(rate / 1e9)


def _busy_percent(_: Experiment, schedule: Schedule) -> float:
    """Return the share of the time in which training processes compute."""
    busy = pace(schedule, None).busy or 0.0
    return 100 * busy


def _seeds_per_second(ready: Experiment, schedule: Schedule) -> float:
    """Return the seeds of all iterations over the makespan, filling included."""
    job = ready.problem.job
    # Every machine has a worker pinned to it, with a batch of its own.
    machines = {task.pinned for task in job.tasks}
    batch = job.settings["batch_size"]
    seeds = len(machines) * batch * job.iterations
    return float(seeds / schedule.makespan)


def _cost(ready: Experiment, schedule: Schedule) -> Cost:
    cost = cost_of(ready.scenario, schedule)
    if cost is None:
        raise DataError(f"{ready.scenario.name} states no prices")
    return cost


def _dollars(ready: Experiment, schedule: Schedule) -> float:
    cost = _cost(ready, schedule)
    return cost.servers + cost.lambdas + cost.parameter_servers


def _value(ready: Experiment, schedule: Schedule) -> float:
    """Return the reciprocal of seconds times dollars, Dorylus' value."""
    dollars = _dollars(ready, schedule)
    return 1 / (schedule.makespan * dollars)


#: Name in papers.yaml -> figure of what is ready, and of its schedule.
FIGURES: Mapping[str, Callable[[Experiment, Schedule], float]] = {
    "makespan": lambda _, schedule: schedule.makespan,
    "iterations": lambda ready, _: float(ready.problem.job.iterations),
    "bytes": _remote_bytes,
    "busy": _busy_percent,
    "throughput": _seeds_per_second,
    "network rate": _network_rate,
    "flow rate": _flow_rate,
    "dollars": _dollars,
    "value": _value,
    "lambda dollars": lambda *ready: _cost(*ready).lambdas,
    "server dollars": lambda *ready: _cost(*ready).servers,
}


def measure_scenario(scenario: Scenario, name: str) -> float:
    """Return one of `FIGURES` of a scenario, which is placed and simulated for it.

    Raises ScenarioError, PlacementError, DataError as that does, KeyError when there
    is no such figure.
    """
    measure = FIGURES[name]
    ready = experiment_of(scenario)
    return measure(ready, ready.simulate())


def cpu_minutes_of_placing(scenario: Scenario) -> float:
    """Return the CPU time in which the scenario is counted and placed, minutes."""
    # CPU time: wall time would count waits for cores, as pieces run side by side.
    began = time.process_time()
    prepare(scenario)
    ended = time.process_time()
    return (ended - began) / 60


def list_published(
    claim: Claim,
    seed: int,
    _: Mapping[str, Any],
) -> list[float]:
    """Return millions of vertices and of edges, and columns, of a graph at scale 1."""
    scenario = scenario_of(
        claim,
        point=Point(),
        side=Side(),
        seed=seed,
    )
    job = scenario.to_json()["job"]
    dataset = job["dataset"]
    preset = PRESETS[dataset["name"]]
    return [
        preset.vertices / 1e6,
        preset.edges / 1e6,
        float(preset.feature_length),
    ]


def compare(claim: Claim, first: float, second: float) -> float:
    """Return what a claim says of its two sides."""
    match claim.compare:
        case "times":
            return second / first
        case "saving":
            return 100 * (1 - first / second)
        case "more":
            return 100 * (first / second - 1)
        case "share":
            return 100 * first / second
        case "alone":
            return first


def measure_sides(
    claim: Claim,
    seed: int,
    figure: Callable[[Scenario, str], float],
) -> list[float]:
    """Return what a claim compares at each of its points.

    ``figure``: what finds the figure of a scenario by its name. Raises
    ScenarioError, PlacementError, DataError as it does.
    """

    def measure(point: Point, side: Side) -> float:
        scenario = scenario_of(claim, point, side, seed)
        name = side.measure or claim.measure
        return figure(scenario, name)

    values = []
    for point in claim.points:
        first = measure(point, claim.first)
        is_alone = claim.compare == "alone"
        second = first if is_alone else measure(point, claim.second)
        values.append(compare(claim, first, second))
    return values


def find_crossing(
    claim: Claim,
    seed: int,
    options: Mapping[str, Any],
) -> list[float]:
    """Return from which whole value of a key on the second side is the faster one.

    By bisection between ``options["from"]`` and ``options["to"]``. Raises DataError
    when the same side is faster at both.
    """

    def first_is_faster(value: int) -> bool:
        point = Point(edits={options["key"]: value})
        first = scenario_of(claim, point, claim.first, seed)
        second = scenario_of(claim, point, claim.second, seed)
        seconds_of_first = measure_scenario(first, "makespan")
        seconds_of_second = measure_scenario(second, "makespan")
        return seconds_of_first <= seconds_of_second

    low = int(options["from"])
    high = int(options["to"])
    # Bisection would return an end of the range as if it were a crossing.
    if not first_is_faster(low) or first_is_faster(high):
        raise DataError(f"no crossing between {low} and {high}")
    while high - low > 1:
        middle = (low + high) // 2
        if first_is_faster(middle):
            low = middle
        else:
            high = middle
    return [float(high)]
