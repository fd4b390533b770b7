"""The sending end of a data connection: frames of one edge, in order, paced or not.

The socket is written by our own non-blocking calls: pacing needs to say how many bytes
go now, and the standard loop's transport copies what is left of every partial write
(0.25 of a raw socket at 64 MB).
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emu.array_types import Array
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.tls import TlsSocket
from emu.emulation.wire.encoding import encode_data
from emu.emulation.wire.frame_layout import LAST_STATE
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib

#: Bytes that an unshaped frame sends per turn of the loop while other edges of the
#: process are being paced; else it is BURST of the core, which says what that costs.
BURST_BESIDE_PACING = 1 << 20


@dataclass(frozen=True, slots=True)
class OutEdgeStatistics:
    """Amounts and delays of what one edge has sent so far (real bytes, wall seconds).

    ``max_stale``: the longest that a segment had held before it was seen.
    ``lost_bytes``: what senders that stood still could not catch up. ``missed``: rates
    that were decided and never came to its board.
    """

    edge: int
    frames: int
    payload_bytes: int
    header_bytes: int
    late_sends: int
    max_behind: float
    max_lead_bytes: float
    max_stale: float
    blocked: int
    lost_bytes: float
    missed: int


class _Frame:
    """A frame that waits, or is on its way; its buffers are viewed by the core."""

    def __init__(
        self,
        iteration: int,
        views: Sequence[memoryview],
        *,
        shaped: bool,
    ) -> None:
        self.iteration = iteration
        self._memory = [ffi.from_buffer(view) for view in views]
        buffers = [(memory, len(memory)) for memory in self._memory]
        self.buffers = ffi.new("Buffer[]", buffers)
        self.shaped = shaped and len(views) > 1  # its head alone has no rate
        self.queued = this_host.monotonic()
        #: Wall time from which a segment holds that there is.
        self.notified = -math.inf
        self.left: asyncio.Future[float] = asyncio.get_running_loop().create_future()


def _ignore(_: EmulatorError) -> None:
    """Do without: who awaits a frame gets its error."""


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
        self.edge = edge
        self.on_failure: Callable[[EmulatorError], object] = _ignore
        """Called where frames are lost with the connection."""
        self._sock = sock
        self._pacer = pacer
        self.sender = ffi.new("Sender *", {"edge": edge, "capacity": capacity})
        # TLS, and sockets of trials in virtual time, are written by their own calls.
        is_plain = isinstance(sock, socket.socket)
        self.sender.fd = sock.fileno() if is_plain else -1
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Frame] = deque()
        self._writing = False  # add_writer is armed: the kernel's buffer was full
        self._cut: Callable[[], bool] | None = None
        self._error: EmulatorError | None = None
        self._loop.add_reader(sock.fileno(), self._peer_spoke)

    def send(
        self,
        iteration: int,
        payload: Mapping[str, Array],
        *,
        shaped: bool,
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
        views = encode_data(self.edge, iteration, payload, shaped=shaped)
        frame = _Frame(iteration, views, shaped=shaped)
        self._queue.append(frame)
        if len(self._queue) == 1:
            self._begin(frame)
        return frame.left

    def lend(self, cut: Callable[[], bool]) -> None:
        """Leave it to the core to send; nothing is queued here any more.

        ``cut`` is called where the connection ends: it has the core send nothing more,
        and returns whether something was left.
        """
        self._cut = cut

    def give_up(self) -> None:
        """End the connection, over which the core could not send."""
        if self._error is None:
            number = self.sender.error
            self._fail(self._loss(OSError(number, os.strerror(number))))
        else:
            self.on_failure(self._error)

    def notify(self, since: float) -> None:
        """Look at the board: there is, or soon will be, a segment from a run time."""
        if not self._queue or not self._queue[0].shaped:
            return
        wall = self._pacer.to_wall(since)
        sender = self.sender
        self._queue[0].notified = wall
        sender.notified = wall
        sender.due = min(sender.due, wall)
        if not self._writing:
            self._pacer.look(self)

    def note_connection(self, iteration: int = LAST_STATE) -> None:
        """Note what the kernel counts of it before a flow, or after the last one."""
        self._pacer.connections.note(self._sock, self.edge, iteration)

    @property
    def statistics(self) -> OutEdgeStatistics:
        """Counts so far."""
        sender = self.sender
        missed = self._pacer.board.count_missed(self.edge)

        return OutEdgeStatistics(
            edge=self.edge,
            frames=sender.frames,
            payload_bytes=sender.payload_bytes,
            header_bytes=sender.header_bytes,
            late_sends=sender.late_sends,
            max_behind=sender.max_behind,
            max_lead_bytes=sender.max_lead,
            max_stale=sender.max_stale,
            blocked=sender.blocked,
            lost_bytes=sender.lost_bytes,
            missed=missed,
        )

    def attend(self, outcome: int) -> None:
        """Do what a look at the sender came to (called by the pacer)."""
        sender = self.sender
        if outcome == lib.OFFERS:
            outcome = self._write(sender.offered)
            now = this_host.monotonic()
            lib.plan_look(self._pacer.core, sender, now)
            sender.next = max(sender.due, now) if outcome == lib.PACED else math.inf

        if outcome == lib.SENT:
            self._finish(self._queue[0])
        elif outcome == lib.BLOCKED:
            self._wait_writable()
        elif outcome == lib.BROKEN:
            error = OSError(sender.error, os.strerror(sender.error))
            self._fail(self._loss(error))

    async def aclose(self) -> None:
        """Close the connection; frames still queued fail with `NodeLost`."""
        self.on_failure = _ignore
        self._fail(NodeLost(f"edge {self.edge} was closed"))

    def _begin(self, frame: _Frame) -> None:
        """Start with the frame that has come to the front, if it is there still."""
        if not self._queue or self._queue[0] is not frame:
            return
        lib.load_frame(
            self.sender,
            frame.iteration,
            frame.buffers,
            len(frame.buffers),
            frame.queued,
            frame.notified,
        )

        # What is paced goes by its rates; all else as fast as the socket takes it.
        if frame.shaped:
            self.note_connection(frame.iteration)
            self._pacer.activate(self)
        else:
            self._pump()

    def _pump(self) -> None:
        """Send one burst without pacing; the writer callback asks for the next."""
        is_encrypted = self.sender.fd < 0  # which holds the loop
        shares = self._pacer.busy or is_encrypted
        outcome = self._write(BURST_BESIDE_PACING if shares else lib.BURST)
        self.attend(lib.BLOCKED if outcome == lib.PACED else outcome)

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

    def _write(self, body_bytes: int) -> int:
        """Send so many bytes of the body and what comes before it: `lib.send_bytes`."""
        sender = self.sender
        if sender.fd >= 0:
            return int(lib.send_bytes(sender, body_bytes))

        rest = body_bytes + max(0, sender.overhead - sender.sent)
        views = ffi.new("Buffer[]", lib.BUFFERS)
        while rest > 0 and sender.left:
            number = lib.gather(sender, min(rest, lib.BURST), views)
            buffers = [ffi.buffer(view.start, view.size) for view in views[0:number]]
            sender.last = this_host.monotonic()
            try:
                count = self._sock.sendmsg(buffers)
            except (BlockingIOError, InterruptedError):
                sender.blocked += 1
                return int(lib.BLOCKED)
            except OSError as error:
                self._fail(self._loss(error))
                return int(lib.BROKEN)
            lib.on_sent(sender, count)
            rest -= count
        sender.end = this_host.monotonic()
        return int(lib.PACED if sender.left else lib.SENT)

    def _finish(self, frame: _Frame) -> None:
        pacer = self._pacer
        pacer.departures.make_room()
        lateness = lib.finish(pacer.core, self.sender, frame.shaped)

        self._stop_writing()
        self._queue.popleft()
        if not frame.left.done():
            frame.left.set_result(lateness)
        if frame.shaped:
            pacer.deactivate(self)
        if self._queue:
            # In a turn of its own: others of this process get theirs in between.
            self._loop.call_soon(self._begin, self._queue[0])

    def _peer_spoke(self) -> None:
        """Take note of the receiver's end: after its answer it sends nothing else."""
        try:
            data = self._sock.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(self._loss(error))
            return
        receiver = f"the receiver of edge {self.edge}"
        if data:
            self._fail(NodeMisbehaved(f"{receiver} spoke"))
        else:
            self._fail(NodeLost(f"{receiver} has gone"))

    def _loss(self, error: OSError) -> NodeLost:
        return NodeLost(f"the receiver of edge {self.edge} left: {error}")

    def _fail(self, error: EmulatorError) -> None:
        if self._error is not None:
            return
        self._error = error
        self._loop.remove_reader(self._sock.fileno())
        self._stop_writing()
        is_missed = bool(self._queue) or (self._cut is not None and self._cut())
        self._sock.close()
        self.sender.fd = -1  # another socket may get the number
        self._pacer.deactivate(self)
        if is_missed:
            self.on_failure(error)
        while self._queue:
            future = self._queue.popleft().left
            if not future.done():
                future.set_exception(error)
                future.exception()  # who does not await it has `send` raise it
