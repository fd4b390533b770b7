"""Measurements of a host."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HostProfile:
    """Figures of a host; wall seconds, real bytes, both ends of a transfer together."""

    name: str
    measured: str
    """Name of the host, and time of the measurement (ISO 8601)."""
    cores: int
    memory: float
    """Usable cores, bytes of memory."""
    throughput: float
    cpu_per_byte: float
    """Unshaped payload between two processes: bytes per second, CPU seconds a byte."""
    wake_cpu: float
    """CPU seconds per look of a paced flow, its receiver's wake-up included."""
    event_cpu: float
    """CPU seconds per control message, sender and receiver."""
    timer_overshoot: tuple[float, float]
    finish_error: tuple[float, float]
    round_trip: tuple[float, float]
    loaded_round_trip: tuple[float, float]
    """Seconds, (median, 99th percentile): alarm after its time; last byte after it
    might leave (`emu.shaping.Depth`); control message there and back, idle and beside
    paced payload."""
    process_seconds: float
    process_memory: float
    """Seconds to fork one node process, and its private memory, bytes."""
    available: dict[str, str] = field(default_factory=dict)
    """Operations that the host permits: name -> "yes", or why not."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return dataclasses.asdict(self)
