"""Turns that rings bring about, which the core takes without Python.

A callback, a mailbox and a coroutine for every message took the coordinator 23 to 32 us
for each end, where this takes 15 to 22. One callback takes in what all rings have,
settles it, and passes the orders on. Refusals and notifications of observers are left
to the coordinator.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from emu.emulation.coordinator.membership import Membership, ignore
from emu.emulation.coordinator.turns import TurnLog
from emu.emulation.network.clock import RunClock
from emu.emulation.network.rings import Rings
from emu.errors import NodeMisbehaved, RunError
from emu.prediction.core import ffi, lib, pointer


class RingTurns:
    """Taker of turns where processes of the coordinator's host speak by rings.

    Parameters
    ----------
    turn
        The `Turn` of the core that is taken.
    names
        Processes that speak for others, by their numbers on the desk.
    membership
        Has the rings, and is woken after a turn that has left something, or has ended
        the run.
    log
        Of all turns.
    clock
        Of the run.
    reported, ahead
        Wall seconds, as in `Coordinator`: after the time of what is not safe, and
        before that of what is.
    leaves_turns, leaves_notes
        Whether the coordinator settles what is reported, and whether it reads it.

    Raises RunError where there are no descriptors for it.
    """

    def __init__(
        self,
        turn: Any,
        names: Sequence[str],
        membership: Membership,
        log: TurnLog,
        *,
        clock: RunClock,
        reported: float,
        ahead: float,
        leaves_turns: bool,
        leaves_notes: bool,
    ) -> None:
        self._turn = turn
        self._names = names
        self._membership = membership
        self._log = log  # the core has no more than its address
        self.left: int = lib.NOTHING_LEFT
        """Kind of work that the last turn has left: an enumeration of core.h."""

        rings = membership.rings
        self._leads = _leads_of(names, rings)
        largest = max(side.size for side in rings.values())
        self._notes = np.empty(largest, np.uint8)
        fields = {
            "turn": turn,
            "log": log.core,
            "leads": len(names),
            "lead": self._leads,
            "epoll": -1,
            "alarm": -1,
            "due": np.inf,
            "start": clock.to_wall(0.0),
            "scale": clock.time_scale,
            "reported": reported,
            "ahead": ahead,
            "leaves_turns": leaves_turns,
            "leaves_notes": leaves_notes,
            "notes": pointer(self._notes),
        }
        self.core = ffi.new("RingTurns *", fields)
        if not lib.open_ring_turns(self.core):
            reason = os.strerror(ffi.errno)
            self._close_descriptors()
            raise RunError(f"the rings of processes cannot be watched: {reason}")
        self._loop = asyncio.get_running_loop()
        self._is_watching = False
        self._watch()
        membership.on_rings_closed = self._leave

    def go_on(self, now: float, *, is_watched: bool) -> None:
        """Take turns from a wall time on, to which nothing is left.

        ``is_watched``: whether the coordinator is to see what they settle.
        """
        self.left = lib.NOTHING_LEFT
        self._watch()
        self.core.is_watched = is_watched
        lib.set_turn_alarm(self.core, now)

    def notes(self, now: float) -> Iterator[tuple[str, bytes]]:
        """Take in all reports by a wall time; yield those that are left, and whose."""
        is_left = self.left == lib.NOTES_LEFT or not lib.read_rings(self.core, now)
        while is_left:
            name = self._names[self.core.speaker]
            try:
                notes = self._notes_of(name)
            except NodeMisbehaved as error:
                self._leave(name)
                self._membership.refuse_rings(name, error)
            else:
                if notes:
                    yield name, notes
            is_left = not lib.read_rings(self.core, now)

    def _notes_of(self, name: str) -> bytes:
        """Return reports that the core has left; none where it has left orders.

        Raises NodeMisbehaved where its rings are not as they can be.
        """
        size = self.core.size
        if size == lib.RING_BROKEN:
            raise NodeMisbehaved("the counters of its ring cannot be")
        if size == 0:  # it has made room for orders that wait
            self._membership.rings[name].go_on()
        return self._notes[:size].tobytes()

    def close(self) -> None:
        """Take no more turns."""
        self._membership.on_rings_closed = ignore
        self._loop.remove_reader(self.core.epoll)
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptor in (self.core.epoll, self.core.alarm):
            if descriptor >= 0:
                os.close(descriptor)

    def _watch(self) -> None:
        if not self._is_watching:
            self._loop.add_reader(self.core.epoll, self._take_turn)
        self._is_watching = True

    def _leave(self, name: str) -> None:
        if name in self._names:  # else it speaks for no process
            lib.leave_rings(self.core, self._names.index(name))

    def _take_turn(self) -> None:
        if self.left:
            # The coordinator is about to have it, or waits for another's end: whatever
            # is there to read would call this again and again.
            self._loop.remove_reader(self.core.epoll)
            self._is_watching = False
            return
        self.left = lib.take_ring_turn(self.core)
        if self.left or self._turn.finished:
            self._membership.wake()


def _leads_of(names: Sequence[str], rings: Mapping[str, Rings]) -> Any:
    """Return a `RingLead` of the core per name, without rings where it has none."""
    leads = ffi.new("RingLead[]", len(names))
    for lead, name in zip(leads, names, strict=True):
        side = rings.get(name)
        if side is not None:
            lead.reads = side.reads
            lead.writes = side.writes
            lead.woken = side.woken
    return leads
