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
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Devices: TypeAlias = NDArray[np.int32]
#: (Stage, sender, receiver, vertices in ascending order).
RowTransfer: TypeAlias = tuple[int, int, int, Ints]

#: Sets of devices are bits of an int64.
MOST_DEVICES = 62
_NO_ROWS = np.empty(0, np.int64)


def _includes(sets: Ints, device: int) -> NDArray[np.bool_]:
    """Return True for every set, bit by bit, that a device is in."""
    return np.asarray(sets >> device & 1 == 1)


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

        devices = {*range(self.devices)}
        positions = {*range(len(self.links))}
        for (sender, receiver), links in self.routes.items():
            if sender == receiver or not {sender, receiver} <= devices:
                raise ValueError(f"no route leads from {sender} to {receiver}")
            if not links or not {*links} <= positions:
                raise ValueError(f"route {sender} to {receiver}: no links {links}")

    @cached_property
    def starts(self) -> Devices:
        """Where the links of pair ``sender * devices + receiver`` begin in `crossed`.

        int32, shape (devices ** 2 + 1,); a pair that is not joined has none.
        """
        counts = [len(links) for links in self._links_by_pair()]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def crossed(self) -> Devices:
        """Links of all pairs, flat; int32."""
        flat = itertools.chain.from_iterable(self._links_by_pair())
        return np.array([*flat], np.int32)

    @cached_property
    def reachable(self) -> NDArray[np.bool_]:
        """True where a device reaches another over any number of links."""
        # The closure of Warshall: devices are 62 at most.
        reach = np.eye(self.devices, dtype=bool)
        for pair in self.routes:
            reach[pair] = True
        for middle in range(self.devices):
            reach |= np.outer(reach[:, middle], reach[middle])
        return reach

    def within(self, boxes: Sequence[int]) -> Topology:
        """Return the topology without routes between boxes of consecutive devices."""
        box = np.repeat(np.arange(len(boxes)), boxes)
        routes = {
            (sender, receiver): links
            for (sender, receiver), links in self.routes.items()
            if box[sender] == box[receiver]
        }
        return replace(self, routes=routes)

    def _links_by_pair(self) -> Iterator[Sequence[int]]:
        for sender in range(self.devices):
            for receiver in range(self.devices):
                yield self.routes.get((sender, receiver), ())


@dataclass(frozen=True, eq=False)
class Needs:
    """Vertices that a device has and others need, ascending, once per island.

    Raises ValueError when lengths differ, vertices are not ascending, or one is not
    needed.
    """

    vertices: Ints
    """int64, shape (rows,)."""
    owners: Devices
    """Device that has each."""
    readers: Ints
    """Set of devices that need each, bit by bit."""

    def __post_init__(self) -> None:
        if not len(self.vertices) == len(self.owners) == len(self.readers):
            raise ValueError("vertices, owners and readers differ in length")
        if (np.diff(self.vertices) < 0).any():
            raise ValueError("vertices are not in ascending order")
        owner_reads = self.readers >> self.owners.astype(np.int64) & 1
        # Bit 63 would make a set negative; at most 62 devices keep it 0.
        if (self.readers <= 0).any() or owner_reads.any():
            raise ValueError("a vertex has no reader, or its owner among them")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.vertices)

    @property
    def pairs(self) -> int:
        """Number of (vertex, reader) pairs."""
        return int(np.bitwise_count(self.readers).sum())

    @classmethod
    def of_parts(cls, remote: Sequence[Ints], owners: Sequence[Devices]) -> Needs:
        """Return the needs of parts: device i needs ``remote[i]`` of ``owners[i]``.

        Raises ValueError when two parts disagree on the owner of a vertex, or one owns
        what it needs.
        """
        vertices = np.concatenate([*remote, _NO_ROWS])
        owner = np.concatenate([*owners, np.empty(0, np.int32)]).astype(np.int32)
        reader = np.repeat(np.arange(len(remote)), [*map(len, remote)])
        # reduceat, below, takes no empty array.
        if not len(vertices):
            return cls(vertices=vertices, owners=owner, readers=vertices)

        # Equal vertices side by side: a group of readers each.
        order = np.argsort(vertices, kind="stable")
        vertices = vertices[order]
        owner = owner[order]
        first = np.flatnonzero(np.diff(vertices, prepend=-1))
        counts = np.diff(first, append=len(vertices))
        if (np.repeat(owner[first], counts) != owner).any():
            raise ValueError("two parts disagree on the owner of a vertex")

        bits = np.int64(1) << reader[order].astype(np.int64)
        return cls(
            vertices=vertices[first],
            owners=owner[first],
            readers=np.bitwise_or.reduceat(bits, first),
        )

    @classmethod
    def join(cls, some: Sequence[Needs]) -> Needs:
        """Return the needs of several islands of devices as one."""
        vertices = np.concatenate([needs.vertices for needs in some])
        owners = np.concatenate([needs.owners for needs in some])
        readers = np.concatenate([needs.readers for needs in some])
        # Islands share vertices: each island's row of one stays in the islands' order.
        order = np.argsort(vertices, kind="stable")
        return cls(
            vertices=vertices[order], owners=owners[order], readers=readers[order]
        )

    def swap(self, local: Sequence[Ints]) -> Needs:
        """Return the needs where a host, device ``len(local)``, gets all local rows."""
        host = len(local)
        vertices = np.concatenate(local)
        order = np.argsort(vertices)
        vertices = vertices[order]
        owner = np.repeat(np.arange(host, dtype=np.int32), [*map(len, local)])

        readers = np.full(len(vertices), np.int64(1) << host)
        # All rows go to the host, and from there to who needed them before.
        readers[np.searchsorted(vertices, self.vertices)] |= self.readers
        return Needs(vertices=vertices, owners=owner[order], readers=readers)

    def move(self, device_of: Sequence[int]) -> Needs:
        """Return the needs with the part of device i on ``device_of[i]``."""
        readers = np.zeros_like(self.readers)
        for part, device in enumerate(device_of):
            readers |= (self.readers >> part & 1) << device
        owners = np.asarray(device_of, np.int32)[self.owners]
        return Needs(vertices=self.vertices, owners=owners, readers=readers)

    def unreachable(self, topology: Topology) -> tuple[int, int] | None:
        """Return (owner, reader) of a row that cannot get there; None: all can."""
        for owner in range(topology.devices):
            missing = np.flatnonzero(~topology.reachable[owner])
            bits = sum(1 << device for device in missing.tolist())
            cut_off = self.readers[self.owners == owner] & bits
            cut_off = cut_off[cut_off != 0]
            if cut_off.size:
                readers = int(cut_off[0])
                # Of several readers that are cut off, the first is named.
                lowest = readers & -readers
                return owner, lowest.bit_length() - 1
        return None


