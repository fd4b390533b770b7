"""Ends in, decisions out: the scheduler decides, this keeps what is not due yet.

One scheduler, two clocks: the same state machine that the simulator drives with virtual
time is driven here by messages, at the times that they name. A message that comes late
does not shift the schedule: rates take effect from the nominal time of the event, and
senders catch up with the fluid.

A flow ends when its last byte is there, and not before its fluid: senders keep the
last bytes until then, or lead the fluid a little (`emu.emulation.shaping.FlowEnds`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from emu.emulation.coordinator.desk import Desk
from emu.emulation.coordinator.observers import RunProgress
from emu.emulation.coordinator.outcome import Recorder
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.messages import FlowEnded, RunTask, TaskEnded
from emu.errors import NodeMisbehaved, SchedulingError
from emu.prediction.core import lib, structure
from emu.prediction.scheduling import Decisions, RateSegments, Scheduler
from emu.prediction.scheduling.state import ROOM


class Outlet(Protocol):
    """Receiver of decisions, and of ends that were settled."""

    @property
    def watches(self) -> bool:
        """True where it wants to be notified of every event."""

    @property
    def limits(self) -> bool:
        """True where kernel's NICs keep to the rates."""

    def limit(self, segments: RateSegments, /) -> None:
        """Have them keep to the segments of one instant."""

    def publish(self, desk: Desk, /) -> None:
        """Put changed segments on every rate board; not where the core does."""

    def order(self, speaker: str, notes: bytes, /) -> None:
        """Send orders to a process, and to those that it speaks for."""

    def task_started(self, message: RunTask) -> None:
        """Take the order to start a task, which was sent."""

    def on_decisions(self, decisions: Decisions) -> None:
        """Take decisions that changed segments."""

    def task_ended(self, message: TaskEnded) -> None:
        """Take the end of a task that was settled."""

    def flow_ended(self, message: FlowEnded) -> None:
        """Take the end of a flow."""


