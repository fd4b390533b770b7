"""Statistics of a process as it hands them over."""

from __future__ import annotations

import dataclasses

from emu.emulation.network.data_server import (
    BurstSize,
    DataServerStatistics,
    PayloadCount,
)
from emu.emulation.network.inbox import InboxStatistics, PoolStatistics
from emu.emulation.network.out_edge import OutEdgeStatistics
from emu.emulation.network.pacer import PacerStatistics
from emu.emulation.network.statistics import HostUse, ProcessStatistics


def test_a_map_has_every_number_under_its_name() -> None:
    """It is that of the standard library, lists of records and records within."""
    received = DataServerStatistics(
        connections=1,
        frames=2,
        payload_bytes=3,
        header_bytes=4,
        rejections=5,
        payloads=[PayloadCount(6, "x", 7), PayloadCount(8, "y", 9)],
        bursts=[BurstSize(10, 11.0)],
    )
    sender = OutEdgeStatistics(
        edge=20,
        frames=21,
        payload_bytes=22,
        header_bytes=23,
        late_sends=24,
        max_behind=25.0,
        max_lead_bytes=26.0,
        max_stale=27.0,
        blocked=28,
        lost_bytes=29.0,
        missed=30,
    )
    sent = [sender, dataclasses.replace(sender, edge=31)]
    statistics = ProcessStatistics(
        received=received,
        memory=PoolStatistics(),
        waiting=InboxStatistics(),
        sent=sent,
        pacer=PacerStatistics(12, 13.0, 14.0),
        host_metrics=HostUse(15.0, 16.0, 17.0, 18.0, {"busy": 19.0}),
        cpu_seconds=20.0,
        peak_memory=21,
        clock=[22.0, 23.0],
        flows=b"24",
    )
    assert statistics.to_map() == dataclasses.asdict(statistics)
