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
from emu.emulation.wire.messages import FlowEnded, Message, RunTask, TaskEnded, pack
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec, ProcessTask
from emu.errors import DeadlineExceeded, EmulatorError, NodeMisbehaved
from emu.host.this_host import loopback_address, this_host
from emu.problem.changes import end_of_work
from emu.problem.workloads import CHECKPOINT
from emu_nodes.program import Copy, KeepsState, Payload, Program, TaskProgram

_ROUNDS = 8
_BYTES = 1 << 18
_RATE = 1e9  # bytes per second: a round takes 0.3 ms
_WITHIN = 30.0  # wall seconds, on a host where a hundred processes warm up at once


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
        heapq.heappush(self._waiting, (wall, next(self._order), future))
        self._alarm.set(self._waiting[0][0])
        await future

    def _ring(self) -> None:
        now = this_host.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._waiting:
            self._alarm.set(self._waiting[0][0])

    def close(self) -> None:
        """Give the timer back."""
        self._alarm.close()


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
        self._spec = spec
        self._report = report
        self._fail = fail
        self._name = spec.process
        self._settings = spec.settings
        self.clock: RunClock | None = None
        """Run time, by which arrivals are reported from its start on."""
        self._inputs = [end for task in spec.tasks for end in task.inputs]
        self._outputs = [end for task in spec.tasks for end in task.outputs]
        self._expected = {end.edge: end.sent for end in self._inputs}
        self._names = {end.edge: end.name for end in (*self._inputs, *self._outputs)}
        self.pool = BufferPool(int(spec.settings.memory_limit))
        self.inbox = Inbox(owner=self._name)
        # Most real bytes per wall second of edges with bounded bursts.
        scale = spec.settings.byte_scale / spec.settings.time_scale
        bounded = self._inputs if spec.settings.limits_bursts else []
        self.server = DataServer(
            keys={e.edge: e.key for e in self._between_processes(self._inputs)},
            inbox=self.inbox,
            pool=self.pool,
            on_arrival=self._on_arrival,
            on_failure=self._broke,
            rates={e.edge: e.capacity * scale for e in bounded if e.shaped},
            certificate=spec.here.certificate,
            notify=lambda line: print(f"process {self._name}: {line}", file=sys.stderr),  # noqa: T201 -- the agent's log
        )
        self.connections: dict[int, OutEdge] = {}
        self.outputs: dict[int, OutEdge | Handoff] = {}

    def _between_processes(self, ends: Sequence[EdgeEnd]) -> list[EdgeEnd]:
        return [end for end in ends if end.peer_process != self._name]

    def _on_arrival(
        self, edge: int, n: int, wall: float, size: int, shaped: object
    ) -> None:
        self._expected[edge] -= 1  # after the last one an end is no failure
        if shaped and self.clock is not None:
            time = self.clock.to_emulated(wall)
            self._report(FlowEnded(edge, n, time, size / self._settings.byte_scale))

    def _broke(self, edge: int, error: EmulatorError) -> None:
        # A reset may take along a frame that its sender has done with: nobody would
        # miss it before the deadline.
        if self._expected[edge] > 0:
            self._fail(type(error)(f"flow {self._names[edge]}: {error}"))

    async def meet(self, addresses: Mapping[str, Sequence[Any]], pacer: Pacer) -> None:
        """Connect every edge, those that leave and those that arrive.

        Raises DeadlineExceeded when a peer does not connect, EmulatorError when it
        refuses: both name the edge.
        """
        within = self._settings.deadline
        first_port = self._spec.source_port
        for there in self._between_processes(self._outputs):
            host, port = addresses[there.peer_process]
            try:
                self.connections[there.edge] = await open_edge(
                    (host, port),
                    there.edge,
                    key=there.key,
                    pacer=pacer,
                    capacity=there.capacity,
                    source_port=first_port + there.edge if first_port else 0,
                    encrypted=self._settings.tls == "all",
                    within=within,
                )
            except EmulatorError as error:
                raise type(error)(f"flow {there.name}: {error}") from error
        # Between two tasks of this process nothing crosses a socket, nor is it shaped.
        self.outputs = {
            edge: self.connections.get(edge)
            or Handoff(edge, self.inbox, pacer.departures, self.server.log)
            for edge in (there.edge for there in self._outputs)
        }
        try:
            await self.server.wait_connected(within=within)
        except TimeoutError:
            late = (e for e in self.server.keys if e not in self.server.connected)
            missing = [self._names[edge] for edge in late]
            raise DeadlineExceeded(
                f"{self._name} waited {within:g} s for {', '.join(missing[:5])} "
                "to connect; iteration 0 cannot start"
            ) from None

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
            first = self._held[edge].iteration + 1 if edge in self._held else 0
            for n in range(first, iteration + 1):
                newer = await self._arrival(edge, n)
                if edge in self._held:
                    self._held[edge].release()
                self._held[edge] = newer
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
    report: Callable[[Message], None]
    """Sends a message to the coordinator."""
    track: Callable[[Any], None]
    """Takes over a coroutine that must be awaited, or the process fails."""
    settings: EmulationSettings
    first: int = 0
    """Number of iteration 0 to programs."""


