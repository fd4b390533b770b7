"""Figures of the DGCL paper beside the same here, on made-up graphs.

    tools/study dgcl_paper OUT [--only CASE]

``gather``: one gather of rows of 256 numbers on 8 devices, peer-to-peer and swap over
DGCL, by links (Tables 2, 6, 7). ``few``: 2 and 4 devices. ``two boxes``: an epoch of
DGCL-R over DGCL on 16 devices (Table 5). ``model``: t(S) beside simulated time, of
parts of the rows (Figure 10). ``tables``: their share of memory (Figure 11).
``atomic``: the cost of a sum at which non-atomic stages pay (Table 9). ``kept``:
features kept or gathered. Times are simulated under oes.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from functools import partial

import numpy as np

from emu.graph_data import open_layers
from emu.scenario import Scenario, prepare
from emu.scenario.scenario_file import loads
from emu.systems.dgcl.planner import Needs
from emu.systems.dgcl.plans import open_plans
from emu.systems.dgcl.section import replica_work
from emu.systems.dgcl.spst import spst
from tools.runner import Study, Work
from tools.studies.dgcl_plans import Figure, gather, opened, table

#: Graph of the paper -> one drawn with its features and degrees, at a twentieth.
GRAPHS = {
    "Reddit": "{name: reddit-like, scale: 0.1}",
    "sparse (Web-Google)": "{name: products-like, scale: 0.02}",
    "cora": "cora",  # by EMU_DATA
}
TEXT = """\
cluster: {{topology: {topology}}}
job:
  system: dgcl
  dataset: {graph}
  model: {{kind: gcn, hidden: {hidden}, layers: 2}}
  epochs: 1
  times: {{forward: {time}, backward: {time}}}
  {more}
"""
_BOXES = "partitioner: hierarchical\n  boxes: [8, 8]"


def scenario_of(
    graph: str, more: str = "", topology: str = "dgx1", time: str = "0 s"
) -> Scenario:
    """Return a scenario of two layers of 256 numbers."""
    text = TEXT.format(
        topology=topology, graph=GRAPHS[graph], hidden=256, time=time, more=more
    )
    return loads(text)


def gathers(graph: str, topology: str) -> list[Figure]:
    """Return one gather of every plan over DGCL's, and the load by links."""
    times = {
        plan: gather(scenario_of(graph, f"plan: {plan}", topology), "oes").makespan
        for plan in ("spst", "peer_to_peer", "swap")
    }
    said = ", ".join(f"{n} {t / times['spst']:.2f}x" for n, t in times.items())
    _, links = opened(scenario_of(graph, "", topology))
    plan, *_ = open_plans(scenario_of(graph, "", topology).to_job(opened=True).settings)
    busy = (plan.load(links) / links.capacities).sum(axis=0)
    nvlink = np.array([name.startswith("nv") for name in links.links])
    if nvlink.any():
        fast, slow = busy[nvlink].max(), busy[~nvlink].max()
        said += f"; busiest NVLink over busiest other {fast / slow:.3f}"
    return [Figure(f"gather {topology} {graph}", "over DGCL", said)]


def few(graph: str, count: int) -> list[Figure]:
    """Return peer-to-peer over DGCL on a few devices."""
    devices = ", ".join(f"d{number}" for number in range(count))
    named = f"machines: [{devices}]\n  plan: "
    direct, planned = (
        gather(scenario_of(graph, named + plan), "oes").makespan
        for plan in ("peer_to_peer", "spst")
    )
    said = f"peer_to_peer {direct / planned:.3f}x"
    return [Figure(f"few {count} {graph}", f"{count} devices", said)]


def two_boxes(graph: str) -> list[Figure]:
    """Return an epoch of DGCL-R over DGCL's, by what a layer computes for itself."""
    rows = []
    plain = f"{_BOXES}\n  plan: "
    for time in ("0.2 ms", "1 ms", "5 ms"):
        both = {
            plan: scenario_of(graph, plain + plan, "two_dgx1", time)
            for plan in ("spst", "dgcl_r")
        }
        spans = {plan: prepare(one).simulate().makespan for plan, one in both.items()}
        work = replica_work(both["dgcl_r"].to_job(opened=True).settings)
        factor = max(work.values())
        found = (
            f"{spans['dgcl_r'] / spans['spst']:.2f}x, of "
            f"{1e3 * spans['spst']:.2f} ms; up to {factor:.2f} times the edges"
        )
        rows.append(Figure(f"two boxes {graph}", f"{time} per layer and pass", found))
    return rows


