"""Figures of DGCL's plans, counted without a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from emu.experiment.reproduction.claims import Claim, Side
from emu.experiment.reproduction.figures import experiment_of, scenario_of
from emu.graph_data import open_layers
from emu.scenario import Scenario
from emu.systems.dgcl import plans
from emu.systems.dgcl.planner import Plan, Topology
from emu.systems.dgcl.spst import spst

FLOAT_BYTES = 4


def _settings_of(scenario: Scenario) -> Mapping[str, Any]:
    return scenario.to_job(opened=True).settings


def _plan_of(scenario: Scenario) -> tuple[Plan, Topology]:
    """Return the plan of the last layer's gather, and the links that it is for."""
    settings = _settings_of(scenario)
    *_, plan = plans.open_plans(settings)
    return plan, plans.read_topology(settings["topology"])


def row_bytes(scenario: Scenario) -> int:
    """Return the bytes of a row of the hidden layer."""
    return FLOAT_BYTES * int(_settings_of(scenario)["model"]["hidden"])


def gather_seconds(scenario: Scenario) -> float:
    """Return t(S) of a gather, seconds (DGCL, equation 4)."""
    plan, topology = _plan_of(scenario)
    return row_bytes(scenario) * plan.cost(topology)


def scatter_seconds(scenario: Scenario) -> float:
    """Return t(S) of the gradients of a gather, seconds."""
    plan, topology = _plan_of(scenario)
    is_atomic = _settings_of(scenario)["backward"] == "atomic"
    back = plans.gradient_plan(plan, atomic=is_atomic)
    return row_bytes(scenario) * back.cost(topology)


def milliseconds_on_links(scenario: Scenario, *, fast: bool) -> float:
    """Return how long the busiest NVLink, or the busiest other link, is busy.

    In one gather, nothing else being on the links.
    """
    plan, topology = _plan_of(scenario)
    busy = (plan.load(topology) / topology.capacities).sum(axis=0)
    is_fast = np.array([name.startswith("nv") for name in topology.links])
    return float(1e3 * row_bytes(scenario) * busy[is_fast == fast].max())


def imbalance(scenario: Scenario) -> float:
    """Return by how much NVLinks and others differ in time, %, as the paper's table."""
    fast = milliseconds_on_links(scenario, fast=True)
    slow = milliseconds_on_links(scenario, fast=False)
    return 100 * abs(slow - fast) / fast


def planning_seconds(scenario: Scenario) -> float:
    """Return the CPU time in which SPST plans one gather."""
    settings = _settings_of(scenario)
    topology = plans.read_topology(settings["topology"])
    *_, needs = plans.needs_of_settings(settings)
    began = time.process_time()
    spst(needs, topology, seed=0)
    return time.process_time() - began


def table_percent(scenario: Scenario) -> float:
    """Return the memory of tables over that of training: 4 bytes a vertex or number.

    Training holds rows of features and of two layers, gradients, and edges with their
    weights.
    """
    settings = _settings_of(scenario)
    dataset, graphs = open_layers(settings)
    parts = [graphs[0].part(number) for number in range(graphs[0].parts)]
    plan, *_ = plans.open_plans(settings)

    rows = sum(len(part.vertices) for part in parts)
    hidden = settings["model"]["hidden"]
    numbers = rows * (dataset.feature_length + 4 * hidden)
    edges = sum(len(part.forward.columns) for part in parts)
    return float(100 * 2 * plan.counts.sum() / (numbers + 2 * edges))


def replication_factor(scenario: Scenario) -> float:
    """Return the vertices that all devices keep, over those of the graph."""
    _, graphs = open_layers(_settings_of(scenario))
    first = graphs[0]
    kept = sum(len(first.part(number).vertices) for number in range(first.parts))
    return float(kept / first.vertices)


def fit_line(claim: Claim, seed: int, _: Mapping[str, Any]) -> list[float]:
    """Return how far simulated gathers are off a line in the model's t(S), at most, %.

    Points are gathers of several sizes; computing is free, so that an epoch is the
    gather there and back.
    """
    estimates = []
    makespans = []
    for point in claim.points:
        scenario = scenario_of(claim, point, Side(), seed)
        estimates.append(gather_seconds(scenario) + scatter_seconds(scenario))
        makespans.append(experiment_of(scenario).simulate().makespan)

    line = np.polyfit(estimates, makespans, 1)
    distance = np.abs(np.polyval(line, estimates) / np.array(makespans) - 1)
    return [float(100 * distance.max())] * len(claim.points)


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
