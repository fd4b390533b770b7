"""Dependencies that are cached or communicated: which ones, weights and bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.graph_data.dependencies import choose_replicas, open_dependencies
from emu.graph_data.sampling import Structure
from emu.problem import Job
from emu.scenario import prepare
from emu.scenario.scenario_file import loads
from emu.systems.exchange_section import ExchangeSection
from tests.nodes.one_process import drive
from tests.nodes.test_partition import check
from tests.systems.test_exchange_section import FILE

JOB: Any = FILE["job"]


def job_of(**keys: Any) -> Job:
    """Return the job of a scenario on three unequal machines; its bytes are checked."""
    machines = [{"name": f"m{n}", "nic": f"{10 ** (n + 1)} Mbit/s"} for n in range(3)]
    job = {**JOB, "system": "neutron_star", "precision": "float64", **keys}
    scenario = loads(
        json.dumps(
            {
                "cluster": {"machines": machines},
                "job": job,
                "emulation": {"compute": "real"},
            }
        )
    )
    ready = prepare(scenario)
    assert isinstance(scenario.job, ExchangeSection)
    return ready.problem.job


@pytest.mark.parametrize("dependencies", ["cost", "communicated", "cached"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_weights_are_those_of_one_device(dependencies: str, layers: int) -> None:
    model = {"kind": "sage", "hidden": 4, "layers": layers}
    job = job_of(dependencies=dependencies, model=model)
    done = drive(job)
    check(done)
    _, graphs = open_dependencies(job.settings)
    fetched = [len(graphs[-1].part(rank).remote) for rank in range(3)]
    if layers > 1:
        assert (sum(fetched) == 0) == (dependencies == "cached")
        # The slower a NIC is, the more is computed again; the fastest fetches all.
        if dependencies == "cost":
            assert fetched[0] == 0 < fetched[2]
    for number, edge in enumerate(job.edges):
        names = job.tasks[edge.source].name, job.tasks[edge.destination].name
        if names == ("d0.layer1", "d2.layer2"):
            rows = len(graphs[1].ghosts_of(0, 2))
            assert done.volumes[number, 0] == rows * (4 + 8 * 4)


def brute(links: Any, own: set[int], costs: Any) -> list[int]:
    """Return the same by the definition, vertex by vertex."""
    count = len(links)
    kept = [0] * count
    neighbours = [{u for u in range(count) if links[v][u]} for v in range(count)]

    def need(vertex: int, layer: int) -> float:
        if layer == 0 or vertex in own or kept[vertex] >= layer:
            return 0.0
        here: float = costs["vertex"][layer - 1]
        here += costs["edge"][layer - 1] * len(neighbours[vertex])
        there = {v for v in range(count) if v in own or kept[v] >= layer}
        read_already = there.union(*(neighbours[v] for v in there))
        new = (neighbours[vertex] | {vertex}) - read_already
        here += costs["input"][layer - 1] * len(new)
        return here + sum(need(v, layer - 1) for v in neighbours[vertex] | {vertex})

    def keep(vertex: int, layer: int) -> None:
        if layer == 0 or vertex in own:
            return
        kept[vertex] = max(kept[vertex], layer)
        for other in neighbours[vertex] | {vertex}:
            keep(other, layer - 1)

    read = {u for v in own for u in neighbours[v]} - own
    for layer in range(2, len(costs["row"]) + 1):
        cheap = [u for u in read if need(u, layer - 1) < costs["row"][layer - 1]]
        for vertex in cheap:
            keep(vertex, layer - 1)
    return kept


@given(seed=st.integers(0, 10**6), layers=st.integers(1, 4), count=st.integers(2, 9))
def test_the_cheaper_way_is_taken_for_every_vertex(
    seed: int, layers: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    links = np.triu(rng.random((count, count)) < rng.uniform(0.1, 0.6), 1)
    links = links | links.T
    indptr = np.concatenate([[0], np.cumsum(links.sum(1))])
    structure = Structure(indptr, np.nonzero(links)[1].astype(np.int32))
    is_own = rng.random(count) < 0.5
    # Whole numbers: sums in any order are equal.
    bounds = {"vertex": 4, "edge": 3, "input": 2, "row": 40}
    costs = {k: rng.integers(0, most, layers).tolist() for k, most in bounds.items()}
    expected = brute(links, {*np.flatnonzero(is_own).tolist()}, costs)
    assert choose_replicas(structure, is_own, costs).tolist() == expected
