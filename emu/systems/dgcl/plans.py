"""The plans of a job, kept beside its data set, and lines on what they promise."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.errors import DataError
from emu.graph_data import WholeGraph, open_layers
from emu.graph_data.prepared import (
    PreparedArrays,
    forget_oldest,
    prepare_arrays,
    write_arrays,
)
from emu.problem import Cluster
from emu.systems import Settings
from emu.systems.dgcl.planner import (
    Needs,
    Plan,
    PlanError,
    Topology,
    check_plan,
    peer_to_peer,
    swap,
)
from emu.systems.dgcl.spst import spst
from emu.units import format_duration

#: Plans that are kept of a data set's parts: every what-if of links makes one, and who
#: misses one makes it again.
MOST_KEPT = 32
#: Of the planner: plans of another one are made again.
_VERSION = 2
#: Plans that this process has checked, by folder and checksum.
_CHECKED: dict[tuple[Path, int], tuple[Plan, ...]] = {}
#: Epochs that ``best_of`` simulates along either plan: they repeat.
EPOCHS = 2
#: Gain in t(S) below which planning does not pay.
_WORTH = 1.01


def topology_settings(cluster: Cluster, machines: Sequence[str]) -> Settings:
    """Return the links between machines as ``Job.settings`` hold them."""
    ranks = [cluster.index(name) for name in machines]
    routes = [
        (i, j, list(cluster.links.route(a, b)))
        for i, a in enumerate(ranks)
        for j, b in enumerate(ranks)
        if i != j
    ]
    ports_in_use = sorted({port for *_, ports in routes for port in ports})
    place = {port: number for number, port in enumerate(ports_in_use)}
    return {
        "devices": len(ranks),
        "links": [cluster.links[port].name for port in ports_in_use],
        "capacities": [cluster.links[port].capacity for port in ports_in_use],
        "routes": [[i, j, [place[port] for port in ports]] for i, j, ports in routes],
    }


def read_topology(settings: Mapping[str, Any]) -> Topology:
    """Return the topology of `topology_settings`."""
    return Topology(
        settings["devices"],
        tuple(settings["links"]),
        np.array(settings["capacities"], np.float64),
        {(i, j): tuple(links) for i, j, links in settings["routes"]},
    )


def needs_of(graph: WholeGraph, boxes: Sequence[int] = ()) -> Needs:
    """Return the remote vertices of all parts, within boxes where these replicate."""
    parts = [graph.part(number) for number in range(graph.parts)]
    box = np.repeat(np.arange(len(boxes)), boxes) if boxes else np.zeros(graph.parts)
    islands = []
    for island in np.unique(box):
        some = [part for part, own in zip(parts, box, strict=True) if own == island]
        islands.append(
            Needs.of_parts(
                [p.remote[: len(p.remote) if p in some else 0] for p in parts],
                [p.owners[: len(p.owners) if p in some else 0] for p in parts],
            )
        )
    return Needs.join(islands)


def needs_of_settings(settings: Mapping[str, Any]) -> list[Needs]:
    """Return what plans bring, with replicas in each layer; raise as `open_layers`."""
    _, graphs = open_layers(settings)
    if boxes := settings.get("replicas"):
        return [needs_of(graph, boxes) for graph in graphs]
    needs = needs_of(graphs[0])
    if settings["plan"]["kind"] == "swap" and len(needs):
        local = [graphs[0].part(number).local for number in range(graphs[0].parts)]
        needs = needs.swap(local)
    return [needs]


def make_plan(needs: Needs, topology: Topology, stated: Mapping[str, Any]) -> Plan:
    """Return the ``stated`` plan, PlanError where who needs a row is cut off."""
    if stated["kind"] == "swap":
        return swap(needs, topology.devices - 1)
    if stated["kind"] == "peer_to_peer":
        return peer_to_peer(needs, topology.devices)
    options = {key: value for key, value in stated.items() if key != "kind"}
    return spst(needs, topology, **options)


def open_plans(settings: Mapping[str, Any]) -> tuple[Plan, ...]:
    """Return the plan of each layer, made on first use and kept beside the data set.

    Raises DataError when the data set or a plan is damaged or cannot be written, or a
    plan is of another graph, parts, topology or version, or does not bring every row;
    PlanError as `make_plan`.
    """
    dataset, graphs = open_layers(settings)
    boxes = settings.get("replicas", [])
    layers = len(graphs)
    topology = read_topology(settings["topology"])
    topology = topology.within(boxes) if boxes else topology
    causes = {
        "version": _VERSION,
        "topology": settings["topology"],
        "plan": settings["plan"],
        **({"replicas": boxes, "layers": layers} if boxes else {}),
    }
    key = hashlib.sha256(json.dumps(causes, sort_keys=True).encode()).hexdigest()[:16]
    facts = {"parts": dataset.folder.name, "key": key}
    needs = functools.cache(lambda: needs_of_settings(settings))

    def write(partial: Path) -> Settings:
        plans = [make_plan(one, topology, settings["plan"]) for one in needs()]
        stem = glob.escape(dataset.folder.name)
        forget_oldest(dataset.folder.parent, f"{stem}-plan-*", MOST_KEPT - 1)
        return write_plans(partial, plans, facts)

    folder = dataset.folder.with_name(f"{dataset.folder.name}-plan-{key}")
    arrays = prepare_arrays(folder, write)
    os.utime(arrays.folder)  # the newest now: in use
    entry = (arrays.folder, arrays.checksum)
    if entry not in _CHECKED:
        _CHECKED[entry] = read_plans(arrays, facts, needs(), topology)
    found = _CHECKED[entry]
    return found if len(found) == layers else found * layers


@functools.lru_cache(maxsize=32)
def gradient_plan(plan: Plan, *, atomic: bool) -> Plan:
    """Return the plan of the gradients of a plan; see `Plan.reverse`."""
    return plan.reverse(atomic=atomic)


def write_plans(folder: Path, plans: Sequence[Plan], facts: Settings) -> Settings:
    """Write plans as `prepare_arrays` asks for it."""
    for number, plan in enumerate(plans):
        names = "transfers", "bounds", "rows"
        write_arrays(folder, {f"{n}_{number}": getattr(plan, n) for n in names})
    return facts


def read_plans(
    prepared: PreparedArrays,
    facts: Mapping[str, Any],
    needs: Sequence[Needs],
    topology: Topology,
) -> tuple[Plan, ...]:
    """Return the plans in a folder, rows mapped and not read, DataError if damaged."""
    for name, value in facts.items():
        if (fact := prepared.facts.get(name)) != value:
            raise DataError(
                f"is a plan of {name} {fact!r}, not {value!r}; delete the folder "
                "and it will be made again",
                path=str(prepared.folder),
            )
    plans = []
    for number, need in enumerate(needs):
        names = (f"transfers_{number}", f"bounds_{number}", f"rows_{number}")
        plan = Plan(topology.devices, *(prepared.array(name) for name in names))
        try:
            _check_tables(plan)
            check_plan(plan, need, topology)
        except PlanError as error:
            raise DataError(
                f"is no plan: {error}; delete the folder and it will be made again",
                path=str(prepared.folder),
            ) from error
        plans.append(plan)
    return tuple(plans)


def _check_tables(plan: Plan) -> None:
    """Check that arrays are those of a plan, whatever they say."""
    kinds = [array.dtype for array in (plan.transfers, plan.bounds, plan.rows)]
    if kinds != [np.int32, np.int64, np.int64]:
        raise PlanError(f"its arrays are of types {', '.join(map(str, kinds))}")
    shapes = [array.shape for array in (plan.transfers, plan.bounds, plan.rows)]
    if shapes != [(plan.bounds.size - 1, 3), (plan.bounds.size,), (plan.rows.size,)]:
        raise PlanError(f"its arrays have shapes {', '.join(map(str, shapes))}")
    ends = plan.bounds[[0, -1]].tolist()
    if ends != [0, len(plan.rows)] or (plan.bounds[1:] < plan.bounds[:-1]).any():
        raise PlanError("bounds do not divide its rows")
    stages = plan.transfers[:, 0]
    ends = stages[[0, -1]].tolist() if stages.size else [0, 0]
    if (stages[1:] < stages[:-1]).any() or not 0 <= ends[0] <= ends[1] < plan.devices:
        raise PlanError("stages are not ascending, or one is beyond any tree's depth")


def plan_lines(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield what can be said of the plans of a job before it runs."""
    if seconds := settings.get("best_of"):
        times = (f"{format_duration(time)} with {k}" for k, time in seconds.items())
        kind = settings["plan"]["kind"]
        yield f"best_of takes {kind}: {EPOCHS} epochs take {', '.join(times)}"
    if settings["replicas"]:
        _, graphs = open_layers(settings)
        parts = [graphs[0].part(number) for number in range(graphs[0].parts)]
        rows = sum(len(part.local) + len(part.held) for part in parts)
        factor = rows / graphs[0].vertices
        yield f"devices keep {factor:.2f} times the vertices (replication factor)"
    kinds = {"swap", "replication"}
    if settings["plan"]["kind"] in kinds:
        return
    topology = read_topology(settings["topology"])
    if boxes := settings["replicas"]:
        topology = topology.within(boxes)
    costs = [
        (peer_to_peer(needs, topology.devices), spst(needs, topology, seed=0, group=10))
        for needs in needs_of_settings(settings)
    ]
    direct, by_plan = (
        sum(p.cost(topology) for p in some) for some in zip(*costs, strict=True)
    )
    if direct <= _WORTH * by_plan:
        yield "SPST finds no plan of a lower t(S) than peer-to-peer's"
