"""Plans of DGCL on links: SPST beside peer-to-peer, in t(S) and simulated by rule.

    tools/study dgcl_plans OUT [--scale S] [--only CASE]

One gather of rows of 1 kB of a made-up graph, ``--scale`` of the published products, on
a DGX-1, two of them, and two racks of four machines whose uplinks have half of a NIC,
one, two. ``speed`` plans drawn needs of a million vertices (CPU seconds), also ten at a
time and with two sweeps; ``parts`` swaps the devices of two parts while t(S) falls.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.problem import Placement, Problem
from emu.scenario.scenario_file import load, loads
from emu.simulation import makespan
from emu.systems.dgcl.job import dgcl_job, dgcl_realization
from emu.systems.dgcl.planner import Needs, lower_bound, peer_to_peer, spst
from emu.systems.dgcl.plans import needs_of_settings, read_topology
from emu.systems.dgcl.section import DgclJobSection
from tools.runner import Study

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from emu.scenario import Scenario
    from emu.systems.dgcl.planner import Plan, Topology
    from tools.runner import Work

TEXT = """\
cluster: {cluster}
job:
  system: dgcl
  dataset: {{name: products-like, scale: {scale}}}
  model: {{kind: gcn, hidden: 256, layers: 2}}
  epochs: 1
  partitioner: {partitioner}
  times: {{forward: 0 s, backward: 0 s}}
"""
_RACKS = """{{machines: [{{name: m, count: 8, nic: 10 Gbit/s}}], racks: [
    {{name: a, machines: [m0, m1, m2, m3], uplink: {0} Gbit/s}},
    {{name: b, machines: [m4, m5, m6, m7], uplink: {0} Gbit/s}}]}}"""
CLUSTERS = {
    "dgx1": ("{topology: dgx1}", "metis"),
    "two_dgx1": ("{topology: two_dgx1}", "hierarchical\n  boxes: [8, 8]"),
    **{
        f"racks, uplink of {word}": (
            _RACKS.format(rate),
            "hierarchical\n  boxes: [4, 4]",
        )
        for word, rate in (("half a NIC", 5), ("one", 10), ("two", 20))
    },
    "one NIC each": ("{machines: [{name: m, count: 8, nic: 10 Gbit/s}]}", "metis"),
}
RULES = ("oes", "maxmin", "sebf_madd")
_ROW = 1024
#: Devices, and (vertex, reader) pairs per vertex, of drawn needs.
_DRAWN = (("dgx1", 0.7), ("dgx1", 2.1), ("dgx1", 4.2), ("two_dgx1", 9.0))


@dataclass(frozen=True)
class Figure:
    """A line of the table."""

    case: str
    what: str
    found: str


def scenario_of(name: str, scale: float) -> Scenario:
    """Return the scenario of a cluster."""
    cluster, partitioner = CLUSTERS[name]
    return loads(TEXT.format(cluster=cluster, scale=scale, partitioner=partitioner))


def gather_seconds(scenario: Scenario, rule: str) -> float:
    """Return how long the forward gather of a scenario takes in simulation."""
    section = scenario.job
    assert isinstance(section, DgclJobSection)  # noqa: S101 - for mypy
    config = section.config(scenario.build_context(opened=True))
    nothing = peer_to_peer(_none(), len(config.machines))
    config = replace(config, backward=(nothing,) * config.layers)
    job, cluster = dgcl_job(config), scenario.to_cluster()
    realization = dgcl_realization(config, {}, (0, _ROW), 0, 1)
    places = tuple(cluster.index(task.pinned or "") for task in job.tasks)
    return makespan(Problem(cluster, job, Placement(places)), realization, rule)


def _none() -> Needs:
    none = np.empty(0, np.int64)
    return Needs(none, none.astype(np.int32), none)


def opened(scenario: Scenario) -> tuple[Needs, Topology]:
    """Return the needs and links of a scenario's job."""
    settings = scenario.to_job(opened=True).settings
    (needs,) = needs_of_settings(settings)
    return needs, read_topology(settings["topology"])


def gains(name: str, scale: float) -> list[Figure]:
    """Return t(S), and simulated times over it, of both plans, and the bound."""
    scenario = scenario_of(name, scale)
    needs, topology = opened(scenario)
    plans = {
        "spst": spst(needs, topology, seed=0),
        "peer_to_peer": peer_to_peer(needs, topology.devices),
    }
    cost = {kind: _ROW * plan.cost(topology) for kind, plan in plans.items()}
    seconds = {
        (kind, rule): gather_seconds(load(scenario, {"job.plan": kind}), rule)
        for kind, rule in itertools.product(plans, RULES)
    }
    found = [f"t(S) {cost['peer_to_peer'] / cost['spst']:.3f}x"]
    for rule in RULES:
        gain = seconds["peer_to_peer", rule] / seconds["spst", rule]
        over = seconds["spst", rule] / cost["spst"]
        found.append(f"{rule} {gain:.3f}x (simulated over t(S) {over:.3f})")
    bound = cost["spst"] / (_ROW * lower_bound(needs, topology))
    found.append(f"t(S) over the bound {bound:.2f}")
    busy = f"{needs.pairs:,} pairs, {plans['spst'].stages} stages"
    return [Figure(f"gain {name}", busy, "; ".join(found))]


