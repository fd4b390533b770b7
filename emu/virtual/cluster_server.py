"""The keeper of the clocks: takes what ranks say, and tells when they may go on."""

from __future__ import annotations

import math
import os
import selectors
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from emu.errors import EmulatorError, RunError
from emu.problem import Cluster, Links
from emu.virtual.call_group import CallGroup, Deposit
from emu.virtual.calls import MESSAGES, Call
from emu.virtual.control import Connection, RankLost
from emu.virtual.gloo_transport import MessageNetwork, Operation
from emu.virtual.key_store import WAITS, KeyStore
from emu.virtual.message_costs import MessageCosts
from emu.virtual.transports import GLOO, NoAlgorithm, Transport, WrittenLane
from emu.virtual.virtual_time import Deadlock, State, VirtualTime

#: What a rank says.
Message: TypeAlias = Mapping[str, Any]
#: What it says and then waits for an answer, or ends.
_ENDS_OF_TURNS = {"wait", "sleep", "store", "leave"}
#: Tags of messages are apart from numbers of collectives.
_TAGS = 1 << 40
#: Seconds that a rank with a core may use none of it, before others have it.
_STALL = 0.1
#: Seconds after which ranks that all sleep, outside of any call, end the run.
PATIENCE = 60.0


@dataclass
class RankRecord:
    """Doings of a rank, by its clock."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """Its calls and waits in order: ``kind``, ``time`` and what they say."""
    marks: list[float] = field(default_factory=list)
    """When its steps began, or ended: seconds."""
    end: float | None = None
    delayed: float = 0.0
    """Seconds by which messages delayed what it computed."""
    waited: float = 0.0
    """Seconds in which it waited for calls."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Figures that it gave of itself at its end."""


@dataclass(frozen=True)
class RanksOfCluster:
    """Where the ranks of a program are."""

    machine_of: Sequence[int]
    """Machine of every rank."""
    shares_core: Sequence[bool]
    """True of ranks that compute on the core which their messages need."""
    at_once: int
    """Ranks that this computer runs at the same time."""


@dataclass
class _CallUnderWay:
    """A call of a rank, as the network carries it."""

    rank: int
    group: CallGroup
    slot: int
    name: str
    call: Call
    lanes: tuple[WrittenLane, ...]
    left: int
    """Lanes that are not over."""

    @property
    def member(self) -> int:
        """Member of its group that the rank is."""
        return self.group.member_of[self.rank]

    @property
    def goes_in_order(self) -> bool:
        """True of one that waits for the end of those before it."""
        return self.group.transport.is_nccl and self.call.kind not in MESSAGES


def _call_of(message: Message) -> Call:
    return Call(message["call"], message["figures"], message["where"])


