"""What the coordinator said, kept in order until somebody folds it into figures."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from emu.coordinator import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emu.problem import Schedule
    from emu.scheduling import Decisions
    from emu.wire.messages import FlowEnded, RunTask, TaskEnded


@dataclass(frozen=True)
class Joined:
    """So many processes are up."""

    processes: int


@dataclass(frozen=True)
class Began:
    """Run time 0 is now."""


class Tape(Observer):
    """Appends everything, with the wall time at which it was heard.

    Appending to a deque is atomic, so one thread may write while another one reads.

    Parameters
    ----------
    clock
        Wall seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: deque[tuple[float, object]] = deque()

    def drain(self) -> Iterator[tuple[float, object]]:
        """Yield what was heard since the last time, the oldest first."""
        for _ in range(len(self._heard)):
            yield self._heard.popleft()

    def _note(self, what: object) -> None:
        self._heard.append((self._clock(), what))

    @override
    def predicted(self, schedule: Schedule) -> None:
        self._note(schedule)

    @override
    def joined(self, processes: int) -> None:
        self._note(Joined(processes))

    @override
    def began(self, seconds: float) -> None:
        self._note(Began())

    @override
    def task_started(self, message: RunTask) -> None:
        self._note(message)

    @override
    def task_ended(self, message: TaskEnded) -> None:
        self._note(message)

    @override
    def flow_ended(self, message: FlowEnded) -> None:
        self._note(message)

    @override
    def decided(self, decisions: Decisions) -> None:
        self._note(decisions)