def drawn(devices: int, pairs: float, vertices: int) -> Needs:
    """Return drawn needs: owners even, every reader of a vertex equally likely."""
    draws = np.random.default_rng(0)
    owners = draws.integers(0, devices, vertices)
    counts = 1 + draws.binomial(
        devices - 2, max(pairs - 1, 0) / (devices - 2), vertices
    )
    rank = draws.random((vertices, devices))
    rank[np.arange(vertices), owners] = 2
    chosen = np.argsort(np.argsort(rank, axis=1), axis=1) < counts[:, None]
    readers = (chosen * (np.int64(1) << np.arange(devices))).sum(axis=1)
    kept = draws.random(vertices) < min(pairs, 1)
    return Needs(np.flatnonzero(kept), owners[kept].astype(np.int32), readers[kept])


def timed(needs: Needs, topology: Topology, **options: Any) -> tuple[Plan, float]:
    """Return a plan and the CPU seconds that it took."""
    begun = time.process_time()
    plan = spst(needs, topology, seed=0, **options)
    return plan, time.process_time() - begun


def speed(name: str, pairs: float) -> list[Figure]:
    """Return the CPU time of plans of a million vertices, also ten at a time."""
    _, topology = opened(scenario_of(name, 0.001))
    spst(drawn(topology.devices, 1.0, 100), topology, seed=0, group=10, sweeps=1)
    needs = drawn(topology.devices, pairs, 1_000_000)
    plan, seconds = timed(needs, topology)
    ten, faster = timed(needs, topology, group=10)
    swept, longer = timed(needs, topology, sweeps=2)
    cost, bound = plan.cost(topology), lower_bound(needs, topology)
    found = (
        f"{seconds:.2f} s; ten at a time {faster:.2f} s, cost "
        f"{ten.cost(topology) / cost:.4f}; two sweeps {longer:.2f} s, cost "
        f"{swept.cost(topology) / cost:.4f}; over the bound {cost / bound:.2f}"
    )
    what = f"{topology.devices} devices, {needs.pairs:,} pairs"
    return [Figure(f"speed {name} {pairs}", what, found)]


def parts(name: str, scale: float) -> list[Figure]:
    """Return what swapping the devices of two parts gains, by t(S) and simulated."""
    scenario = scenario_of(name, scale)
    needs, topology = opened(scenario)
    order = [*range(topology.devices)]
    cost = first = spst(needs, topology, seed=0, group=10).cost(topology)
    better = True
    while better:
        better = False
        for a, b in itertools.combinations(range(topology.devices), 2):
            order[a], order[b] = order[b], order[a]
            found = spst(needs.moved(order), topology, seed=0, group=10).cost(topology)
            if found < cost * (1 - 1e-6):
                cost, better = found, True
            else:
                order[a], order[b] = order[b], order[a]
    names = [name for name, _ in scenario.cluster.named()]
    placed = load(scenario, {"job.machines": [names[place] for place in order]})
    gain = gather_seconds(scenario, "oes") / gather_seconds(placed, "oes")
    found_here = f"t(S) {1 - cost / first:.1%} less, simulated {1 - 1 / gain:.1%} less"
    return [Figure(f"parts {name}", f"devices of parts: {order}", found_here)]


def options(parser: ArgumentParser) -> None:
    """Add the size of the graph."""
    parser.add_argument("--scale", type=float, default=0.04, help="share of products")


def work(options: Namespace) -> Iterator[Work[Figure]]:
    """Yield every line of the table."""
    for name in CLUSTERS:
        yield f"gain {name}", partial(gains, name, options.scale)
    for name, pairs in _DRAWN:
        yield f"speed {name} {pairs}", partial(speed, name, pairs)
    for name in ("dgx1", "two_dgx1"):
        yield f"parts {name}", partial(parts, name, options.scale)


def table(rows: list[Figure], _: Namespace) -> Iterator[str]:
    """Yield all lines as one table in Markdown."""
    yield "| case | what | found |\n| --- | --- | --- |"
    for row in rows:
        yield f"| {row.case} | {row.what} | {row.found} |"


STUDY = Study(row=Figure, work=work, table=table, options=options, settled=("scale",))
