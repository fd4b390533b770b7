"""What was measured of a host."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return dataclasses.asdict(self)
