"""Ends of edges, iterations of tasks between them, and a rehearsal of both.

`warm_up_process` sends a few shaped frames to oneself before the run: whatever is slow
only once is over. A process just forked copies each page that it writes to, runs every
line of Python for the first time and has no memory for payloads. Without this the first
60 ms of a run of 15 processes were up to 20 ms late, flow by flow, and 117 processes on
two cores were untrusted, with tasks 4 % late in one iteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from emu.emulation.network.authentication import edge_keys
from emu.emulation.network.clock import Alarm, RunClock
from emu.emulation.network.connect import open_edge
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Delivery, Handoff, Inbox
from emu.emulation.network.out_edge import OutEdge
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.shaping import EmulationSettings
from emu.emulation.wire.array_parts import state_parts
from emu.emulation.wire.messages import FlowEnded, Message, RunTask, TaskEnded
from emu.emulation.wire.notes import pack_end
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec, ProcessTask
from emu.errors import DeadlineExceeded, EmulatorError, NodeMisbehaved
from emu.host.this_host import loopback_address, this_host
from emu.problem.changes import end_of_work
from emu.problem.workloads import CHECKPOINT
from emu_nodes.program import (
    Copy,
    KeepsState,
    Payload,
    Program,
    TaskProgram,
)

_ROUNDS = 8
_BYTES = 1 << 18
_RATE = 1e9  # bytes per second: a round takes 0.3 ms
_WITHIN = 30.0  # wall seconds, on a host where a hundred processes warm up at once
#: Edges of a task that an error names at most.
_TOLD = 8


class WallClockTimer:
    """Lets coroutines wait for wall times; one timerfd for all of them.

    asyncio.sleep under uvloop is off by up to half a millisecond either way.
    """

    def __init__(self) -> None:
        self._alarm = Alarm(asyncio.get_running_loop(), self._ring)
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    async def until(self, wall: float) -> None:
        """Return at ``wall`` of CLOCK_MONOTONIC, at once when that is past."""
        if this_host.monotonic() >= wall:
            return
        future = asyncio.get_running_loop().create_future()
        # The order of the calls parts equal times: futures do not compare.
        heapq.heappush(self._waiting, (wall, next(self._order), future))
        self._alarm.set(self._waiting[0][0])
        await future

    def _ring(self) -> None:
        now = this_host.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._waiting:  # it rings once for every setting
            self._alarm.set(self._waiting[0][0])

    def close(self) -> None:
        """Give the timer back."""
        self._alarm.close()


def _count_none(_edge: int) -> int:
    return 0


class EdgeEnds:
    """Ends of all edges by which the tasks of one process receive and send.

    An edge from another process has a connection, one between its own tasks none.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        report: Callable[[FlowEnded], None],
        fail: Callable[[EmulatorError], None],
    ) -> None:
        settings = spec.settings
        self._spec = spec
        self._report = report
        self._fail = fail
        self._name = spec.process
        self._settings = settings
        self.clock: RunClock | None = None
        """Run time, by which arrivals are reported from its start on."""
        self._inputs = [end for task in spec.tasks for end in task.inputs]
        self._outputs = [end for task in spec.tasks for end in task.outputs]
        self._expected = {end.edge: end.sent for end in self._inputs}
        self.count_frames: Callable[[int], int] = _count_none
        """Returns how many frames of an edge someone else has received."""
        all_ends = (*self._inputs, *self._outputs)
        self._names = {end.edge: end.name for end in all_ends}

        # Most real bytes per wall second of edges with bounded bursts.
        rates: dict[int, float] = {}
        if settings.limits_bursts:
            scale = settings.byte_scale / settings.time_scale
            for end in self._inputs:
                if end.shaped:
                    rates[end.edge] = end.capacity * scale

        remote_inputs = self._between_processes(self._inputs)
        self.pool = BufferPool(int(settings.memory_limit))
        self.inbox = Inbox(owner=self._name)
        self.server = DataServer(
            keys={end.edge: end.key for end in remote_inputs},
            inbox=self.inbox,
            pool=self.pool,
            on_arrival=self._on_arrival,
            on_failure=self._broke,
            rates=rates,
            certificate=spec.here.certificate,
            notify=self._notify,
        )
        self.connections: dict[int, OutEdge] = {}
        self.outputs: dict[int, OutEdge | Handoff] = {}

    def _notify(self, line: str) -> None:
        print(f"process {self._name}: {line}", file=sys.stderr)  # noqa: T201 -- the agent's log

    def _between_processes(self, ends: Sequence[EdgeEnd]) -> list[EdgeEnd]:
        return [end for end in ends if end.peer_process != self._name]

    def _on_arrival(
        self,
        edge: int,
        iteration: int,
        wall: float,
        size: int,
        shaped: object,
    ) -> None:
        self._expected[edge] -= 1  # after the last one an end is no failure
        if shaped and self.clock is not None:
            time = self.clock.to_emulated(wall)
            volume = size / self._settings.byte_scale
            self._report(FlowEnded(edge, iteration, time, volume))

    def _broke(self, edge: int, error: EmulatorError) -> None:
        # A reset may take along a frame that its sender has done with: nobody would
        # miss it before the deadline.
        expected = self._expected[edge]
        received = self.count_frames(edge)
        if expected > received:
            self._fail(type(error)(f"flow {self._names[edge]}: {error}"))

    async def meet(self, addresses: Mapping[str, Sequence[Any]], pacer: Pacer) -> None:
        """Connect every edge, those that leave and those that arrive.

        Raises DeadlineExceeded when a peer does not connect, EmulatorError when it
        refuses: both name the edge.
        """
        within = self._settings.deadline
        for end in self._between_processes(self._outputs):
            address = addresses[end.peer_process]
            try:
                self.connections[end.edge] = await self._connect(end, address, pacer)
            except EmulatorError as error:
                raise type(error)(f"flow {end.name}: {error}") from error

        # Between two tasks of this process nothing crosses a socket, nor is it shaped.
        for end in self._outputs:
            self.outputs[end.edge] = self.connections.get(end.edge) or Handoff(
                end.edge,
                self.inbox,
                pacer.departures,
                self.server.log,
            )

        try:
            await self.server.wait_connected(within=within)
        except TimeoutError:
            missing = [
                self._names[edge]
                for edge in self.server.keys
                if edge not in self.server.connected
            ]
            raise DeadlineExceeded(
                f"{self._name} waited {within:g} s for {', '.join(missing[:5])} "
                "to connect; iteration 0 cannot start"
            ) from None

    async def _connect(
        self,
        end: EdgeEnd,
        address: Sequence[Any],
        pacer: Pacer,
    ) -> OutEdge:
        host, port = address
        first_port = self._spec.source_port
        edge = await open_edge(
            (host, port),
            end.edge,
            key=end.key,
            pacer=pacer,
            capacity=end.capacity,
            source_port=first_port + end.edge if first_port else 0,
            encrypted=self._settings.tls == "all",
            within=self._settings.deadline,
        )
        edge.on_failure = self._fail
        return edge

    async def aclose(self) -> None:
        """Close every connection."""
        for edge in self.connections.values():
            await edge.aclose()
        await self.server.aclose()


