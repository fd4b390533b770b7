"""Observers of a run, which are notified of what happens in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod

from typing_extensions import override

from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.prediction.scheduling import Decisions
from emu.problem import Due, Schedule


@dataclass(frozen=True)
class RunProgress:
    """State of a run under way."""

    ended: int
    """Iterations of tasks that have ended."""
    time: float
    """Run seconds."""
    rate: float
    """Sum of the rates that are assigned, bytes per second."""
    loss: float
    """Loss that a task has reported last; NaN for none."""


#: What is notified for every event.
_FREQUENT = ("task_started", "task_ended", "flow_ended", "on_decisions")


class Observer:
    """An observer of a run; its notifications do nothing unless overridden."""

    @property
    def watches(self) -> bool:
        """True where it takes what happens thousands of times, as overridden."""
        overridden = [
            name
            for name in _FREQUENT
            if getattr(type(self), name) is not getattr(Observer, name)
        ]
        return bool(overridden)

    def on_prediction(self, schedule: Schedule) -> None:
        """Note what is expected, before anything starts."""

    def listening(self, host: str, port: int, token: str) -> None:
        """Note where agents can join, and what they must show."""

    def on_join(self, processes: int) -> None:
        """Note that so many processes have joined."""

    def began(self, seconds: float) -> None:
        """Note that all were ready after so many wall seconds; run time 0 is now."""

    def on_zero(self, start: float) -> None:
        """Note when run time 0 is, on the clock of this host; a moment to come."""

    def on_notice(self, line: str) -> None:
        """Take a sentence for who watches."""

    def killing(self, due: Due) -> None:
        """Note what the scenario kills now, and kills of what had ended."""

    def restarting(self, error: str, first: int) -> None:
        """Note that an attempt has ended with an error, and where the next begins."""

    def progressed(self, progress: RunProgress) -> None:
        """Note how far the run is, four times a wall second."""

    def task_started(self, message: RunTask) -> None:
        """Note that the order to start a task was sent."""

    def task_ended(self, message: TaskEnded) -> None:
        """Note that a task ended."""

    def flow_ended(self, message: FlowEnded) -> None:
        """Note that a flow ended."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Note what the scheduler decided."""


class Observers(Observer):
    """Several observers as one: each gets everything, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    @property
    @override
    def watches(self) -> bool:
        return any(observer.watches for observer in self._observers)

    def notify(self, name: str, *arguments: object) -> None:
        """Pass a notification on."""
        for observer in self._observers:
            notification = getattr(observer, name)
            notification(*arguments)


for _name in vars(Observer):
    if not _name.startswith("_") and _name != "watches":
        _notification = partialmethod(Observers.notify, _name)
        setattr(Observers, _name, _notification)
