"""Messages of recorded calls, as tasks and flows of a custom job.

Every rank's part of a call is played again. A step is a task of no time that
posts sends and receives; the next one waits for what the call waits for. A notice
that a receiver is ready, and the data behind it, go over the line of their pair of
ranks, so that a notice waits behind data as it does in gloo.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from emu.interchange.workload import Workload
from emu.prediction.core import lib
from emu.virtual.call_group import CallGroup
from emu.virtual.calls import MESSAGES, Call
from emu.virtual.gloo_transport import Steps, Wire

#: Group, sender, receiver, and what else parts the messages of two members.
_Key: TypeAlias = tuple[str, int, int, str, int]


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A call as a rank made it."""

    call: Call
    group: str
    slot: int
    task: str
    """Task at whose end it was made."""
    end: str
    """Task that ends with it."""
    ended: float
    """Seconds at which it was over; infinity where it never was."""
    source: int | None = None
    """Member that sent what a receive from anyone took."""


def _end_of(recorded: RecordedCall) -> float:
    return recorded.ended


@dataclass(eq=False)
class _Post:
    """A send or receive that was posted, and the tasks around it."""

    size: float
    order: int
    """Posts of all ranks before it."""
    step: str
    """Task that posts it."""
    kind: str
    """Call that it is of."""
    waiter: str = ""
    """Task that waits for it."""


