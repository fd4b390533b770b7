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

from emu.array_types import Floats, Ints, Mask

Devices: TypeAlias = NDArray[np.int32]
#: (Stage, sender, receiver, vertices in ascending order).
RowTransfer: TypeAlias = tuple[int, int, int, Ints]

#: Sets of devices are bits of an int64.
MOST_DEVICES = 62
_NO_ROWS = np.empty(0, np.int64)


def _includes(sets: Ints, device: int) -> Mask:
    """Return True for every set, bit by bit, that a device is in."""
    bits = sets >> device & 1
    return np.asarray(bits == 1)


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
    capacities: Floats
    """Rows, or bytes, per second of each link; shape (links,)."""
    routes: Mapping[tuple[int, int], Sequence[int]]
    """(Sender, receiver) -> positions of links; a pair that is absent is not joined."""

    def __post_init__(self) -> None:
        if not 1 <= self.devices <= MOST_DEVICES:
            raise ValueError(
                f"{self.devices} devices: a plan has 1 to {MOST_DEVICES} of them"
            )
        named_capacities = zip(self.links, self.capacities, strict=True)
        for name, capacity in named_capacities:
            is_usable = np.isfinite(capacity) and capacity > 0
            if not is_usable:
                raise ValueError(
                    f"link {name}: capacity {capacity} is not positive and finite"
                )

        devices = set(range(self.devices))
        positions = set(range(len(self.links)))
        for pair, links in self.routes.items():
            sender, receiver = pair
            if sender == receiver or not devices.issuperset(pair):
                raise ValueError(f"no route leads from {sender} to {receiver}")
            if not links or not positions.issuperset(links):
                raise ValueError(f"route {sender} to {receiver}: no links {links}")

    @cached_property
    def starts(self) -> Devices:
        """Where the links of pair ``sender * devices + receiver`` begin in `crossed`.

        int32, shape (devices ** 2 + 1,); a pair that is not joined has none.
        """
        counts = [len(links) for links in self._links_by_pair()]
        ends = np.cumsum(counts)
        starts = np.concatenate([[0], ends])
        return starts.astype(np.int32)

    @cached_property
    def crossed(self) -> Devices:
        """Links of all pairs, flat; int32."""
        flat = list(itertools.chain.from_iterable(self._links_by_pair()))
        return np.array(flat, np.int32)

    @cached_property
    def reachable(self) -> Mask:
        """True where a device reaches another over any number of links."""
        # The closure of Warshall: devices are 62 at most.
        reach = np.eye(self.devices, dtype=bool)
        for pair in self.routes:
            reach[pair] = True
        for middle in range(self.devices):
            reaches_middle = reach[:, middle]
            reached_from_middle = reach[middle]
            reach |= np.outer(reaches_middle, reached_from_middle)
        return reach

    def within(self, boxes: Sequence[int]) -> Topology:
        """Return the topology without routes between boxes of consecutive devices."""
        numbers = np.arange(len(boxes))
        box_of = np.repeat(numbers, boxes)
        routes = {}
        for pair, links in self.routes.items():
            sender, receiver = pair
            if box_of[sender] == box_of[receiver]:
                routes[pair] = links
        return replace(self, routes=routes)

    def _links_by_pair(self) -> Iterator[Sequence[int]]:
        for sender in range(self.devices):
            for receiver in range(self.devices):
                pair = (sender, receiver)
                yield self.routes.get(pair, ())


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
        rows = len(self.vertices)
        lengths = {len(self.owners), len(self.readers)}
        if lengths != {rows}:
            raise ValueError("vertices, owners and readers differ in length")
        steps = np.diff(self.vertices)
        if (steps < 0).any():
            raise ValueError("vertices are not in ascending order")

        # Bit 63 would make a set negative; at most 62 devices keep it 0.
        is_unread = self.readers <= 0
        shifts = self.owners.astype(np.int64)
        owner_reads = self.readers >> shifts & 1
        if is_unread.any() or owner_reads.any():
            raise ValueError("a vertex has no reader, or its owner among them")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.vertices)

    @property
    def pairs(self) -> int:
        """Number of (vertex, reader) pairs."""
        reader_counts = np.bitwise_count(self.readers)
        return int(reader_counts.sum())

    @classmethod
    def of_parts(cls, remote: Sequence[Ints], owners: Sequence[Devices]) -> Needs:
        """Return the needs of parts: device i needs ``remote[i]`` of ``owners[i]``.

        Raises ValueError when two parts disagree on the owner of a vertex, or one owns
        what it needs.
        """
        vertices = np.concatenate([*remote, _NO_ROWS])
        # The empty array keeps the concatenation legal where there are no parts.
        flat_owners = np.concatenate([*owners, _NO_ROWS])
        owner = flat_owners.astype(np.int32)
        devices = np.arange(len(remote))
        lengths = [len(part) for part in remote]
        reader = np.repeat(devices, lengths)

        # Equal vertices side by side: a group of readers each.
        order = np.argsort(vertices, kind="stable")
        vertices = vertices[order]
        owner = owner[order]
        steps = np.diff(vertices, prepend=-1)
        first = np.flatnonzero(steps)
        counts = np.diff(first, append=len(vertices))

        group_owner = owner[first]
        expected_owner = np.repeat(group_owner, counts)
        disagrees = expected_owner != owner
        if disagrees.any():
            raise ValueError("two parts disagree on the owner of a vertex")

        shifts = reader[order].astype(np.int64)
        bits = np.int64(1) << shifts
        return cls(
            vertices=vertices[first],
            owners=group_owner,
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
            vertices=vertices[order],
            owners=owners[order],
            readers=readers[order],
        )

    def swap(self, local: Sequence[Ints]) -> Needs:
        """Return the needs where a host, device ``len(local)``, gets all local rows."""
        host = len(local)
        vertices = np.concatenate(local)
        order = np.argsort(vertices)
        vertices = vertices[order]
        devices = np.arange(host, dtype=np.int32)
        lengths = [len(part) for part in local]
        owner = np.repeat(devices, lengths)

        host_alone = np.int64(1) << host
        readers = np.full(len(vertices), host_alone)
        # All rows go to the host, and from there to who needed them before.
        places = np.searchsorted(vertices, self.vertices)
        readers[places] |= self.readers
        return Needs(
            vertices=vertices,
            owners=owner[order],
            readers=readers,
        )

    def move(self, device_of: Sequence[int]) -> Needs:
        """Return the needs with the part of device i on ``device_of[i]``."""
        readers = np.zeros_like(self.readers)
        for part, device in enumerate(device_of):
            part_reads = self.readers >> part & 1
            readers |= part_reads << device
        devices = np.asarray(device_of, np.int32)
        return Needs(
            vertices=self.vertices,
            owners=devices[self.owners],
            readers=readers,
        )

    def unreachable(self, topology: Topology) -> tuple[int, int] | None:
        """Return (owner, reader) of a row that cannot get there; None: all can."""
        for owner in range(topology.devices):
            is_missing = ~topology.reachable[owner]
            missing = np.flatnonzero(is_missing)
            bits = sum(1 << device for device in missing.tolist())

            is_owner = self.owners == owner
            cut_off = self.readers[is_owner] & bits
            rows = np.flatnonzero(cut_off)
            if rows.size:
                first_row = rows[0]
                readers = int(cut_off[first_row])
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
        if not len(self.transfers):
            return 0
        # Transfers ascend by stage: the last one is of the last stage.
        last_stage = self.transfers[-1, 0]
        return int(last_stage) + 1

    def __iter__(self) -> Iterator[RowTransfer]:
        """Yield (stage, sender, receiver, vertices) of every transfer."""
        keys = self.transfers.tolist()
        bounds = itertools.pairwise(self.bounds.tolist())
        for key, bound in zip(keys, bounds, strict=True):
            stage, sender, receiver = key
            begin, end = bound
            yield stage, sender, receiver, self.rows[begin:end]

    @cached_property
    def counts(self) -> Ints:
        """Rows of every transfer."""
        return np.diff(self.bounds)

    def load(self, topology: Topology) -> Ints:
        """Return the rows that cross each link in each stage; (stages, links).

        Raises PlanError when a transfer joins devices that no route joins.
        """
        shape = (self.stages, len(topology.links))
        load = np.zeros(shape, np.int64)
        keys = self.transfers.tolist()
        for key, count in zip(keys, self.counts, strict=True):
            stage, sender, receiver = key
            route = topology.routes.get((sender, receiver))
            if route is None:
                raise PlanError(f"no link leads from {sender} to {receiver}")
            # Rows cross all links of their route: each bears the whole count.
            links = list(route)
            load[stage, links] += count
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
            stage = transfer[0]
            of_stage = by_stage.setdefault(stage, [])
            of_stage.append(transfer)

        # A stage that is parted makes those after it later.
        first_part = 0
        for stage in reversed(range(self.stages)):
            writes: dict[int, list[Ints]] = {}  # by receiver, in each part
            for _, receiver, sender, rows in by_stage[stage]:
                parts = writes.setdefault(receiver, [])
                pieces = _split_writes(rows, parts, atomic=atomic)
                for part, piece in enumerate(pieces, first_part):
                    if piece.size:
                        turned = (part, sender, receiver, piece)
                        transfers.append(turned)
            part_counts = [len(parts) for parts in writes.values()]
            first_part += max(part_counts)

        # They were made in the order of the way there, by who receives now.
        transfers.sort(key=lambda transfer: transfer[:3])
        return plan_of(self.devices, transfers)


