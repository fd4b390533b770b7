"""The way of ends to the coordinator and of orders back, one per process of the system.

What is said in a turn of the loop leaves together: a message to write and seal, and for
the coordinator to read and open, where each of 200 tasks had its own. To a coordinator
of the same host it goes by rings in shared memory, which need neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

from emu.emulation.network.control import ControlConnection
from emu.emulation.network.rings import Rings, create_rings, ring_size
from emu.emulation.wire.messages import Ends, Orders, RunTask, pack
from emu.emulation.wire.notes import Ended, Order, pack_end, unpack_orders
from emu.emulation.wire.process_spec import ProcessSpec
from emu.errors import EmulatorError, MalformedFrame, NodeMisbehaved

#: Bytes of ends that leave at once, so that a message stays far below its limit.
_TOGETHER = 1 << 18


def may_have_rings(specs: Sequence[ProcessSpec]) -> bool:
    """Return True where processes may speak through memory: on Linux, without TLS.

    And where no task sends its state, which goes over the connection: an end by ring
    would overtake it, and a process that dies between the two would have lost it.
    """
    if sys.platform != "linux":
        return False
    for spec in specs:
        sends_state = any(task.every for task in spec.tasks)
        if sends_state or spec.settings.tls == "all":
            return False
    return True


class Line:
    """The connection, or the rings, of the first of some processes: all speak by it.

    All of them are in one loop.
    """

    def __init__(self, specs: Sequence[ProcessSpec]) -> None:
        self.lead = specs[0].process
        self._connection: ControlConnection | None = None
        self._rings: Rings | None = None
        self._speaks_by_rings = False
        self._fail: Callable[[BaseException], None] | None = None
        self._notes: list[bytes] = []
        self._size = 0
        # Whom an order is for, and who carries out those of a process.
        self._of_task: dict[int, str] = {}
        self._of_edge: dict[int, str] = {}
        edges = 0
        for spec in specs:
            for task in spec.tasks:
                edges += len(task.inputs) + len(task.outputs)
                self._of_task[task.task] = spec.process
                for end in task.outputs:
                    if end.peer_process != spec.process:
                        self._of_edge[end.edge] = spec.process
        self._ring_size = ring_size(len(self._of_task), edges)
        self._together = min(_TOGETHER, self._ring_size)
        self._workers: dict[str, Callable[[Order], None]] = {}
        self._early: defaultdict[str, list[Order]] = defaultdict(list)

    def connect(self, connection: ControlConnection) -> None:
        """Say everything over this connection, that of the lead."""
        self._connection = connection

    def make_rings(self) -> list[int]:
        """Make rings for all processes; return the numbers by which others join them.

        Raises OSError where there is no memory for them, or no descriptor.
        """
        self._rings, numbers = create_rings(self._ring_size)
        return numbers

    def speak_by_rings(self, fail: Callable[[BaseException], None]) -> None:
        """Report ends and take orders through the rings from now on.

        ``fail`` is called with what is wrong with them, or with an order.
        """
        self._fail = fail
        rings = self._rings
        if rings is None or self._speaks_by_rings:
            return

        self._speaks_by_rings = True
        loop = asyncio.get_running_loop()
        loop.add_reader(rings.woken, self._hear, rings)

    def close(self) -> None:
        """Let go of the rings."""
        rings = self._rings
        if rings is None:
            return

        if self._speaks_by_rings:
            loop = asyncio.get_running_loop()
            loop.remove_reader(rings.woken)
        rings.close()
        self._rings = None

    def join(self, process: str, carry_out: Callable[[Order], None]) -> None:
        """Hand over the orders to a process, from the first on."""
        self._workers[process] = carry_out
        for order in self._early.pop(process, ()):
            carry_out(order)

    def leave(self, process: str) -> None:
        """Let orders to a process fall: it has done all, or has failed."""
        self._workers[process] = lambda _: None

    def forget(self, process: str) -> None:
        """Keep orders for a process until it joins again, in a further run."""
        self._workers.pop(process, None)

    def report(self, end: Ended) -> None:
        """Tell the coordinator of an end, with all others of this turn of the loop."""
        note = pack_end(end)
        self.add(note)

    def add(self, note: bytes) -> None:
        """Do the same with ends that are packed."""
        size = self._size + len(note)
        if size > self._together:
            self._flush()
        if not self._notes:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._flush)
        self._notes.append(note)
        self._size += len(note)

    def _flush(self) -> None:
        notes = b"".join(self._notes)
        self._notes = []
        self._size = 0
        if not notes:
            return

        rings = self._rings
        connection = self._connection
        has_room = rings is not None and len(notes) <= rings.size
        if rings is not None and has_room and self._speaks_by_rings:
            self._write(rings, notes)
        elif connection is not None:
            message = pack(Ends(notes))
            # Who follows the connection notices that it has ended.
            with contextlib.suppress(EmulatorError):
                connection.send(message)

    def _write(self, rings: Rings, notes: bytes) -> None:
        try:
            rings.write(notes)
        except NodeMisbehaved as error:
            self._give_up(rings, error)

    def _hear(self, rings: Rings) -> None:
        """Have orders carried out that have come, and write what had no room."""
        try:
            notes = rings.read()
            rings.go_on()
            orders = Orders(notes)
            self.obey(orders)
        except EmulatorError as error:
            self._give_up(rings, error)

    def _give_up(self, rings: Rings, error: EmulatorError) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(rings.woken)
        if self._fail is not None:
            self._fail(error)

    def obey(self, orders: Orders) -> None:
        """Have orders carried out; raises MalformedFrame when one is not for here."""
        for order in unpack_orders(orders.notes):
            if isinstance(order, RunTask):
                process = self._of_task.get(order.task)
                subject = f"task {order.task} is not run here"
            else:
                process = self._of_edge.get(order.edge)
                subject = f"edge {order.edge} does not leave from here"
            if process is None:
                raise MalformedFrame(subject)

            # Others may have heard of the start of the run a moment before.
            worker = self._workers.get(process)
            if worker is None:
                self._early[process].append(order)
            else:
                worker(order)