class SchedulerDriver:
    """Drives the scheduler with the ends that processes report.

    A task that holds its time reports its end as soon as its work is done, ahead of
    it. Such ends wait on the desk until their time has come, or until nothing unknown
    can come before them.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        desk: Desk,
        recorder: Recorder,
        outlet: Outlet,
    ) -> None:
        self._scheduler = scheduler
        self._desk = desk
        self._recorder = recorder
        self._outlet = outlet
        self.turn = structure(
            "Turn",
            **scheduler.parts,
            desk=desk.core,
            rates=recorder.rate_rows.core,
            boards=recorder.board.core,
        )
        self._moments: list[Decisions] = []  # of this settling, where somebody watches

    @property
    def finished(self) -> bool:
        """True where every task has ended in every iteration."""
        return bool(self.turn.finished)

    @property
    def settles_alone(self) -> bool:
        """True where the core cannot settle without it."""
        boards = self._recorder.board.core
        limits = self._outlet.limits
        calls_python = self._scheduler.calls_python
        return limits or calls_python or boards.count == 0

    @property
    def is_watched(self) -> bool:
        """True where an observer, or the record of figures, needs what has settled."""
        watches = self._outlet.watches
        has_reports = self._recorder.has_reports
        return watches or has_reports

    @property
    def next_end(self) -> float:
        """Next end of a fluid or gate, or one that was reported; infinite for never."""
        desk = self._desk.core
        next_end: float = self._scheduler.passage.next
        return min(next_end, desk.time[0]) if desk.waiting else next_end

    def progress(self, now: float) -> RunProgress:
        """Return how far the run is at run time ``now``."""
        scheduler = self._scheduler
        state = scheduler.state
        return RunProgress(
            ended=int(state.ended.sum()),
            time=now,
            rate=scheduler.assigned_rate,
            loss=self._recorder.loss,
        )

    def begin(
        self,
        speakers: Mapping[int, str],
        boards: Sequence[RateBoard] = (),
    ) -> None:
        """Start at run time 0.

        ``speakers``: who speaks for each task's process; ``boards``: on which the core
        puts all rates itself, none where the outlet has to.
        """
        self._desk.begin(speakers)
        self._recorder.board.show_on(boards)
        self._scheduler.state.keep_room(ROOM)
        outcome = lib.begin_schedule(self.turn)
        self._go_on(outcome)
        self._notify()

    def report(self, speaker: str, notes: bytes, now: float) -> None:
        """Take ends that a process has reported by ``now``, run time, in any order.

        Raises NodeMisbehaved when one does not fit the job, MalformedFrame when the
        notes are none.
        """
        for end in self._desk.take(speaker, notes, now):
            self._recorder.take_report(end)

    def file(self, speaker: str, notes: bytes, fault: int) -> None:
        """Take the figures among ends that the core has taken in from a process.

        ``fault``: what it found wrong with them. Raises as `report`.
        """
        for end in self._desk.list_reported(speaker, notes, fault):
            self._recorder.take_report(end)

    def settle(self, until: float, ahead: float = -math.inf) -> None:
        """Advance the schedule by the ends that are due.

        Events of one instant are settled at once, as the simulator does. An event
        older than one already settled counts from now: rates cannot change in the past.
        Of the segments of an edge only the newest is published, at the end: senders
        need no other. Raises NodeMisbehaved when an event does not fit the schedule.

        Parameters
        ----------
        until
            Run time by which everything is settled, and all that had passed when it
            was reported. Fluids end by it. Last bytes may be late, but the ports have
            carried them: who shares these, or waits for a turn, gets what the schedule
            gives from then on. With flows kept until they arrived, lateness added up
            over all that a port carries: of 98 drawn scenarios the median error was
            0.87 %, and is 0.28.
        ahead
            Run time before which more is settled where nothing can come in between: no
            task runs that may end before and has not reported it, and every flow has
            arrived whose fluid has ended.
        """
        # An end that had passed when it was reported is settled at once, with all
        # before it: to wait would only add to its lateness. Beyond that, `ahead`, an
        # event may be taken before its time only while no process could still report an
        # earlier one: a decision that was published cannot be taken back.
        self._scheduler.state.keep_room(ROOM)
        outcome = lib.settle_due(self.turn, until, ahead)
        # Ends are mostly reported ahead: nothing follows from them before their time.
        count = self._scheduler.passage.count
        if outcome != lib.DONE or count:
            self._send_all(outcome)
        self._notify()

    def finish_turn(self, left: int, outcome: int) -> None:
        """Do what a turn has left that the core has settled by itself.

        ``left``: of the enumeration in core.h; ``outcome``: what settling came to.
        Raises NodeMisbehaved as `settle`.
        """
        if left == lib.INSTANTS_LEFT:
            self._send_all(outcome)
        else:
            if left == lib.ORDERS_LEFT:
                self._pass_orders()
            self._note_moments()
        self._notify()

    def _send_all(self, outcome: int) -> None:
        """Send what follows from a call of the core, and settle what it has left."""
        try:
            self._go_on(outcome)
        except (SchedulingError, TypeError, ValueError) as error:
            raise NodeMisbehaved(
                f"a process reported the impossible: {error}"
            ) from error

    def _go_on(self, outcome: int) -> None:
        scheduler = self._scheduler
        desk = self._desk
        while True:
            scheduler.check(outcome, desk.due_ends)
            if outcome == lib.UNSOUND:
                raise SchedulingError(desk.describe_mismatch())
            self._send()

            # It returns where its room for instants is used up; the next call goes on.
            if outcome == lib.DONE:
                return
            scheduler.state.keep_room(ROOM)
            outcome = lib.settle_rest(self.turn)

    def _send(self) -> None:
        """Send what follows from instants to processes, which wait for it."""
        desk = self._desk
        outlet = self._outlet
        recorder = self._recorder
        recorder.rate_rows.keep_room()
        recorder.board.keep_room()
        if not lib.draw_consequences(self.turn):
            raise RuntimeError("more follows from a turn than there is room for")

        decided = self._note_moments()
        self._limit(decided)
        if desk.core.news.count and not recorder.board.core.count:
            outlet.publish(desk)
        self._pass_orders()

    def _pass_orders(self) -> None:
        """Send the orders that the core has written, and not sent."""
        for speaker, notes in self._desk.written_orders():
            self._outlet.order(speaker, notes)

    def _note_moments(self) -> list[Decisions]:
        """Return what was decided at the instants found last, where it is asked for."""
        outlet = self._outlet
        if not (outlet.watches or outlet.limits):
            return []
        count = self._scheduler.passage.count
        decided = self._scheduler.decisions(count)
        self._moments += decided
        return decided

    def _limit(self, decided: Sequence[Decisions]) -> None:
        """Have the kernel's NICs, where there are any, keep to what was decided."""
        outlet = self._outlet
        if not outlet.limits:
            return
        for decisions in decided:
            news = decisions.news
            if len(news):
                outlet.limit(news)

    def _notify(self) -> None:
        """File reports that have settled; notify who watches of all that has."""
        watches = self._outlet.watches
        if watches or self._recorder.has_reports:
            for end in self._desk.ends():
                self._recorder.file_report(end)
                if watches:
                    self._notify_of_end(end)
        moments = self._moments
        self._moments = []
        if watches:
            self._notify_of_decisions(moments)

    def _notify_of_end(self, end: TaskEnded | FlowEnded) -> None:
        if isinstance(end, TaskEnded):
            self._outlet.task_ended(end)
        else:
            self._outlet.flow_ended(end)

    def _notify_of_decisions(self, moments: Sequence[Decisions]) -> None:
        outlet = self._outlet
        for decisions in moments:
            if len(decisions.lines):
                outlet.on_decisions(decisions)
            for gate in decisions.gates:
                outlet.task_ended(_end_of_gate(*gate, decisions.time))
        for decisions in moments:
            for task, iteration in decisions.tasks:
                outlet.task_started(RunTask(task, iteration, decisions.time))


def _end_of_gate(gate: int, iteration: int, start: float, end: float) -> TaskEnded:
    """Return the end of a gate, which no process reports."""
    return TaskEnded(
        task=gate,
        iteration=iteration,
        start=start,
        end=end,
        edges=[],
        volumes=[],
        began=start,
        cpu=0.0,
        late=0.0,
        report={},
    )
