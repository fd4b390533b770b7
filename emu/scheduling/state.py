"""The state of one schedule, which the core changes as it goes on (core.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.core import ffi, lib, new_room, pointer, room_in, structure, view
from emu.scheduling.policies import FIFO

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints, Layout


class Log(NamedTuple):
    """When everything happened, seconds, as in `emu.schedule.Schedule`.

    A column per iteration, or none where nothing is kept; ``flow_ready`` is kept for
    ``fifo`` in any case. So is ``reads``: per edge and iteration of its destination,
    which iteration of the source that one read, -1 for none, until it starts, and where
    the edge does not read the newest; no rows where none does. ``quotas`` are those of
    `emu.problem.Schedule` as far as there is room; 0 until then.
    """

    task_start: Floats
    task_end: Floats
    flow_ready: Floats
    flow_start: Floats
    flow_end: Floats
    reads: Ints
    quotas: Ints


def _new_log(layout: Layout, looks: int, *, logged: bool) -> Log:
    job = layout.job.arrays
    tasks, edges, columns = len(job.rounds), len(job.source), job.iterations

    def times(rows: int, *, kept: bool) -> Floats:
        return np.full((rows, columns) if kept else (0, 0), np.nan)

    return Log(
        task_start=times(tasks, kept=logged),
        task_end=times(tasks, kept=logged),
        flow_ready=times(edges, kept=logged or job.policy == FIFO),
        flow_start=times(edges, kept=logged),
        flow_end=times(edges, kept=logged),
        reads=np.full((job.latest.size, columns), -1),
        quotas=np.zeros((looks, len(job.tuners.tuned)), np.int64),
    )


class State:
    """The state of one schedule, and what Python reads of it.

    Parameters
    ----------
    layout
        The placed job.
    after
        Per edge and iteration, the longest path that is left when that flow ends,
        seconds (`emu.scheduling.rates.expectation`); empty where no policy needs it.
    logged
        True to keep when everything happened.
    looks
        Looks at quotas that there is room for.

    Attributes
    ----------
    c
        The structure, which says what its fields are (core.h).
    """

    def __init__(
        self, layout: Layout, after: Floats, *, logged: bool, looks: int = 0
    ) -> None:
        memory = new_room(lib.room_of_state(layout.c))
        self.log = _new_log(layout, looks, logged=logged)
        self.c = state = ffi.new("State *")
        log = structure("Log", **self.log._asdict(), tuning_room=looks)
        self._kept = memory, layout, after, log
        lib.new_state(layout.c, pointer(after), log[0], room_in(memory), state)
        tasks, edges, groups = layout.c.tasks, layout.c.edges, layout.c.groups

        def ints(start: object, count: int) -> Ints:
            return view(memory, start, count, np.int64)

        def floats(start: object, count: int) -> Floats:
            return view(memory, start, count, np.float64)

        self.started, self.ended = ints(state.started, tasks), ints(state.ended, tasks)
        self.ready = ints(state.ready, edges)
        self.delivered = ints(state.delivered, edges)
        self.served = ints(state.served, edges)
        self.service = floats(state.service, groups)
        self.since = floats(state.since, groups)
        self.rate = floats(state.rate, groups)
        self.base = floats(state.base, edges)
        self._tunings = ints(state.tunings, layout.c.tuners.count)
        self._queued = ints(state.queued, tasks), ints(state.length, lib.LENGTHS)

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
        needed = self.looks + looks
        if self._tunings.size and needed > len(self.log.quotas):
            more = np.zeros((2 * needed, self._tunings.size), np.int64)
            more[: len(self.log.quotas)] = self.log.quotas
            self.log = self.log._replace(quotas=more)
            self.c.log.quotas, self.c.log.tuning_room = pointer(more), len(more)

    @property
    def queued(self) -> list[int]:
        """The tasks that wait for a slot, or for the end of the instant."""
        queued, length = self._queued
        return list(map(int, queued[: length[lib.QUEUED]]))


class RateChanges(NamedTuple):
    """The lines as last seen, per edge, and what differs since (core.h)."""

    iteration: Ints
    rate: Floats
    edge: Ints
    served: Floats


def new_rate_changes(edges: int) -> RateChanges:
    """Return the board before anything was sent."""
    return RateChanges(
        np.full(edges, -1, np.int64),
        np.zeros(edges),
        np.zeros(edges, np.int64),
        np.zeros(edges),
    )
