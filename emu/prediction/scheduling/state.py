"""The state of one schedule, expected runs, and ends that come from outside.

The core changes the state as it goes on (core.h). Expected runs are for rules that look
ahead and for bounds; the rules themselves are the core's: sharing.c, max_min.c,
priorities.c, coflows.c, shortest_remaining.c.

An online run has two instants per event, and a call has its price: for 1,027 flows in
8 s the coordinator took 0.25 s of CPU with a call for each end and each instant, and
0.20 where the core takes them in at once (event_batch.c).
"""

from __future__ import annotations

import numpy as np

from emu.prediction.core import Record, ffi, lib, new_room, pointer, room_in, view
from emu.prediction.scheduling.compiled_problem import Floats, Ints, Layout, plain
from emu.problem import Job, Realization


def means(values: Floats) -> Floats:
    """Return the mean of every row as a column."""
    column = np.zeros((len(values), 1))
    lib.means(pointer(values), *values.shape, pointer(column))
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
        _, after_flow = longest_paths(layout, means(times), means(volumes))
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
        memory = new_room(lib.room_of_state(layout.c))
        job = layout.job
        tasks = len(job.rounds)
        edges = len(job.source)
        columns = job.iterations

        def times(rows: int, *, is_kept: bool) -> Floats:
            return np.full((rows, columns) if is_kept else (0, 0), np.nan)

        # Rates by fifo go by when flows were ready, latencies by when they were served:
        # the core reads these two itself, whatever else is kept.
        self.log = Record(
            "Log",
            task_start=times(tasks, is_kept=logged),
            task_end=times(tasks, is_kept=logged),
            flow_ready=times(edges, is_kept=logged or job.policy == lib.FIFO),
            flow_start=times(edges, is_kept=logged),
            flow_end=times(edges, is_kept=logged or job.latency.size > 0),
            # -1: nothing has arrived.
            reads=np.full((job.latest.size, columns), -1),
            quotas=np.zeros((looks, len(job.tuners["tuned"])), np.int64),
            tuning_room=looks,
        )
        state = ffi.new("State *")
        self.c = state
        # The core holds pointers into these: they must live as long as the state.
        self._kept = memory, layout, after
        log = self.log.core[0]
        lib.new_state(layout.c, pointer(after), log, room_in(memory), state)

        def ints(start: object, count: int) -> Ints:
            return view(memory, start, count, np.int64)

        self.started = ints(state.started, tasks)
        self.ended = ints(state.ended, tasks)
        self.ready = ints(state.ready, edges)
        self.delivered = ints(state.delivered, edges)
        self.served = ints(state.served, edges)
        self.base = view(memory, state.base, edges, np.float64)
        self._tunings = ints(state.tunings, layout.c.tuners.count)
        self._queue = ints(state.queued, tasks)
        self._lengths = ints(state.length, lib.LENGTHS)

    @property
    def looks(self) -> int:
        """Number of looks at quotas, the most of any tuner."""
        return int(self._tunings.max(initial=0))

    @property
    def quotas(self) -> Ints | None:
        """The quotas of all looks, None where none is tuned."""
        return self.log.quotas[: self.looks] if self._tunings.size else None

    def keep_room(self, looks: int) -> None:
        """Have room for ``looks`` more looks at quotas."""
        total = self.looks + looks
        if self._tunings.size and total > len(self.log.quotas):
            # Twice as much each time: copying stays in proportion to what is kept.
            larger = np.zeros((2 * total, self._tunings.size), np.int64)
            larger[: len(self.log.quotas)] = self.log.quotas
            self.log.quotas = larger
            self.c.log.quotas = pointer(larger)
            self.c.log.tuning_room = len(larger)

    @property
    def queued(self) -> list[int]:
        """The tasks that wait for a slot, or for the end of the instant."""
        return [int(task) for task in self._queue[: self._lengths[lib.QUEUED]]]


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