class PlanError(ValueError):
    """A plan that does not bring every row to who needs it."""


@dataclass(frozen=True, eq=False)
class GatherPlan:
    """Rows that every device sends to every other in every stage of a gather."""

    devices: int
    """Number of devices."""
    transfers: Devices
    """(Stage, sender, receiver), ascending, each once; shape (transfers, 3)."""
    bounds: Ints
    """Rows of transfer i are ``rows[bounds[i]:bounds[i + 1]]``."""
    rows: Ints
    """Vertices, ascending within a transfer."""

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.transfers[-1, 0]) + 1 if len(self.transfers) else 0

    def __iter__(self) -> Iterator[RowTransfer]:
        """Yield (stage, sender, receiver, vertices) of every transfer."""
        bounds = itertools.pairwise(self.bounds.tolist())
        for key, (begin, end) in zip(self.transfers.tolist(), bounds, strict=True):
            stage, sender, receiver = key
            yield stage, sender, receiver, self.rows[begin:end]

    @cached_property
    def counts(self) -> Ints:
        """Rows of every transfer."""
        return np.diff(self.bounds)

    def load(self, topology: Topology) -> Ints:
        """Return the rows that cross each link in each stage; (stages, links).

        Raises PlanError when a transfer joins devices that no route joins.
        """
        load = np.zeros((self.stages, len(topology.links)), np.int64)
        keys = self.transfers.tolist()
        for (stage, sender, receiver), count in zip(keys, self.counts, strict=True):
            links = topology.routes.get((sender, receiver))
            if links is None:
                raise PlanError(f"no link leads from {sender} to {receiver}")
            # Rows cross all links of their route: each bears the whole count.
            load[stage, [*links]] += count
        return load

    def cost(self, topology: Topology) -> float:
        """Return t(S), the sum over the stages (DGCL, equation 4), a row being 1."""
        seconds = self.load(topology) / topology.capacities
        slowest = seconds.max(axis=1, initial=0.0)  # of the links of a stage
        return float(slowest.sum())

    def reverse(self, *, atomic: bool) -> GatherPlan:
        """Return the plan of the gradients: last stage first, receivers send.

        With ``atomic`` a device sums what several send it in one stage. Otherwise the
        l-th sender of a vertex sends in the l-th part of the stage, so that each has
        one writer at a time (section 6.2).
        """
        transfers: list[RowTransfer] = []
        by_stage: dict[int, list[RowTransfer]] = {}
        for transfer in self:
            by_stage.setdefault(transfer[0], []).append(transfer)

        # A stage that is parted makes those after it later.
        first_part = 0
        for stage in reversed(range(self.stages)):
            writes: dict[int, list[Ints]] = {}  # by receiver, in each part
            for _, receiver, sender, rows in by_stage[stage]:
                parts = writes.setdefault(receiver, [])
                pieces = _split_writes(rows, parts, atomic=atomic)
                for part, piece in enumerate(pieces, first_part):
                    if piece.size:
                        transfers.append((part, sender, receiver, piece))
            first_part += max(map(len, writes.values()))

        # They were made in the order of the way there, by who receives now.
        transfers.sort(key=lambda transfer: transfer[:3])
        return plan_of(self.devices, transfers)


