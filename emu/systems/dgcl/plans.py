"""The plan of a job: made for its parts and links, kept beside its data set."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError
from emu.graph_data import open_parts
from emu.graph_data.prepared import prepare_arrays, write_arrays
from emu.systems.dgcl.planner import (
    Needs,
    Plan,
    PlanError,
    Topology,
    check_plan,
    peer_to_peer,
    spst,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from emu.graph_data import WholeGraph
    from emu.graph_data.prepared import PreparedArrays
    from emu.problem import Cluster

#: Of the planner: plans of another one are made again.
_VERSION = 1


def topology_settings(cluster: Cluster, machines: Sequence[str]) -> dict[str, Any]:
    """Return the links between machines as ``Job.settings`` hold them."""
    ranks = [cluster.index(name) for name in machines]
    routes = [
        (i, j, list(cluster.links.route(a, b)))
        for i, a in enumerate(ranks)
        for j, b in enumerate(ranks)
        if i != j
    ]
    used = sorted({port for *_, ports in routes for port in ports})
    place = {port: number for number, port in enumerate(used)}
    return {
        "devices": len(ranks),
        "links": [cluster.links[port].name for port in used],
        "capacities": [cluster.links[port].capacity for port in used],
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


def needs_of(graph: WholeGraph) -> Needs:
    """Return the remote vertices of all parts."""
    parts = [graph.part(number) for number in range(graph.parts)]
    return Needs.of_parts([part.remote for part in parts], [p.owners for p in parts])


def needs_of_settings(settings: Mapping[str, Any]) -> Needs:
    """Return the needs of the parts of a job, from ``Job.settings``.

    Raises
    ------
    DataError, ValueError
        As `open_parts`.
    """
    return needs_of(open_parts(settings)[1])


def make_plan(needs: Needs, topology: Topology, stated: Mapping[str, Any]) -> Plan:
    """Return the plan that ``Job.settings["plan"]`` asks for.

    Raises
    ------
    PlanError
        When a device that needs a row cannot be reached.
    """
    direct = peer_to_peer(needs, topology.devices)
    if stated["kind"] == "peer_to_peer":
        return direct
    planned = spst(
        needs,
        topology,
        seed=stated["seed"],
        eps=stated["eps"],
        group=stated["group"],
        sweeps=stated["sweeps"],
    )
    if stated["kind"] == "spst":
        return planned
    return min((direct, planned), key=lambda plan: plan.cost(topology))


def open_plan(settings: Mapping[str, Any]) -> Plan:
    """Return the plan of a job, made on first use and kept beside its data set.

    Raises
    ------
    DataError
        When the data set or the plan is damaged or cannot be written, or the plan is of
        another graph, parts, topology or version, or does not bring every row.
    PlanError
        As `make_plan`.
    """
    dataset, graph = open_parts(settings)
    topology = read_topology(settings["topology"])
    stated = {
        "version": _VERSION,
        "topology": settings["topology"],
        "plan": settings["plan"],
    }
    key = hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]
    facts = {"parts": dataset.folder.name, "key": key}
    needs = functools.cache(lambda: needs_of(graph))
    prepared = prepare_arrays(
        dataset.folder.with_name(f"{dataset.folder.name}-plan-{key}"),
        lambda partial: write_plan(
            partial, make_plan(needs(), topology, settings["plan"]), facts
        ),
    )
    known = (prepared.folder, prepared.checksum)
    if known not in _CHECKED:
        _CHECKED[known] = read_plan(prepared, facts, needs(), topology)
    return _CHECKED[known]


#: Plans that this process has checked, by folder and checksum.
_CHECKED: dict[tuple[Path, int], Plan] = {}


@functools.lru_cache(maxsize=8)
def gradient_plan(plan: Plan, *, atomic: bool) -> Plan:
    """Return the plan of the gradients of a plan; see `Plan.reversed`."""
    return plan.reversed(atomic=atomic)


def write_plan(folder: Path, plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """Write a plan as `prepare_arrays` asks for it."""
    arrays: dict[str, NDArray[Any]] = {
        "transfers": plan.transfers,
        "bounds": plan.bounds,
        "rows": plan.rows,
    }
    write_arrays(folder, arrays)
    return facts


def read_plan(
    prepared: PreparedArrays,
    facts: Mapping[str, Any],
    needs: Needs,
    topology: Topology,
) -> Plan:
    """Return the plan in a folder, whose rows are mapped and not read.

    Raises
    ------
    DataError
        As `open_plan`.
    """
    for name, expected in facts.items():
        if (found := prepared.facts.get(name)) != expected:
            raise DataError(
                f"is a plan of {name} {found!r}, not {expected!r}; delete the folder "
                "and it will be made again",
                path=str(prepared.folder),
            )
    names = ("transfers", "bounds", "rows")
    plan = Plan(topology.devices, *(prepared.array(name) for name in names))
    try:
        _check_tables(plan)
        check_plan(plan, needs, topology)
    except PlanError as error:
        raise DataError(
            f"is no plan: {error}; delete the folder and it will be made again",
            path=str(prepared.folder),
        ) from error
    return plan


def _check_tables(plan: Plan) -> None:
    """Check that arrays are those of a plan, whatever they say."""
    kinds = [array.dtype for array in (plan.transfers, plan.bounds, plan.rows)]
    if kinds != [np.int32, np.int64, np.int64]:
        raise PlanError(f"its arrays are of types {', '.join(map(str, kinds))}")
    shapes = [array.shape for array in (plan.transfers, plan.bounds, plan.rows)]
    if shapes != [(plan.bounds.size - 1, 3), (plan.bounds.size,), (plan.rows.size,)]:
        raise PlanError(f"its arrays have shapes {', '.join(map(str, shapes))}")
    ends = plan.bounds[[0, -1]].tolist()
    if ends != [0, len(plan.rows)] or (np.diff(plan.bounds) < 0).any():
        raise PlanError("bounds do not divide its rows")
    stages = plan.transfers[:, 0]
    ends = stages[[0, -1]].tolist() if stages.size else [0, 0]
    if (np.diff(stages) < 0).any() or not 0 <= ends[0] <= ends[1] < plan.devices:
        raise PlanError("stages are not ascending, or one is beyond any tree's depth")
