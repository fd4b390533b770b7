"""Handoffs within a process: at once, and nobody writes to another's array."""

from __future__ import annotations

import numpy as np
import pytest

from emu.errors import NodeMisbehaved
from emu.network import FrameLog, Handoff, Inbox, RunClock
from emu.wire.frame_layout import FRAME_ROWS


async def test_a_payload_is_there_at_once_and_cannot_be_written() -> None:
    inbox, departures, arrivals = Inbox(), FrameLog(), FrameLog()
    handoff = Handoff(3, inbox, departures, arrivals)
    sent = np.arange(4.0)

    await handoff.send(0, {"x": sent}, shaped=False, version=0)
    delivery = await inbox.get(3, 0, within=0.0)

    assert np.shares_memory(delivery.payload["x"], sent)
    with pytest.raises(ValueError, match="read-only"):
        delivery.payload["x"][0] = 1.0
    delivery.release()
    for log in (departures, arrivals):
        (piece,) = log.pieces(RunClock(0.0, 1.0))
        (row,) = np.frombuffer(piece, FRAME_ROWS)
        assert (row["edge"], row["iteration"], row["bytes"]) == (3, 0, 32)


async def test_an_iteration_is_handed_over_once() -> None:
    handoff = Handoff(3, Inbox(), FrameLog(), FrameLog())
    await handoff.send(0, {})
    with pytest.raises(NodeMisbehaved, match="edge 3 delivered iteration 0 twice"):
        await handoff.send(0, {})
