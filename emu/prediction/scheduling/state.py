"""The state of one schedule, expected runs, and ends that come from outside.

The core changes the state as it goes on (core.h). Expected runs are for rules that look
ahead and for bounds; the rules themselves are the core's: sharing.c, max_min.c,
priorities.c, coflows.c, shortest_remaining.c.

An online run has two instants per event, and a call has its price: for 1,027 flows in
8 s the coordinator took 0.25 s of CPU with a call for each end and each instant, and
0.20 where the core takes them in at once (event_batch.c).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from emu.array_types import Floats, Ints
from emu.prediction.core import Record, ffi, lib, new_room, pointer, room_in, view
from emu.prediction.scheduling.compiled_problem import JobArrays, Layout, plain
from emu.problem import Job, Realization


def means(values: Floats, counts: Ints) -> Floats:
    """Return the mean of every row, over so many of its first values, as a column."""
    column = np.zeros((len(values), 1))
    lib.means(
        pointer(values),
        *values.shape,
        pointer(counts),
        pointer(column),
    )
    return column


def longest_paths(
    layout: Layout,
    times: Floats,
    volumes: Floats,
) -> tuple[Floats, Floats]:
    """Return the longest paths from each task's start and each flow's end.

    Along a path tasks take their times, flows between machines the time they would take
    alone, and iterations of a task or an edge follow one another: constraints (7)-(11).

    Parameters
    ----------
    times, volumes
        As in `Realization`; fewer columns are repeated (one column: the means).

    Returns
    -------
    from_task
        Seconds from the start of (task, iteration) to the end of the job.
    after_flow
        Seconds from the end of (edge, iteration) to the end of the job.

    Raises
    ------
    ValueError
        The two have not as many columns, or not a row per task and edge.
    """
    job = layout.job
    tasks = len(job.rounds)
    edges = len(job.source)
    columns = times.shape[1]
    if times.shape != (tasks, columns) or volumes.shape != (edges, columns):
        raise ValueError(f"times of {times.shape}, volumes of {volumes.shape}")

    from_task = np.zeros((tasks, job.iterations))
    after_flow = np.zeros((edges, job.iterations))
    lib.longest_paths(
        layout.c,
        pointer(times),
        pointer(volumes),
        columns,
        pointer(from_task),
        pointer(after_flow),
    )
    return from_task, after_flow


def earliest(layout: Layout, times: Floats, volumes: Floats) -> tuple[Floats, Floats]:
    """Return when each flow can be active, and each task end, at the earliest, seconds.

    They are as early if all other flows are free; ``times`` and ``volumes`` are those
    of `Realization`. The results have the same shapes; handoffs within a machine are
    left out.
    """
    ready = np.zeros(volumes.shape)
    arrivals = np.zeros(volumes.shape)
    ends = np.zeros(times.shape)
    lib.earliest_ready(
        layout.c,
        pointer(times),
        pointer(volumes),
        pointer(ready),
        pointer(arrivals),
        pointer(ends),
    )
    return ready, ends


def expectation(layout: Layout, times: Floats, volumes: Floats) -> Floats:
    """Return `State.after` for runs like this one; empty if the policy does not look.

    ``times``, ``volumes``: those of iterations that were seen, as in `Profile`; only
    their means are used.
    """
    # No other rule looks at paths: they are spared the walk through the job.
    if layout.job.policy in (lib.OES_CP, lib.WEIGHTED_MAXMIN):
        job = layout.job
        mean_times = means(times, job.rounds)
        mean_volumes = means(volumes, job.sent)
        _, after_flow = longest_paths(layout, mean_times, mean_volumes)
        return after_flow
    return np.zeros((0, 0))


def check_rows(job: Job, profile: Realization) -> None:
    """Raise ValueError unless ``profile`` has a row for every task and edge."""
    tasks = len(profile.times)
    edges = len(profile.volumes)
    if tasks != len(job.tasks) or edges != len(job.edges):
        raise ValueError(
            f"a profile of {tasks} tasks and {edges} edges does not fit a job "
            f"of {len(job.tasks)} and {len(job.edges)}"
        )


class Log:
    """When everything happened, in arrays that the core fills.

    Attributes
    ----------
    task_start, task_end, flow_ready, flow_start, flow_end, reads
        As in `Schedule`, NaN or -1 so far; ``reads`` is empty where no edge reads the
        newest.
    quotas
        Slots of each tuned pool from every look on, (looks, tuners).
    """

    task_start: Floats
    task_end: Floats
    flow_ready: Floats
    flow_start: Floats
    flow_end: Floats

    def __init__(self, job: JobArrays, c: Any, *, logged: bool, looks: int) -> None:
        rows = {"task_start": 0, "task_end": 0, "flow_start": 0}
        # Rates by fifo go by when flows were ready, latencies by when they were served:
        # the core reads these two itself, whatever else is kept.
        edges = len(job.source)
        rows["flow_ready"] = edges if logged or job.policy == lib.FIFO else 0
        rows["flow_end"] = edges if logged or job.latency.size > 0 else 0
        if logged:
            tasks = len(job.rounds)
            rows |= {"task_start": tasks, "task_end": tasks, "flow_start": edges}

        # One block for all: five small ones took longer to get than to fill.
        count_of_rows = sum(rows.values())
        block = np.full((count_of_rows, job.iterations), np.nan)
        start = pointer(block)
        first = 0
        for name, count in rows.items():
            setattr(self, name, block[first : first + count])
            if count:
                setattr(c, name, start + first * job.iterations)
            first += count

        # -1: nothing has arrived.
        self.reads = np.full((job.latest.size, job.iterations), -1)
        tuners = len(job.tuners["tuned"])
        self.quotas = np.zeros((looks, tuners), np.int64)
        c.reads = pointer(self.reads)
        c.quotas = pointer(self.quotas)
        c.tuning_room = looks


class State:
    """The state of one schedule, and what Python reads of it.

    ``after``: per edge and iteration, the longest path that is left when that flow
    ends, seconds (`emu.prediction.scheduling.state.expectation`); empty where no policy
    needs it.

    Attributes
    ----------
    c
        The structure, which says what its fields are (core.h).
    log
        When everything happened, seconds, as in `Schedule`: a column per iteration, or
        none where nothing is kept.
    """

    def __init__(
        self,
        layout: Layout,
        after: Floats,
        *,
        logged: bool,
        looks: int = 0,
    ) -> None:
        memory = new_room(layout.state_room)
        self.c = ffi.new("State *")
        # The core holds pointers into these: they must live as long as the state.
        self._kept = memory, layout, after
        lib.new_state(layout.c, pointer(after), room_in(memory), self.c)
        self.log = Log(layout.job, self.c.log, logged=logged, looks=looks)

    @cached_property
    def started(self) -> Ints:
        """Iterations of every task that have started."""
        return self._view(self.c.started, len(self._job.rounds))

    @cached_property
    def ended(self) -> Ints:
        """Iterations of every task that have ended."""
        return self._view(self.c.ended, len(self._job.rounds))

    @cached_property
    def ready(self) -> Ints:
        """Iterations of every edge that its source has produced."""
        return self._view(self.c.ready, len(self._job.source))

    @cached_property
    def delivered(self) -> Ints:
        """Iterations of every edge that the network has sent."""
        return self._view(self.c.delivered, len(self._job.source))

    @cached_property
    def served(self) -> Ints:
        """Iterations of every edge whose fluid has ended."""
        return self._view(self.c.served, len(self._job.source))

    @cached_property
    def base(self) -> Floats:
        """Bytes that the group of every edge was served when its flow began."""
        bits = self._view(self.c.base, len(self._job.source))
        return bits.view(np.float64)

    @cached_property
    def _tunings(self) -> Ints:
        return self._view(self.c.tunings, self._kept[1].c.tuners.count)

    @property
    def _job(self) -> JobArrays:
        return self._kept[1].job

    def _view(self, start: object, count: int) -> Ints:
        return view(self._kept[0], start, count, np.int64)

    @property
    def looks(self) -> int:
        """Number of looks at quotas, the most of any tuner."""
        return int(self._tunings.max(initial=0))

    @property
    def quotas(self) -> Ints | None:
        """The quotas of all looks, None where none is tuned."""
        return self.log.quotas[: self.looks] if self._tunings.size else None

    @property
    def is_tuned(self) -> bool:
        """True where quotas are looked at, each time with a row of the log."""
        return bool(self._tunings.size)

    def keep_room(self, looks: int) -> None:
        """Have room for ``looks`` more looks at quotas."""
        if not self._tunings.size:
            return
        total = self.looks + looks
        if total > len(self.log.quotas):
            # Twice as much each time: copying stays in proportion to what is kept.
            larger = np.zeros((2 * total, self._tunings.size), np.int64)
            larger[: len(self.log.quotas)] = self.log.quotas
            self.log.quotas = larger
            self.c.log.quotas = pointer(larger)
            self.c.log.tuning_room = len(larger)

    @property
    def sending(self) -> list[int]:
        """The edges with an active flow, at whatever rate; none that wait in a line."""
        slot = self._kept[1].c.slot
        count = self.c.length[lib.PRESENT]
        edges: list[int] = []
        for group in ffi.unpack(self.c.present, count):
            active = self.c.fluid[group].active
            start = self.c.mark_edge + slot[group]
            edges += ffi.unpack(start, active)
        return edges

    @property
    def queued(self) -> list[int]:
        """The tasks that wait for a slot, or for the end of the instant."""
        count = self.c.length[lib.QUEUED]
        waiting: list[int] = ffi.unpack(self.c.queued, count)
        return waiting


def new_rate_changes(edges: int) -> Record:
    """Return the board before anything was sent."""
    # No iteration of any edge has been seen: -1, so that the first one differs.
    return Record(
        "RateChanges",
        iteration=np.full(edges, -1, np.int64),
        rate=np.zeros(edges),
        edge=np.zeros(edges, np.int64),
        served=np.zeros(edges),
    )


def gates_of(job: Job, times: Floats | None) -> Record:
    """Return the gates of ``job``, none of which has begun.

    ``times`` have no columns where no task is a gate.

    Raises ValueError when there are gates and no times.
    """
    gates = np.array([task.gate for task in job.tasks], dtype=np.bool_)
    if not gates.any():
        times = np.empty((0, 0))
    elif times is None:
        raise ValueError("the job has gates: how long they take must be stated")
    else:
        # Times of processes are theirs to report: NaN shows where one were read.
        times = np.where(gates[:, None], times, np.nan)

    # One call may take in all that is left: every iteration of every gate.
    room = int(np.array(job.rounds)[gates].sum())
    return Record(
        "Gates",
        times=plain(times),
        since=np.zeros(len(job.tasks)),
        task=np.zeros(room, np.int64),
        iteration=np.zeros(room, np.int64),
        start=np.zeros(room),
    )


#: Instants that one call has room for.
ROOM = 64


def room_for(tasks: int, edges: int) -> Record:
    """Return room for `ROOM` usual instants, and one at which everything happens."""
    # At one instant every task may start and every rate change, at others few do.
    # Twice the edges: at one instant each may end a flow and begin the next.
    lines = 2 * edges + 8 * ROOM
    tasks += ROOM
    edges += ROOM

    return Record(
        "Instants",
        room=ROOM,
        task_room=tasks,
        flow_room=edges,
        line_room=lines,
        time=np.zeros(ROOM),
        served=_ints(ROOM),
        tasks=_ints(ROOM + 1),
        flows=_ints(ROOM + 1),
        lines=_ints(ROOM + 1),
        gates=_ints(ROOM + 1),
        task=_ints(tasks),
        task_iteration=_ints(tasks),
        flow=_ints(edges),
        flow_iteration=_ints(edges),
        edge=_ints(lines),
        iteration=_ints(lines),
        amount=np.zeros(lines),
        rate=np.zeros(lines),
        since=np.zeros(lines),
    )


def _ints(size: int) -> Ints:
    return np.zeros(size, np.int64)