class TaskRunner:
    """Runs the iterations of one task as the coordinator orders them."""

    def __init__(
        self, spec: ProcessTask, program: Program, around: TaskContext
    ) -> None:
        self.name = spec.name
        self.task = spec.task
        self._spec = spec
        self.program = program
        self._owner = program.owner if isinstance(program, Copy) else spec.name
        self._inputs = {end.edge: end for end in spec.inputs}
        self._outputs = {end.edge: end for end in spec.outputs}
        self._around = around
        copies = (e.edge for e in spec.outputs if e.peer_kind == CHECKPOINT)
        self._copy = next(copies, None)  # edge to where its state goes, if any does
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
        around = self._around
        n = order.iteration
        self.doing = f"task {self.name}, iteration {n + around.first}"
        # The first orders come before run time 0; work done until then would be free.
        starts = order.start if self._spec.times is None else 0.0
        await around.timer.until(around.clock.to_wall(starts))
        arrivals = {
            edge: await self._arrival(edge, n - there.lag)
            for edge, there in self._inputs.items()
            if not there.latest and 0 <= n - there.lag < there.sent
        }
        come = arrivals | await self._newest.take(order.reads)
        inputs = {edge: dict(delivery.payload) for edge, delivery in come.items()}
        loop = asyncio.get_running_loop()
        payloads, began, cpu, states = await loop.run_in_executor(
            around.compute, self._compute, order, inputs
        )
        for delivery in arrivals.values():
            delivery.release()
        if n == self._spec.iterations - 1:
            self._newest.release()
        times = self._spec.times
        time = cpu / self._spec.speed if times is None else times[n]
        self._hand_over(order, time, began, cpu, payloads)
        for cut, state in states.items():
            for part in state_parts(self._owner, cut, state):
                around.report(part)
        self.doing = ""

    def _hand_over(
        self,
        order: RunTask,
        time: float,
        began: float,
        cpu: float,
        payloads: dict[int, Payload],
    ) -> None:
        """Report the end of an iteration of so long, and queue what it sends."""
        around = self._around
        n = order.iteration
        steps = self._spec.speed_times, self._spec.speed_shares
        due = end_of_work(*steps, order.start, time)
        now = around.clock.now()
        edges = [edge for edge, there in self._outputs.items() if n < there.sent]
        # Those of tensors, headers apart.
        sizes = {e: sum(a.nbytes for a in payloads[e].values()) for e in edges}
        around.report(
            TaskEnded(
                task=self.task,
                iteration=n,
                start=order.start,
                end=max(now, due),  # it may be yet to come
                edges=edges,
                volumes=[sizes[edge] / around.settings.byte_scale for edge in edges],
                began=around.clock.to_emulated(began),
                cpu=cpu,
                late=max(now - due, 0.0),
                report=self.program.report(),
            )
        )
        for edge in edges:  # no bytes need no rate
            is_shaped = self._outputs[edge].shaped and sizes[edge] > 0
            out = around.outputs[edge]
            around.track(out.send(n, payloads[edge], shaped=is_shaped))

    async def _arrival(self, edge: int, iteration: int) -> Delivery:
        """Return an input, not before it has landed.

        It is held back for its latency from its last byte on, by the clock of this
        process: what the coordinator thinks of when it lands does not hasten it.
        Raises DeadlineExceeded when it does not come; names who waits for whom.
        """
        # No input need be waited for: when a task is ordered, every one has left its
        # source and, if it was shaped, has arrived.
        around = self._around
        patience = self._around.settings.deadline
        latency = self._inputs[edge].latency
        try:
            delivery = await around.inbox.get(edge, iteration, within=patience)
        except DeadlineExceeded:
            raise DeadlineExceeded(
                f"task {self.name} waited {patience:g} s for iteration "
                f"{iteration + around.first} of {self._inputs[edge].peer}"
            ) from None
        if latency:
            lands = around.clock.to_emulated(delivery.arrived) + latency
            await around.timer.until(around.clock.to_wall(lands))
        return delivery

    def _compute(
        self, order: RunTask, inputs: dict[int, Payload]
    ) -> tuple[dict[int, Payload], float, float, dict[int, Payload]]:
        """Run the program; in the compute thread.

        Returns what it sends, when it began and its CPU seconds, and what is kept. To
        copy the state before it is no work of the task's, and takes no time.
        """
        iteration = order.iteration
        program = self.program
        n = iteration + self._around.first
        keeper = cast("KeepsState", program)
        every = self._spec.every
        # What begins with a cut copies it again: who had the copy may be who died.
        if every and (n if self._copy is not None else iteration) and n % every == 0:
            self._begun[n] = keeper.state(n)
        misses: int = getattr(program, "missed", 0)
        state: dict[int, Payload] = {}
        if (cut := n - misses) in self._begun:
            late = keeper.late_updates(n) if misses else {}
            state = {cut: self._begun.pop(cut) | late}
        began = this_host.monotonic()
        cpu = this_host.thread_time()
        if order.reads:
            cast("TaskProgram", program).read(dict(order.reads))
        payloads = program.run(n, inputs)
        if self._copy is not None:  # which reports it when it has come
            payloads[self._copy] = next(iter(state.values()), {})
            state = {}
        elif isinstance(program, Copy):
            state = program.kept
        for edge, there in self._outputs.items():
            if iteration < there.sent and edge not in payloads:
                raise NodeMisbehaved(f"the program has nothing for {there.peer}")
        return payloads, began, this_host.thread_time() - cpu, state


