"""Several observers of one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from emu.coordinator.run import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.scheduling import Decisions
    from emu.wire.messages import FlowEnded, RunTask, TaskEnded


class Observers(Observer):
    """Tells everything to each of several observers, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    @override
    def listening(self, host: str, port: int, token: str) -> None:
        for observer in self._observers:
            observer.listening(host, port, token)

    @override
    def joined(self, processes: int) -> None:
        for observer in self._observers:
            observer.joined(processes)

    @override
    def began(self, seconds: float) -> None:
        for observer in self._observers:
            observer.began(seconds)

    @override
    def task_started(self, message: RunTask) -> None:
        for observer in self._observers:
            observer.task_started(message)

    @override
    def task_ended(self, message: TaskEnded) -> None:
        for observer in self._observers:
            observer.task_ended(message)

    @override
    def flow_ended(self, message: FlowEnded) -> None:
        for observer in self._observers:
            observer.flow_ended(message)

    @override
    def decided(self, decisions: Decisions) -> None:
        for observer in self._observers:
            observer.decided(decisions)
