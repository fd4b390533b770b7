"""The plans of a job, kept beside its data set, and lines on what they promise."""

from __future__ import annotations

import functools
import glob
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.array_types import Ints
from emu.errors import DataError
from emu.graph_data import WholeGraph, open_layers
from emu.graph_data.prepared import (
    PreparedArrays,
    forget_oldest,
    prepare_arrays,
    write_arrays,
)
from emu.problem import Cluster
from emu.systems import JobSettings, Settings
from emu.systems.dgcl.planner import (
    Devices,
    GatherPlan,
    Needs,
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
_CHECKED: dict[tuple[Path, int], tuple[GatherPlan, ...]] = {}
#: Epochs that ``best_of`` simulates along either plan: they repeat.
EPOCHS = 2
#: Gain in t(S) below which planning does not pay.
_WORTH = 1.01


def topology_settings(cluster: Cluster, machines: Sequence[str]) -> Settings:
    """Return the links between machines as ``Job.settings`` hold them."""
    links = cluster.links
    ranks = [cluster.index(name) for name in machines]
    routes = {}
    # Both ways: a link may have another capacity back.
    for pair in itertools.permutations(range(len(ranks)), 2):
        sender, receiver = pair
        routes[pair] = links.route(ranks[sender], ranks[receiver])

    # Links that no route crosses are left out: they must not change a plan's key.
    crossed = set(itertools.chain.from_iterable(routes.values()))
    ports = sorted(crossed)
    places = {port: place for place, port in enumerate(ports)}
    stated_routes = []
    for (sender, receiver), route in routes.items():
        links_of_route = [places[port] for port in route]
        stated_routes.append([sender, receiver, links_of_route])

    return {
        "devices": len(machines),
        "links": [links[port].name for port in ports],
        "capacities": [links[port].capacity for port in ports],
        "routes": stated_routes,
    }


def read_topology(settings: JobSettings) -> Topology:
    """Return the topology of `topology_settings`."""
    routes = {}
    for sender, receiver, links in settings["routes"]:
        routes[sender, receiver] = tuple(links)
    return Topology(
        devices=settings["devices"],
        links=tuple(settings["links"]),
        capacities=np.array(settings["capacities"], np.float64),
        routes=routes,
    )


def _topology_of(settings: JobSettings) -> Topology:
    """Return the topology of a job, without routes between boxes that replicate."""
    topology = read_topology(settings["topology"])
    boxes = settings.get("replicas")
    if boxes:
        return topology.within(boxes)
    return topology


def needs_of(graph: WholeGraph, boxes: Sequence[int] = ()) -> Needs:
    """Return the remote vertices of all parts, within boxes where these replicate."""
    parts = [graph.part(number) for number in range(graph.parts)]
    islands = []

    end = 0  # of a box of consecutive parts
    for size in boxes or [graph.parts]:
        start = end
        end = start + size
        remote = []
        owners = []
        for number, part in enumerate(parts):
            # Devices of other boxes need nothing here; each box is an island.
            count = len(part.remote) if start <= number < end else 0
            remote.append(part.remote[:count])
            owners.append(part.owners[:count])
        island = Needs.of_parts(remote, owners)
        islands.append(island)
    return Needs.join(islands)


def needs_of_settings(settings: JobSettings) -> list[Needs]:
    """Return what plans bring, with replicas in each layer; raise as `open_layers`."""
    _, graphs = open_layers(settings)
    if boxes := settings.get("replicas"):
        return [needs_of(graph, boxes) for graph in graphs]

    graph = graphs[0]
    needs = needs_of(graph)
    # Where nobody needs a row, none goes to the host either.
    is_swap = settings["plan"]["kind"] == "swap"
    if is_swap and len(needs):
        numbers = range(graph.parts)
        local = [graph.part(number).local for number in numbers]
        needs = needs.swap(local)
    return [needs]


def make_plan(
    needs: Needs,
    topology: Topology,
    stated: Mapping[str, Any],
) -> GatherPlan:
    """Return the ``stated`` plan, PlanError where who needs a row is cut off."""
    kind = stated["kind"]
    if kind == "swap":
        return swap(needs, host=topology.devices - 1)
    if kind == "peer_to_peer":
        return peer_to_peer(needs, topology.devices)
    options = {key: value for key, value in stated.items() if key != "kind"}
    return spst(needs, topology, **options)


def plan_anew(settings: JobSettings) -> list[GatherPlan]:
    """Return a plan by SPST of each layer that has its own; raise as `open_plans`."""
    topology = _topology_of(settings)
    plan_settings = {**settings["plan"], "kind": "spst"}
    needs = needs_of_settings(settings)
    return [
        make_plan(needs_of_layer, topology, plan_settings) for needs_of_layer in needs
    ]


def open_plans(settings: JobSettings) -> tuple[GatherPlan, ...]:
    """Return the plan of each layer, made on first use and kept beside the data set.

    Raises DataError when the data set or a plan is damaged or cannot be written, or a
    plan is of another graph, parts, topology or version, or does not bring every row;
    PlanError as `make_plan`.
    """
    dataset, graphs = open_layers(settings)
    layers = len(graphs)
    topology = _topology_of(settings)
    home = dataset.folder
    key = _key_of(settings, layers)
    facts = {"parts": home.name, "key": key}

    @functools.cache
    def needs() -> list[Needs]:  # a plan that was checked asks for none
        return needs_of_settings(settings)

    def write(partial: Path) -> Settings:
        plans = []
        for needs_of_layer in needs():
            plan = make_plan(needs_of_layer, topology, settings["plan"])
            plans.append(plan)
        stem = glob.escape(home.name)
        # One less, so that this plan has room.
        forget_oldest(home.parent, f"{stem}-plan-*", MOST_KEPT - 1)
        return write_plans(partial, plans, facts)

    folder = home.with_name(f"{home.name}-plan-{key}")
    arrays = prepare_arrays(folder, write)
    os.utime(arrays.folder)  # the newest now: in use
    entry = (arrays.folder, arrays.checksum)
    # A scenario is built several times: a process checks a plan once.
    if entry not in _CHECKED:
        _CHECKED[entry] = read_plans(arrays, facts, needs(), topology)

    plans = _CHECKED[entry]
    # Without replicas all layers need the same rows: they share one plan.
    if len(plans) == layers:
        return plans
    return plans * layers


def _key_of(settings: JobSettings, layers: int) -> str:
    """Return a digest of all that a job's plans follow from, beside its parts."""
    causes = {
        "version": _VERSION,
        "topology": settings["topology"],
        "plan": settings["plan"],
    }
    if boxes := settings.get("replicas"):
        causes |= {"replicas": boxes, "layers": layers}
    # Sorted, or equal settings in another order would have another key.
    text = json.dumps(causes, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=32)
def gradient_plan(plan: GatherPlan, *, atomic: bool) -> GatherPlan:
    """Return the plan of the gradients of a plan; see `GatherPlan.reverse`."""
    return plan.reverse(atomic=atomic)


def _tables(plan: GatherPlan) -> dict[str, Ints | Devices]:
    return {
        "transfers": plan.transfers,
        "bounds": plan.bounds,
        "rows": plan.rows,
    }


def write_plans(
    folder: Path,
    plans: Sequence[GatherPlan],
    facts: Settings,
) -> Settings:
    """Write plans as `prepare_arrays` asks for it."""
    for number, plan in enumerate(plans):
        tables = _tables(plan)
        named_tables = {f"{name}_{number}": table for name, table in tables.items()}
        write_arrays(folder, named_tables)
    return facts


def read_plans(
    prepared: PreparedArrays,
    facts: Mapping[str, Any],
    needs: Sequence[Needs],
    topology: Topology,
) -> tuple[GatherPlan, ...]:
    """Return the plans in a folder, rows mapped and not read, DataError if damaged."""
    for name, value in facts.items():
        fact = prepared.facts.get(name)
        if fact != value:
            raise DataError(
                f"is a plan of {name} {fact!r}, not {value!r}; delete the folder "
                "and it will be made again",
                path=prepared.folder,
            )

    plans = []
    for number, need in enumerate(needs):
        plan = GatherPlan(
            devices=topology.devices,
            transfers=prepared.array(f"transfers_{number}"),
            bounds=prepared.array(f"bounds_{number}"),
            rows=prepared.array(f"rows_{number}"),
        )
        try:
            _check_tables(plan)
            check_plan(plan, need, topology)
        except PlanError as error:
            raise DataError(
                f"is no plan: {error}; delete the folder and it will be made again",
                path=prepared.folder,
            ) from error
        plans.append(plan)
    return tuple(plans)


def _check_tables(plan: GatherPlan) -> None:
    """Check that arrays are those of a plan, whatever they say."""
    tables = _tables(plan).values()
    kinds = [table.dtype for table in tables]
    # A damaged file may hold anything: the form comes before the content.
    if kinds != [np.int32, np.int64, np.int64]:
        words = ", ".join(map(str, kinds))
        raise PlanError(f"its arrays are of types {words}")
    shapes = [table.shape for table in tables]
    ends = plan.bounds.size
    of_steps = (ends - 1, 3)
    of_bounds = (ends,)
    of_rows = (plan.rows.size,)
    if shapes != [of_steps, of_bounds, of_rows]:
        words = ", ".join(map(str, shapes))
        raise PlanError(f"its arrays have shapes {words}")

    first_and_last = [plan.bounds[0], plan.bounds[-1]]
    starts = plan.bounds[:-1]
    falls = plan.bounds[1:] < starts
    if first_and_last != [0, len(plan.rows)] or falls.any():
        raise PlanError("bounds do not divide its rows")
    stages = plan.transfers[:, 0]
    # A graph whose parts need nothing of each other has no transfer.
    if not stages.size:
        return
    earlier = stages[:-1]
    is_ascending = (stages[1:] >= earlier).all()
    first = stages[0]
    last = stages[-1]
    if not is_ascending or not 0 <= first <= last < plan.devices:
        raise PlanError("stages are not ascending, or one is beyond any tree's depth")


def plan_lines(settings: JobSettings) -> Iterator[str]:
    """Yield what can be said of the plans of a job before it runs."""
    kind = settings["plan"]["kind"]
    seconds = settings.get("best_of")
    if seconds:
        times = []
        for name, time in seconds.items():
            times.append(f"{format_duration(time)} with {name}")
        words = ", ".join(times)
        yield f"best_of takes {kind}: {EPOCHS} epochs take {words}"
    if settings["replicas"]:
        _, graphs = open_layers(settings)
        graph = graphs[0]
        parts = map(graph.part, range(graph.parts))
        rows = sum(len(part.local) + len(part.held) for part in parts)
        factor = rows / graph.vertices
        yield f"devices keep {factor:.2f} times the vertices (replication factor)"
    # Neither plans a tree.
    if kind in {"swap", "replication"}:
        return

    topology = _topology_of(settings)
    direct_cost = 0.0
    spst_cost = 0.0
    for needs in needs_of_settings(settings):
        direct = peer_to_peer(needs, topology.devices)
        direct_cost += direct.cost(topology)
        # Ten at a time: 1 to 2 % above one by one, in a tenth of the time.
        trees = spst(needs, topology, seed=0, group=10)
        spst_cost += trees.cost(topology)
    if direct_cost <= _WORTH * spst_cost:
        yield "SPST finds no plan of a lower t(S) than peer-to-peer's"