def model(graph: str) -> list[Figure]:
    """Return how far simulated gathers of parts of the rows are off a line in t(S)."""
    needs, topology = opened(scenario_of(graph))
    scenario = scenario_of(graph)
    draws = np.random.default_rng(0)
    estimated, found = [], []
    for share in np.linspace(0.1, 1.0, 10):
        kept = draws.random(len(needs)) < share
        some = Needs(needs.vertices[kept], needs.owners[kept], needs.readers[kept])
        plan = spst(some, topology, seed=0)
        estimated.append(1024 * plan.cost(topology))
        found.append(gather(scenario, "oes", plan).makespan)
    line = np.polyfit(estimated, found, 1)
    off = np.abs(np.polyval(line, estimated) / found - 1).max()
    said = f"{off:.2%} off the line at most, slope {line[0]:.3f}"
    return [Figure(f"model {graph}", f"{len(found)} shares of the rows", said)]


def tables(graph: str) -> list[Figure]:
    """Return the bytes of tables over those of training: rows, gradients, edges."""
    settings = scenario_of(graph).to_job(opened=True).settings
    dataset, graphs = open_layers(settings)
    parts = [graphs[0].part(number) for number in range(graphs[0].parts)]
    plan, *_ = open_plans(settings)
    rows = sum(len(part.vertices) for part in parts)
    numbers = rows * (dataset.feature_length + 2 * 2 * 256)  # with gradients
    edges = sum(len(part.forward.columns) for part in parts)
    share = 2 * plan.counts.sum() / (numbers + 2 * edges)
    what = "4 bytes a vertex, number, weight"
    return [Figure(f"tables {graph}", what, f"{share:.2%}")]


def atomic(graph: str) -> list[Figure]:
    """Return backward gathers of both kinds, and the cost of sums that parts them."""
    spans, counts = {}, 0
    for kind in ("atomic", "nonatomic"):
        scenario = scenario_of(graph, f"backward: {kind}")
        settings = scenario.to_job(opened=True).settings
        plan = open_plans(settings)[1].reverse(atomic=kind == "atomic")
        spans[kind] = gather(scenario, "oes", plan).makespan
        counts = max(
            sum(len(rows) for _, _, to, rows in plan if to == device)
            for device in range(plan.devices)
        )
    rows = []
    for gain in (0.25, 0.36):
        extra = spans["nonatomic"] / (1 - gain) - spans["atomic"]
        said = (
            f"an atomic sum of a row costs {1e9 * extra / counts:.2f} ns more "
            f"({1e9 * 1024 / 900e9:.2f} ns are its bytes at 900 GB/s); without such a "
            f"cost non-atomic takes {spans['nonatomic'] / spans['atomic']:.3f}x"
        )
        rows.append(Figure(f"atomic {graph}", f"{gain:.0%} faster if", said))
    return rows


def kept(graph: str) -> list[Figure]:
    """Return an epoch without features kept over one with them, and rows kept."""
    spans = [
        prepare(scenario_of(graph, f"cache_features: {word}")).simulate().makespan
        for word in ("false", "true")
    ]
    _, graphs = open_layers(scenario_of(graph).to_job(opened=True).settings)
    remote = sum(len(graphs[0].part(number).remote) for number in range(8))
    said = (
        f"{spans[0] / spans[1]:.2f}x; {remote / graphs[0].vertices:.2f} rows a vertex"
    )
    return [Figure(f"kept {graph}", "gathered over kept, an epoch", said)]


def work(_: Namespace) -> Iterator[Work[Figure]]:
    """Yield every figure of every graph."""
    for graph in GRAPHS:
        for topology in ("dgx1", "pcie_8"):
            case = f"gather {topology} {graph}"
            yield case, partial(gathers, graph, topology)
        for count in (2, 4):
            yield f"few {count} {graph}", partial(few, graph, count)
        yield f"two boxes {graph}", partial(two_boxes, graph)
        yield f"model {graph}", partial(model, graph)
        yield f"tables {graph}", partial(tables, graph)
        yield f"atomic {graph}", partial(atomic, graph)
        yield f"kept {graph}", partial(kept, graph)


STUDY = Study(row=Figure, work=work, table=table)
