"""Where payloads wait, by edge and iteration, until the task that needs them starts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emu.errors import DeadlineExceeded, EmulatorError, NodeMisbehaved
from emu.network.pause_aware_clock import awake_timeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.network.pool import PooledBuffer


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """One payload that arrived.

    Parameters
    ----------
    edge, iteration, version
        As the sender said.
    payload
        Arrays in pooled memory (or the sender's own, within a process): valid until
        `release`.
    arrived
        Wall time of the last byte, seconds of CLOCK_MONOTONIC.
    """

    edge: int
    iteration: int
    payload: Mapping[str, NDArray[Any]]
    arrived: float
    version: int = 0
    buffer: PooledBuffer | None = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the payload's tensors, which are the volume of the flow."""
        return sum(array.nbytes for array in self.payload.values())

    def release(self) -> None:
        """Give the memory back to the pool; the arrays must not be used afterwards."""
        if self.buffer is not None:
            self.buffer.release()


@dataclass(frozen=True, slots=True)
class InboxStatistics:
    """Payloads waiting now, and at most so far, with their bytes."""

    waiting: int
    waiting_bytes: int
    high_water: int
    high_water_bytes: int


class Inbox:
    """Deliveries of one process.

    Parameters
    ----------
    owner
        Who waits, for messages.
    """

    def __init__(self, owner: str = "this process") -> None:
        self.owner = owner
        self._ready: dict[tuple[int, int], Delivery] = {}
        self._awaited: dict[tuple[int, int], asyncio.Future[Delivery]] = {}
        self._failed: dict[int, EmulatorError] = {}
        self._bytes = self._high_water = self._high_water_bytes = 0

    def deliver(self, delivery: Delivery) -> None:
        """Accept a payload; also the way of a handoff within one process.

        Raises
        ------
        NodeMisbehaved
            If this iteration of this edge is already here.
        """
        key = (delivery.edge, delivery.iteration)
        if key in self._ready:
            raise NodeMisbehaved(f"edge {key[0]} delivered iteration {key[1]} twice")
        awaited = self._awaited.pop(key, None)
        if awaited is not None and not awaited.done():
            awaited.set_result(delivery)
            return
        self._ready[key] = delivery
        self._bytes += delivery.nbytes
        self._high_water = max(self._high_water, len(self._ready))
        self._high_water_bytes = max(self._high_water_bytes, self._bytes)

    async def get(
        self, edge: int, iteration: int, *, within: float | None = None
    ) -> Delivery:
        """Return the payload of one iteration of one edge, waiting until it is here.

        Parameters
        ----------
        edge, iteration
            Which. One waiter at a time.
        within
            Wall seconds; None waits without end.

        Raises
        ------
        DeadlineExceeded
            If it did not come in time.
        EmulatorError
            What `fail` was told of the edge, if the payload was not here before.
        ValueError
            If somebody waits for it already.
        """
        key = (edge, iteration)
        if key in self._ready:
            return self._take(key)
        if edge in self._failed:
            raise self._failed[edge]
        if key in self._awaited:
            raise ValueError(f"edge {edge}, iteration {iteration} is awaited already")
        future: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._awaited[key] = future
        try:
            if within is None:
                return await future
            async with awake_timeout(within):
                return await future
        except TimeoutError:
            self._keep(future)
            raise DeadlineExceeded(
                f"{self.owner} waited {within:g} s for iteration {iteration} of edge "
                f"{edge}"
            ) from None
        except asyncio.CancelledError:
            self._keep(future)
            raise
        finally:
            self._awaited.pop(key, None)

    def fail(self, edge: int, error: EmulatorError) -> None:
        """Let everybody who waits for this edge, now or later, have the error."""
        self._failed.setdefault(edge, error)
        for key, future in list(self._awaited.items()):
            if key[0] == edge and not future.done():
                future.set_exception(error)
                del self._awaited[key]

    def statistics(self) -> InboxStatistics:
        """Return the payloads and bytes that wait, now and at most."""
        return InboxStatistics(
            len(self._ready), self._bytes, self._high_water, self._high_water_bytes
        )

    def _keep(self, future: asyncio.Future[Delivery]) -> None:
        """Keep for the next waiter what came in the very turn its waiter gave up."""
        if future.done() and not future.cancelled() and not future.exception():
            self.deliver(future.result())

    def _take(self, key: tuple[int, int]) -> Delivery:
        delivery = self._ready.pop(key)
        self._bytes -= delivery.nbytes
        return delivery