def _split_writes(
    rows: Ints,
    written: list[Ints],
    *,
    atomic: bool,
) -> Iterator[Ints]:
    """Yield the rows that can be written in each part of a stage, and note them there.

    Those that another sender writes in that part have to wait for the next one.
    """
    part = 0
    while rows.size:
        if part == len(written):
            written.append(_NO_ROWS)
        if atomic:
            # One part for all: a device adds what several send it at the same time.
            is_taken = np.zeros(len(rows), np.bool_)
        else:
            is_taken = np.isin(rows, written[part], assume_unique=True)

        free = rows[~is_taken]
        written[part] = np.concatenate([written[part], free])
        yield free
        rows = rows[is_taken]
        part += 1


def plan_of(devices: int, transfers: Sequence[RowTransfer]) -> GatherPlan:
    """Return the plan of (stage, sender, receiver, vertices), in ascending order."""
    keys = []
    tables = []
    counts = [0]
    for stage, sender, receiver, rows in transfers:
        key = (stage, sender, receiver)
        keys.append(key)
        tables.append(rows)
        counts.append(len(rows))

    flat_keys = np.array(keys, np.int32)
    return GatherPlan(
        devices=devices,
        transfers=flat_keys.reshape(-1, 3),
        bounds=np.cumsum(counts, dtype=np.int64),
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
            is_needed = _includes(readers, reader)
            rows = vertices[is_needed]
            if rows.size:
                transfer = (0, owner, reader, rows)
                transfers.append(transfer)
    return plan_of(devices, transfers)


def swap(needs: Needs, host: int) -> GatherPlan:
    """Return the plan of NeuGraph's swap: all rows to a host, and those needed back."""
    # Every row goes up in stage 0, and down in stage 1 to each of its readers.
    devices = host + 1
    host_bits = needs.readers & 1 << host
    to_host = replace(needs, readers=host_bits)
    transfers = list(peer_to_peer(to_host, devices))
    for reader in range(host):
        is_needed = _includes(needs.readers, reader)
        rows = needs.vertices[is_needed]
        if rows.size:
            transfer = (1, host, reader, rows)
            transfers.append(transfer)
    return plan_of(devices, transfers)


def check_plan(plan: GatherPlan, needs: Needs, topology: Topology) -> None:
    """Check that every row travels along a tree from its owner to all its readers.

    Raises PlanError when a table is not in order, a row is sent by a device that has it
    from another stage than the one before or not at all, comes twice or to its owner,
    travels where no route leads, or does not come to a reader.
    """
    # Raises where a transfer has no route.
    plan.load(topology)
    # The last key counts most for lexsort, and the stage is to count most.
    keys = plan.transfers.T[::-1]
    order = np.lexsort(keys)
    is_in_place = order == np.arange(len(order))
    distinct = np.unique(plan.transfers, axis=0)
    has_repeats = len(distinct) != len(order)
    if has_repeats or not is_in_place.all():
        raise PlanError("transfers are not in ascending order, or one occurs twice")

    vertices = np.unique(needs.vertices)
    places = np.searchsorted(vertices, needs.vertices)
    # Links that a row has come over from its owner to each device, -1 before it comes.
    shape = (len(vertices), plan.devices)
    depth = np.full(shape, -1, np.int8)
    depth[places, needs.owners] = 0
    for transfer in plan:
        try:
            _follow(depth, vertices, transfer)
        except PlanError as error:
            stage, sender, receiver, _ = transfer
            where = f"stage {stage}, {sender} to {receiver}"
            raise PlanError(f"{where}: {error}") from None

    for reader in range(plan.devices):
        is_needed = _includes(needs.readers, reader)
        is_absent = depth[places, reader] < 0
        missing = needs.vertices[is_needed & is_absent]
        if missing.size:
            raise PlanError(f"vertex {missing[0]} does not come to device {reader}")


def _follow(depth: NDArray[np.int8], vertices: Ints, transfer: RowTransfer) -> None:
    """Check a transfer, and note in ``depth`` where its rows are then."""
    stage, sender, receiver, rows = transfer
    steps = np.diff(rows)
    ascends = (steps > 0).all()
    if not rows.size or not ascends:
        raise PlanError("vertices are none or not ascending")

    # What is beyond the last vertex is compared with that, and differs.
    last_place = len(vertices) - 1
    places = np.searchsorted(vertices, rows)
    places = np.minimum(places, last_place)
    if not len(vertices) or (vertices[places] != rows).any():
        raise PlanError("a vertex that no device needs")

    sender_depth = depth[places, sender]
    # In a tree a row is sent on in the stage after it has come, and in no later one.
    wrong = np.flatnonzero(sender_depth != stage)
    if wrong.size:
        place = wrong[0]
        first_stage = sender_depth[place]
        state = f"has since stage {first_stage} and not {stage}"
        if first_stage < 0:
            state = "does not have"
        raise PlanError(f"{sender} {state} vertex {rows[place]}")

    is_repeated = depth[places, receiver] >= 0
    repeats = rows[is_repeated]
    if repeats.size:
        raise PlanError(f"vertex {repeats[0]} comes to {receiver} again")
    depth[places, receiver] = stage + 1
