"""Messages as gloo moves them: notices and payload in one stream per pair of ranks.

Facts are of gloo's sources (tcp/pair.cc, context.cc; torch 2.13): a message is three
frames of 48 bytes and its data. Who posts a receive writes "I am ready" into its stream
to the sender; a sender writes its data when that has come, at once where it has come
already. A stream has one order and no priorities, so a notice waits behind payload:
where both ranks of a pair have something to send and one comes late, they send one
after the other. The compiled core carries it (messages.c); arrays are made here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from emu.array_types import Floats, Ints
from emu.prediction.core import ffi, lib
from emu.virtual.gloo_operations import Script, Send, Transfer, Wait

#: Bytes of a frame's header: six words of eight bytes.
HEADER = 48.0
#: Bytes that the kernel takes of a connection before it has sent them; Linux lets its
#: send buffer grow up to 4 MB (tcp_wmem), of which half are data.
SEND_BUFFER = 2.5e6
#: Operations of a rank that a group carries out at once: two threads per device.
WORKERS = 2
#: Entries of every pool at first.
_ROOM = 1 << 10
#: A queue without entries.
_EMPTY = {"first": lib.NONE, "last": lib.NONE}
#: What operations have in common when they begin.
_SUBMITTED = {"awaited": lib.NONE, "peer": lib.NONE}
#: Pools of the core: what their entries are.
_POOLS = {
    "frames": "Frame",
    "posts": "Post",
    "ways": "Way",
    "operations": "Operation",
}


@dataclass(frozen=True)
class Wire:
    """Properties of the connections of a group."""

    header: float
    """Bytes of every frame beside its data."""
    buffer: float
    """Bytes that a send is ahead of what has left."""
    is_offloaded: bool = False
    """True where notices never wait behind data, and ranks spend no CPU."""


#: Connections of gloo.
GLOO_WIRE = Wire(HEADER, SEND_BUFFER)


@dataclass(frozen=True)
class Steps:
    """A script, written out."""

    rows: Ints
    """A kind, a peer or post, and bytes each; see messages.h."""
    posts: int
    """Sends and receives among them."""

    @cached_property
    def pointer(self) -> Any:
        """Where the core finds the rows: calls are made again and again."""
        return ffi.from_buffer("int64_t[]", self.rows)

    def new_send_orders(self) -> Any:
        """Return an array for the order, by post, in which data of sends are written.

        They are numbered from 1; 0 is one that is not written yet.
        """
        return ffi.new("int64_t[]", self.posts)


def write_steps(script: Script) -> Steps:
    """Return what a script does, which depends on nothing that happens."""
    rows: list[tuple[int, int, int]] = []
    posts = 0
    posted: Transfer | None = None
    while True:
        try:
            # A generator's first step takes nothing.
            step = script.send(posted)  # type: ignore[arg-type]
        except StopIteration:
            values = np.array(rows, np.int64)
            table = values.reshape(-1, lib.STEP_FIELDS)
            return Steps(table, posts)

        if isinstance(step, Wait):
            for awaited in step.transfers:
                row = (lib.AWAIT, awaited.number, 0)
                rows.append(row)
            posted = None
            continue

        peer = lib.NONE if step.peer is None else step.peer
        kind = lib.POST_SEND if isinstance(step, Send) else lib.POST_RECEIVE
        row = (kind, peer, int(step.size))
        rows.append(row)
        posted = Transfer(posts)
        posts += 1


@dataclass(eq=False)
class Operation:
    """The part of one member of a group in one call."""

    member: int
    slot: int
    """Number of the call in its group: messages of others have other ones."""
    steps: Steps
    done: Callable[[float, int], None]
    """Called with the time at which it is over, and who sent its last message."""
    is_barrier: bool = False
    """True of what begins when all before it have ended."""
    uses_worker: bool = True
    """False of a send or receive: it begins in the thread of its caller."""
    send_orders: Any = None
    """From `Steps.new_send_orders`, filled by the network; None where nobody asks."""


class MessageNetwork:
    """Groups of ranks, and all that is on its way between them, at one instant.

    Parameters
    ----------
    capacities
        Bytes per second of every link, float64.
    ranks
        Number of ranks.
    """

    def __init__(self, capacities: Floats, ranks: int) -> None:
        self._core = ffi.new("Network *")
        # Filled again for every operation: the core copies it.
        self._submitted = ffi.new("Operation *", _SUBMITTED)
        self._arrays: dict[str, Any] = {}
        self._room = 0
        self._free_room = 0
        """Entries that are free in every pool, at the least."""
        self._under_way: dict[int, tuple[Operation, Any]] = {}
        """By number: operations, and what the core writes of each."""
        self._count = 0
        # Units: seconds and bytes.
        self._core.workers = WORKERS
        self._extend("moved", "double", ranks)
        self._extend("moved_frames", "int64_t", ranks)

        count = capacities.size
        self._extend("link", "Link", count)
        self._extend("dirty", "int64_t", count)
        for number, capacity in enumerate(capacities.tolist()):
            link = self._core.link[number]
            link.first_hop = lib.NONE
            link.capacity = capacity
        self._extend_pools(_ROOM)

    def _extend(self, field: str, kind: str, count: int) -> int:
        """Make an array of the core longer by so many zeros; return how long it was."""
        former = self._arrays.get(field, b"")
        size = ffi.sizeof(kind)
        zeros = bytes(count * size)
        memory = bytearray(former)
        memory.extend(zeros)
        # cffi keeps nothing alive by a pointer in a field.
        self._arrays[field] = memory

        record = self._core
        pool, _, name = field.rpartition(".")
        if pool:
            record = getattr(record, pool)
        pointer = ffi.from_buffer(f"{kind}[]", memory)
        setattr(record, name, pointer)
        former_count: int = len(former) // size
        return former_count

    def _extend_pools(self, count: int) -> None:
        for pool, kind in _POOLS.items():
            records = pool.removesuffix("s")
            numbers = f"{pool}.entry"
            self._extend(records, kind, count)
            start = self._extend(numbers, "int64_t", count)
            self._extend(f"{pool}.next", "int64_t", count)
            entries = np.frombuffer(self._arrays[numbers], np.int64)
            entries[start:] = np.arange(start, start + count)
        self._extend("done", "Done", count)
        # Frames, and sends that the kernel has whole.
        self._extend("coming", "Coming", 2 * count)
        self._room += count

    @property
    def now(self) -> float:
        """Seconds."""
        now: float = self._core.now
        return now

    def open_group(
        self,
        ranks: Sequence[int],
        routes: Callable[[int, int], tuple[Any, float]],
        wire: Wire = GLOO_WIRE,
    ) -> int:
        """Return the number of a new group.

        Parameters
        ----------
        ranks
            Those of its members.
        routes
            Gives, of two members, the links that messages of the first to the second
            cross, by number, and their seconds of latency.
        wire
            Properties of their connections.
        """
        size = len(ranks)
        pairs = [*itertools.product(range(size), repeat=2)]
        ways = [routes(*pair) for pair in pairs]
        hops = sum(len(links) for links, _ in ways)

        first_hop = self._extend_hops(hops)
        streams = len(pairs)
        first_stream = self._extend("stream", "Stream", streams)
        first_member = self._extend("member", "Member", size)
        self._extend("busy", "int64_t", streams)
        self._extend("shared", "int64_t", streams)
        number = self._extend("context", "Context", 1)
        self._core.context[number] = {
            "first_stream": first_stream,
            "first_member": first_member,
            "members": size,
            "header": wire.header,
            "buffer": wire.buffer,
            "is_offloaded": wire.is_offloaded,
        }
        for member in range(first_member, first_member + size):
            self._core.member[member] = {"queued": _EMPTY, "open": _EMPTY}

        for place, pair in enumerate(pairs):
            links, latency = ways[place]
            stream = first_stream + place
            self._open_stream(stream, number, pair, ranks, latency)
            opened = self._core.stream[stream]
            opened.first_hop = first_hop
            opened.hops = len(links)
            for hop, link in enumerate(links, first_hop):
                self._core.hop_link[hop] = link
                self._core.hop_stream[hop] = stream
            first_hop += len(links)
        return number

    def _open_stream(
        self,
        stream: int,
        group: int,
        pair: Sequence[int],
        ranks: Sequence[int],
        latency: float,
    ) -> None:
        """Open the stream of one member of a group to another, without its links."""
        sender, receiver = pair
        self._core.stream[stream] = {
            "context": group,
            "sender": sender,
            "receiver": receiver,
            "sending_rank": ranks[sender],
            "receiving_rank": ranks[receiver],
            "place": lib.NONE,
            "first_way": lib.NONE,
            "frames": _EMPTY,
            "marks": _EMPTY,
            "latency": latency,
        }

    def _extend_hops(self, count: int) -> int:
        self._extend("hop_link", "int64_t", count)
        self._extend("hop_stream", "int64_t", count)
        self._extend("hop_next", "int64_t", count)
        return self._extend("hop_before", "int64_t", count)

    def set_capacity(self, link: int, capacity: float) -> None:
        """Give a link another capacity from now on, bytes per second; 0 cuts it."""
        lib.set_link(self._core, link, capacity)

    def submit(self, group: int, operation: Operation) -> None:
        """Begin an operation of a group, or queue it until a worker is free."""
        steps = operation.steps
        self._make_room(steps.posts)
        number = self._count
        self._count += 1
        over = ffi.new("uint8_t[]", steps.posts)

        core = self._submitted
        core.number = number
        core.context = group
        core.member = operation.member
        core.slot = operation.slot
        core.step = steps.pointer
        core.steps = len(steps.rows)
        core.over = over
        core.place = ffi.NULL
        if operation.send_orders is not None:
            core.place = operation.send_orders
        core.uses_worker = operation.uses_worker
        core.is_barrier = operation.is_barrier
        self._under_way[number] = (operation, over)
        lib.submit(self._core, core)
        self._tell_ends()

    def _make_room(self, posts: int) -> None:
        """Have pools take what a new operation writes: a post is up to two frames."""
        core = self._core
        core.unposted += posts
        self._free_room -= 2 * posts + 1
        if self._free_room >= 0:
            return
        pools = [getattr(core, pool) for pool in _POOLS]
        used = max(pool.used for pool in pools)
        # A receive from anyone looks at a way of each member, one after the other.
        needed = used + 2 * core.unposted + 2
        if needed > self._room:
            added = max(self._room, needed)
            self._extend_pools(added)
        self._free_room = self._room - needed

    def next_time(self) -> float:
        """Return when something next leaves or is there, infinity if nothing will."""
        return float(lib.next_event(self._core))

    def go_to(self, time: float) -> None:
        """Go on to a time, not beyond `next_time`."""
        lib.go_to_time(self._core, time)
        self._tell_ends()

    def go_on(self, until: float) -> bool:
        """Go on to a time, or the first before it at which an operation is over.

        Returns True where one was. The time of the network is that of the last event.
        """
        lib.go_on_until(self._core, until)
        return self._tell_ends()

    def _tell_ends(self) -> bool:
        """Tell what is over; return True where something was."""
        core = self._core
        count = core.done_count
        if not count:
            return False
        ends = ffi.unpack(core.done, count)
        ended = [(end.number, end.peer) for end in ends]
        core.done_count = 0
        for number, peer in ended:
            operation, _ = self._under_way.pop(number)
            operation.done(core.now, peer)
        return True

    def count_moved(self, rank: int) -> float:
        """Return the bytes that a rank sent and took so far, but within its machine."""
        return float(self._core.moved[rank])

    def count_frames(self, rank: int) -> int:
        """Return the frames that came to a rank so far, or from it to others."""
        count: int = self._core.moved_frames[rank]
        return count

    def count_written(self, group: int) -> Floats:
        """Return the bytes that were written, by sender and receiver of a group."""
        context = self._core.context[group]
        size = context.members
        first = context.first_stream
        end = first + size * size
        streams = self._core.stream[first:end]
        written = np.array([stream.written for stream in streams])
        return written.reshape(size, size)

    def rates(self) -> dict[int, float]:
        """Return the rates of the streams that carry something, by number."""
        self.next_time()
        core = self._core
        busy = ffi.unpack(core.busy, core.busy_count)
        return {number: core.stream[number].rate for number in busy}
