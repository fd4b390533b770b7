"""Inputs of which the newest is read: each stays until a newer one is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from emu.network import Delivery


class NewestInputs:
    """What a task has read last of every in-edge that reads the newest.

    Parameters
    ----------
    arrival
        Waits for one iteration of an edge.
    """

    def __init__(self, arrival: Callable[[int, int], Awaitable[Delivery]]) -> None:
        self._arrival = arrival
        self._held: dict[int, Delivery] = {}

    async def take(self, reads: Sequence[Sequence[int]]) -> dict[int, Delivery]:
        """Return the payloads that an order names, as [edge, iteration].

        All older ones are released, read or not; an iteration may be read again.
        """
        for edge, iteration in reads:
            first = self._held[edge].iteration + 1 if edge in self._held else 0
            for n in range(first, iteration + 1):
                newer = await self._arrival(edge, n)
                if edge in self._held:
                    self._held[edge].release()
                self._held[edge] = newer
        return dict(self._held)

    def release(self) -> None:
        """Give back what is left."""
        for delivery in self._held.values():
            delivery.release()
        self._held.clear()