class ClusterServer:
    """Serves the ranks of one program.

    Parameters
    ----------
    cluster
        The machines.
    ranks
        Of the program.
    costs
        CPU of messages that the machines' cores spend; None: they are free.
    watch
        Gets the rank, the time and the text of every line that is printed.
    algorithms
        Of NCCL, whose messages groups of that backend have then; none: gloo's.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranks: RanksOfCluster,
        costs: MessageCosts | None,
        watch: Callable[[int, float, str], None],
        algorithms: tuple[str, ...] = (),
    ) -> None:
        self._algorithms = algorithms
        machine_of = ranks.machine_of
        self._links = cluster.links
        self._speeds = [cluster.machines[number].speed for number in machine_of]
        self._machine_of = machine_of
        self._watch = watch
        self._network = MessageNetwork(self._links.capacities, len(machine_of))
        self._costs = costs
        self._shares_core = ranks.shares_core
        self._time = VirtualTime(
            self._network, len(machine_of), ranks.at_once, self._message_cpu
        )
        self._store = KeyStore()
        self._groups: dict[str, CallGroup] = {}
        self._connections: dict[int, Connection] = {}
        self._pids: dict[int, int] = {}
        self._stopped = [0.0] * len(machine_of)
        """When every rank last said something."""
        self._pending: list[dict[str, Call]] = [{} for _ in machine_of]
        """Calls of every rank that are not over."""
        self._unread: list[list[str]] = [[] for _ in machine_of]
        """Names of what each rank was told to be over, and may be reading."""
        self._readers: dict[str, Callable[[], list[Deposit]]] = {}
        """Name of a call that is over -> counts its rank as a reader, and gives the
        values that all have read."""
        self._free: list[list[int]] = [[] for _ in machine_of]
        """Places of what each rank left and all have read, of which it is not told."""
        self.records = [RankRecord() for _ in machine_of]
        self._actions = {
            "join": self._join,
            "post": self._post,
            "wait": self._wait,
            "sleep": self._sleep,
            "store": self._ask_store,
            "line": self._take_line,
            "mark": self._mark_step,
            "leave": self._leave,
        }
        """What a rank says -> what it does when the network comes to its clock."""
        self._left: set[int] = set()
        """Ranks that say no more."""
        self.stalls = 0
        self.cpu = 0.0
        """CPU seconds that serving took."""
        self._schedule_changes(cluster)

    def _message_cpu(self, rank: int) -> float:
        """Return the CPU seconds that messages took so far of the core of a rank."""
        if self._costs is None or not self._shares_core[rank]:
            return 0.0
        data = self._network.count_moved(rank)
        frames = self._network.count_frames(rank)
        seconds = data * self._costs.per_byte + frames * self._costs.per_frame
        return seconds / self._speeds[rank]

    def _schedule_changes(self, cluster: Cluster) -> None:
        ports = {link.name: port for port, link in enumerate(self._links)}
        for change in cluster.changes:
            port = ports[change.link]
            capacity = change.capacity
            self._time.schedule(
                -1,
                change.time,
                lambda port=port, capacity=capacity: (  # type: ignore[misc]
                    self._network.set_capacity(port, capacity)
                ),
            )

    def serve(self, listener: socket.socket) -> None:
        """Serve until every rank has ended.

        Raises RankLost when one goes without a word or fails, Deadlock where all wait,
        and Mismatch where ranks make calls that do not go together.
        """
        try:
            self._admit(listener)
            began = time.process_time()
            self._serve_all()
            self.cpu = time.process_time() - began
        finally:
            for connection in self._connections.values():
                connection.close()

    def _serve_all(self) -> None:
        selector = selectors.DefaultSelector()
        for rank, connection in self._connections.items():
            selector.register(connection, selectors.EVENT_READ, rank)
            connection.send("go", time=0.0, speed=self._speeds[rank])

        stalls = StallWatch(self._pids)
        with selector:
            while any(record.end is None for record in self.records):
                ready = selector.select(_STALL)
                for key, _ in ready:
                    rank = int(key.data)
                    if rank in self._left:
                        selector.unregister(key.fileobj)
                        continue
                    for message in self._receive(rank):
                        self._take_in(rank, message)
                stalled = stalls.look(self._time.running) if not ready else set()
                self.stalls += len(stalled)
                self._go_on(stalled)

    @property
    def groups(self) -> dict[str, CallGroup]:
        """Every process group, by its name."""
        return self._groups

    def count_bytes(
        self, *, by_ranks_alone: bool = False
    ) -> dict[tuple[int, int], float]:
        """Return the bytes that were sent, headers included, by sender and receiver.

        ``by_ranks_alone``: leave out what NICs move without CPU of their rank.
        """
        sizes: defaultdict[tuple[int, int], float] = defaultdict(float)
        for group in self._groups.values():
            is_left_out = by_ranks_alone and group.transport.wire.is_offloaded
            if group.number is None or is_left_out:
                continue
            written = self._network.count_written(group.number)
            for sender, row in enumerate(written.tolist()):
                source = group.ranks[sender]
                for receiver, size in enumerate(row):
                    destination = group.ranks[receiver]
                    sizes[source, destination] += size
        return sizes

    def _admit(self, listener: socket.socket) -> None:
        while len(self._connections) < len(self._machine_of):
            try:
                end, _ = listener.accept()
            except TimeoutError as error:
                raise RunError("the ranks did not start") from error
            connection = Connection(end)
            greeting = connection.receive()
            self._connections[greeting["rank"]] = connection
            self._pids[greeting["rank"]] = greeting["pid"]

    def _receive(self, rank: int) -> list[dict[str, Any]]:
        try:
            return self._connections[rank].receive_all()
        except RankLost as error:
            clock = self._time.ranks[rank].clock
            problem = f"rank {rank} died, {clock:.6g} s after the start by its clock"
            raise RankLost(problem) from error

    def _take_in(self, rank: int, message: dict[str, Any]) -> None:
        """Take in what a rank says: it does that when the network comes to its clock.

        Raises Mismatch, and RankLost where it failed, at once: others may wait for it
        outside of any call.
        """
        self._note_that_it_has_read(rank)
        kind = message["kind"]
        if kind not in self._actions:
            raise RankLost(f"rank {rank} says {kind!r}, which means nothing")
        if kind == "join" and message["group"] not in self._groups:
            self._add_group(message)
        elif kind == "post":
            self._check(rank, message)
        elif kind == "leave":
            self._check_end(rank, message)

        if kind in _ENDS_OF_TURNS:
            self._time.stop(rank)
        action = partial(self._actions[kind], rank, message)
        self._time.say(rank, message["time"], action)

    def _add_group(self, message: Message) -> None:
        backend = message["backend"]
        transport = GLOO
        if backend == "nccl":
            transport = Transport(self._algorithms)
        group = CallGroup(message["ranks"], backend, transport)
        self._groups[message["group"]] = group

    def _wait(self, rank: int, message: Message) -> None:
        names = message["names"]
        self._begin_pause(rank)
        self._note(rank, "wait", names=names)
        timeout = message["timeout"] or math.inf
        self._time.wait(rank, names, timeout, needs_all=message["all"])

    def _sleep(self, rank: int, message: Message) -> None:
        self._begin_pause(rank)
        self._time.begin_wait(rank, "sleeps")
        self._time.wake_after(rank, message["seconds"])

    def _begin_pause(self, rank: int) -> None:
        self._stopped[rank] = self._network.now
        self.records[rank].delayed += self._time.delay(rank)

    def _take_line(self, rank: int, message: Message) -> None:
        self._watch(rank, self._network.now, message["text"])

    def _mark_step(self, rank: int, _: Message) -> None:
        self.records[rank].marks.append(self._network.now)

    def _note_that_it_has_read(self, rank: int) -> None:
        """Note that a rank has read what it was told of: it says more by now."""
        for name in self._unread[rank]:
            count_reader = self._readers.pop(name)
            for deposit in count_reader():
                free = self._free[deposit.rank]
                free.append(deposit.place)
        self._unread[rank] = []

    def _note(self, rank: int, kind: str, **fields: Any) -> None:
        event = {"kind": kind, "time": self._network.now, **fields}
        self.records[rank].events.append(event)

    def _check_end(self, rank: int, message: Message) -> None:
        problem = message["problem"]
        if problem:
            clock = message["time"]
            raise RankLost(f"rank {rank} failed after {clock:.6g} s: {problem}")
        self._left.add(rank)

    def _leave(self, rank: int, message: Message) -> None:
        self._begin_pause(rank)
        self._time.leave(rank)
        self.records[rank].end = self._network.now
        self.records[rank].figures = message["figures"]

    def _join(self, _: int, message: Message) -> None:
        """Open a group in the network, when its first member has joined it."""
        group = self._groups[message["group"]]
        if group.number is not None:
            return
        machines = [self._machine_of[rank] for rank in group.ranks]
        per_frame = self._costs.per_frame if self._costs else 0.0
        speeds = [self._speeds[rank] for rank in group.ranks]
        pauses = [per_frame / speed for speed in speeds]
        routes = routes_between(self._links, machines, pauses)
        wire = group.transport.wire
        group.number = self._network.open_group(group.ranks, routes, wire)

    def _check(self, rank: int, message: Message) -> None:
        """Check a collective against those of the other members."""
        group = self._groups[message["group"]]
        call = _call_of(message)
        try:
            group.transport.check(call)
        except NoAlgorithm as error:
            raise NoAlgorithm(f"rank {rank}: {error}") from None
        if call.kind not in MESSAGES:
            member = group.member_of[rank]
            group.check(message["slot"], member, call)

    def _post(self, rank: int, message: Message) -> None:
        """Begin an operation."""
        group = self._groups[message["group"]]
        member = group.member_of[rank]
        call = _call_of(message)
        name: str = message["name"]
        slot: int = message["slot"]
        if message["place"] is not None:
            group.note_deposit(slot, member, call, message["place"])
        self._pending[rank][name] = call
        self._note(
            rank,
            "post",
            name=name,
            call=call.kind,
            figures=call.figures,
            group=message["group"],
            slot=slot,
        )

        lanes = group.transport.lanes(call, member, len(group.ranks))
        made = _CallUnderWay(rank, group, slot, name, call, lanes, len(lanes))
        if made.goes_in_order:
            calls_in_order = group.calls_in_order[member]
            calls_in_order.add(lambda: self._begin(made))
        else:
            self._begin(made)

    def _begin(self, made: _CallUnderWay) -> None:
        """Have the network carry a call."""
        group = made.group
        is_message = made.call.kind in MESSAGES
        for lane in made.lanes:
            slot = lane.slot(made.slot)
            operation = Operation(
                member=made.member,
                slot=_TAGS + slot if is_message else slot,
                steps=lane.steps,
                done=partial(self._end_lane, made),
                is_barrier=made.call.kind == "barrier",
                uses_worker=not is_message and not made.goes_in_order,
            )
            assert group.number is not None  # noqa: S101 - its members have joined it
            self._network.submit(group.number, operation)

    def _end_lane(self, made: _CallUnderWay, _: float, peer: int) -> None:
        """Take in that a lane is over; ``peer`` sent its last message."""
        made.left -= 1
        if made.left:
            return
        self._end(made, peer)
        if made.goes_in_order:
            made.group.calls_in_order[made.member].end()

    def _end(self, made: _CallUnderWay, peer: int) -> None:
        """Take in that a call is over; ``peer`` sent its last message."""
        rank = made.rank
        name = made.name
        group = made.group
        call = self._pending[rank].pop(name)

        if call.kind in MESSAGES:
            result = self._end_message(group, made.member, name, call, peer)
            self._note(rank, "end", name=name, result=result)
        else:
            result = {"places": group.find_places(made.slot)}
            self._readers[name] = lambda: group.count_reader(made.slot)
            self._note(rank, "end", name=name, result=None)
        self._time.end(rank, name, result)

    def _end_message(
        self, group: CallGroup, member: int, name: str, call: Call, peer: int
    ) -> dict[str, Any]:
        """Return whose message it was; of a receive also where its bytes are."""
        if call.kind == "send":
            return {"peer": call.figures["peer"], "number": 0}
        tag = call.figures["tag"]
        deposit, number = group.take_message(peer, member, tag)
        self._readers[name] = lambda: [deposit]
        return {
            "peer": peer,
            "number": number,
            "place": deposit.place,
            "size": deposit.size,
        }

    def _ask_store(self, rank: int, message: Message) -> None:
        """Carry a request out, as soon as its keys are there."""
        request = message["request"]
        keys = message["keys"]
        name = message["name"]

        def answer() -> None:
            result = self._store.carry_out(request, keys, message["values"])
            if self._time.ranks[rank].state is State.WAITS:
                self._time.end(rank, name, {"answer": result})

        self._begin_pause(rank)
        timeout = message["timeout"] or math.inf
        self._time.wait(rank, [name], timeout, needs_all=True)
        names = " and ".join(keys)
        self._time.ranks[rank].reason = f"key {names} of the store"
        awaited = keys if request in WAITS else ()
        self._store.call_when_there(awaited, answer)

    def _go_on(self, stalled: set[int]) -> None:
        try:
            for turn in self._time.go_on(stalled):
                record = self.records[turn.rank]
                self._note(turn.rank, "go")
                record.waited += turn.time - self._stopped[turn.rank]
                self._unread[turn.rank] = [
                    name for name in turn.news if name in self._readers
                ]
                free = self._free[turn.rank]
                self._free[turn.rank] = []
                connection = self._connections[turn.rank]
                connection.send("go", time=turn.time, news=turn.news, free=free)
        except Deadlock as error:
            raise Deadlock(f"{error}: {self._describe_waits()}") from None

    def _describe_waits(self) -> str:
        waits = []
        for rank in self._time.ranks:
            if rank.state is State.OVER:
                waits.append(f"rank {rank.number} has ended")
                continue
            calls = self._pending[rank.number]
            reasons = [calls[name].describe() for name in rank.missing if name in calls]
            reason = " and ".join(reasons) or rank.reason
            waits.append(f"rank {rank.number} waits for {reason}")
        return "; ".join(waits)


def routes_between(
    links: Links, machines: Sequence[int], pauses: Sequence[float]
) -> Callable[[int, int], tuple[Sequence[int], float]]:
    """Return what gives links and latency from a member of a group to another.

    Parameters
    ----------
    machines
        Machine of every member.
    pauses
        Seconds that each needs to take in a frame, which count as latency.
    """

    def route(sender: int, receiver: int) -> tuple[Sequence[int], float]:
        ports = links.route(machines[sender], machines[receiver])
        latency = sum(links[port].latency for port in ports)
        return ports, latency + pauses[receiver]

    return route


class StallWatch:
    """Sees ranks that have a core and do not use it: they wait outside of any call.

    On a file, a socket of their own, or a process that they started.
    """

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._seen: dict[int, tuple[str, ...]] = {}
        self._all_since = 0.0

    def look(self, running: Collection[int]) -> set[int]:
        """Return those of the ranks that run which used no core since the last look.

        Raises RunError when none of them did for long.
        """
        stalled = set()
        for rank in running:
            use = _cpu_use(self._pids[rank])
            if use == self._seen.get(rank):
                stalled.add(rank)
            self._seen[rank] = use
        now = time.monotonic()
        if len(stalled) < len(running) or not self._all_since:
            self._all_since = now
        if now - self._all_since > PATIENCE:
            names = ", ".join(map(str, sorted(stalled)))
            raise RunError(
                f"rank {names} waited {PATIENCE:g} s for something outside of "
                "torch.distributed, such as a socket of its own: emu lab runs that"
            )
        return stalled


def _cpu_use(pid: int) -> tuple[str, ...]:
    """Return state and CPU ticks of a process and its children that have ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError as error:
        raise EmulatorError(f"process {pid} has gone: {os.strerror(3)}") from error
    fields = text.rpartition(")")[2].split()
    state = fields[0]
    return (state, *fields[11:15]) if state == "S" else (str(time.monotonic()),)
