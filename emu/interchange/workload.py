"""A workload of others as a custom job, and the order of its dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from emu.errors import DataError
from emu.units import DURATION

#: Section of a scenario, as JSON has it.
Data: TypeAlias = dict[str, Any]
#: Nodes, tasks and flows of one file; more only where the user says so.
MOST_NODES = 1_000_000
#: Ancestors that one pass of `reduce_edges` looks at: a number of 1 kB per node.
_BLOCK = 8192


@dataclass
class Workload:
    """A job of one iteration on equal machines, as sections of a scenario."""

    origin: str
    """Path of the file, for errors."""
    machines: list[Data]
    """As of ``cluster.machines``, but for their NICs."""
    tasks: list[Data] = field(default_factory=list)
    flows: list[Data] = field(default_factory=list)
    collectives: list[Data] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """Process or task -> machine; empty where placement is to decide."""
    notes: list[str] = field(default_factory=list)
    """Sentences on how the file was read."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Name of what a custom job has no word for -> how often it was there."""

    def add_task(self, name: str, seconds: float, **more: Any) -> None:
        """Add a task that takes so long.

        Raises DataError when the time is negative.
        """
        if not 0 <= seconds < float("inf"):
            raise DataError(f"{name} would take {seconds} s", path=self.origin)
        time = DURATION.exact(seconds)
        self.tasks.append({"name": name, "time": time, **more})

    def add_flow(self, source: str, destination: str, size: float = 0) -> None:
        """Add a flow of ``size`` bytes; of none, an order.

        Raises DataError when the size is negative.
        """
        if not 0 <= size < float("inf"):
            problem = f"{source} to {destination} has {size} bytes"
            raise DataError(problem, path=self.origin)
        ends = {"from": source, "to": destination}
        self.flows.append({**ends, "volume": f"{size!r} B"})

    @property
    def edges(self) -> int:
        """Number of flows, of shuffles too."""
        shuffles = [one["shuffle"] for one in self.collectives if "shuffle" in one]
        inner = sum(len(one["from"]) * len(one["to"]) for one in shuffles)
        return len(self.flows) + inner

    def scenario(self, name: str, nic: str, latency: str = "") -> Data:
        """Return the scenario, JSON values: every machine with one NIC.

        Raises DataError when there is no task, or they wait for each other.
        """
        if not self.tasks:
            raise DataError("holds no task", path=self.origin)
        places = {task["name"]: at for at, task in enumerate(self.tasks)}
        edges = [(places[flow["from"]], places[flow["to"]]) for flow in self.flows]
        for one in self.collectives:
            ((_, section),) = one.items()
            ends = section.get("then") or section["to"]
            sources = section.get("among") or section["from"]
            hub = len(places)
            places[f" {hub}"] = hub  # everybody behind it waits for everybody
            edges += [(places[task], hub) for task in sources]
            edges += [(hub, places[task]) for task in ends]
        order_nodes([*places], edges, self.origin)
        ends_of_nic = {"in": nic, "out": nic}
        delay = {"latency": {"in": "0 s", "out": latency}} if latency else {}
        machines = [{"nic": {**ends_of_nic, **delay}} | one for one in self.machines]
        placement: Data = {"policy": "explicit", "tasks": self.places}
        job: Data = {"system": "custom", "iterations": 1, "tasks": self.tasks}
        job |= {"flows": self.flows} if self.flows else {}
        job |= {"collectives": self.collectives} if self.collectives else {}
        return {
            "name": name,
            "cluster": {"machines": machines},
            "job": {**job, "credit_window": "unlimited"},
            **({"placement": placement} if self.places else {}),
        }


def plain_name(text: str) -> str:
    """Return the name of a task or channel that stands for a text."""
    return "".join("_" if c in "/\\>#" or c.isspace() else c for c in text)


def order_nodes(
    names: Sequence[str], edges: Iterable[tuple[int, int]], origin: str
) -> list[int]:
    """Return the nodes, each behind all that it depends on.

    Raises DataError when they depend on each other in a circle; names some.
    """
    waiting, followers = [0] * len(names), [list[int]() for _ in names]
    for source, destination in edges:
        waiting[destination] += 1
        followers[source].append(destination)
    order = [node for node, count in enumerate(waiting) if not count]
    for node in order:  # grows while it is walked
        for follower in followers[node]:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    if len(order) < len(names):
        stuck = [names[node] for node, count in enumerate(waiting) if count]
        circle = ", ".join(name for name in stuck[:20] if name[0] != " ")
        problem = f"{len(stuck)} nodes wait for each other in a circle, among them "
        raise DataError(f"{problem}{circle:.200}", path=origin)
    return order


def reduce_edges(
    order: Sequence[int], edges: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the edges without those that a longer way stands for.

    One that has a way around it is redundant: some predecessor of its end descends from
    its start. Ancestors are looked at by blocks, so that memory grows with the nodes:
    183,000 edges of 3,664 nodes take 0.2 s.
    """
    place = {node: at for at, node in enumerate(order)}
    sources = [list[int]() for _ in order]
    for source, destination in edges:
        sources[place[destination]].append(place[source])
    direct_edges = []
    for first in range(0, len(order), _BLOCK):
        ancestors = [0] * len(order)
        for node in range(first, len(order)):
            around = direct = 0
            for source in sources[node]:
                around |= ancestors[source]
                if first <= source < first + _BLOCK:
                    direct |= 1 << source - first
            ancestors[node] = around | direct
            alone = direct & ~around
            while alone:
                low = alone & -alone
                direct_edges.append((order[first + low.bit_length() - 1], order[node]))
                alone ^= low
    return direct_edges
