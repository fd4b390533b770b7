"""Timed tasks of a process, which the core runs: Python neither sends nor receives.

Of the 165 us of CPU that a message of 10 kB took the nodes, 95 were Python's: tasks in
coroutines and a compute thread, payloads in an inbox, frames in a queue, each of them
in a callback of its own. Here the core does what has come, is due or is to go while the
loop waits (`TimedSelector`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from emu.emulation.network.clock import PauseAwareClock, RunClock
from emu.emulation.network.data_server import DataConnection
from emu.emulation.network.inbox import Delivery
from emu.emulation.network.pacer import Pacer
from emu.emulation.wire.messages import RunTask
from emu.emulation.wire.notes import Order
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import DeadlineExceeded, NodeMisbehaved
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib, pointer
from emu_nodes.task_runner import EdgeEnds
from emu_nodes.timed import Timed
from emu_nodes.timed_layout import TimedLayout
from emu_nodes.timed_selector import TimedSelector

#: Wall seconds between two looks at who waits for inputs, at most.
_LOOK = 1.0


class TimedProcess:
    """Runs the timed tasks of one process from the start of the run on.

    Parameters
    ----------
    spec
        Of the process.
    programs
        Of all its tasks, as from `find_timed_programs`.
    ends, pacer
        Connections of its edges, all open, and the pacer of those that leave.
    clock
        Of the run.
    selector
        Of the running loop, which gives it its turns.
    report
        Called with packed notes of ends for the coordinator.
    fail
        Called with the error that ends the process.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        programs: Mapping[int, Timed],
        ends: EdgeEnds,
        pacer: Pacer,
        clock: RunClock,
        selector: TimedSelector,
        report: Callable[[bytes], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._spec = spec
        self._ends = ends
        self._pacer = pacer
        self._clock = clock
        self._selector = selector
        self._report = report
        self._fail = fail
        self._layout = TimedLayout(spec, programs, ends, pacer)
        self._core = self._layout.core
        self._connections: dict[int, DataConnection] = {}  # by the places of inlets
        self._watching: asyncio.Task[None] | None = None
        self._has_joined = False

    def start(self) -> None:
        """Take over connections and alarms, and what has come so far.

        Raises OSError where the system has no descriptors for it.
        """
        core = self._core
        self._clock.show(self._pacer.core)
        self._pacer.lend_alarm()
        self._selector.join(self._spec.process, core, self._after_turn)
        self._has_joined = True

        layout = self._layout
        server = self._ends.server
        for edge, receiver in server.connected.items():
            place = layout.inlet_place[edge]
            self._connections[place] = receiver
            layout.inlets[place].receiver = receiver.lend(server.sinks[edge])
            if not lib.watch_inlet(core, place):
                raise OSError(ffi.errno, os.strerror(ffi.errno))
        for edge, sender in self._ends.connections.items():
            sender.lend(partial(self._cut, edge))

        for delivery in self._ends.inbox.forward(self._deliver):
            self._deliver(delivery)
        self._watching = asyncio.ensure_future(self._watch_deadlines())

    def carry_out(self, order: Order) -> None:
        """Begin an iteration in time, or look at the rate of an edge.

        Raises NodeMisbehaved where an iteration is not the next one of its task.
        """
        core = self._core
        if isinstance(order, RunTask):
            place = self._layout.task_place[order.task]
            reads = np.array(order.reads, np.int32).reshape(-1)
            is_next = lib.order_task(
                core,
                place,
                order.iteration,
                order.start,
                pointer(reads),
                len(order.reads),
            )
            if not is_next:
                name = self._spec.tasks[place].name
                number = order.iteration + self._spec.first
                raise NodeMisbehaved(
                    f"task {name} was ordered to run iteration {number}, which is "
                    "not its next, or reads what does not come to it"
                )
        else:
            lib.wake_outlet(core, order.edge, order.since)

    def doing(self) -> list[str]:
        """Return the iterations under way, in words."""
        phrases = []
        for task, core in zip(self._spec.tasks, self._layout.tasks, strict=True):
            if core.ordered:
                number = core.ended + self._spec.first
                phrases.append(f"task {task.name}, iteration {number}")
        return phrases

    def count_frames(self, edge: int) -> int:
        """Return how many frames of an edge the core has received."""
        place = self._layout.inlet_place[edge]
        return int(self._layout.inlets[place].frames)

    def count(self) -> None:
        """Add what the core has counted and noted to that of the process."""
        server = self._ends.server
        for place, end in enumerate(self._layout.inputs):
            inlet = self._layout.inlets[place]
            server.frames += inlet.frames
            server.header_bytes += inlet.header_bytes
            if inlet.frames:
                server.payloads[end.edge, "bytes"] += inlet.payload_bytes

        core = self._core
        counts = self._ends.inbox.statistics
        counts.waiting = core.waiting
        counts.waiting_bytes = core.waiting_bytes
        counts.high_water = core.most_waiting
        counts.high_water_bytes = core.most_waiting_bytes
        self._layout.add_waits(server.waits)
        self._layout.add_states(self._pacer.connections)

    def close(self) -> None:
        """Run nothing any more; connections and the pacer stay with their owners."""
        if self._watching is not None:
            self._watching.cancel()
        if self._has_joined:
            self._selector.leave(self._spec.process, self._core)
        self._has_joined = False

    def _after_turn(self) -> None:
        """Take what turns of the core have left for Python."""
        core = self._core
        if core.notes_size:
            self._report(self._layout.take_notes())
        if core.odd_inlets or core.odd_outlets:
            self._look_at_odd()

    def _look_at_odd(self) -> None:
        """Do what the core has no words for: refuse, or say who has gone."""
        core = self._core
        layout = self._layout
        inlets = layout.odd_inlets[: core.odd_inlets].tolist()
        outlets = layout.odd_outlets[: core.odd_outlets].tolist()
        core.odd_inlets = 0
        core.odd_outlets = 0

        for place in inlets:
            lib.leave_inlet(core, place)
            self._connections[place].take_back()
        for place in outlets:
            end = layout.outputs[place]
            self._ends.connections[end.edge].give_up()

    def _deliver(self, delivery: Delivery) -> None:
        """Take a payload that Python has received and reported.

        Raises NodeMisbehaved where its edge carries no such iteration, or no more.
        """
        edge = delivery.edge
        iteration = delivery.iteration
        place = self._layout.inlet_place[edge]
        inlet = ffi.addressof(self._layout.inlets, place)
        if not inlet.newest < iteration < inlet.sent:
            raise NodeMisbehaved(f"edge {edge} does not carry iteration {iteration}")
        was_reported = False
        lib.deliver_payload(
            self._core,
            inlet,
            iteration,
            delivery.arrived,
            delivery.nbytes,
            was_reported,
        )

    def _cut(self, edge: int) -> bool:
        return bool(lib.cut_outlet(self._core, self._layout.outlet_place[edge]))

    async def _watch_deadlines(self) -> None:
        """End the process when a task waits for an input for too long."""
        patience = self._spec.settings.deadline
        every = min(_LOOK, patience / 4)
        clock = PauseAwareClock(every, this_host.monotonic())
        waiting: dict[tuple[int, int], float] = {}  # since when: (task, iteration)
        while True:
            await asyncio.sleep(every)
            now = clock.read(this_host.monotonic())

            earlier = waiting
            waiting = {}
            for place, task in enumerate(self._layout.tasks):
                if np.isnan(task.since):
                    continue
                iteration = (place, task.ended)
                waiting[iteration] = earlier.get(iteration, now)
                if now - waiting[iteration] >= patience:
                    self._fail(self._lateness(place))
                    return

    def _lateness(self, place: int) -> DeadlineExceeded:
        """Return what it means that a task waits: who for whom."""
        task = self._spec.tasks[place]
        missing = "its inputs to land"
        for end in task.inputs:
            inlet = self._layout.inlets[self._layout.inlet_place[end.edge]]
            if inlet.needed >= 0 and np.isnan(inlet.arrived[inlet.needed]):
                missing = f"iteration {inlet.needed + self._spec.first} of {end.peer}"
                break
        patience = self._spec.settings.deadline
        return DeadlineExceeded(f"task {task.name} waited {patience:g} s for {missing}")
