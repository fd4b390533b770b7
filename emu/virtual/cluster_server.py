"""The keeper of the clocks: takes what ranks say, and tells when they may go on."""

from __future__ import annotations

import math
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from emu.errors import RunError
from emu.problem import Cluster, Links
from emu.virtual.call_group import CallForm, CallGroup, MadeCall
from emu.virtual.calls import Call
from emu.virtual.control import Connection, RankLost
from emu.virtual.gloo_transport import MessageNetwork, Operation
from emu.virtual.key_store import WAITS, KeyStore
from emu.virtual.message_costs import MessageCosts
from emu.virtual.stall_watch import StallWatch
from emu.virtual.transports import NoAlgorithm, Transport
from emu.virtual.virtual_time import Deadlock, State, Turn, VirtualTime

#: What it says and then waits for an answer, or ends.
_ENDS_OF_TURNS = {"wait", "wait any", "sleep", "store", "leave"}
#: Tags of messages are apart from numbers of collectives.
_TAGS = 1 << 40
#: Seconds that a rank with a core may use none of it, before others have it.
_STALL = 0.1


class Event(NamedTuple):
    """A doing of a rank."""

    kind: str
    """``post``, ``wait`` or ``go``: it may go on."""
    time: float
    """Seconds."""
    call: MadeCall | None = None
    """The one that it posted."""
    names: Sequence[int] = ()
    """Calls that it waits for, by their names."""


@dataclass
class RankRecord:
    """Doings of a rank, by its clock."""

    events: list[Event] = field(default_factory=list)
    """In their order."""
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