class NewestInputs:
    """Payloads that a task has read last of every in-edge that reads the newest."""

    def __init__(self, arrival: Callable[[int, int], Awaitable[Delivery]]) -> None:
        self._arrival = arrival
        self._held: dict[int, Delivery] = {}

    async def take(self, reads: Sequence[Sequence[int]]) -> dict[int, Delivery]:
        """Return the payloads that an order names, as [edge, iteration], maybe again.

        All older ones are released, read or not.
        """
        for edge, iteration in reads:
            delivery = self._held.get(edge)
            first = 0 if delivery is None else delivery.iteration + 1
            for number in range(first, iteration + 1):
                newer = await self._arrival(edge, number)
                if delivery is not None:
                    delivery.release()
                delivery = newer
                self._held[edge] = delivery
        return dict(self._held)

    def release(self) -> None:
        """Give back what is left."""
        for delivery in self._held.values():
            delivery.release()
        self._held.clear()


@dataclass(frozen=True)
class TaskContext:
    """Objects that the tasks of a process share."""

    inbox: Inbox
    outputs: Mapping[int, OutEdge | Handoff]
    compute: Executor
    """The one compute thread of the process."""
    timer: WallClockTimer
    clock: RunClock
    report: Callable[[TaskEnded], None]
    """Tells the coordinator of an end."""
    send: Callable[[Message], None]
    """Sends a message to the coordinator."""
    settings: EmulationSettings
    first: int = 0
    """Number of iteration 0 to programs."""


@dataclass(frozen=True, eq=False)
class _Work:
    """Outcome of an iteration of a program."""

    payloads: dict[int, Payload]
    """By out-edge."""
    began: float
    """Wall time."""
    cpu: float
    """CPU seconds."""
    states: Mapping[int, Payload]
    """States to report, by their cuts."""


