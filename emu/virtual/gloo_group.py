"""Operations of a group of ranks under way: workers, their queues, and their ends."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from emu.virtual.gloo_operations import Receive, Script, Send, Wait
from emu.virtual.gloo_transport import GlooTransport, Transfer
from emu.virtual.streams import Streams

#: Operations of a rank that a group carries out at once: two threads per device.
WORKERS = 2


@dataclass(eq=False)
class Operation:
    """What one rank does in one collective."""

    rank: int
    slot: int
    """Number of the collective in its group: messages of others have other ones."""
    script: Script
    done: Callable[[float], None]
    """Called with the time at which it is over."""


class GlooGroup:
    """Ranks that were made a process group."""

    def __init__(self, streams: Streams, transport: GlooTransport, ranks: int) -> None:
        self._streams = streams
        self._transport = transport
        self._queues: list[deque[Operation]] = [deque() for _ in range(ranks)]
        self._running = [0] * ranks

    def submit(self, operation: Operation) -> None:
        """Queue an operation of a rank; it begins when a worker is free."""
        self._queues[operation.rank].append(operation)
        self._begin(operation.rank)

    def post(self, operation: Operation) -> None:
        """Begin a send or receive in the thread of its caller, beside the workers."""
        self._resume(operation, None, lambda: None)

    def _begin(self, rank: int) -> None:
        while self._queues[rank] and self._running[rank] < WORKERS:
            operation = self._queues[rank].popleft()
            self._running[rank] += 1
            self._resume(operation, None, lambda: self._free(rank))

    def _free(self, rank: int) -> None:
        self._running[rank] -= 1
        self._begin(rank)

    def _resume(
        self, operation: Operation, posted: Transfer | None, free: Callable[[], None]
    ) -> None:
        """Go on with a script until it waits for what is not over, or ends."""
        transport = self._transport
        while True:
            try:
                # A generator's first step takes nothing.
                step = operation.script.send(posted)  # type: ignore[arg-type]
            except StopIteration:
                operation.done(self._streams.now)
                free()
                return
            posted = None
            match step:
                case Send(peer, size):
                    posted = transport.post_send(
                        operation.rank, peer, operation.slot, size
                    )
                case Receive(peer, size):
                    posted = transport.post_receive(
                        operation.rank, peer, operation.slot, size
                    )
                case Wait(transfers):
                    if self._waits(operation, transfers, free):
                        return

    def _waits(
        self,
        operation: Operation,
        transfers: tuple[Transfer, ...],
        free: Callable[[], None],
    ) -> bool:
        """Have an operation go on when transfers are over; False where they are."""
        missing = [transfer for transfer in transfers if not transfer.is_over]
        if not missing:
            return False
        left = len(missing)

        def one_less() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._resume(operation, None, free)

        for transfer in missing:
            transfer.waiters.append(one_less)
        return True


def go_on(streams: Streams, until: float = math.inf) -> None:
    """Let what is under way go on until a time, or its end."""
    while (time := streams.next_time()) <= until and time < math.inf:
        for arrival in streams.go_to(time):
            receiver, content = arrival.content
            receiver.take_in(content)
    if until < math.inf:
        streams.go_to(max(until, streams.now))


def connect(
    nics_out: list[float], nics_in: list[float], latency: float
) -> tuple[Streams, GlooTransport]:
    """Return ranks with a machine each, joined by their NICs, bytes per second."""
    ranks = len(nics_out)
    streams = Streams(np.array([*nics_out, *nics_in]))
    numbers = {
        (sender, receiver): streams.open((sender, ranks + receiver), latency)
        for sender in range(ranks)
        for receiver in range(ranks)
        if sender != receiver
    }
    return streams, GlooTransport(streams, numbers)
