"""Counts and delays of a node process, as it hands them over and a run keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from emu.emulation.network.data_server import DataServerStatistics
from emu.emulation.network.inbox import InboxStatistics, PoolStatistics
from emu.emulation.network.out_edge import OutEdgeStatistics
from emu.emulation.network.pacer import PacerStatistics


@dataclass(frozen=True)
class HostUse:
    """Use of a host while a process ran there, wall seconds."""

    seconds: float
    loop_lag_mean: float
    loop_lag_max: float
    """Lag of the event loop's timers."""
    waited: float
    """The event loop was ready and had no core."""
    host: dict[str, float]
    """CPU time of all cores by use: ``busy``, ``idle``, ``steal``."""
    disk: float = 0.0
    """Something on the host waited for a disk."""
    blocks: float = 0.0
    """Blocks of disks that the process has read and written, none of them a time."""


@dataclass(frozen=True)
class ProcessStatistics:
    """All that one process has counted."""

    received: DataServerStatistics
    memory: PoolStatistics
    waiting: InboxStatistics
    sent: list[OutEdgeStatistics]
    pacer: PacerStatistics
    host_metrics: HostUse
    cpu_seconds: float
    peak_memory: int
    """Bytes."""
    clock: list[float]
    """Run times at which it was asked for results, and answered."""
    flows: bytes = field(default_factory=bytes)
    """Rows of `SendLog`, which processes.json does not hold."""

    def to_map(self) -> dict[str, Any]:
        """Return what `dataclasses.asdict` does, which copies each number of it.

        That took a millisecond of every process: a fifth of what its end cost.
        """
        maps: dict[str, Any] = _to_map(self)
        return maps


def _to_map(value: Any) -> Any:
    """Return records within a value as maps; what is none is not copied."""
    if isinstance(value, list):
        return [_to_map(item) for item in value]
    names = getattr(value, "__dataclass_fields__", None)
    if names is None:
        return value
    return {name: _to_map(getattr(value, name)) for name in names}
