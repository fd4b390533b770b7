"""Outcome of an emulated run, and the gathering of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from emu.errors import NodeMisbehaved
from emu.wire.frame_rows import FRAME_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem, Realization, Schedule
    from emu.wire.messages import Frames, ResultPart, TaskEnded

Arrays: TypeAlias = "dict[str, NDArray[Any]]"


@dataclass(frozen=True, eq=False)
class EmulatedRun:
    """Outcome of an emulated run."""

    schedule: Schedule
    realization: Realization
    """Times and volumes as they happened, to replay them in a simulation."""
    perturbed: Realization
    """Times and volumes with all that came late added to them: the simulation of these
    is the run itself."""
    arrivals: NDArray[np.float64]
    """Run time at which the last byte of (edge, iteration) came; NaN where none did."""
    reports: list[tuple[float, str, int, dict[str, float]]]
    """(run time, task name, iteration, figures) of every task that reported any."""
    results: dict[str, Arrays]
    """Arrays that tasks handed over at the end, by task name."""
    statistics: dict[str, dict[str, Any]]
    """Statistics of every process, as it counted them."""
    sent: NDArray[np.void]
    received: NDArray[np.void]
    """Rows of `emu.wire.frame_rows`: every frame, by its sender and by its receiver."""
    late: NDArray[np.float64]
    """Run seconds by which (task, iteration) ended after its profiled time."""
    busy: NDArray[np.float64]
    cpu: NDArray[np.float64]
    """Wall and CPU seconds of computation of (task, iteration)."""
    hosts: list[dict[str, Any]]
    """Descriptions of the hosts, as their agents reported them."""
    tuning: dict[str, Any]
    startup: dict[str, float]
    """Wall seconds until every process was connected and ready, and their summed
    proportional memory in bytes (local processes; 0 when unknown)."""
    wall: float
    """Wall seconds from run time 0 until the last end was settled, up to 50 ms before
    its time."""


@dataclass
class Tally:
    """Figures of the tasks, gathered while the run goes on."""

    late: NDArray[np.float64]
    busy: NDArray[np.float64]
    cpu: NDArray[np.float64]
    reports: list[tuple[float, str, int, dict[str, float]]] = field(
        default_factory=list
    )

    @classmethod
    def of(cls, problem: Problem) -> Tally:
        """Return an empty tally for a problem."""
        shape = len(problem.job.tasks), problem.job.iterations
        # Not zeros: their memory would only be taken as the run goes on.
        return cls(np.full(shape, 0.0), np.full(shape, 0.0), np.full(shape, 0.0))

    def note(self, message: TaskEnded, name: str) -> None:
        """Note what the task of this name says of one iteration."""
        at = message.task, message.iteration
        self.late[at], self.busy[at] = message.late, message.busy
        self.cpu[at] = message.cpu
        if message.report:
            self.reports.append((message.end, name, message.iteration, message.report))


class FrameRows:
    """Rows of `emu.wire.frame_rows`, put together from those of all processes."""

    def __init__(self) -> None:
        self._sent, self._received = bytearray(), bytearray()

    def add(self, message: Frames) -> None:
        """Take in some rows.

        Raises
        ------
        NodeMisbehaved
            When a row is cut short.
        """
        if (len(message.sent) | len(message.received)) % FRAME_ROWS.itemsize:
            raise NodeMisbehaved("a row of the frames is cut short")
        self._sent += message.sent
        self._received += message.received

    def arrays(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return the rows of senders and of receivers."""
        sent, received = bytes(self._sent), bytes(self._received)
        return np.frombuffer(sent, FRAME_ROWS), np.frombuffer(received, FRAME_ROWS)


class Results:
    """Arrays that tasks hand over at the end, put together from their parts."""

    def __init__(self, problem: Problem) -> None:
        self._names = [task.name for task in problem.job.tasks]
        self._parts: dict[int, dict[str, tuple[ResultPart, bytearray]]]
        self._parts = defaultdict(dict)

    def add(self, part: ResultPart) -> None:
        """Take in the next part of an array.

        Raises
        ------
        NodeMisbehaved
            When the parts of an array are longer than it.
        """
        first, data = self._parts[part.task].setdefault(part.name, (part, bytearray()))
        data.extend(part.data)
        if len(data) > first.total:
            raise NodeMisbehaved(f"the result {part.name} is longer than announced")

    def arrays(self) -> dict[str, Arrays]:
        """Return the arrays by task name and name.

        Raises
        ------
        NodeMisbehaved
            When one is cut short, or its type or shape cannot be.
        """
        return {
            self._names[task]: {
                name: self._array(f"{name} of {self._names[task]}", first, data)
                for name, (first, data) in arrays.items()
            }
            for task, arrays in self._parts.items()
        }

    @staticmethod
    def _array(what: str, first: ResultPart, data: bytearray) -> NDArray[Any]:
        if len(data) != first.total:
            raise NodeMisbehaved(f"the result {what} is cut short")
        try:
            dtype = np.dtype(first.dtype)
            return np.frombuffer(data, dtype=dtype).reshape(first.shape)
        except (TypeError, ValueError) as error:
            raise NodeMisbehaved(f"the result {what} is no array: {error}") from error
