"""Figures of DGCL's plans, counted without a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from emu.graph_data import WholeGraph, open_layers
from emu.graph_data.whole_graph import Part
from emu.reproduction.claims import Claim, Side
from emu.reproduction.figures import experiment_of, scenario_of
from emu.scenario import Scenario
from emu.systems.dgcl import plans
from emu.systems.dgcl.planner import GatherPlan, Topology
from emu.systems.dgcl.spst import spst

#: Bytes of a number of a row, which travels in single precision.
FLOAT_BYTES = 4


def _settings_of(scenario: Scenario) -> Mapping[str, Any]:
    return scenario.to_job(opened=True).settings


def _plan_of(scenario: Scenario) -> tuple[GatherPlan, Topology]:
    """Return the plan of the last layer's gather, and the links that it is for."""
    settings = _settings_of(scenario)
    *_, plan = plans.open_plans(settings)
    topology = plans.read_topology(settings["topology"])
    return plan, topology


def row_bytes(scenario: Scenario) -> int:
    """Return the bytes of a row of the hidden layer."""
    model = _settings_of(scenario)["model"]
    columns = int(model["hidden"])
    return FLOAT_BYTES * columns


def gather_seconds(scenario: Scenario) -> float:
    """Return t(S) of a gather, seconds (DGCL, equation 4)."""
    plan, topology = _plan_of(scenario)
    rows = plan.cost(topology)
    return rows * row_bytes(scenario)


def scatter_seconds(scenario: Scenario) -> float:
    """Return t(S) of the gradients of a gather, seconds."""
    plan, topology = _plan_of(scenario)
    settings = _settings_of(scenario)
    is_atomic = settings["backward"] == "atomic"
    back = plans.gradient_plan(plan, atomic=is_atomic)
    rows = back.cost(topology)
    return rows * row_bytes(scenario)


def milliseconds_on_links(scenario: Scenario, *, fast: bool) -> float:
    """Return how long the busiest NVLink, or the busiest other link, is busy.

    In one gather, nothing else being on the links.
    """
    plan, topology = _plan_of(scenario)
    # Stages follow one another: a link is busy for the sum of what each asks of it.
    by_stage = plan.load(topology) / topology.capacities
    busy = by_stage.sum(axis=0)

    is_fast = [name.startswith("nv") for name in topology.links]
    is_chosen = np.array(is_fast) == fast
    rows = busy[is_chosen].max()
    seconds = rows * row_bytes(scenario)
    return float(1e3 * seconds)


def imbalance(scenario: Scenario) -> float:
    """Return by how much NVLinks and others differ in time, %, as the paper's table."""
    fast = milliseconds_on_links(scenario, fast=True)
    slow = milliseconds_on_links(scenario, fast=False)
    difference = abs(slow - fast)
    return 100 * difference / fast


def planning_seconds(scenario: Scenario) -> float:
    """Return the CPU time in which SPST plans one gather."""
    settings = _settings_of(scenario)
    topology = plans.read_topology(settings["topology"])
    *_, needs = plans.needs_of_settings(settings)

    # Of the plan alone: what it needs was counted before.
    began = time.process_time()
    spst(needs, topology, seed=0)
    ended = time.process_time()
    return ended - began


def _parts_of(graph: WholeGraph) -> list[Part]:
    return [graph.part(number) for number in range(graph.parts)]


def table_percent(scenario: Scenario) -> float:
    """Return the memory of tables over that of training: 4 bytes a vertex or number.

    Training holds rows of features and of two layers, gradients, and edges with their
    weights.
    """
    settings = _settings_of(scenario)
    dataset, graphs = open_layers(settings)
    parts = _parts_of(graphs[0])
    plan, *_ = plans.open_plans(settings)

    model = settings["model"]
    # Two layers of the hidden width, and the gradients of both.
    columns = dataset.feature_length + 4 * model["hidden"]
    rows = 0
    edges = 0
    for part in parts:
        rows += len(part.vertices)
        edges += len(part.forward.columns)

    # Both ends of a transfer keep the ids of its rows; an edge has an end and a weight.
    tables = 2 * plan.counts.sum()
    training = rows * columns + 2 * edges
    return float(100 * tables / training)


def replication_factor(scenario: Scenario) -> float:
    """Return the vertices that all devices keep, over those of the graph."""
    settings = _settings_of(scenario)
    _, graphs = open_layers(settings)
    graph = graphs[0]
    parts = _parts_of(graph)
    copies = sum(len(part.vertices) for part in parts)
    return copies / graph.vertices


def fit_line(
    claim: Claim,
    seed: int,
    _: Mapping[str, Any],
) -> list[float]:
    """Return how far simulated gathers are off a line in the model's t(S), at most, %.

    Points are gathers of several sizes; computing is free, so that an epoch is the
    gather there and back.
    """
    estimates = []
    makespans = []
    for point in claim.points:
        scenario = scenario_of(
            claim,
            point=point,
            side=Side(),
            seed=seed,
        )
        forth = gather_seconds(scenario)
        back = scatter_seconds(scenario)
        estimates.append(forth + back)

        schedule = experiment_of(scenario).simulate()
        makespans.append(schedule.makespan)

    line = np.polyfit(estimates, makespans, 1)
    on_line = np.polyval(line, estimates)
    distances = np.abs(on_line / makespans - 1)
    furthest = float(100 * distances.max())
    # A claim has a value per point; this one is of the line through all of them.
    return [furthest] * len(claim.points)


#: Name in papers.yaml -> figure of a scenario.
PLAN_FIGURES: Mapping[str, Callable[[Scenario], float]] = {
    "gather": gather_seconds,
    "gather back": scatter_seconds,
    "NVLink": partial(milliseconds_on_links, fast=True),
    "other links": partial(milliseconds_on_links, fast=False),
    "imbalance": imbalance,
    "planning": planning_seconds,
    "tables": table_percent,
    "replication": replication_factor,
}
