"""One emulated machine."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Machine:
    """One emulated machine, m of the paper.

    Raises
    ------
    ValueError
        When a bandwidth or the speed is not positive and finite, or a capacity is
        negative or NaN, or a pool has no slots.
    """

    name: str
    """Unique in its cluster."""
    bandwidth_in: float
    bandwidth_out: float
    """NIC capacity per direction, bytes per second, positive and finite; both 0 for a
    machine without a NIC, all of whose routes the cluster states."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Capacity per resource name, C_m^r: ``cpu`` and ``gpu`` in pieces, ``memory`` in
    bytes, any further one in its own unit. A resource that is absent is unlimited."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Number of slots per pool, at least 1; a pool that is absent is unlimited."""
    speed: float = 1.0
    """Speed of real work, in multiples of that of the computer that measured it: CPU
    seconds divided by it are emulated seconds. Positive and finite."""

    @property
    def has_nic(self) -> bool:
        """True where it has a network interface."""
        return self.bandwidth_in > 0 or self.bandwidth_out > 0

    def __post_init__(self) -> None:
        for direction in ("in", "out"):
            bandwidth = getattr(self, f"bandwidth_{direction}")
            absent = self.bandwidth_in == self.bandwidth_out == 0
            if not (absent or (math.isfinite(bandwidth) and bandwidth > 0)):
                raise ValueError(
                    f"machine {self.name}: bandwidth {direction} is {bandwidth}, "
                    "it must be positive and finite"
                )
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise ValueError(
                f"machine {self.name}: speed is {self.speed}, it must be positive and "
                "finite"
            )
        for resource, capacity in self.resources.items():
            if not capacity >= 0:
                raise ValueError(
                    f"machine {self.name}: capacity of {resource} is {capacity}"
                )
        for pool, slots in self.slots.items():
            if slots < 1:
                raise ValueError(f"machine {self.name}: pool {pool} has {slots} slots")