class _Seat:
    """A rank, as it is served."""

    def __init__(self, connection: Connection, pid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.forms: dict[int, CallForm] = {}
        """Calls that it has described, by the numbers that it gave them."""
        self.pending: dict[int, MadeCall] = {}
        """Calls that are not over, by name."""
        self.ends_to_send: list[MadeCall] = []
        """Calls whose end is still to be sent to it."""
        self.ends_sent: list[MadeCall] = []
        """Calls whose end was sent, and whose values it may be reading."""
        self.free: list[int] = []
        """Places of its values that all have read, still to be sent to it."""
        self.stopped = 0.0
        """When it last said something."""
        self.has_left = False
        """True when it says no more."""


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
    describe_exit
        Gives how a rank exited that went without a word; empty where nobody knows.
    algorithms
        Of NCCL, whose messages groups of that backend have then; none: gloo's.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranks: RanksOfCluster,
        costs: MessageCosts | None,
        watch: Callable[[int, float, str], None],
        describe_exit: Callable[[int], str],
        algorithms: tuple[str, ...] = (),
    ) -> None:
        machine_of = ranks.machine_of
        machines = [cluster.machines[number] for number in machine_of]
        count = len(machines)
        self._algorithms = algorithms
        self._links = cluster.links
        self._speeds = [machine.speed for machine in machines]
        self._machine_of = machine_of
        self._watch = watch
        self._describe_exit = describe_exit
        self._network = MessageNetwork(cluster.links.capacities, count)
        self._costs = costs
        self._shares_core = ranks.shares_core
        self._time = VirtualTime(
            self._network,
            ranks=count,
            cores=ranks.at_once,
            message_cpu=self._message_cpu if costs else None,
        )

        self._store = KeyStore()
        self._groups: dict[str, CallGroup] = {}
        self._seats: dict[int, _Seat] = {}
        self.records = [RankRecord() for _ in machine_of]
        self._actions: dict[str, Callable[..., None]] = {
            "join": self._join,
            "post": self._post,
            "wait": self._wait_for_all,
            "wait any": self._wait_for_any,
            "sleep": self._sleep,
            "store": self._ask_store,
            "line": self._take_line,
            "mark": self._mark_step,
            "leave": self._leave,
        }
        """What a rank says -> what it does when the network comes to its clock."""
        self.stalls = 0
        self.cpu = 0.0
        """CPU seconds that serving took."""
        self._schedule_changes(cluster)

    def _message_cpu(self, rank: int) -> float:
        """Return the CPU seconds that messages took so far of the core of a rank."""
        assert self._costs is not None  # noqa: S101 - or nothing asks
        if not self._shares_core[rank]:
            return 0.0
        costs = self._costs
        data = self._network.count_moved(rank)
        frames = self._network.count_frames(rank)
        seconds = data * costs.per_byte + frames * costs.per_frame
        return seconds / self._speeds[rank]

    def _schedule_changes(self, cluster: Cluster) -> None:
        ports = {link.name: port for port, link in enumerate(self._links)}
        for change in cluster.changes:
            port = ports[change.link]
            capacity = change.capacity
            action = partial(self._network.set_capacity, port, capacity)
            self._time.schedule(-1, change.time, action)

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
            for seat in self._seats.values():
                seat.connection.close()

    def _serve_all(self) -> None:
        seats = {}
        for rank, seat in self._seats.items():
            seats[seat.connection.fileno()] = (rank, seat)
            seat.connection.send(self._speeds[rank])

        pids = {rank: seat.pid for rank, seat in self._seats.items()}
        watch = StallWatch(pids)
        with select.epoll() as poll:
            for descriptor in seats:
                poll.register(descriptor, select.EPOLLIN)
            while self._time.left:
                ready = poll.poll(_STALL)
                for descriptor, _ in ready:
                    rank, seat = seats[descriptor]
                    if seat.has_left:
                        poll.unregister(descriptor)
                        continue
                    for message in self._receive(rank):
                        self._take_in(rank, *message)

                stalled: set[int] = set()
                if not ready:
                    stalled = watch.look(self._time.running)
                self.stalls += len(stalled)
                self._go_on(stalled)

    @property
    def groups(self) -> dict[str, CallGroup]:
        """Every process group, by its name."""
        return self._groups

    def count_bytes(
        self,
        *,
        by_ranks_alone: bool = False,
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
            for source, row in zip(group.ranks, written.tolist(), strict=True):
                for destination, size in zip(group.ranks, row, strict=True):
                    sizes[source, destination] += size
        return sizes

    def _admit(self, listener: socket.socket) -> None:
        while len(self._seats) < len(self._machine_of):
            try:
                end, _ = listener.accept()
            except TimeoutError as error:
                raise RunError("the ranks did not start") from error
            connection = Connection(end)
            rank, pid = connection.receive()
            self._seats[rank] = _Seat(connection, pid)

    def _receive(self, rank: int) -> list[list[Any]]:
        try:
            return self._seats[rank].connection.receive_all()
        except RankLost as error:
            clock = self._time.ranks[rank].clock
            words = f"rank {rank} died {self._describe_exit(rank)}".strip()
            problem = f"{words}, {clock:.6g} s after the start by its clock"
            raise RankLost(problem) from error

    def _take_in(
        self,
        rank: int,
        kind: str,
        moment: float,
        *words: Any,
    ) -> None:
        """Take in what a rank says: it does that when the network comes to its clock.

        Raises Mismatch, and RankLost where it failed, at once: others may wait for it
        outside of any call.
        """
        seat = self._seats[rank]
        if seat.ends_sent:
            self._free_what_was_read(seat)
        match kind:
            case "form":
                self._take_form(rank, *words)
                return
            case "post":
                words = self._make_call(rank, *words)
            case "join":
                words = self._name_group(*words)
            case "leave":
                self._check_end(rank, moment, *words)
            case _:
                pass

        if kind in _ENDS_OF_TURNS:
            self._time.stop(rank)
        action = partial(self._actions[kind], rank, *words)
        self._time.say(rank, moment, action)

    def _free_what_was_read(self, seat: _Seat) -> None:
        """Free what a rank has read: it says more by now."""
        for made in seat.ends_sent:
            for deposit in made.form.group.count_reader(made):
                free = self._seats[deposit.rank].free
                free.append(deposit.place)
        seat.ends_sent = []

    def _name_group(
        self,
        name: str,
        ranks: Sequence[int],
        backend: str,
    ) -> tuple[CallGroup]:
        """Return a group that a rank joins."""
        group = self._groups.get(name)
        if group is None:
            algorithms = self._algorithms if backend == "nccl" else ()
            transport = Transport(algorithms)
            group = CallGroup(ranks, backend, transport)
            self._groups[name] = group
        return (group,)

    def _take_form(
        self,
        rank: int,
        number: int,
        group_name: str,
        kind: str,
        figures: Mapping[str, Any],
        line: str,
    ) -> None:
        """Take in what is alike of calls that a rank will make."""
        group = self._groups[group_name]
        member = group.member_of[rank]
        call = Call(kind, figures, line)
        try:
            form = CallForm(group, member, call)
        except NoAlgorithm as error:
            raise NoAlgorithm(f"rank {rank}: {error}") from None
        self._seats[rank].forms[number] = form

    def _make_call(
        self,
        rank: int,
        name: int,
        form_number: int,
        slot: int,
        place: int | None,
    ) -> tuple[MadeCall, int | None]:
        """Return a call of a rank; checks a collective against those of others."""
        seat = self._seats[rank]
        form = seat.forms[form_number]
        made = MadeCall(rank, form, name, slot)
        if not form.is_message:
            form.group.check(made)
        return made, place

    def _wait_for_all(
        self,
        rank: int,
        names: Sequence[int],
        timeout: float | None,
    ) -> None:
        limit = timeout or math.inf
        self._begin_pause(rank)
        self._note(rank, "wait", names=names)
        self._time.wait(rank, names, limit, needs_all=True)

    def _wait_for_any(self, rank: int, names: Sequence[int]) -> None:
        self._begin_pause(rank)
        self._note(rank, "wait", names=names)
        self._time.wait(rank, names, math.inf, needs_all=False)

    def _sleep(self, rank: int, seconds: float) -> None:
        self._begin_pause(rank)
        self._time.begin_wait(rank, "sleeps")
        self._time.wake_after(rank, seconds)

    def _begin_pause(self, rank: int) -> None:
        self._seats[rank].stopped = self._network.now
        self.records[rank].delayed += self._time.delay(rank)

    def _take_line(self, rank: int, text: str) -> None:
        self._watch(rank, self._network.now, text)

    def _mark_step(self, rank: int) -> None:
        self.records[rank].marks.append(self._network.now)

    def _note(self, rank: int, kind: str, **details: Any) -> None:
        event = Event(kind, self._network.now, **details)
        self.records[rank].events.append(event)

    def _check_end(
        self,
        rank: int,
        clock: float,
        problem: str,
        _: Any,
    ) -> None:
        if problem:
            raise RankLost(f"rank {rank} failed after {clock:.6g} s: {problem}")
        self._seats[rank].has_left = True

    def _leave(self, rank: int, _: str, figures: dict[str, Any]) -> None:
        self._begin_pause(rank)
        self._time.leave(rank)
        record = self.records[rank]
        record.end = self._network.now
        record.figures = figures

    def _join(self, _: int, group: CallGroup) -> None:
        """Open a group in the network, when its first member has joined it."""
        if group.number is not None:
            return
        ranks = group.ranks
        machines = [self._machine_of[rank] for rank in ranks]
        per_frame = self._costs.per_frame if self._costs else 0.0
        speeds = [self._speeds[rank] for rank in ranks]
        pauses = [per_frame / speed for speed in speeds]
        routes = routes_between(self._links, machines, pauses)
        wire = group.transport.wire
        group.number = self._network.open_group(ranks, routes, wire)

    def _post(
        self,
        rank: int,
        made: MadeCall,
        place: int | None,
    ) -> None:
        """Begin a call."""
        form = made.form
        if place is not None:
            form.group.note_deposit(made, place)
        self._seats[rank].pending[made.name] = made
        self._note(rank, "post", call=made)
        if not form.goes_in_order:
            self._begin(made)
            return
        begin = partial(self._begin, made)
        calls_in_order = form.group.calls_in_order[form.member]
        calls_in_order.add(begin)

    def _begin(self, made: MadeCall) -> None:
        """Have the network carry a call."""
        form = made.form
        group = form.group
        assert group.number is not None  # noqa: S101 - its members have joined it
        made.lanes_left = len(form.lanes)

        first_slot = _TAGS if form.is_message else 0
        is_direct = form.is_message or form.goes_in_order
        for lane in form.lanes:
            slot = lane.slot(made.slot)
            send_orders = None
            if group.transport.is_nccl:
                send_orders = lane.steps.new_send_orders()
                made.send_orders.append(send_orders)
            operation = Operation(
                member=form.member,
                slot=first_slot + slot,
                steps=lane.steps,
                done=partial(self._end_lane, made),
                is_barrier=form.call.kind == "barrier",
                uses_worker=not is_direct,
                send_orders=send_orders,
            )
            self._network.submit(group.number, operation)

    def _end_lane(self, made: MadeCall, now: float, peer: int) -> None:
        """Take in that a lane is over; ``peer`` sent its last message."""
        made.lanes_left -= 1
        if made.lanes_left:
            return
        made.ended = now
        form = made.form

        seat = self._seats[made.rank]
        del seat.pending[made.name]
        seat.ends_to_send.append(made)
        outcome = self._outcome(made, peer)
        self._time.end(made.rank, made.name, outcome)
        if form.goes_in_order:
            calls_in_order = form.group.calls_in_order[form.member]
            calls_in_order.end()

    def _outcome(self, made: MadeCall, peer: int) -> Sequence[Any]:
        """Return the words for a rank on the end of its call: where values are.

        Of a receive the member that sent it, the value's place and its size.
        """
        form = made.form
        if not form.is_message:
            return form.group.find_places(made.slot)
        if form.call.kind == "send":
            return ()
        made.source = peer
        deposit = form.group.take_message(made, peer)
        made.deposit = deposit
        return peer, deposit.place, deposit.size

    def _ask_store(
        self,
        rank: int,
        name: int,
        request: str,
        keys: Sequence[str],
        values: Sequence[Any],
        timeout: float | None,
    ) -> None:
        """Carry a request out, as soon as its keys are there."""
        waiter = self._time.ranks[rank]

        def answer() -> None:
            result = self._store.carry_out(request, keys, values)
            if waiter.state is State.WAITS:
                self._time.end(rank, name, result)

        limit = timeout or math.inf
        self._begin_pause(rank)
        self._time.wait(rank, [name], limit, needs_all=True)
        names = " and ".join(keys)
        waiter.reason = f"key {names} of the store"
        awaited = keys if request in WAITS else ()
        self._store.call_when_there(awaited, answer)

    def _go_on(self, stalled: set[int]) -> None:
        try:
            for turn in self._time.go_on(stalled):
                self._give_turn(turn)
        except Deadlock as error:
            waits = self._describe_waits()
            raise Deadlock(f"{error}: {waits}") from None

    def _give_turn(self, turn: Turn) -> None:
        seat = self._seats[turn.rank]
        record = self.records[turn.rank]
        self._note(turn.rank, "go")
        record.waited += turn.time - seat.stopped
        seat.ends_sent = seat.ends_to_send
        seat.ends_to_send = []
        free = seat.free
        seat.free = []
        seat.connection.send(turn.time, turn.news, free)

    def _describe_waits(self) -> str:
        waits = []
        for rank in self._time.ranks:
            number = rank.number
            if rank.state is State.OVER:
                waits.append(f"rank {number} has ended")
                continue
            pending = self._seats[number].pending
            calls = [pending[name] for name in rank.missing if name in pending]
            reasons = [made.form.call.describe() for made in calls]
            reason = " and ".join(reasons) or rank.reason
            waits.append(f"rank {number} waits for {reason}")
        return "; ".join(waits)


def routes_between(
    links: Links,
    machines: Sequence[int],
    pauses: Sequence[float],
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
        source = machines[sender]
        destination = machines[receiver]
        ports = links.route(source, destination)
        latency = sum(links[port].latency for port in ports)
        return ports, latency + pauses[receiver]

    return route
