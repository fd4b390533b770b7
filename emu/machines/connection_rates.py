"""Rates of single connections, changed while they send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.machines.netlink import Netlink, pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.machines.nic import NicPlan


class Paces:
    """Sets how fast the leaves of one NIC send; made by `Lab.paces`."""

    def __init__(self, kernel: Netlink, index: int, plan: NicPlan) -> None:
        self._kernel, self._index, self._plan = kernel, index, plan

    def set(self, rates: Mapping[int, float]) -> None:
        """Limit leaves to payload bytes per second, by their numbers.

        The NIC stays a limit of their sum; 8 us a leaf.

        Raises
        ------
        OSError
            When the kernel refuses, or the machine has gone.
        """
        self._kernel.send(
            pace(self._index, leaf, self._plan, rate) for leaf, rate in rates.items()
        )

    def close(self) -> None:
        """Let go of the socket."""
        self._kernel.close()