class TaskRunner:
    """Runs the iterations of one task as the coordinator orders them."""

    def __init__(
        self,
        spec: ProcessTask,
        program: Program,
        context: TaskContext,
    ) -> None:
        self.name = spec.name
        self.task = spec.task
        self._spec = spec
        self.program = program
        self._owner = program.owner if isinstance(program, Copy) else spec.name
        self._inputs = {end.edge: end for end in spec.inputs}
        self._outputs = {end.edge: end for end in spec.outputs}
        self._context = context
        self._copy: int | None = None
        for end in spec.outputs:
            if end.peer_kind == CHECKPOINT:
                self._copy = end.edge  # to where its state goes, if anywhere
                break
        self._newest = NewestInputs(self._arrival)
        self._begun: dict[int, Payload] = {}
        self.doing = ""

    async def run(self, order: RunTask) -> None:
        """Run one iteration, report its end and queue what it sends.

        The task occupies [start, start + its time] of run time, or longer where its
        machine is slow or paused, however late or early the order came, and ends later
        only where its real work does. Its time is the profiled one, or the CPU time of
        the work over the speed of the emulated machine: neither depends on the time
        scale. Its end is reported when its work is done: the coordinator keeps it until
        then, and no payload goes before its flow is given a rate.
        """
        context = self._context
        iteration = order.iteration
        number = iteration + context.first  # in the whole job
        self.doing = f"task {self.name}, iteration {number}"
        # The first orders come before run time 0; work done until then would be free.
        starts = order.start if self._spec.times is None else 0.0
        await context.timer.until(context.clock.to_wall(starts))

        arrivals: dict[int, Delivery] = {}
        for edge, end in self._inputs.items():
            turn = iteration - end.lag
            if not end.latest and 0 <= turn < end.sent:
                arrivals[edge] = await self._arrival(edge, turn)
        deliveries = arrivals | await self._newest.take(order.reads)
        inputs = {edge: dict(arrival.payload) for edge, arrival in deliveries.items()}

        # Not in the loop, however short: there, 2,000 tasks of 0.1 ms made a run of 12
        # wall seconds on two cores 3 to 9 longer, for a quarter less CPU of the nodes.
        loop = asyncio.get_running_loop()
        work = await loop.run_in_executor(context.compute, self._compute, order, inputs)
        # What reads the newest is kept: the next iteration may read it again.
        for delivery in arrivals.values():
            delivery.release()
        if iteration == self._spec.iterations - 1:
            self._newest.release()

        self._hand_over(order, work)
        for cut, state in work.states.items():
            for part in state_parts(self._owner, cut, state):
                context.send(part)
        self.doing = ""

    def _hand_over(self, order: RunTask, work: _Work) -> None:
        """Report the end of an iteration, and queue what it sends."""
        context = self._context
        iteration = order.iteration
        times = self._spec.times
        time = work.cpu / self._spec.speed if times is None else times[iteration]
        due = end_of_work(
            self._spec.speed_times,
            self._spec.speed_shares,
            order.start,
            time,
        )
        now = context.clock.now()

        sizes: dict[int, int] = {}  # of tensors, headers apart
        for edge, end in self._outputs.items():
            if iteration < end.sent:
                tensors = work.payloads[edge].values()
                sizes[edge] = sum(tensor.nbytes for tensor in tensors)
        edges = [*sizes]
        byte_scale = context.settings.byte_scale
        context.report(
            TaskEnded(
                task=self.task,
                iteration=iteration,
                start=order.start,
                end=max(now, due),  # it may be yet to come
                edges=edges,
                volumes=[sizes[edge] / byte_scale for edge in edges],
                began=context.clock.to_emulated(work.began),
                cpu=work.cpu,
                late=max(now - due, 0.0),
                report=self.program.report(),
            )
        )

        for edge in edges:  # no bytes need no rate
            is_shaped = self._outputs[edge].shaped and sizes[edge] > 0
            output = context.outputs[edge]
            output.send(iteration, work.payloads[edge], shaped=is_shaped)

    async def _arrival(self, edge: int, iteration: int) -> Delivery:
        """Return an input, not before it has landed.

        It is held back for its latency from its last byte on, by the clock of this
        process: what the coordinator thinks of when it lands does not hasten it.
        Raises DeadlineExceeded when it does not come; names who waits for whom.
        """
        # No input need be waited for: when a task is ordered, every one has left its
        # source and, if it was shaped, has arrived.
        context = self._context
        patience = context.settings.deadline
        latency = self._inputs[edge].latency
        try:
            delivery = await context.inbox.get(edge, iteration, within=patience)
        except DeadlineExceeded:
            raise DeadlineExceeded(
                f"task {self.name} waited {patience:g} s for iteration "
                f"{iteration + context.first} of {self._inputs[edge].peer}"
            ) from None
        if latency:
            lands = context.clock.to_emulated(delivery.arrived) + latency
            await context.timer.until(context.clock.to_wall(lands))
        return delivery

    def _compute(self, order: RunTask, inputs: dict[int, Payload]) -> _Work:
        """Run the program; in the compute thread.

        Raises NodeMisbehaved when it has nothing for an edge that sends, or something
        for what is none of its out-edges.
        """
        iteration = order.iteration
        program = self.program
        number = iteration + self._context.first  # in the whole job
        state = self._finish_cut(number)

        began = this_host.monotonic()
        cpu = this_host.thread_time()
        if order.reads:
            cast("TaskProgram", program).read(dict(order.reads))
        payloads = program.run(number, inputs)

        if self._copy is not None:  # which reports it when it has come
            payloads[self._copy] = next(iter(state.values()), {})
            state = {}
        elif isinstance(program, Copy):
            state = program.kept
        for edge, end in self._outputs.items():
            if iteration < end.sent and edge not in payloads:
                raise NodeMisbehaved(f"the program has nothing for {end.peer}")
        for edge in payloads:
            if edge not in self._outputs:
                problem = f"the program sends over {edge!r}, no edge of it"
                raise NodeMisbehaved(f"{problem}: {self._list_outputs()}")
        return _Work(
            payloads=payloads,
            began=began,
            cpu=this_host.thread_time() - cpu,
            states=state,
        )

    def _list_outputs(self) -> str:
        """Return the edges over which the task sends, the first few of many."""
        ends = list(self._outputs.values())
        names = [f"{end.edge} to {end.peer}" for end in ends[:_TOLD]]
        if len(ends) > _TOLD:
            names.append(f"{len(ends) - _TOLD} others")
        return "it has " + (", ".join(names) or "none")

    def _finish_cut(self, number: int) -> dict[int, Payload]:
        """Return the state of a cut that is whole before an iteration, by its cut.

        To copy it is no work of the task's, and takes no time.
        """
        keeper = cast("KeepsState", self.program)
        every = self._spec.every
        # What begins with a cut copies it again: who had the copy may be who died.
        begins = number if self._copy is not None else number - self._context.first
        if every and begins and number % every == 0:
            self._begun[number] = keeper.state(number)

        # Updates of earlier iterations may be on their way at a cut.
        misses: int = getattr(self.program, "missed", 0)
        cut = number - misses
        if cut not in self._begun:
            return {}
        late = keeper.late_updates(number) if misses else {}
        return {cut: self._begun.pop(cut) | late}


