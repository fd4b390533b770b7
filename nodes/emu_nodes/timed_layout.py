"""Memory of timed tasks for the core, which runs them: `TimedProcess` of core.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.tcp_info import RowLog
from emu.emulation.wire.frame_layout import CONNECTION_ROWS, WAIT_ROWS
from emu.emulation.wire.process_spec import EdgeEnd, ProcessSpec, ProcessTask
from emu.prediction.core import ffi, pointer
from emu_nodes.program import Program
from emu_nodes.task_runner import EdgeEnds
from emu_nodes.timed import POOL, Timed

#: Bytes of the notes that a turn may leave, and of the longest of a task without flows
#: and of each flow: see `emu.emulation.wire.notes`.
_NOTES = 1 << 18
_END = 64
_SENT = 16
#: Rows kept of waits, and of the states of connections: as many as a `RowLog` keeps.
_ROWS = 15_000


def find_timed_programs(
    spec: ProcessSpec,
    programs: Mapping[int, Program],
    ends: EdgeEnds,
    pacer: Pacer,
) -> dict[int, Timed]:
    """Return the programs of a process whose tasks the core can run; {} for none.

    It runs all of a process or nothing: tasks that take their profiled times and send
    bytes of their seed, without a state to be kept or restored, over sockets that are
    the kernel's own, neither of TLS nor in virtual time.
    """
    connections = ends.connections.values()
    receivers = ends.server.connected.values()
    has_plain_ends = (
        pacer.device == "timerfd"
        and all(connection.sender.fd >= 0 for connection in connections)
        and all(receiver.is_plain for receiver in receivers)
    )
    if not has_plain_ends:
        return {}

    timed: dict[int, Timed] = {}
    for task in spec.tasks:
        program = programs[task.task]
        keeps_state = bool(task.every or task.restores)
        # A subclass may do more.
        if type(program) is not Timed or task.times is None or keeps_state:
            return {}
        timed[task.task] = program
    return timed


class TimedLayout:
    """Structures of the core for all tasks of a process and their ends of edges.

    Parameters
    ----------
    spec
        Of the process.
    programs
        Of its tasks, by their positions in the job.
    ends, pacer
        Connections of its edges, all open, and the pacer of those that leave.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        programs: Mapping[int, Timed],
        ends: EdgeEnds,
        pacer: Pacer,
    ) -> None:
        self._spec = spec
        self._kept: list[Array] = []  # arrays that the core reads
        self.task_place: dict[int, int] = {}
        self.inlet_place: dict[int, int] = {}
        self.outlet_place: dict[int, int] = {}
        """Places of tasks and edges of the job among those of the process."""
        self.inputs: list[EdgeEnd] = []
        self.outputs: list[EdgeEnd] = []
        """In-edges and out-edges, in the order of their places."""
        self._number_all()

        # One at least: the core takes no pointer to nothing.
        inlets = max(1, len(self.inputs))
        outlets = max(1, len(self.outputs))
        self.tasks = ffi.new("TimedTask[]", len(spec.tasks))
        self.inlets = ffi.new("Inlet[]", inlets)
        self.outlets = ffi.new("Outlet[]", outlets)
        for place, task in enumerate(spec.tasks):
            self._fill_task(place, task)
            self._fill_inlets(place, task)
            rows = programs[task.task].rows
            self._fill_outlets(task, rows, ends)

        # Pages that no row comes to take no memory.
        self._waits = np.empty(_ROWS, WAIT_ROWS)
        self._states = np.empty((_ROWS, CONNECTION_ROWS.itemsize), np.uint8)
        longest = _END + _SENT * outlets
        notes_room = max(_NOTES, longest)
        self.notes = np.empty(notes_room, np.uint8)
        self.odd_inlets = np.empty(inlets, np.int64)
        self.odd_outlets = np.empty(outlets, np.int64)
        """Places that Python is to look at."""
        self.core = self._make_process(programs, ends, pacer)
        """The `TimedProcess`."""

    def take_notes(self) -> bytes:
        """Return the notes of ends since the last call, packed; empty for none."""
        size = self.core.notes_size
        if not size:
            return b""
        self.core.notes_size = 0
        return self.notes[:size].tobytes()

    def add_waits(self, log: RowLog) -> None:
        """Add the rows of waits for readers."""
        rows = self._waits.view(np.uint8).reshape(_ROWS, -1)
        _add_newest(log, rows, self.core.wait_count)

    def add_states(self, log: RowLog) -> None:
        """Add the rows of connections before their flows."""
        _add_newest(log, self._states, self.core.state_count)

    def _keep(self, array: Array) -> Any:
        self._kept.append(array)
        return pointer(array)

    def _numbers(self, values: Sequence[float]) -> Any:
        array = np.array(values, np.float64)
        return self._keep(array)

    def _integers(self, values: Sequence[int]) -> Any:
        array = np.array(values, np.int64)
        return self._keep(array)

    def _number_all(self) -> None:
        for place, task in enumerate(self._spec.tasks):
            self.task_place[task.task] = place
            self.inputs += task.inputs
            self.outputs += task.outputs

        for place, end in enumerate(self.inputs):
            self.inlet_place[end.edge] = place
        for place, end in enumerate(self.outputs):
            self.outlet_place[end.edge] = place

    def _fill_task(self, place: int, task: ProcessTask) -> None:
        core = self.tasks[place]
        times = cast("list[float]", task.times)
        core.task = task.task
        core.iterations = task.iterations
        core.time = self._numbers(times)
        core.inlets = len(task.inputs)
        core.outlets = len(task.outputs)
        core.since = np.nan
        core.next = np.inf
        if place:
            before = self.tasks[place - 1]
            core.first_inlet = before.first_inlet + before.inlets
            core.first_outlet = before.first_outlet + before.outlets

        steps = core.speeds
        steps.count = len(task.speed_times)
        steps.start = self._integers([0, steps.count])
        steps.time = self._numbers(task.speed_times)
        steps.share = self._numbers(task.speed_shares)

    def _fill_inlets(self, place: int, task: ProcessTask) -> None:
        for end in task.inputs:
            sent = end.sent
            inlet = self.inlets[self.inlet_place[end.edge]]
            inlet.edge = end.edge
            inlet.task = place
            inlet.lag = end.lag
            inlet.latest = end.latest
            inlet.latency = end.latency
            inlet.sent = sent
            inlet.newest = -1
            inlet.needed = -1
            inlet.arrived = self._numbers([np.nan] * sent)
            inlet.volume = self._integers([0] * sent)

            waits = np.zeros(sent, np.bool_)
            inlet.waits = self._keep(waits)

    def _fill_outlets(
        self,
        task: ProcessTask,
        rows: Mapping[int, Sequence[int]],
        ends: EdgeEnds,
    ) -> None:
        for end in task.outputs:
            edge = end.edge
            outlet = self.outlets[self.outlet_place[edge]]
            outlet.edge = edge
            outlet.inlet = self.inlet_place.get(edge, -1)
            outlet.sent = end.sent
            outlet.shaped = end.shaped
            sizes = rows[edge]
            outlet.size = self._integers(sizes)
            outlet.since = self._numbers([0.0] * end.sent)

            connection = ends.connections.get(edge)
            if connection is not None:
                outlet.sender = connection.sender

    def _list_outlets(self, edges: int) -> Any:
        outlet_of = np.full(edges, -1)
        for edge, place in self.outlet_place.items():
            outlet_of[edge] = place
        return self._keep(outlet_of)

    def _make_process(
        self,
        programs: Mapping[int, Timed],
        ends: EdgeEnds,
        pacer: Pacer,
    ) -> Any:
        # All pools have the bytes of the seed, and the longest one has every payload.
        pools = [program.pool for program in programs.values()]
        pool = max(pools, key=len)
        seeds = {program.seed for program in programs.values()}
        (seed,) = seeds

        # Frames are noted without asking for room.
        arrivals = ends.server.log
        arrivals.reserve(sum(end.sent for end in self.inputs))
        departures = pacer.departures
        departures.reserve(sum(end.sent for end in self.outputs))

        fields = {
            "epoll": -1,
            "due": np.inf,
            "pacing": pacer.core,
            "task": self.tasks,
            "tasks": len(self._spec.tasks),
            "inlet": self.inlets,
            "inlets": len(self.inputs),
            "outlet": self.outlets,
            "outlets": len(self.outputs),
            "outlet_of": self._list_outlets(pacer.board.edges),
            "seed": seed,
            "pool": self._keep(pool),
            "period": POOL,
            "first": self._spec.first,
            "arrivals": arrivals.core,
            "wait": ffi.from_buffer("WaitRow[]", self._waits),
            "wait_room": _ROWS,
            "state": self._keep(self._states),
            "state_room": _ROWS,
            "memory": ends.pool.core,
            "notes": self._keep(self.notes),
            "notes_room": len(self.notes),
            "odd_inlet": self._keep(self.odd_inlets),
            "odd_outlet": self._keep(self.odd_outlets),
        }
        return ffi.new("TimedProcess *", fields)


def _add_newest(log: RowLog, rows: NDArray[np.uint8], count: int) -> None:
    """Add the newest rows of a ring, which has counted so many, the oldest first."""
    room = len(rows)
    oldest = max(0, count - room)
    for number in range(oldest, count):
        row = rows[number % room]
        log.add(row.tobytes())
