"""Plans of DGCL on links: SPST beside peer-to-peer, in t(S) and simulated by rule.

    tools/study dgcl_plans OUT [--graph TEXT] [--only CASE]

``gain``: one gather of rows of 1 kB under every rule, on a DGX-1, two of them, and two
racks of four machines whose uplinks have half of a NIC, one, two; what a gate before
every stage adds; where the plan loses, the links of both critical paths. ``near``: t(S)
over the lower bound after sweeps of local improvement. ``optimum``: SPST against
enumeration on drawn topologies. ``speed``: CPU seconds for drawn needs of a million
vertices. ``parts``: devices of two parts swapped while t(S) falls.
"""

from __future__ import annotations

import itertools
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from emu.prediction.analysis.critical_path import critical_path
from emu.prediction.scheduling import RATE_POLICIES
from emu.prediction.simulation import simulate
from emu.problem import Placement, Problem, Schedule
from emu.scenario import Scenario
from emu.scenario.scenario_file import load, loads
from emu.systems.dgcl.job import dgcl_job, dgcl_realization
from emu.systems.dgcl.planner import GatherPlan, Needs, Topology, peer_to_peer
from emu.systems.dgcl.plans import needs_of_settings, read_topology
from emu.systems.dgcl.section import DgclJobSection
from emu.systems.dgcl.spst import lower_bound, spst
from tests.systems.dgcl.test_planner import optimum as by_enumeration
from tests.systems.dgcl.test_planner import random_needs, random_topology
from tools.runner import Study, Work

TEXT = """\
cluster: {cluster}
job:
  system: dgcl
  dataset: {graph}
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
#: Rules of one job; ``portfolio`` is several of them.
RULES = [n for n, r in RATE_POLICIES.items() if not r.by_job and n != "portfolio"]
_ROW = 1024
#: Devices, and (vertex, reader) pairs per vertex, of drawn needs.
_DRAWN = (("dgx1", 0.7), ("dgx1", 2.1), ("dgx1", 4.2), ("two_dgx1", 9.0))


@dataclass(frozen=True)
class Figure:
    """A line of the table."""

    case: str
    what: str
    found: str


def scenario_of(name: str, graph: str) -> Scenario:
    """Return the scenario of a cluster."""
    cluster, partitioner = CLUSTERS[name]
    return loads(TEXT.format(cluster=cluster, graph=graph, partitioner=partitioner))


def gather(scenario: Scenario, rule: str, plan: GatherPlan | None = None) -> Schedule:
    """Return the simulated forward gather of a scenario, or one along ``plan``."""
    section = scenario.job
    assert isinstance(section, DgclJobSection)  # noqa: S101 - for mypy
    context, layers = scenario.build_context(opened=True), section.model.layers
    settings = section.settings(context)
    builder = section.builder(context, settings)
    nothing = peer_to_peer(_none(), len(builder.machines))
    plans = builder.plans if plan is None else (plan,) * layers
    builder = replace(builder, plans=plans, backward=(nothing,) * layers)
    job, cluster = dgcl_job(builder, settings), scenario.to_cluster()
    realization = dgcl_realization(builder, {}, (0, _ROW), 0, 1)
    places = tuple(
        cluster.index(task.pinned or builder.machines[0]) for task in job.tasks
    )
    return simulate(Problem(cluster, job, Placement(places)), realization, rule)


def _none() -> Needs:
    none = np.empty(0, np.int64)
    return Needs(none, none.astype(np.int32), none)


def opened(scenario: Scenario) -> tuple[Needs, Topology]:
    """Return the needs and links of a scenario's job."""
    settings = scenario.to_job(opened=True).settings
    (needs,) = needs_of_settings(settings)
    return needs, read_topology(settings["topology"])


def gains(name: str, graph: str) -> list[Figure]:
    """Return t(S), and under every rule simulated times of both plans and of gates."""
    scenario = scenario_of(name, graph)
    needs, topology = opened(scenario)
    planned = spst(needs, topology, seed=0)
    direct = peer_to_peer(needs, topology.devices)
    cost = _ROW * planned.cost(topology)
    gain = _ROW * direct.cost(topology) / cost
    over = cost / (_ROW * lower_bound(needs, topology))
    found = f"{gain:.3f}x; over the bound {over:.2f}; {planned.stages} stages"
    rows = [Figure(f"gain {name}", f"t(S), {needs.pairs:,} pairs", found)]
    for rule in RULES:
        tree, straight, gated = (
            gather(load(scenario, changes), rule)
            for changes in (
                {"job.plan": "spst"},
                {"job.plan": "peer_to_peer"},
                {"job.coordination": "central"},
            )
        )
        gain = straight.makespan / tree.makespan
        said = (
            f"{gain:.3f}x; over t(S) {tree.makespan / cost:.3f}; gates "
            f"{gated.makespan / tree.makespan:.3f}x"
        )
        if gain < 1:
            said += f"; path {path_of(tree)}, straight {path_of(straight)}"
        rows.append(Figure(f"gain {name}", rule, said))
    return rows


