"""Plans of a graphAllgather: along which links every row travels to who needs it.

A plan is a table of rows per stage, sender and receiver. It follows from who needs
which rows and from the links between devices alone (Cai et al., DGCL, EuroSys 2021,
section 5). Pure; must not know: machines, jobs, files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

#: Sets of devices are bits of an int64.
MOST_DEVICES = 62


@dataclass(frozen=True, eq=False)
class Topology:
    """Links, and those that rows cross between every two devices.

    Raises ValueError when there are no or too many devices for the core, a capacity is
    not positive and finite, or a route crosses an unknown link or joins no two devices.
    """

    devices: int
    """Number of devices."""
    links: tuple[str, ...]
    """Names."""
    capacities: NDArray[np.float64]
    """Rows, or bytes, per second of each link; shape (links,)."""
    routes: Mapping[tuple[int, int], Sequence[int]]
    """(Sender, receiver) -> positions of links; a pair that is absent is not joined."""

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MOST_DEVICES:
            raise ValueError(
                f"{self.devices} devices: a plan has 1 to {MOST_DEVICES} of them"
            )
        for name, capacity in zip(self.links, self.capacities, strict=True):
            if not (np.isfinite(capacity) and capacity > 0):
                raise ValueError(
                    f"link {name}: capacity {capacity} is not positive and finite"
                )
        for (sender, receiver), links in self.routes.items():
            ends = {sender, receiver}
            if len(ends) < 2 or not ends <= {*range(self.devices)}:
                raise ValueError(f"no route leads from {sender} to {receiver}")
            if not links or not {*links} <= {*range(len(self.links))}:
                raise ValueError(f"route {sender} to {receiver}: no links {links}")

    @cached_property
    def starts(self) -> NDArray[np.int32]:
        """Where the links of pair ``sender * devices + receiver`` begin in `crossed`.

        int32, shape (devices ** 2 + 1,); a pair that is not joined has none.
        """
        counts = [len(self.routes.get(pair, ())) for pair in self._pairs()]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def crossed(self) -> NDArray[np.int32]:
        """Links of all pairs, flat; int32."""
        flat = [link for pair in self._pairs() for link in self.routes.get(pair, ())]
        return np.array(flat, np.int32)

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """True where a device reaches another over any number of links."""
        reach = np.eye(self.devices, dtype=bool)
        for pair in self.routes:
            reach[pair] = True
        for middle in range(self.devices):
            reach |= np.outer(reach[:, middle], reach[middle])
        return reach

    def within(self, boxes: Sequence[int]) -> Topology:
        """Return the topology without routes between boxes of consecutive devices."""
        box = np.repeat(np.arange(len(boxes)), boxes)
        links = {
            pair: to for pair, to in self.routes.items() if len({*box[[*pair]]}) < 2
        }
        return replace(self, routes=links)

    def _pairs(self) -> itertools.product[tuple[int, int]]:
        return itertools.product(range(self.devices), range(self.devices))


@dataclass(frozen=True, eq=False)
class Needs:
    """Vertices that a device has and others need, ascending, once per island.

    Raises ValueError when lengths differ, vertices are not ascending, or one is not
    needed.
    """

    vertices: NDArray[np.int64]
    """int64, shape (rows,)."""
    owners: NDArray[np.int32]
    """Device that has each."""
    readers: NDArray[np.int64]
    """Set of devices that need each, bit by bit."""

    def __post_init__(self) -> None:
        if not len(self.vertices) == len(self.owners) == len(self.readers):
            raise ValueError("vertices, owners and readers differ in length")
        if (np.diff(self.vertices) < 0).any():
            raise ValueError("vertices are not in ascending order")
        own = self.readers >> self.owners.astype(np.int64) & 1
        if (self.readers <= 0).any() or own.any():
            raise ValueError("a vertex has no reader, or its owner among them")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.vertices)

    @property
    def pairs(self) -> int:
        """Number of (vertex, reader) pairs."""
        return int(np.bitwise_count(self.readers).sum())

    @classmethod
    def of_parts(
        cls, remote: Sequence[NDArray[np.int64]], owners: Sequence[NDArray[np.int32]]
    ) -> Needs:
        """Return the needs of parts: device i needs ``remote[i]`` of ``owners[i]``.

        Raises ValueError when two parts disagree on the owner of a vertex, or one owns
        what it needs.
        """
        vertices = np.concatenate([*remote, np.empty(0, np.int64)])
        owner = np.concatenate([*owners, np.empty(0, np.int32)])
        reader = np.repeat(np.arange(len(remote)), [len(some) for some in remote])
        order = np.argsort(vertices, kind="stable")
        vertices, owner, reader = vertices[order], owner[order], reader[order]
        first = np.flatnonzero(np.diff(vertices, prepend=-1))
        if not len(first):
            return cls(vertices, owner.astype(np.int32), vertices)
        counts = np.diff(first, append=len(vertices))
        if (np.repeat(owner[first], counts) != owner).any():
            raise ValueError("two parts disagree on the owner of a vertex")
        readers = np.bitwise_or.reduceat(np.int64(1) << reader.astype(np.int64), first)
        return cls(vertices[first], owner[first].astype(np.int32), readers)

    @classmethod
    def join(cls, some: Sequence[Needs]) -> Needs:
        """Return the needs of several islands of devices as one."""
        vertices = np.concatenate([one.vertices for one in some])
        order = np.argsort(vertices, kind="stable")
        return cls(
            vertices[order],
            np.concatenate([one.owners for one in some])[order],
            np.concatenate([one.readers for one in some])[order],
        )

    def swap(self, local: Sequence[NDArray[np.int64]]) -> Needs:
        """Return the needs where a host, device ``len(local)``, gets all local rows."""
        vertices = np.concatenate(local)
        order = np.argsort(vertices)
        owner = np.repeat(np.arange(len(local), dtype=np.int32), [*map(len, local)])
        readers = np.full(len(vertices), np.int64(1) << len(local))
        readers[np.searchsorted(vertices[order], self.vertices)] |= self.readers
        return Needs(vertices[order], owner[order], readers)

    def move(self, device_of: Sequence[int]) -> Needs:
        """Return the needs with the part of device i on ``device_of[i]``."""
        readers = np.zeros_like(self.readers)
        for old, new in enumerate(device_of):
            readers |= (self.readers >> old & 1) << new
        owners = np.asarray(device_of, np.int32)[self.owners]
        return Needs(self.vertices, owners, readers)

    def unreachable(self, topology: Topology) -> tuple[int, int] | None:
        """Return (owner, reader) of a row that cannot get there; None: all can."""
        missing = ~topology.reachable
        for owner in range(topology.devices):
            bits = int(sum(1 << int(d) for d in np.flatnonzero(missing[owner])))
            cut_off = self.readers[self.owners == owner] & bits
            if cut_off.any():
                row = int(cut_off[np.flatnonzero(cut_off)[0]])
                return owner, (row & -row).bit_length() - 1
        return None


class PlanError(ValueError):
    """A plan that does not bring every row to who needs it."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Rows that every device sends to every other in every stage."""

    devices: int
    """Number of devices."""
    transfers: NDArray[np.int32]
    """(Stage, sender, receiver), ascending, each once; shape (transfers, 3)."""
    bounds: NDArray[np.int64]
    """Rows of transfer i are ``rows[bounds[i]:bounds[i + 1]]``."""
    rows: NDArray[np.int64]
    """Vertices, ascending within a transfer."""

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.transfers[-1, 0]) + 1 if len(self.transfers) else 0

    def __iter__(self) -> Iterator[tuple[int, int, int, NDArray[np.int64]]]:
        """Yield (stage, sender, receiver, vertices) of every transfer."""
        for number, (stage, sender, receiver) in enumerate(self.transfers.tolist()):
            begin, end = self.bounds[number : number + 2]
            yield stage, sender, receiver, self.rows[begin:end]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows of every transfer."""
        return np.diff(self.bounds)

    def load(self, topology: Topology) -> NDArray[np.int64]:
        """Return the rows that cross each link in each stage; (stages, links).

        Raises PlanError when a transfer joins devices that no route joins.
        """
        load = np.zeros((self.stages, len(topology.links)), np.int64)
        for (stage, *pair), rows in zip(
            self.transfers.tolist(), self.counts.tolist(), strict=True
        ):
            if (links := topology.routes.get((pair[0], pair[1]))) is None:
                raise PlanError(f"no link leads from {pair[0]} to {pair[1]}")
            load[stage, list(links)] += rows
        return load

    def cost(self, topology: Topology) -> float:
        """Return t(S), the sum over the stages (DGCL, equation 4), a row being 1."""
        busy = self.load(topology) / topology.capacities  # of a stage its slowest link
        return float(busy.max(axis=1, initial=0.0).sum())

    def reverse(self, *, atomic: bool) -> Plan:
        """Return the plan of the gradients: last stage first, receivers send.

        With ``atomic`` a device sums what several send it in one stage. Otherwise the
        l-th sender of a vertex sends in the l-th part of the stage, so that each has
        one writer at a time (section 6.2).
        """
        transfers: list[tuple[int, int, int, NDArray[np.int64]]] = []
        stage = 0
        for number in reversed(range(self.stages)):
            writes: dict[int, list[NDArray[np.int64]]] = {}  # by writer and part
            for row in np.flatnonzero(self.transfers[:, 0] == number).tolist():
                _, receiver, sender = self.transfers[row].tolist()
                rows = self.rows[self.bounds[row] : self.bounds[row + 1]]
                parts = writes.setdefault(receiver, [])
                part = 0
                while rows.size:
                    if part == len(parts):
                        parts.append(rows[:0])
                    is_taken = np.isin(rows, parts[part], assume_unique=True)
                    is_taken &= not atomic
                    if (free := rows[~is_taken]).size:
                        transfers.append((stage + part, sender, receiver, free))
                        parts[part] = np.concatenate([parts[part], free])
                    rows, part = rows[is_taken], part + 1
            stage += max(map(len, writes.values()))
        transfers.sort(key=lambda one: one[:3])
        return plan_of(self.devices, transfers)


def plan_of(
    devices: int, transfers: list[tuple[int, int, int, NDArray[np.int64]]]
) -> Plan:
    """Return the plan of (stage, sender, receiver, vertices), in ascending order."""
    keys = np.array([one[:3] for one in transfers], np.int32).reshape(-1, 3)
    tables = [one[3] for one in transfers]
    bounds = np.cumsum([0, *map(len, tables)], dtype=np.int64)
    return Plan(devices, keys, bounds, np.concatenate([*tables, np.empty(0, np.int64)]))


def peer_to_peer(needs: Needs, devices: int) -> Plan:
    """Return the plan of one stage in which every owner sends to every reader."""
    transfers: list[tuple[int, int, int, NDArray[np.int64]]] = []
    for owner in range(devices):
        mine = needs.owners == owner
        vertices = needs.vertices[mine]
        readers = needs.readers[mine]
        transfers += [
            (0, owner, reader, vertices[readers >> reader & 1 == 1])
            for reader in range(devices)
            if (readers >> reader & 1).any()
        ]
    return plan_of(devices, transfers)


def swap(needs: Needs, host: int) -> Plan:
    """Return the plan of NeuGraph's swap: all rows to a host, and those needed back."""
    up = peer_to_peer(replace(needs, readers=needs.readers & 1 << host), host + 1)
    others = needs.readers & ~(1 << host)
    down = [
        (1, host, reader, needs.vertices[others >> reader & 1 == 1])
        for reader in range(host)
    ]
    transfers = [
        (stage, *ends, rows) for stage, *ends, rows in (*up, *down) if len(rows)
    ]
    return plan_of(host + 1, transfers)


