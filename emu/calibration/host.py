"""What was measured of a host."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from emu.errors import DataError

#: Raised when a figure is added or measured otherwise: old ones are measured again.
VERSION = 1
#: Share of the cores that emulation may use before queues grow (see `prediction`).
USABLE = 0.6
#: Share that a run may use of what one pair of processes carries, as that stays in the
#: caches. Of 222 runs a tenth of the 28 with peaks above 10 Gbit/s was over 4 times as
#: far off as predicted; of the others, 0.8 times.
_CROWDED = 0.5


@dataclass(frozen=True)
class HostProfile:
    """Figures of one host; wall seconds, real bytes, both ends of a transfer together.

    Parameters
    ----------
    name, measured
        Of the host, and when (ISO 8601).
    cores, memory
        Usable cores, bytes of memory.
    throughput, cpu_per_byte
        Of unshaped payload between two processes: bytes per second, CPU seconds.
    wake_cpu
        CPU seconds per look of a paced flow, its receiver's wake-up included.
    timer_overshoot, finish_error, round_trip, loaded_round_trip
        Seconds, (median, 99th percentile): alarm after its time; last byte after it
        might leave (`emu.shaping.Depth`); control message there and back, idle and
        beside paced payload.
    event_cpu
        CPU seconds per control message, sender and receiver.
    process_seconds, process_memory
        To fork one node process, and what it holds privately, bytes.
    available
        What the host permits: name -> "yes", or why not.
    """

    name: str
    measured: str
    cores: int
    memory: float
    throughput: float
    cpu_per_byte: float
    wake_cpu: float
    event_cpu: float
    timer_overshoot: tuple[float, float]
    finish_error: tuple[float, float]
    round_trip: tuple[float, float]
    loaded_round_trip: tuple[float, float]
    process_seconds: float
    process_memory: float
    available: dict[str, str] = field(default_factory=dict)

    @property
    def bandwidth(self) -> float:
        """Most real bytes per second of shaped payload that a run may ask for."""
        return _CROWDED * min(self.throughput, USABLE * self.cores / self.cpu_per_byte)

    def to_json(self) -> dict[str, Any]:
        """Return the form of the cache."""
        return {"version": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, content: object, path: str = "") -> HostProfile:
        """Return the profile that `to_json` wrote.

        Raises
        ------
        DataError
            When it is of another version, or not all there.
        """
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise DataError(f"is no host profile of version {VERSION}", path=path)
        values = {key: value for key, value in content.items() if key != "version"}
        try:
            for pair in _PAIRS:
                median, high = values[pair]
                values[pair] = float(median), float(high)
            numbers = {key: float(values[key]) for key in _NUMBERS}
            profile = cls(**values | numbers | {"cores": int(values["cores"])})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"is not all there: {error!r}", path=path) from error
        positive = (profile.cores, profile.throughput, profile.cpu_per_byte)
        if not all(math.isfinite(n) for n in numbers.values()) or min(positive) <= 0:
            raise DataError("holds figures that cannot be", path=path)
        return profile


_PAIRS = ("timer_overshoot", "finish_error", "round_trip", "loaded_round_trip")
_NUMBERS = (
    "memory",
    "throughput",
    "cpu_per_byte",
    "wake_cpu",
    "event_cpu",
    "process_seconds",
    "process_memory",
)
