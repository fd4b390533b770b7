"""Ends that processes have reported, and what follows from them, in flat arrays.

The core notes each end and writes the orders (desk.c); Python sees those that a person
watches. With 200 tasks an event cost the coordinator 120 us of CPU when it was noted in
Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from emu.array_types import Floats, Ints
from emu.emulation.wire.messages import FlowEnded, TaskEnded
from emu.emulation.wire.notes import unpack_ends
from emu.errors import NodeMisbehaved
from emu.prediction.core import Record, ffi, lib
from emu.prediction.scheduling import RateSegments, Scheduler
from emu.prediction.scheduling.state import ROOM
from emu.problem import Job, Problem

#: Bytes of the longest order and of each of its reads; see `emu.emulation.wire.notes`.
_ORDER = 24
_READ = 8
_WHY_NOT = {
    lib.TIMELESS: "its time is no number",
    lib.UNKNOWN_ITERATION: "there is no such iteration",
    lib.TOO_MANY: "more has ended than can be under way",
    lib.FOREIGN_EDGE: "an edge is not one of its task's",
    lib.NO_VOLUME: "its bytes are no number that can be",
}


class Desk(Record):
    """The record of the same name in core.h."""

    def __init__(self, problem: Problem, scheduler: Scheduler) -> None:
        job = problem.job
        self.names: list[str] = []
        """Processes that speak for others, by their numbers."""
        self._numbers: dict[str, int] = {}

        # A task has one end at a time that waits, and so has an edge.
        room = 2 * (len(job.tasks) + len(job.edges))
        super().__init__(
            "Desk",
            tasks=len(job.tasks),
            edges=len(job.edges),
            iterations=job.iterations,
            holds=np.empty(0) if scheduler.holds is None else scheduler.holds,
            volumes=scheduler.volumes,
            last_past=-np.inf,
            room=room,
            **_fields_of_tasks(job),
            **_fields_of_edges(job),
            **_fields_of_ends(job, room),
            **_fields_of_orders(job),
        )
        self.due_ends = ffi.addressof(self.core, "due")
        """Ends that are due, of which the core has taken some in."""
        self._orders = memoryview(self.orders)
        # The process says which of them send; what is announced of others is nothing.
        tasks = range(len(job.tasks))
        self._out_edges = [[*job.out_edges(task)] for task in tasks]

    def begin(self, speakers: Mapping[int, str]) -> None:
        """Take ends and orders from now on; ``speakers``: who speaks for each task."""
        self.names = [*dict.fromkeys(speakers.values())]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        for task, name in speakers.items():
            self.lead[task] = self._numbers[name]
        self.core.leads = len(self.names)

    def take(self, speaker: str, notes: bytes, now: float) -> list[TaskEnded]:
        """Note ends reported by ``now``, run time; return those of `list_reported`."""
        number = self._numbers.get(speaker, -2)
        fault: int = lib.take_ends(self.core, number, notes, len(notes), now)
        return self.list_reported(speaker, notes, fault)

    def list_reported(self, speaker: str, notes: bytes, fault: int) -> list[TaskEnded]:
        """Return the ends with figures among those that the core has taken last.

        Raises MalformedFrame when the notes are none, NodeMisbehaved when one cannot be
        or is not of whom this process speaks for: ``fault``.
        """
        core = self.core
        if fault != lib.TAKEN:
            _refuse(speaker, fault, notes[core.place :])
        if not core.reports:
            return []
        places = self.report_place[: core.reports].tolist()
        ends = [next(unpack_ends(notes[place:])) for place in places]
        return [end for end in ends if isinstance(end, TaskEnded)]

    def describe_mismatch(self) -> str:
        """Return of which flow other bytes arrived than were announced, and how many.

        It is the one at which the last call of the core has stopped.
        """
        place = self.core.place
        edge = int(self.edge[place])
        iteration = int(self.iteration[place])
        announced = self.volumes[edge, iteration]
        return (
            f"{self.volume[place]:g} of {announced:g} bytes of edge {edge}, "
            f"iteration {iteration} arrived"
        )

    @property
    def rates(self) -> RateSegments:
        """The rates that are to be published."""
        count = self.core.news.count
        return RateSegments(
            edge=self.news_edge[:count],
            iteration=self.news_iteration[:count],
            served=self.news_served[:count],
            rate=self.news_rate[:count],
            since=self.news_since[:count],
        )

    def written_orders(self) -> list[tuple[str, bytes]]:
        """Return orders that the core has written and not sent, by their receivers."""
        core = self.core
        starts = core.order_start
        orders = []
        for number in core.addressed[0 : core.addressees]:
            notes = self._orders[starts[number] : starts[number + 1]]
            orders.append((self.names[number], notes.tobytes()))
        return orders

    def ends(self) -> Iterator[TaskEnded | FlowEnded]:
        """Yield what the last settling took in; tasks without their reports."""
        count = self.core.ended
        rows = zip(
            self.ended_task[:count].tolist(),
            self.ended_edge[:count].tolist(),
            self.ended_iteration[:count].tolist(),
            self.ended_time[:count].tolist(),
            self.ended_volume[:count].tolist(),
            strict=True,
        )

        for task, edge, iteration, time, volume in rows:
            if task >= 0:
                yield self._task_ended(task, iteration, time)
            else:
                yield FlowEnded(edge, iteration, time, volume)

    def _task_ended(self, task: int, iteration: int, time: float) -> TaskEnded:
        edges = self._out_edges[task]
        cell = (task, iteration)

        return TaskEnded(
            task=task,
            iteration=iteration,
            start=float(self.task_start[cell]),
            end=time,
            edges=edges,
            volumes=self.volumes[edges, iteration].tolist(),
            began=float(self.began[cell]),
            cpu=float(self.cpu[cell]),
            late=float(self.late[cell]),
            report={},
        )


def _ints(size: int, value: int = 0) -> Ints:
    return np.full(size, value, np.int64)


def _floats(shape: int | tuple[int, int], value: float = np.nan) -> Floats:
    # Not zeros: their memory would only be taken as the run goes on.
    return np.full(shape, value)


def _fields_of_tasks(job: Job) -> dict[str, Any]:
    count = len(job.tasks)
    shape = (count, job.iterations)

    return {
        "lead": _ints(count, -1),
        "known": _ints(count, -1),
        "known_end": _floats(count),
        "report_place": _ints(count),
        "task_start": _floats(shape),
        "task_end": _floats(shape),
        "began": _floats(shape),
        "late": _floats(shape, 0.0),
        "cpu": _floats(shape, 0.0),
    }


def _fields_of_edges(job: Job) -> dict[str, Any]:
    count = len(job.edges)
    shape = (count, job.iterations)
    news = {
        "edge": _ints(count),
        "iteration": _ints(count),
        "served": _floats(count),
        "rate": _floats(count),
        "since": _floats(count),
        "number": _ints(count),
    }
    return {
        "source": np.array([edge.source for edge in job.edges], np.int64),
        "destination": np.array([edge.destination for edge in job.edges], np.int64),
        "activated": _floats(shape),
        "arrivals": _floats(shape),
        "flow_end": _floats(shape),
        "arrived": _floats(count),
        "fluid_end": _floats(count),
        "row": _ints(count, -1),
        "published": _ints(count),
        "told": _ints(count, -1),
        "told_rate": _floats(count, 0.0),
        "rises": _ints(count),
        "news": news,
        **{f"news_{name}": column for name, column in news.items()},
    }


def _fields_of_ends(job: Job, room: int) -> dict[str, Any]:
    """Return room for so many ends that wait, and for what is taken in at once."""
    columns = {
        "time": _floats(room),
        "task": _ints(room),
        "edge": _ints(room),
        "iteration": _ints(room),
    }
    taken = room + len(job.edges)
    return {
        "due": columns,
        **columns,
        "volume": _floats(room),
        "ended_task": _ints(taken),
        "ended_edge": _ints(taken),
        "ended_iteration": _ints(taken),
        "ended_time": _floats(taken),
        "ended_volume": _floats(taken),
    }


def _fields_of_orders(job: Job) -> dict[str, Any]:
    tasks = len(job.tasks)
    read_start, read_edge = _newest_reads(job)

    # Every task may start at one instant, and every flow be told; see `room_for`.
    notes = tasks + len(job.edges) + ROOM
    size = _ORDER * notes + 2 * _READ * len(read_edge)
    return {
        "read_start": read_start,
        "read_edge": read_edge,
        "order_room": size,
        "order_start": _ints(tasks + 2),
        "addressed": _ints(tasks),
        "orders": np.zeros(size, np.uint8),
    }


def _refuse(speaker: str, fault: int, notes: bytes) -> NoReturn:
    """Raise what the first of some notes is refused for."""
    end = next(unpack_ends(notes))
    if fault == lib.FOREIGN:
        subject = "task" if isinstance(end, TaskEnded) else "flow"
        raise NodeMisbehaved(f"{speaker} ended a {subject} that is not its own")
    raise NodeMisbehaved(f"a process reported the impossible: {end}: {_WHY_NOT[fault]}")


def _newest_reads(job: Job) -> tuple[Ints, Ints]:
    """Return where the edges of each task begin that read the newest, and all these."""
    edges_of: list[list[int]] = [[] for _ in job.tasks]
    for position, edge in enumerate(job.edges):
        if edge.latest and not job.control[position]:
            edges_of[edge.destination].append(position)
    starts = np.cumsum([0, *map(len, edges_of)])
    return starts, np.array([*chain.from_iterable(edges_of)], np.int64)