def _split_writes(rows: Ints, written: list[Ints], *, atomic: bool) -> Iterator[Ints]:
    """Yield the rows that can be written in each part of a stage, and note them there.

    Those that another sender writes in that part have to wait for the next one.
    """
    part = 0
    while rows.size:
        if part == len(written):
            written.append(_NO_ROWS)
        is_taken = np.isin(rows, written[part], assume_unique=True)
        if atomic:
            # One part for all: a device adds what several send it at the same time.
            is_taken[:] = False

        free = rows[~is_taken]
        written[part] = np.concatenate([written[part], free])
        yield free
        rows = rows[is_taken]
        part += 1


def plan_of(devices: int, transfers: Sequence[RowTransfer]) -> GatherPlan:
    """Return the plan of (stage, sender, receiver, vertices), in ascending order."""
    keys = [transfer[:3] for transfer in transfers]
    tables = [transfer[3] for transfer in transfers]
    return GatherPlan(
        devices=devices,
        transfers=np.array(keys, np.int32).reshape(-1, 3),
        bounds=np.cumsum([0, *map(len, tables)], dtype=np.int64),
        rows=np.concatenate([*tables, _NO_ROWS]),
    )


def peer_to_peer(needs: Needs, devices: int) -> GatherPlan:
    """Return the plan of one stage in which every owner sends to every reader."""
    transfers: list[RowTransfer] = []
    for owner in range(devices):
        is_owner = needs.owners == owner
        vertices = needs.vertices[is_owner]
        readers = needs.readers[is_owner]
        for reader in range(devices):
            rows = vertices[_includes(readers, reader)]
            if rows.size:
                transfers.append((0, owner, reader, rows))
    return plan_of(devices, transfers)


def swap(needs: Needs, host: int) -> GatherPlan:
    """Return the plan of NeuGraph's swap: all rows to a host, and those needed back."""
    # Every row goes up in stage 0, and down in stage 1 to each of its readers.
    to_host = replace(needs, readers=needs.readers & 1 << host)
    transfers = [*peer_to_peer(to_host, host + 1)]
    for reader in range(host):
        rows = needs.vertices[_includes(needs.readers, reader)]
        if rows.size:
            transfers.append((1, host, reader, rows))
    return plan_of(host + 1, transfers)


def check_plan(plan: GatherPlan, needs: Needs, topology: Topology) -> None:
    """Check that every row travels along a tree from its owner to all its readers.

    Raises PlanError when a table is not in order, a row is sent by a device that has it
    from another stage than the one before or not at all, comes twice or to its owner,
    travels where no route leads, or does not come to a reader.
    """
    # Raises where a transfer has no route.
    plan.load(topology)
    order = np.lexsort(plan.transfers.T[::-1])
    is_ordered = (order == np.arange(len(order))).all()
    if not is_ordered or len(np.unique(plan.transfers, axis=0)) != len(order):
        raise PlanError("transfers are not in ascending order, or one occurs twice")

    vertices = np.unique(needs.vertices)
    places = np.searchsorted(vertices, needs.vertices)
    # Links that a row has come over from its owner to each device, -1 before it comes.
    depth = np.full((len(vertices), plan.devices), -1, np.int8)
    depth[places, needs.owners] = 0
    for stage, sender, receiver, rows in plan:
        try:
            _follow(depth, vertices, (stage, sender, receiver, rows))
        except PlanError as error:
            where = f"stage {stage}, {sender} to {receiver}"
            raise PlanError(f"{where}: {error}") from None

    for reader in range(plan.devices):
        is_needed = _includes(needs.readers, reader)
        missing = needs.vertices[is_needed & (depth[places, reader] < 0)]
        if missing.size:
            raise PlanError(f"vertex {missing[0]} does not come to device {reader}")


def _follow(depth: NDArray[np.int8], vertices: Ints, transfer: RowTransfer) -> None:
    """Check a transfer, and note in ``depth`` where its rows are then."""
    stage, sender, receiver, rows = transfer
    if not rows.size or (np.diff(rows) <= 0).any():
        raise PlanError("vertices are none or not ascending")
    # What is beyond the last vertex is compared with that, and differs.
    places = np.minimum(np.searchsorted(vertices, rows), len(vertices) - 1)
    if not len(vertices) or (vertices[places] != rows).any():
        raise PlanError("a vertex that no device needs")

    sender_depth = depth[places, sender]
    # In a tree a row is sent on in the stage after it has come, and in no later one.
    wrong = np.flatnonzero(sender_depth != stage)
    if wrong.size:
        first_stage = sender_depth[wrong[0]]
        state = f"has since stage {first_stage} and not {stage}"
        if first_stage < 0:
            state = "does not have"
        raise PlanError(f"{sender} {state} vertex {rows[wrong[0]]}")

    repeats = rows[depth[places, receiver] >= 0]
    if repeats.size:
        raise PlanError(f"vertex {repeats[0]} comes to {receiver} again")
    depth[places, receiver] = stage + 1
