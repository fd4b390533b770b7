"""Calls of programs: who sent which packet when, and what its thread did before.

A step begins when it is called, which may be long before its first byte crosses. Since
the send before it, its thread computed, then received or waited, and computed again:
only the first part goes on while others' bytes are under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask, Records
from emu.prediction.analysis.traffic import (
    CONNECTION,
    PART,
    RECEIVE,
    SEND,
    WAIT,
    Traffic,
)

Row: TypeAlias = Floats
Numbers: TypeAlias = Ints
#: Values of some fields, in their order.
_Values: TypeAlias = tuple[int, ...]
#: Seconds of computing that part what a thread waited for from what it waited for
#: before.
_APART = 5e-4
#: Seconds in which a thread is woken by what another one received, and threads that may
#: have woken one another in turn.
_WOKEN = 3e-3
_LINKS = 4
#: Seconds without a packet after which a NIC was idle.
_IDLE = 2e-3
_NONE = np.empty(0)


@dataclass(frozen=True, eq=False)
class Sent:
    """Calls that sent packets, by packet.

    Numbers are -1, and times those of the packets, where calls were not noted.
    """

    call: Numbers
    called: Row
    """Number and seconds of the call that sent its first byte."""
    next_call: Numbers
    next_called: Row
    """Likewise of its last byte."""
    split: Numbers
    """Bytes that are before those of the last call."""
    taken: Row
    """Seconds at which the kernel had taken its last byte."""

    @property
    def is_split(self) -> Mask:
        """True where a packet is of two calls."""
        return np.asarray(self.call != self.next_call)

    def some(self, rows: Numbers) -> Sent:
        """Return those of some packets."""
        chosen = {}
        for entry in fields(self):
            values = getattr(self, entry.name)
            chosen[entry.name] = values[rows]
        return Sent(**chosen)

    def begun(self, packets: Numbers, offsets: Row) -> tuple[Numbers, Row]:
        """Return numbers and seconds of the calls that sent bytes of packets."""
        is_split = self.is_split[packets]
        is_behind = offsets >= self.split[packets]
        is_next = is_split & is_behind
        first_call = self.call[packets]
        first_called = self.called[packets]
        next_call = self.next_call[packets]
        next_called = self.next_called[packets]

        call = np.where(is_next, next_call, first_call)
        called = np.where(is_next, next_called, first_called)
        return call, called


def find_senders(traffic: Traffic) -> Sent:
    """Return the calls by which packets were sent, by the bytes of their connection."""
    packets = traffic.packets
    times = packets["time"].astype(np.float64)
    sizes = packets["bytes"].astype(np.int64)
    count = len(packets)
    unknown = np.full(count, -1)
    sent = Sent(
        call=unknown,
        called=times,
        next_call=unknown.copy(),
        next_called=times.copy(),
        split=sizes,
        taken=times.copy(),
    )

    calls = traffic.calls
    kinds = calls["kind"]
    is_send = np.isin(kinds, (SEND, PART))
    sends = np.flatnonzero(is_send)
    calls_of = _group(calls[sends], _ENDS)
    packets_of = _group(packets, CONNECTION)
    for connection, places in packets_of.items():
        numbers = calls_of.get(connection)
        if numbers is not None:
            sends_there = sends[numbers]
            _match(sent, traffic, places, sends_there)

    # The kernel may have kept back what was called: that is time of its own.
    left_kernel = _kernel_times(traffic)
    np.maximum(sent.called, left_kernel, out=sent.called)
    return sent


#: Fields of a call that are `CONNECTION` of its packets, in that order.
_ENDS = ("machine", "peer", "port", "peer_port")


def _match(
    sent: Sent,
    traffic: Traffic,
    places: Numbers,
    sends: Numbers,
) -> None:
    """Note which of the calls on a connection sent its packets, which have places."""
    packets = traffic.packets[places]
    sizes = packets["bytes"].astype(np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    rows = traffic.calls[sends]
    begins = rows["begin"]
    call_sizes = rows["bytes"]
    call_ends = np.cumsum(call_sizes)
    call_starts = call_ends - call_sizes
    # What was lost crossed twice: no call is later than its packet.
    begun = np.searchsorted(begins, packets["time"], "right")
    latest = begun - 1
    first = np.searchsorted(call_ends, starts, "right")
    first = np.minimum(first, latest)
    last = np.searchsorted(call_ends, ends)
    last = np.minimum(last, latest)

    is_sent = first >= 0
    places = places[is_sent]
    starts = starts[is_sent]
    first = first[is_sent]
    last = last[is_sent]

    # The rest of a message is of the call that began it.
    numbers = np.arange(len(rows))
    is_part = rows["kind"] == PART
    is_rest = np.append(False, is_part[:-1])
    heads = np.where(is_rest, 0, numbers)
    heads = np.maximum.accumulate(heads)
    first_head = heads[first]
    last_head = heads[last]

    sent.call[places] = sends[first_head]
    sent.called[places] = begins[first_head]
    sent.next_call[places] = sends[last_head]
    sent.next_called[places] = begins[last_head]
    taken = rows["end"]
    sent.taken[places] = taken[last]
    bytes_inside = call_starts[last_head] - starts
    sent.split[places] = np.maximum(bytes_inside, 0)


def _kernel_times(traffic: Traffic) -> Row:
    """Return when each packet left its kernel, where no NIC was busy until then.

    The kernel keeps small ones back until others are acknowledged (Nagle).
    """
    packets = traffic.packets
    times = packets["time"]
    count = len(packets)
    busy = np.full(count, -np.inf)
    for name in ("source", "destination"):
        by_machine = _group(packets, [name])
        for places in by_machine.values():
            later = places[1:]
            earlier = places[:-1]
            earlier_times = times[earlier]
            busy[later] = np.maximum(busy[later], earlier_times)

    nics_out, nics_in = traffic.nics
    rates_out = nics_out[packets["source"]]
    rates_in = nics_in[packets["destination"]]
    rates = np.minimum(rates_out, rates_in)
    crossing = packets["bytes"] / rates
    idle = times - busy
    is_idle = idle > _IDLE + 2 * crossing
    left = times - crossing
    return np.where(is_idle, left, -np.inf)


def _group(
    rows: Records,
    names: Sequence[str],
) -> dict[_Values, Numbers]:
    """Return the numbers of the rows with the same values of some fields, by these."""
    if not len(rows):
        return {}
    columns = [rows[name].astype(np.int64) for name in names]
    table = np.stack(columns, axis=1)
    keys, places = np.unique(table, axis=0, return_inverse=True)
    places = places.ravel()
    order = np.argsort(places, kind="stable")
    changes = np.diff(places[order])
    cuts = np.flatnonzero(changes) + 1
    groups = np.split(order, cuts)
    values = map(tuple, keys.tolist())
    return dict(zip(values, groups, strict=True))


@dataclass
class Pause:
    """Time of a thread between a send and the step that it had sent before."""

    before: int = -1
    """Number of the call with which that step began; -1 for none."""
    begun: float = -np.inf
    """Seconds at which it was called."""
    ready: float = np.nan
    """Seconds at which the thread first received, or waited; NaN where it did not."""
    over: float = np.nan
    """Seconds at which it last had received, or waited."""
    groups: int = 0
    """Times that it did, with computing between."""
    sources: set[int] = field(default_factory=set)
    """Machines that it received from."""
    is_woken: bool = False
    """True where it waited last for another thread."""


class Threads:
    """Calls of every thread of a lab, in order."""

    def __init__(self, traffic: Traffic) -> None:
        calls = traffic.calls
        count = len(calls)
        by_thread = _group(calls, ("machine", "process", "thread"))
        self._calls = calls
        self._rows = list(by_thread.values())
        self._thread = np.zeros(count, np.int64)
        self._place = np.zeros(count, np.int64)
        causes = calls.copy()
        for number, rows in enumerate(self._rows):
            self._thread[rows] = number
            self._place[rows] = np.arange(len(rows))
            # Who receives behind a wait was woken by the kernel.
            kinds = calls["kind"][rows]
            is_wait = kinds[:-1] == WAIT
            then_receives = kinds[1:] == RECEIVE
            is_woken = is_wait & then_receives
            earlier = rows[:-1]
            woken = earlier[is_woken]
            causes["kind"][woken] = RECEIVE

        self._ends: dict[_Values, Row] = {}
        by_kind = _group(causes, ("machine", "process", "kind"))
        for key, rows in by_kind.items():
            ends = calls["end"][rows]
            self._ends[key] = np.sort(ends)

    def pause(self, call: int, steps: Mapping[int, Any]) -> Pause:
        """Return what the thread of a call did before it.

        ``steps`` holds the calls with which steps begin.
        """
        pause = Pause()
        following = np.inf
        thread = self._thread[call]
        rows = self._rows[thread]
        place = self._place[call]
        earlier = rows[:place].tolist()
        for row in reversed(earlier):
            note = self._calls[row]
            begin = float(note["begin"])
            end = float(note["end"])
            kind = int(note["kind"])
            if row in steps:
                pause.before = row
                pause.begun = begin
                break
            if kind in {SEND, PART}:
                continue

            if np.isnan(pause.over):
                pause.over = end
                pause.is_woken = kind == WAIT
            if kind == RECEIVE:
                peer = int(note["peer"])
                pause.sources.add(peer)
            computed = following - end
            if computed > _APART:
                pause.groups += 1
            pause.ready = begin
            following = begin

        if pause.is_woken:
            pause.over = self._wake(call, pause.over)
        return pause

    def _wake(self, call: int, instant: float) -> float:
        """Return when the process of a call had received what woke a thread.

        A thread that is woken by one which computed waits for what that had received.
        """
        note = self._calls[call]
        machine = int(note["machine"])
        process = int(note["process"])
        receipts = (machine, process, RECEIVE)
        wake_ups = (machine, process, WAIT)
        received = self._ends.get(receipts, _NONE)
        waits = self._ends.get(wake_ups, _NONE)
        for _ in range(_LINKS):
            last = _latest(received, instant)
            if instant - last <= _WOKEN:
                return instant
            limit = instant - _WOKEN
            earlier = _latest(waits, limit)
            if earlier == -np.inf:
                return last
            instant = earlier
        return instant


def _latest(instants: Row, limit: float) -> float:
    """Return the last of the instants until a limit; minus infinity if none is."""
    place = np.searchsorted(instants, limit, "right")
    if not place:
        return -np.inf
    return float(instants[place - 1])
