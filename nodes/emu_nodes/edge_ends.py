"""The ends of edges that a process holds: connections, and handoffs within it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from emu.emulation.network.clock import RunClock
from emu.emulation.network.connect import open_edge
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Handoff, Inbox
from emu.emulation.network.out_edge import OutEdge
from emu.emulation.network.pacer import Pacer
from emu.emulation.wire.messages import FlowEnded
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec
from emu.errors import DeadlineExceeded, EmulatorError


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
        self._spec, self._report, self._fail = spec, report, fail
        self._name, self._settings = spec.process, spec.settings
        self._clock: RunClock | None = None
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
        self,
        edge: int,
        n: int,
        wall: float,
        size: int,
        shaped: bool,  # noqa: FBT001 -- the transport's signature
    ) -> None:
        self._expected[edge] -= 1  # after the last one an end is no failure
        if shaped and self._clock is not None:
            time = self._clock.to_emulated(wall)
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
        within, first_port = self._settings.deadline, self._spec.source_port
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
        except DeadlineExceeded:
            late = (e for e in self.server.keys if e not in self.server.connected)
            missing = [self._names[edge] for edge in late]
            raise DeadlineExceeded(
                f"{self._name} waited {within:g} s for {', '.join(missing[:5])} "
                "to connect; iteration 0 cannot start"
            ) from None

    def start(self, clock: RunClock) -> None:
        """Report arrivals from now on, in run time."""
        self._clock = clock

    async def aclose(self) -> None:
        """Close every connection."""
        for edge in self.connections.values():
            await edge.aclose()
        await self.server.aclose()
