"""Messages of recorded calls, as tasks and flows of a custom job.

Every rank's part of a call is played again. A step is a task of no time that
posts sends and receives; the next one waits for what the call waits for. A notice
that a receiver is ready, and the data behind it, go over the line of their pair of
ranks, so that a notice waits behind data as it does in gloo.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from emu.interchange.workload import Workload
from emu.prediction.core import lib
from emu.virtual.call_group import CallForm, CallGroup, MadeCall
from emu.virtual.gloo_transport import Steps, Wire

#: Group, sender, receiver, and what else parts the messages of two members.
_Key: TypeAlias = tuple[CallGroup, int, int, bool, int]


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A call as a rank made it."""

    made: MadeCall
    task: str
    """Task at whose end it was made."""
    end: str
    """Task that ends with it."""


def _end_of(recorded: RecordedCall) -> float:
    return recorded.made.ended


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
    place: int
    """Place of a send of NCCL among all whose data were written; 0 of others."""
    waiter: str = ""
    """Task that waits for it."""


class MessageTasks:
    """Tasks and flows of all calls.

    Parameters
    ----------
    workload
        Gets them.
    groups
        Every process group.
    """

    def __init__(self, workload: Workload, groups: Collection[CallGroup]) -> None:
        self._workload = workload
        # Names of groups are torch's, with any signs in them.
        self._group_numbers = {group: number for number, group in enumerate(groups)}
        self._numbers = itertools.count()
        self._sends: defaultdict[_Key, list[_Post]] = defaultdict(list)
        self._receives: defaultdict[_Key, list[_Post]] = defaultdict(list)
        self._open: defaultdict[tuple[CallGroup, int], list[RecordedCall]]
        self._open = defaultdict(list)
        """Group and rank -> collectives for which the rank has not waited."""

    def add_call(self, recorded: RecordedCall) -> None:
        """Add the steps of a rank in a call, from its task to the task's end."""
        made = recorded.made
        form = made.form
        call = form.call
        rank = made.rank
        lanes = form.lanes
        if call.kind == "recv_anysource":
            group = form.group
            figures = {**call.figures, "peer": made.source}
            call = replace(call, figures=figures)
            lanes = group.transport.lanes(call, form.member, len(group.ranks))

        first_task = self._begin(recorded)
        last_steps: list[str] = []
        awaited: list[_Post] = []
        for lane, send_orders in itertools.zip_longest(lanes, made.send_orders):
            slot = lane.slot(made.slot)
            last_step, posts = self._play(
                lane.steps, send_orders, made, slot, first_task
            )
            last_steps.append(last_step)
            awaited += posts

        former, *further_steps = dict.fromkeys(last_steps)
        self._add_step(
            recorded.end,
            rank=rank,
            kind=call.kind,
            former=former,
            awaited=awaited,
        )
        for step in further_steps:
            self._workload.add_flow(step, recorded.end)

    def note_wait(self, recorded: RecordedCall) -> None:
        """Note that a rank has waited for a call."""
        made = recorded.made
        open_calls = self._open[made.form.group, made.rank]
        if recorded in open_calls:
            open_calls.remove(recorded)

    def _play(
        self,
        steps: Steps,
        send_orders: Any,
        made: MadeCall,
        slot: int,
        task: str,
    ) -> tuple[str, list[_Post]]:
        """Add steps of a rank behind a task; return the last, and what is awaited."""
        rank = made.rank
        kind = made.form.call.kind
        posts: list[_Post] = []
        awaited: list[_Post] = []
        for action, peer, size in steps.rows.tolist():
            if action == lib.AWAIT:
                awaited.append(posts[peer])
                continue
            if awaited:
                former_task = task
                number = next(self._numbers)
                task = f"r{rank}.step{number}"
                self._add_step(
                    task,
                    rank=rank,
                    kind=kind,
                    former=former_task,
                    awaited=awaited,
                )
                awaited = []

            order = next(self._numbers)
            place = 0 if send_orders is None else send_orders[len(posts)]
            post = _Post(size=size, order=order, step=task, kind=kind, place=place)
            posts.append(post)
            self._note_post(post, made.form, action, peer, slot)
        return task, awaited

    def _note_post(
        self,
        post: _Post,
        form: CallForm,
        action: int,
        peer: int,
        slot: int,
    ) -> None:
        group = form.group
        member = form.member
        if action == lib.POST_SEND:
            key = (group, member, peer, form.is_message, slot)
            self._sends[key].append(post)
        else:
            key = (group, peer, member, form.is_message, slot)
            self._receives[key].append(post)

    def _begin(self, recorded: RecordedCall) -> str:
        """Return the task with which a call begins: it may wait for a worker."""
        rank = recorded.made.rank
        form = recorded.made.form
        kind = form.call.kind
        if form.is_message:
            return recorded.task
        open_calls = self._open[form.group, rank]
        workers = form.group.transport.workers
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

        number = next(self._numbers)
        begin = f"r{rank}.begin{number}"
        self._add_step(
            begin,
            rank=rank,
            kind=kind,
            former=recorded.task,
            awaited=[],
        )
        for call in blocking:
            self._workload.add_flow(call.end, begin)
        return begin

    def _add_step(
        self,
        name: str,
        *,
        rank: int,
        kind: str,
        former: str,
        awaited: Sequence[_Post],
    ) -> None:
        """Add a task that waits for the one before and for posts."""
        process = f"r{rank}"
        self._workload.add_task(name, 0.0, process=process, kind=kind)
        self._workload.add_flow(former, name)
        for post in awaited:
            post.waiter = name

    def join(self) -> None:
        """Add the flows between ranks; what only one end has posted never goes."""
        messages: list[_Message] = []
        for key, sends in self._sends.items():
            group, sender, receiver, _, _ = key
            pair = _Pair(
                group=self._group_numbers[group],
                sender=group.ranks[sender],
                receiver=group.ranks[receiver],
                wire=group.transport.wire,
            )
            receives = self._receives[key]
            for send, receive in zip(sends, receives, strict=False):
                message = _Message(pair, send, receive)
                messages.append(message)

        messages.sort(key=_place_of)
        for message in messages:
            self._carry(message)

    def _carry(self, message: _Message) -> None:
        """Add a message: a notice one way, then the data the other way.

        What gets ready for a line at one instant goes by the name of the task that
        waits for it. Gloo's has the number of the post, as frames are written in order;
        NCCL's one that rises in the order in which the run wrote data.
        """
        workload = self._workload
        pair = message.pair
        send = message.send
        receive = message.receive
        wire = pair.wire
        line = pair.line
        kind = send.kind
        held_back = max(0.0, send.size - wire.buffer)
        order = next(self._numbers) if wire.is_offloaded else send.order
        frame = f"r{pair.receiver}.w{order}"
        arrival = f"{frame}.rest" if held_back else frame
        ready = f"r{pair.sender}.w{receive.order}"

        announced = arrival
        notifier = receive.step
        if receive.kind == "recv_anysource":
            notifier = f"{frame}.any"
            announced = notifier
            self._add_task(notifier, kind)
            workload.add_flow(receive.step, notifier)

        line_of_notices = ""
        if not wire.is_offloaded:
            line_of_notices = pair.line_back
            workload.add_flow(send.step, announced, wire.header, channel=line)
        self._add_task(ready, kind)
        workload.add_flow(notifier, ready, wire.header, channel=line_of_notices)
        workload.add_flow(send.step, ready)

        # The sender goes on when the kernel has all that is left.
        goes_on = ready
        if held_back:
            goes_on = frame
            self._add_task(frame, kind)
            workload.add_flow(ready, frame, held_back, channel=line)
        workload.add_flow(goes_on, send.waiter)

        self._add_task(arrival, kind)
        size = wire.header + send.size - held_back
        workload.add_flow(ready, arrival, size, channel=line)
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


@dataclass(frozen=True)
class _Message:
    """A send, and the receive that takes it."""

    pair: _Pair
    send: _Post
    receive: _Post


def _place_of(message: _Message) -> float:
    # What the run's end found without data comes last.
    return message.send.place or math.inf
