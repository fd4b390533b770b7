"""Machines, and their pools whose slots are tuned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from emu.units import format_size

#: The shortest period, seconds: a tuning is an event of the schedule.
LEAST_PERIOD = 1e-3
#: Resources that are sizes, with a unit.
SIZES = ("memory", "gpu_memory")


@dataclass(frozen=True)
class Machine:
    """One emulated machine, m of the paper.

    Raises ValueError when a bandwidth or the speed is not positive and finite, a
    latency is negative or not finite, a capacity is negative or NaN, or a pool has no
    slots.
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
    latency_in: float = 0.0
    latency_out: float = 0.0
    """Seconds that each direction of the NIC adds to the way of a flow."""

    @property
    def has_nic(self) -> bool:
        """True where it has a network interface."""
        return self.bandwidth_in > 0  # both directions have one, or none

    def __post_init__(self) -> None:
        # Both 0 are a machine without a NIC; one alone is a mistake.
        for direction in ("in", "out"):
            bandwidth = getattr(self, f"bandwidth_{direction}")
            absent = self.bandwidth_in == self.bandwidth_out == 0
            if not (absent or (math.isfinite(bandwidth) and bandwidth > 0)):
                raise ValueError(
                    f"machine {self.name}: bandwidth {direction} is {bandwidth}, "
                    "it must be positive and finite"
                )
            check_latency(f"machine {self.name}", getattr(self, f"latency_{direction}"))

        if not (math.isfinite(self.speed) and self.speed > 0):
            raise ValueError(
                f"machine {self.name}: speed is {self.speed}, it must be positive and "
                "finite"
            )

        for resource, capacity in self.resources.items():
            # Not `< 0`, which a NaN would pass.
            if not capacity >= 0:
                raise ValueError(
                    f"machine {self.name}: capacity of {resource} is {capacity}"
                )
        for pool, slots in self.slots.items():
            # A pool that is not stated is unlimited: 0 would let nobody start, ever.
            if slots < 1:
                raise ValueError(f"machine {self.name}: pool {pool} has {slots} slots")


def format_amount(amount: float, resource: str) -> str:
    """Return an amount of a resource for people: ``2``, or a size ``16 GB``."""
    if resource in SIZES:
        return format_size(amount)
    return f"{amount:g}"


def name_amount(amount: float, resource: str) -> str:
    """Return an amount with its resource: ``2 cpu``, ``16 GB of memory``."""
    between = " of" if resource in SIZES else ""
    return f"{format_amount(amount, resource)}{between} {resource}"


def check_latency(subject: str, latency: float) -> None:
    """Raise ValueError, with ``subject``, unless ``latency`` is a time, 0 or more."""
    if not (math.isfinite(latency) and latency >= 0):
        raise ValueError(f"{subject}: latency {latency} is negative or not finite")


@dataclass(frozen=True)
class Tuner:
    """A pool of a machine whose number of slots changes while a job runs.

    It begins with the machine's slots. Every period, once nothing else happens at that
    instant, the tasks that wait for the watched pool are counted. Where the slope of
    the last five counts (least squares) is positive the quota becomes 9/10 of itself,
    rounded down and at least 1; where it is negative 11/10, rounded up. A slot that is
    held is not taken away: a smaller quota holds from when it is given back.

    The autotuner of Dorylus (OSDI 2021, section 6): lambdas that outrun their server's
    threads only wait. The paper states neither period nor steps; these are ours.

    Raises ValueError when the period is shorter than 1 ms or not finite, or a quota is
    below 1.
    """

    machine: int
    """Position of the machine."""
    pool: str
    watched: str
    """Name of the tuned pool, and of the one whose queue counts, on that machine."""
    most: int
    """The largest quota."""
    period: float = 1.0
    """Seconds between two looks, the first after one period."""
    path: tuple[int, ...] = ()
    """Quotas to set at the first looks whatever waits: those of a run to repeat."""

    def steps(self, quota: int) -> set[int]:
        """Return the quotas that one look may leave, of a quota before it."""
        # In whole numbers, as the core does (tuning.c): 0.9 and 1.1 would round by
        # their bits.
        lower = max(1, 9 * quota // 10)
        higher = min(self.most, (11 * quota + 9) // 10)
        return {quota, lower, higher}

    def __post_init__(self) -> None:
        if not LEAST_PERIOD <= self.period < math.inf:
            raise ValueError(
                f"tuner of {self.pool}: a period of {self.period} s, it must be "
                f"{LEAST_PERIOD} s or more"
            )
        # Twice, as without a path min would be given one number, which is no sequence.
        if min(self.most, *self.path, self.most) < 1:
            raise ValueError(f"tuner of {self.pool}: a quota must be 1 or more")