async def warm_up_process(compute: Executor) -> None:
    """Do what the run will do: compute, hold, send by a board, receive, report.

    Raises EmulatorError when this host has no loopback address to connect to.
    """
    inbox = Inbox("warm-up")
    keys = edge_keys(secrets.token_hex(8), [0])
    payload = {"x": np.zeros(_BYTES, dtype=np.uint8)}

    def on_arrival(edge: int, n: int, wall: float, size: int, *_: Any) -> None:
        pack(FlowEnded(edge, n, wall, float(size)))

    async with contextlib.AsyncExitStack() as ending:
        board = ending.enter_context(contextlib.closing(RateBoard.create(1)))
        pacer = ending.enter_context(contextlib.closing(Pacer(board)))
        timer = ending.enter_context(contextlib.closing(WallClockTimer()))
        server = DataServer(
            keys=keys, inbox=inbox, pool=BufferPool(), on_arrival=on_arrival
        )
        ending.push_async_callback(server.aclose)
        address = await server.start(loopback_address())
        edge = await open_edge(address, 0, key=keys[0], pacer=pacer, within=_WITHIN)
        ending.push_async_callback(edge.aclose)
        clock = RunClock(this_host.monotonic(), 1.0)
        pacer.start(clock)
        for n in range(_ROUNDS):
            await asyncio.get_running_loop().run_in_executor(compute, int)
            await timer.until(this_host.monotonic() + 1e-4)
            sending = edge.send(n, payload, shaped=n % 4 > 0)
            board.publish([0], [n], [0.0], [_RATE], clock.now())
            edge.notify(0.0)
            (await inbox.get(0, n, within=_WITHIN)).release()
            await sending
