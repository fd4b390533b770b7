"""Figures of plans beside counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from emu.graph_data import open_layers
from emu.reproduction.claims import find_claims
from emu.reproduction.figures import scenario_of
from emu.reproduction.rows import draw_claim
from emu.reproduction.whole_graph import (
    PLAN_FIGURES,
    fit_line,
    gather_seconds,
    milliseconds_on_links,
    replication_factor,
)
from emu.scenario import Scenario
from emu.systems.dgcl import plans
from tests import draws

SMALL = {"name": "products-like", "scale": 0.004}


def gather_of(plan: str, **changes: object) -> Scenario:
    claim = next(c for c in find_claims("dgcl", "table-7") if c.measure == "gather")
    edits = {"job.dataset": SMALL, "job.plan": plan, **changes}
    point = claim.points[0].model_copy(update={"edits": edits})
    side = claim.first.model_copy(update={"edits": {}})
    return scenario_of(claim, point, side, 0)


@pytest.mark.parametrize("plan", ["peer_to_peer", "spst"])
def test_links_are_busy_for_the_rows_that_cross_them(plan: str) -> None:
    """Transfer by transfer, 1,024 bytes a row; over all stages."""
    scenario = gather_of(plan)
    settings = scenario.to_job(opened=True).settings
    *_, own = plans.open_plans(settings)
    topology = plans.read_topology(settings["topology"])
    busy = dict.fromkeys(range(len(topology.links)), 0.0)
    for (_, source, to), rows in zip(own.transfers.tolist(), own.counts, strict=True):
        for link in topology.routes[source, to]:
            busy[link] += 1024 * int(rows) / topology.capacities[link]

    fast = max(t for n, t in busy.items() if topology.links[n].startswith("nv"))
    slow = max(t for n, t in busy.items() if not topology.links[n].startswith("nv"))
    assert milliseconds_on_links(scenario, fast=True) == pytest.approx(1e3 * fast)
    assert milliseconds_on_links(scenario, fast=False) == pytest.approx(1e3 * slow)
    if plan == "peer_to_peer":  # one stage: its slowest link is all
        assert gather_seconds(scenario) == pytest.approx(max(fast, slow))
    else:
        assert gather_seconds(scenario) >= max(fast, slow) * (1 - 1e-9)
        assert PLAN_FIGURES["imbalance"](scenario) == pytest.approx(
            100 * abs(slow - fast) / fast
        )


@pytest.mark.parametrize("layers", [1, draws.rarely(2)])
def test_replicas_are_the_vertices_within_so_many_hops(layers: int) -> None:
    """By a walk over the edges from every part."""
    scenario = gather_of("replication", **{"job.model.layers": layers})
    _, (own, *_) = open_layers(gather_of("peer_to_peer").to_job(opened=True).settings)
    parts = [own.part(number) for number in range(own.parts)]
    sources: dict[int, set[int]] = {}
    for part in parts:
        ends = np.asarray(part.forward.indptr)
        for row, vertex in enumerate(part.local):
            columns = part.forward.columns[ends[row] : ends[row + 1]]
            sources[int(vertex)] = {int(part.vertices[column]) for column in columns}

    kept = 0
    for part in parts:
        reached = {int(vertex) for vertex in part.local}
        for _ in range(layers):
            reached |= {near for vertex in reached for near in sources[vertex]}
        kept += len(reached)
    assert replication_factor(scenario) == pytest.approx(kept / own.vertices)


@pytest.mark.nightly
def test_a_line_through_two_points_has_no_distance() -> None:
    (claim,) = find_claims("dgcl", "figure-10")
    points = [
        point.model_copy(update={"edits": {"job.dataset": {**SMALL, "scale": scale}}})
        for point, scale in zip(claim.points[:3], (0.004, 0.008, 0.012), strict=True)
    ]
    two = claim.model_copy(update={"points": tuple(points[:2])})
    three = claim.model_copy(update={"points": tuple(points)})

    assert fit_line(two, 0, {}) == pytest.approx([0, 0], abs=1e-6)
    first, *others = fit_line(three, 0, {})
    assert 0 < first < 20
    assert {*others} == {first}


def test_links_carry_what_their_table_says() -> None:
    """Table 1 is an input; table 3 is the shares of one link, by max-min."""
    (alone,) = find_claims("dgcl", "table-1")
    (shared,) = find_claims("dgcl", "table-3")

    assert draw_claim(alone, 0).values == pytest.approx(
        [48.35, 24.22, 11.13, 9.56, 6.37]
    )
    assert draw_claim(shared, 0).values == pytest.approx([9.56, 9.56 / 2, 9.56 / 3])