class MessageTasks:
    """Tasks and flows of all calls.

    Parameters
    ----------
    workload
        Gets them.
    groups
        Every process group, by its name.
    """

    def __init__(self, workload: Workload, groups: Mapping[str, CallGroup]) -> None:
        self._workload = workload
        self._groups = groups
        # Names of groups are torch's, with any signs in them.
        self._group_numbers = {name: number for number, name in enumerate(groups)}
        self._numbers = itertools.count()
        self._sends: defaultdict[_Key, list[_Post]] = defaultdict(list)
        self._receives: defaultdict[_Key, list[_Post]] = defaultdict(list)
        self._open: defaultdict[tuple[str, int], list[RecordedCall]]
        self._open = defaultdict(list)
        """Group and rank -> collectives for which the rank has not waited."""

    def add_call(self, rank: int, recorded: RecordedCall) -> None:
        """Add the steps of a rank in a call, from its task to the task's end."""
        call = recorded.call
        group = self._groups[recorded.group]
        if call.kind == "recv_anysource":
            call = replace(call, figures={**call.figures, "peer": recorded.source})
        lanes = group.transport.lanes(call, group.member_of[rank], len(group.ranks))
        first_task = self._begin(rank, recorded)
        last_steps: list[str] = []
        awaited: list[_Post] = []
        for lane in lanes:
            slot = lane.slot(recorded.slot)
            in_slot = replace(recorded, slot=slot)
            last_step, posts = self._play(lane.steps, rank, in_slot, first_task)
            last_steps.append(last_step)
            awaited += posts

        former, *further_steps = dict.fromkeys(last_steps)
        self._add_step(recorded.end, rank, call.kind, former, awaited)
        for step in further_steps:
            self._workload.add_flow(step, recorded.end)

    def note_wait(self, rank: int, recorded: RecordedCall) -> None:
        """Note that a rank has waited for a call."""
        open_calls = self._open[recorded.group, rank]
        if recorded in open_calls:
            open_calls.remove(recorded)

    def _play(
        self, steps: Steps, rank: int, recorded: RecordedCall, task: str
    ) -> tuple[str, list[_Post]]:
        """Add steps of a rank behind a task; return the last, and what is awaited."""
        kind = recorded.call.kind
        posts: list[_Post] = []
        awaited: list[_Post] = []
        for action, peer, size in steps.rows.tolist():
            if action == lib.AWAIT:
                awaited.append(posts[peer])
                continue
            if awaited:
                former_task = task
                task = f"r{rank}.step{next(self._numbers)}"
                self._add_step(task, rank, kind, former_task, awaited)
                awaited = []
            post = _Post(size=size, order=next(self._numbers), step=task, kind=kind)
            posts.append(post)
            self._note_post(post, rank, action, peer, recorded)
        return task, awaited

    def _note_post(
        self, post: _Post, rank: int, action: int, peer: int, recorded: RecordedCall
    ) -> None:
        member = self._groups[recorded.group].member_of[rank]
        family = "message" if post.kind in MESSAGES else "collective"
        if action == lib.POST_SEND:
            key = (recorded.group, member, peer, family, recorded.slot)
            self._sends[key].append(post)
        else:
            key = (recorded.group, peer, member, family, recorded.slot)
            self._receives[key].append(post)

    def _begin(self, rank: int, recorded: RecordedCall) -> str:
        """Return the task with which a call begins: it may wait for a worker."""
        kind = recorded.call.kind
        if kind in MESSAGES:
            return recorded.task
        open_calls = self._open[recorded.group, rank]
        workers = self._groups[recorded.group].transport.workers
        blocking: list[RecordedCall] = []
        if kind == "barrier":
            blocking = open_calls[-workers:]
        elif len(open_calls) >= workers:
            # It has the worker that was free first.
            by_end = sorted(open_calls, key=_end_of)
            blocking = [by_end[-workers]]
        open_calls.append(recorded)
        if not blocking:
            return recorded.task

        begin = f"r{rank}.begin{next(self._numbers)}"
        self._add_step(begin, rank, kind, recorded.task, [])
        for call in blocking:
            self._workload.add_flow(call.end, begin)
        return begin

    def _add_step(
        self, name: str, rank: int, kind: str, former: str, awaited: Sequence[_Post]
    ) -> None:
        """Add a task that waits for the one before and for posts."""
        self._workload.add_task(name, 0.0, process=f"r{rank}", kind=kind)
        self._workload.add_flow(former, name)
        for post in awaited:
            post.waiter = name

    def join(self) -> None:
        """Add the flows between ranks; what only one end has posted never goes."""
        for key, sends in self._sends.items():
            group, sender, receiver, _, _ = key
            ranks = self._groups[group].ranks
            pair = _Pair(
                group=self._group_numbers[group],
                sender=ranks[sender],
                receiver=ranks[receiver],
                wire=self._groups[group].transport.wire,
            )
            for send, receive in zip(sends, self._receives[key], strict=False):
                self._carry(pair, send, receive)

    def _carry(self, pair: _Pair, send: _Post, receive: _Post) -> None:
        """Add a message: a notice one way, then the data the other way.

        What gets ready for a line at one instant goes by the name of the task that
        waits for it: it has the number of the post, as frames are written in order.
        """
        workload = self._workload
        wire = pair.wire
        held_back = max(0.0, send.size - wire.buffer)
        frame = f"r{pair.receiver}.w{send.order}"
        arrival = f"{frame}.rest" if held_back else frame
        ready = f"r{pair.sender}.w{receive.order}"
        announced = arrival
        notifier = receive.step
        if receive.kind == "recv_anysource":
            announced = notifier = f"{frame}.any"
            self._add_task(notifier, send.kind)
            workload.add_flow(receive.step, notifier)
        if not wire.is_offloaded:
            workload.add_flow(send.step, announced, wire.header, channel=pair.line)
        self._add_task(ready, send.kind)
        line_of_notices = "" if wire.is_offloaded else pair.line_back
        workload.add_flow(notifier, ready, wire.header, channel=line_of_notices)
        workload.add_flow(send.step, ready)

        # The sender goes on when the kernel has all that is left.
        goes_on = ready
        if held_back:
            goes_on = frame
            self._add_task(frame, send.kind)
            workload.add_flow(ready, frame, held_back, channel=pair.line)
        workload.add_flow(goes_on, send.waiter)
        self._add_task(arrival, send.kind)
        size = wire.header + send.size - held_back
        workload.add_flow(ready, arrival, size, channel=pair.line)
        workload.add_flow(arrival, receive.waiter)

    def _add_task(self, name: str, kind: str) -> None:
        process = name.partition(".")[0]
        self._workload.add_task(name, 0.0, process=process, kind=kind)


@dataclass(frozen=True)
class _Pair:
    """Two ranks of a group, and the lines between them."""

    group: int
    sender: int
    receiver: int
    wire: Wire

    @property
    def line(self) -> str:
        return f"group{self.group}.r{self.sender}.r{self.receiver}"

    @property
    def line_back(self) -> str:
        return f"group{self.group}.r{self.receiver}.r{self.sender}"
