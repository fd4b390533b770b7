"""Where payloads wait, by edge and iteration, until the task that needs them starts."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Array
from emu.emulation.network.clock import awake_timeout
from emu.emulation.network.send_log import FrameLog
from emu.emulation.shaping import LEAST_MEMORY
from emu.emulation.wire.data_reader import no_room
from emu.errors import DeadlineExceeded, EmulatorError, NodeMisbehaved
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib

# Receive memory: taken once, touched before the run, used again and again.
#
# The first touch of a fresh page costs more than the transfer (64 MB: 0.9 to 4 GB/s
# against 5), so buffers are pooled by size class. Four classes per power of two waste
# at most a quarter.


@dataclass(slots=True)
class PoolStatistics:
    """Bytes of receive memory, by size class (so including what rounding adds)."""

    in_use: int = 0
    high_water: int = 0
    """Handed out now, and at most so far."""
    held: int = 0
    """Taken from the system, in use or ready."""
    limit: int = 4 << 30
    """Most that ``in_use`` may become."""


class Loan:
    """So many bytes of receive memory that count as in use until `release`.

    Of a payload that was compared and not kept (the core counted it as it came): its
    bytes are on their way until its task has them, as those of any other.
    """

    __slots__ = ("_pool", "nbytes")

    def __init__(self, pool: BufferPool, size: int) -> None:
        self._pool: BufferPool | None = pool
        self.nbytes = size

    def release(self) -> None:
        """Count them as free; raises ValueError if they were."""
        if self._pool is None:
            raise ValueError("this loan was released before")
        lib.take_back(self._pool.core, self.nbytes)
        self._pool = None


class PooledBuffer:
    """Memory on loan: ``view`` has exactly the bytes asked for, until `release`."""

    __slots__ = ("_block", "_pool", "nbytes", "view")

    def __init__(self, pool: BufferPool, block: NDArray[np.uint8], size: int) -> None:
        self._pool: BufferPool | None = pool
        self._block = block
        self.view = block.data[:size]
        self.nbytes = size

    def release(self) -> None:
        """Give the memory back, to be overwritten; raises ValueError if it was."""
        if self._pool is None:
            raise ValueError("this buffer was released before")
        pool = self._pool
        self._pool = None
        pool.take_back(self._block)


class BufferPool:
    """Buffers by size class, with a hard cap on what may be in use at once."""

    def __init__(self, limit: int = 4 << 30) -> None:
        if limit < LEAST_MEMORY:
            raise ValueError(
                f"limit must be at least {LEAST_MEMORY} bytes, not {limit}"
            )
        self.core = ffi.new("PayloadMemory *", {"limit": limit})
        """Its `PayloadMemory` of the core."""
        self._ready: dict[int, list[NDArray[np.uint8]]] = defaultdict(list)

    @property
    def statistics(self) -> PoolStatistics:
        """Counts so far."""
        core = self.core
        return PoolStatistics(core.in_use, core.high_water, core.held, core.limit)

    def reserve(self, size: int) -> None:
        """Take and touch a buffer for ``size`` bytes ahead of the run."""
        block = np.empty(size_class(size), dtype=np.uint8)
        block.fill(0)  # touches every page: the first to do so pays for it
        self.core.held += block.nbytes
        self._ready[block.nbytes].append(block)

    def acquire(self, size: int) -> PooledBuffer:
        """Return a buffer of ``size`` bytes, its content undefined.

        Raises RunError if more than ``limit`` bytes would be in use.
        """
        if not lib.lend(self.core, size):
            raise no_room(self.core, size)
        length = size_class(size)
        if self._ready[length]:
            block = self._ready[length].pop()
        else:
            self._drop_blocks(length)
            block = np.empty(length, dtype=np.uint8)
            self.core.held += length
        return PooledBuffer(self, block, size)

    def _drop_blocks(self, length: int) -> None:
        """Keep what is held under the cap, too: drop the largest that lie ready."""
        counts = self.core
        for _, blocks in sorted(self._ready.items(), reverse=True):
            while blocks and counts.held + length > counts.limit:
                block = blocks.pop()
                counts.held -= block.nbytes

    def take_back(self, block: NDArray[np.uint8]) -> None:
        """Accept a released block (called by `PooledBuffer.release`)."""
        lib.take_back(self.core, block.nbytes)
        self._ready[block.nbytes].append(block)


def size_class(size: int) -> int:
    """Return the length of the buffer that serves ``size`` bytes."""
    length: int = lib.size_class(size)
    return length


@dataclass(frozen=True, slots=True)
class Handoff:
    """An edge within a process: delivers and logs at once what an `OutEdge` takes."""

    edge: int
    inbox: Inbox
    departures: FrameLog
    arrivals: FrameLog

    def send(
        self,
        iteration: int,
        payload: Mapping[str, Array],
        **_options: bool,
    ) -> asyncio.Future[None]:
        """Deliver a payload; the future is done.

        The receiver gets views that it cannot write to: the arrays are still those of
        the sender, and of whoever else it gave them to. Nothing is shaped or checked.

        Raises NodeMisbehaved if this iteration was delivered before and not taken.
        """
        views = {name: array.view() for name, array in payload.items()}
        for view in views.values():
            view.flags.writeable = False

        now = this_host.monotonic()
        delivery = Delivery(self.edge, iteration, views, now)
        for log in (self.departures, self.arrivals):
            log.note(self.edge, iteration, now, now, delivery.nbytes)
        self.inbox.deliver(delivery)

        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


@dataclass(slots=True, eq=False)  # frozen it would take 1 us more
class Delivery:
    """One payload that arrived."""

    edge: int
    iteration: int
    payload: Mapping[str, Array]
    """Arrays in pooled memory (or the sender's own, within a process): valid until
    `release`. None where a sink has taken them."""
    arrived: float
    """Wall time of the last byte, seconds of CLOCK_MONOTONIC."""
    buffer: PooledBuffer | Loan | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the payload's tensors, which are the volume of the flow."""
        if self.buffer is not None:
            return self.buffer.nbytes
        return sum(array.nbytes for array in self.payload.values())

    def release(self) -> None:
        """Give the memory back to the pool; the arrays must not be used afterwards."""
        if self.buffer is not None:
            self.buffer.release()


@dataclass(slots=True)
class InboxStatistics:
    """Payloads waiting now, and at most so far, with their bytes."""

    waiting: int = 0
    waiting_bytes: int = 0
    high_water: int = 0
    high_water_bytes: int = 0


class Inbox:
    """Deliveries of one process."""

    def __init__(self, owner: str = "this process") -> None:
        self.owner = owner
        self._ready: dict[tuple[int, int], Delivery] = {}
        self._awaited: dict[tuple[int, int], asyncio.Future[Delivery]] = {}
        self._failed: dict[int, EmulatorError] = {}
        self.statistics = InboxStatistics()
        self._forward: Callable[[Delivery], None] | None = None

    def forward(self, take: Callable[[Delivery], None]) -> list[Delivery]:
        """Have someone else take what is delivered; return what lies here."""
        self._forward = take
        waiting = [*self._ready.values()]
        self._ready.clear()
        return waiting

    def deliver(self, delivery: Delivery) -> None:
        """Accept a payload; also the way of a handoff within one process.

        Raises NodeMisbehaved if this iteration of this edge is already here.
        """
        if self._forward is not None:
            self._forward(delivery)
            return
        key = (delivery.edge, delivery.iteration)
        if key in self._ready:
            raise NodeMisbehaved(f"edge {key[0]} delivered iteration {key[1]} twice")
        waiter = self._awaited.pop(key, None)
        # One that was cancelled in this very turn is done: the payload waits then.
        if waiter is not None and not waiter.done():
            waiter.set_result(delivery)
            return

        self._ready[key] = delivery
        counts = self.statistics
        counts.waiting += 1
        counts.waiting_bytes += delivery.nbytes
        counts.high_water = max(counts.high_water, counts.waiting)
        counts.high_water_bytes = max(counts.high_water_bytes, counts.waiting_bytes)

    async def get(
        self,
        edge: int,
        iteration: int,
        *,
        within: float | None = None,
    ) -> Delivery:
        """Return the payload of one iteration of one edge, waiting until it is here.

        One waiter at a time, for so many wall seconds; None waits without end.

        Raises DeadlineExceeded if it did not come in time, ValueError if it is waited
        for already, and what `fail` got for the edge, if the payload was not here
        before.
        """
        key = (edge, iteration)
        # What came before its edge failed is as good as ever: the error comes after it.
        if key in self._ready:
            delivery = self._ready.pop(key)
            self.statistics.waiting -= 1
            self.statistics.waiting_bytes -= delivery.nbytes
            return delivery
        if edge in self._failed:
            raise self._failed[edge]
        if key in self._awaited:
            raise ValueError(f"edge {edge}, iteration {iteration} is awaited already")

        future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._awaited[key] = future
        limit = contextlib.nullcontext() if within is None else awake_timeout(within)
        try:
            async with limit:
                return await future
        except (TimeoutError, asyncio.CancelledError) as error:
            # What came in the very turn its waiter gave up is for the next one.
            if future.done() and not future.cancelled() and not future.exception():
                self.deliver(future.result())
            if isinstance(error, asyncio.CancelledError):
                raise
            raise DeadlineExceeded(
                f"{self.owner} waited {within:g} s for iteration {iteration} of "
                f"edge {edge}"
            ) from None
        finally:
            self._awaited.pop(key, None)

    def fail(self, edge: int, error: EmulatorError) -> None:
        """Let everybody who waits for this edge, now or later, have the error."""
        self._failed.setdefault(edge, error)  # the first says most
        for key, future in list(self._awaited.items()):
            awaited_edge, _ = key
            if awaited_edge == edge and not future.done():
                future.set_exception(error)
                del self._awaited[key]
