"""The sending end of a data connection: frames of one edge, in order, paced or not.

The socket is written by our own non-blocking calls: pacing needs to say how many bytes
go now, and the standard loop's transport copies what is left of every partial write
(0.25 of a raw socket at 64 MB).
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from emu.emulation.network.pacer import Pacer
from emu.emulation.network.tls import TlsSocket
from emu.emulation.shaping import Bucket, RateSegment, allowance, fluid_end, next_look
from emu.emulation.wire.encoding import Outgoing, encode_data
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved
from emu.host.this_host import this_host

#: Bytes that an unshaped frame sends per turn of the loop, and while other edges of the
#: process are being paced. Of a raw socket's throughput at 16 MB, 4 MB keep 0.96, 1 MB
#: 0.92, 256 KB 0.82; but 4 MB hold the loop for 0.8 ms, without a bound it was 5.7.
BURST = 1 << 22
BURST_BESIDE_PACING = 1 << 20
#: A send that ends this much (wall seconds) after its fluid counts as late.
LATE = 0.001


@dataclass(slots=True)
class OutEdgeStatistics:
    """Amounts and delays of what one edge has sent so far (real bytes, wall seconds).

    ``max_stale``: the longest that a segment had held before it was seen.
    ``lost_bytes``: what senders that stood still could not catch up. ``missed``: rates
    that were decided and never came to its board.
    """

    edge: int
    frames: int = 0
    payload_bytes: int = 0
    header_bytes: int = 0
    late_sends: int = 0
    max_behind: float = 0.0
    max_lead_bytes: float = 0.0
    max_stale: float = 0.0
    blocked: int = 0
    lost_bytes: float = 0.0
    missed: int = 0


@dataclass(slots=True, eq=False)
class _Queued:
    iteration: int
    shaped: bool
    outgoing: Outgoing
    left: asyncio.Future[float]
    queued: float  # wall time at which the payload was there
    since: float = math.nan  # of the newest segment that was seen
    informed: float = math.nan  # wall time at which it was seen first
    obeyed: RateSegment | None = None  # the newest segment that had begun
    bucket: Bucket = field(default_factory=Bucket)
    notified: float = -math.inf  # wall time from which a segment holds that there is
    first: float = math.nan  # wall time before its first bytes left
    last: float = math.nan  # and before its last
    due: float = math.inf  # wall time of the next look
    late: float = 0.0  # wall seconds by which looks were, before a segment has begun

    def obey(self, segment: RateSegment, capacity: float) -> float:
        """Follow a segment that has begun; return the bytes that others carried unseen.

        A segment of a time to come takes the place of those before it on the board,
        however often a sender looks: that it stood still costs it its lateness at most.
        Without this a flow beside others that began was 20 ms late, with 4 ms unseen.
        """
        before = self.obeyed.at(segment.since) if self.obeyed is not None else 0.0
        unseen = max(0.0, segment.served - before - capacity * self.late)
        self.obeyed, self.late = segment, 0.0
        return unseen


class OutEdge:
    """Sends the frames of one edge, first in first out. Made by `open_edge`.

    The pacer is that of this process, the capacity that of the narrowest link on the
    way, in emulated bytes per second.
    """

    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        edge: int,
        pacer: Pacer,
        capacity: float = math.inf,
    ) -> None:
        self.edge, self._sock, self._pacer = edge, sock, pacer
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Queued] = deque()
        self._writing = False  # add_writer is armed: the kernel's buffer was full
        self._error: EmulatorError | None = None
        self.statistics = OutEdgeStatistics(edge)
        self._loop.add_reader(sock.fileno(), self._peer_spoke)

    def send(
        self, iteration: int, payload: Mapping[str, NDArray[Any]], *, shaped: bool
    ) -> asyncio.Future[float]:
        """Queue one frame; the future is done when its last byte has left.

        Its result are the wall seconds from the fluid's end until then, negative before
        it; 0 for an unshaped frame. Not a coroutine: the order of the calls is the
        order on the wire. The arrays are viewed, not copied, until then.

        Raises ValueError if the payload cannot be encoded; NodeLost if the receiver has
        gone, as the future does.

        Parameters
        ----------
        iteration
            Of the source task, rising from call to call.
        payload
            C-contiguous arrays.
        shaped
            Whether to follow the edge's segment on the rate board. A payload without
            bytes is never shaped.
        """
        if self._error is not None:
            raise self._error
        outgoing = Outgoing(encode_data(self.edge, iteration, payload, shaped=shaped))
        future: asyncio.Future[float] = self._loop.create_future()
        shaped = shaped and outgoing.volume > 0
        entry = _Queued(iteration, shaped, outgoing, future, this_host.monotonic())
        self._queue.append(entry)
        if len(self._queue) == 1:
            self._begin(entry)
        return future

    def notify(self, since: float) -> None:
        """Look at the board: there is, or soon will be, a segment from a run time."""
        if self._queue and self._queue[0].shaped:
            entry, at = self._queue[0], self._pacer.to_wall(since)
            entry.notified, entry.due = at, min(entry.due, at)
            self._pacer.look(self)

    def advance(self, now: float) -> float:
        """Send what the fluid allows of the first frame (called by the pacer).

        Returns the wall time at which to look again; infinity when that is not for the
        pacer to say.
        """
        if self._writing or not self._queue or not self._queue[0].shaped:
            return math.inf
        entry, pacer = self._queue[0], self._pacer
        outgoing, pace = entry.outgoing, pacer.pace
        segment = pacer.segment(self.edge, entry.iteration)
        first = segment_time = -math.inf
        if segment is not None:
            segment_time = segment.since
            if segment.since != entry.since:
                entry.since, entry.informed = segment.since, now
                stale = now - max(segment.since, entry.queued)
                self.statistics.max_stale = max(self.statistics.max_stale, stale)
            # A segment of a time to come says nothing of the time before it: the one
            # that ends a flow would let all of it go at once, 34 ms early in the demo.
            entry.late += max(0.0, min(now, segment.since) - entry.due)
            first, unseen = segment.since - pace.lead_time, 0.0
            if first <= now:
                unseen = entry.obey(segment, pacer.to_wall_rate(self._capacity))
            if (obeyed := entry.obeyed) is not None:
                # A segment between both, of a cut say, may never have been seen: what
                # the one to come has carried by then, the flow has at most until then.
                if first > now and obeyed.at(now) > segment.served:
                    obeyed = RateSegment(obeyed.iteration, segment.served, 0.0, now)
                segment = self._follow(entry, obeyed, now, unseen)
            if outgoing.done or self._writing:
                return math.inf
        due = next_look(
            segment,
            now,
            outgoing.volume,
            pace,
            notified=entry.notified > segment_time,
            sending=outgoing.volume - outgoing.body_sent > pace.tail,
        )
        entry.due = min(due, first) if first > now else due
        return entry.due

    def _follow(
        self, queued: _Queued, segment: RateSegment, now: float, unseen: float
    ) -> RateSegment:
        """Send what a segment allows; return the segment without what was lost."""
        outgoing, pace = queued.outgoing, self._pacer.pace
        progress, volume = outgoing.body_sent, outgoing.volume
        capacity = self._pacer.to_wall_rate(self._capacity)
        bytes_left = queued.bucket.without_loss(
            segment, now, progress, volume, pace, capacity, unseen
        )
        limit = allowance(bytes_left, now, progress, volume, pace)
        # Crumbs cost a wake-up at both ends; a quarter of the lead never starves. Who
        # may not catch up all would lose what it holds back.
        least = min(pace.lead(bytes_left.rate) / 4, volume - progress)
        if limit < (least if pace.is_unlimited else 1):
            return bytes_left
        if not self._write(queued, limit) and not outgoing.done:
            self._wait_writable()
        lead = outgoing.body_sent - segment.at(now)
        self.statistics.max_lead_bytes = max(self.statistics.max_lead_bytes, lead)
        if outgoing.done:
            self._finish(queued, fluid_end(segment, volume))
        return bytes_left

    async def aclose(self) -> None:
        """Close the connection; frames still queued fail with `NodeLost`."""
        self._fail(NodeLost(f"edge {self.edge} was closed"))

    def _begin(self, entry: _Queued) -> None:
        """Start with the frame that has come to the front, if it is there still."""
        if not self._queue or self._queue[0] is not entry:
            return
        # What is paced goes by its rates; all else as fast as the socket takes it.
        if entry.shaped:
            self._pacer.activate(self)
        else:
            self._pump()

    def _pump(self) -> None:
        """Send one burst without pacing; the writer callback asks for the next."""
        entry = self._queue[0]
        self._write(entry, BURST_BESIDE_PACING if self._pacer.busy else BURST)
        if entry.outgoing.done:
            self._finish(entry, math.inf)
        else:
            self._wait_writable()

    def _writable(self) -> None:
        if not self._queue[0].shaped:
            self._pump()
            return
        # The rates may have changed while the kernel's buffer was full.
        self._stop_writing()
        self._pacer.look(self)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())

    def _wait_writable(self) -> None:
        if not self._writing and self._error is None:
            self._writing = True
            self._loop.add_writer(self._sock.fileno(), self._writable)

    def _write(self, queued: _Queued, payload_bytes: int) -> bool:
        """Send up to so many payload bytes; return whether the kernel took them all."""
        outgoing = queued.outgoing
        rest = payload_bytes + max(0, outgoing.overhead - outgoing.sent)
        while rest > 0 and not outgoing.done:
            views = outgoing.peek(min(rest, BURST))
            queued.last = this_host.monotonic()
            try:
                if len(views) == 1:
                    count = self._sock.send(views[0])
                else:
                    count = self._sock.sendmsg(views)
            except (BlockingIOError, InterruptedError):
                self.statistics.blocked += 1
                return False
            except OSError as error:
                self._fail(NodeLost(f"the receiver of edge {self.edge} left: {error}"))
                return False
            # Before the call, not after it: the kernel may have sent them by then.
            if math.isnan(queued.first):
                queued.first = queued.last
            outgoing.advance(count)
            rest -= count
            if not queued.shaped:
                break  # one burst per turn of the loop, so that others get theirs
        return True

    def _finish(self, queued: _Queued, fluid: float) -> None:
        end, outgoing, counts = this_host.monotonic(), queued.outgoing, self.statistics
        flow, pacer = (self.edge, queued.iteration), self._pacer
        # Frames without rates have no fluid that they could be late for.
        behind = end - fluid if math.isfinite(fluid) else 0.0
        counts.frames += 1
        counts.payload_bytes += outgoing.volume
        counts.header_bytes += outgoing.overhead
        pacer.departures.note(*flow, queued.first, queued.last, outgoing.volume)
        if queued.shaped:
            counts.late_sends += behind > LATE
            counts.lost_bytes += queued.bucket.lost
            counts.missed = pacer.board.count_missed(self.edge)
            counts.max_behind = max(counts.max_behind, behind)
            pacer.log.note(*flow, end, queued.queued, queued.informed, pacer.lag)
        self._stop_writing()
        self._queue.popleft()
        if not queued.left.done():
            queued.left.set_result(behind)
        if queued.shaped:
            self._pacer.deactivate(self)
        if self._queue:
            # In a turn of its own: others of this process get theirs in between.
            self._loop.call_soon(self._begin, self._queue[0])

    def _peer_spoke(self) -> None:
        """Take note of the receiver's end: after its answer it sends nothing else."""
        try:
            spoke = self._sock.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(NodeLost(f"the receiver of edge {self.edge} left: {error}"))
            return
        kind, did = (NodeMisbehaved, "spoke") if spoke else (NodeLost, "has gone")
        self._fail(kind(f"the receiver of edge {self.edge} {did}"))

    def _fail(self, error: EmulatorError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._loop.remove_reader(self._sock.fileno())
        self._stop_writing()
        self._sock.close()
        self._pacer.deactivate(self)
        while self._queue:
            future = self._queue.popleft().left
            if not future.done():
                future.set_exception(error)
                future.exception()  # who does not await it has `send` raise it