async def warm_up_process(compute: Executor) -> None:
    """Do what the run will do: compute, hold, send by a board, receive, report.

    Raises EmulatorError when this host has no loopback address to connect to.
    """
    inbox = Inbox("warm-up")
    keys = edge_keys(secrets.token_hex(8), [0])
    payload = {"x": np.zeros(_BYTES, dtype=np.uint8)}

    def on_arrival(edge: int, iteration: int, wall: float, size: int, *_: Any) -> None:
        pack_end(FlowEnded(edge, iteration, wall, float(size)))

    async with contextlib.AsyncExitStack() as stack:
        board = stack.enter_context(contextlib.closing(RateBoard.create(1)))
        pacer = stack.enter_context(contextlib.closing(Pacer(board)))
        timer = stack.enter_context(contextlib.closing(WallClockTimer()))
        server = DataServer(
            keys=keys,
            inbox=inbox,
            pool=BufferPool(),
            on_arrival=on_arrival,
        )
        stack.push_async_callback(server.aclose)
        address = await server.start(loopback_address())
        edge = await open_edge(address, 0, key=keys[0], pacer=pacer, within=_WITHIN)
        stack.push_async_callback(edge.aclose)

        loop = asyncio.get_running_loop()
        clock = RunClock(this_host.monotonic(), 1.0)
        pacer.start(clock)
        for iteration in range(_ROUNDS):
            await loop.run_in_executor(compute, int)
            await timer.until(this_host.monotonic() + 1e-4)
            sending = edge.send(iteration, payload, shaped=iteration % 4 > 0)
            board.publish([0], [iteration], [0.0], [_RATE], clock.now())
            edge.notify(0.0)
            delivery = await inbox.get(0, iteration, within=_WITHIN)
            delivery.release()
            await sending