def check_plan(plan: Plan, needs: Needs, topology: Topology) -> None:
    """Check that every row travels along a tree from its owner to all its readers.

    Raises PlanError when a table is not in order, a row is sent by a device that has it
    from another stage than the one before or not at all, comes twice or to its owner,
    travels where no route leads, or does not come to a reader.
    """
    plan.load(topology)
    order = np.lexsort(plan.transfers.T[::-1])
    if (order != np.arange(len(order))).any() or (
        len(np.unique(plan.transfers, axis=0)) != len(order)
    ):
        raise PlanError("transfers are not in ascending order, or one occurs twice")
    vertices = np.unique(needs.vertices)
    depth = np.full((len(vertices), plan.devices), -1, np.int8)
    # Links that a row has come over from its owner to each device.
    depth[np.searchsorted(vertices, needs.vertices), needs.owners] = 0
    for stage, sender, receiver, rows in plan:
        where = f"stage {stage}, {sender} to {receiver}"
        if not rows.size or (np.diff(rows) <= 0).any():
            raise PlanError(f"{where}: vertices are none or not ascending")
        at = np.minimum(np.searchsorted(vertices, rows), len(vertices) - 1)
        if not len(vertices) or (vertices[at] != rows).any():
            raise PlanError(f"{where}: a vertex that no device needs")
        if (wrong := depth[at, sender] != stage).any():
            row = int(np.flatnonzero(wrong)[0])
            had = int(depth[at[row], sender])
            state = (
                "does not have" if had < 0 else f"has since stage {had} and not {stage}"
            )
            raise PlanError(f"{where}: {sender} {state} vertex {rows[row]}")
        if (again := depth[at, receiver] >= 0).any():
            row = rows[np.flatnonzero(again)[0]]
            raise PlanError(f"{where}: vertex {row} comes to {receiver} again")
        depth[at, receiver] = stage + 1
    at = np.searchsorted(vertices, needs.vertices)
    for reader in range(plan.devices):
        is_need = needs.readers >> reader & 1 == 1
        missing = is_need & (depth[at, reader] < 0)
        if missing.any():
            vertex = needs.vertices[np.flatnonzero(missing)[0]]
            raise PlanError(f"vertex {vertex} does not come to device {reader}")
