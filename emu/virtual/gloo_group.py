"""Operations of a group of ranks under way: workers, their queues, and their ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from emu.virtual.gloo_operations import Script, Send, Wait
from emu.virtual.gloo_transport import GlooTransport, Transfer
from emu.virtual.streams import Streams

#: Operations of a rank that a group carries out at once: two threads per device.
WORKERS = 2


@dataclass(eq=False)
class Operation:
    """The part of one rank in one collective."""

    rank: int
    slot: int
    """Number of the collective in its group: messages of others have other ones."""
    script: Script
    done: Callable[[float, Transfer | None], None]
    """Called with the time at which it is over, and the message that it was."""
    is_barrier: bool = False
    """True of what begins when all before it have ended."""


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
        queue = self._queues[rank]
        while queue and self._running[rank] < WORKERS:
            if queue[0].is_barrier and self._running[rank] > 0:
                return
            operation = queue.popleft()
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
            except StopIteration as end:
                operation.done(self._streams.now, end.value)
                free()
                return
            posted = None
            if isinstance(step, Wait):
                if self._waits(operation, step.transfers, free):
                    return
            elif isinstance(step, Send):
                posted = transport.post_send(
                    operation.rank, step.peer, operation.slot, step.size
                )
            elif step.peer is None:
                posted = transport.post_receive_of_any(
                    operation.rank, operation.slot, step.size
                )
            else:
                posted = transport.post_receive(
                    operation.rank, step.peer, operation.slot, step.size
                )

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