def path_of(schedule: Schedule) -> str:
    """Return the links of most of the critical path, with their shares."""
    sums = critical_path(schedule).sums(
        lambda one: schedule.problem.links[one.port].name if one.port >= 0 else ""
    )
    most = sorted(sums.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{n or 'stages'} {t / schedule.makespan:.0%}" for n, t in most)


def near(name: str, graph: str) -> list[Figure]:
    """Return t(S) over the bound, and CPU seconds, of more and more sweeps."""
    needs, topology = opened(scenario_of(name, graph))
    bound = lower_bound(needs, topology)
    rows = []
    for sweeps in (0, 1, 2, 4, 8):
        plan, seconds = timed(needs, topology, sweeps=sweeps)
        found = f"{plan.cost(topology) / bound:.4f} of the bound, {seconds:.2f} s"
        rows.append(Figure(f"near {name}", f"{sweeps} sweeps", found))
    return rows


def joined_directly(needs: Needs, topology: Topology) -> bool:
    """Return True where a route leads from every owner to every reader."""
    transfers = peer_to_peer(needs, topology.devices).transfers
    return {(a, b) for _, a, b in transfers.tolist()} <= topology.routes.keys()


def optimum(count: int) -> list[Figure]:
    """Return the distance of plans of drawn topologies from the best by enumeration."""
    draws = np.random.default_rng(0)
    ratios: dict[str, list[float]] = {}
    for number in range(count):
        topology = random_topology(draws, 3 + number % 2, joined=0.8)
        needs = random_needs(draws, topology.devices, 3)
        best = by_enumeration(needs, topology)
        for sweeps in (0, 3):
            plan = spst(needs, topology, seed=number, sweeps=sweeps)
            found = plan.cost(topology) / best
            ratios.setdefault(f"spst, {sweeps} sweeps", []).append(found)
        if joined_directly(needs, topology):
            direct = peer_to_peer(needs, topology.devices).cost(topology) / best
            ratios.setdefault("peer_to_peer", []).append(direct)
    return [
        Figure(
            f"optimum {count}",
            f"{what}, {len(some)} topologies",
            f"optimal {np.mean(np.array(some) < 1 + 1e-9):.1%}, median "
            f"{np.median(some):.3f}, worst {max(some):.3f}",
        )
        for what, some in ratios.items()
    ]


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


def timed(needs: Needs, topology: Topology, **options: Any) -> tuple[GatherPlan, float]:
    """Return a plan and the CPU seconds that it took."""
    begun = time.process_time()
    plan = spst(needs, topology, seed=0, **options)
    return plan, time.process_time() - begun


def speed(name: str, pairs: float) -> list[Figure]:
    """Return the CPU time of plans of a million vertices, also ten at a time."""
    small = "{name: products-like, scale: 0.001}"
    _, topology = opened(scenario_of(name, small))
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


def parts(name: str, graph: str) -> list[Figure]:
    """Return what swapping the devices of two parts gains, by t(S) and simulated."""
    scenario = scenario_of(name, graph)
    needs, topology = opened(scenario)
    order = [*range(topology.devices)]
    cost = first = spst(needs, topology, seed=0, group=10).cost(topology)
    better = True
    while better:
        better = False
        for a, b in itertools.combinations(range(topology.devices), 2):
            order[a], order[b] = order[b], order[a]
            found = spst(needs.move(order), topology, seed=0, group=10).cost(topology)
            if found < cost * (1 - 1e-6):
                cost, better = found, True
            else:
                order[a], order[b] = order[b], order[a]
    names = [name for name, _ in scenario.cluster.names_and_positions()]
    placed = load(scenario, {"job.machines": [names[place] for place in order]})
    gain = gather(scenario, "oes").makespan / gather(placed, "oes").makespan
    found_here = f"t(S) {1 - cost / first:.1%} less, simulated {1 - 1 / gain:.1%} less"
    return [Figure(f"parts {name}", f"devices of parts: {order}", found_here)]


def options(parser: ArgumentParser) -> None:
    """Add the graph."""
    made_up = "{name: products-like, scale: 0.04}"
    parser.add_argument("--graph", default=made_up, help="as job.dataset states it")


def work(options: Namespace) -> Iterator[Work[Figure]]:
    """Yield every line of the table."""
    for name in CLUSTERS:
        yield f"gain {name}", partial(gains, name, options.graph)
    for name in ("dgx1", "two_dgx1"):
        yield f"near {name}", partial(near, name, options.graph)
        yield f"parts {name}", partial(parts, name, options.graph)
    yield "optimum 300", partial(optimum, 300)
    for name, pairs in _DRAWN:
        yield f"speed {name} {pairs}", partial(speed, name, pairs)


def table(rows: list[Figure], _: Namespace) -> Iterator[str]:
    """Yield all lines as one table in Markdown."""
    yield "| case | what | found |\n| --- | --- | --- |"
    for row in rows:
        yield f"| {row.case} | {row.what} | {row.found} |"


STUDY = Study(row=Figure, work=work, table=table, options=options, settled=("graph",))
