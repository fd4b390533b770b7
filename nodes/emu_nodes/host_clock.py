"""The coordinator's clock, as the agent of this host keeps it on the board."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from emu.network import BEAT

if TYPE_CHECKING:
    from emu.network import RateBoard, RunClock


def offset_now(board: RateBoard) -> float:
    """Return the coordinator's clock minus ours, seconds; 0 on its own host."""
    line = board.clock()
    return 0.0 if line is None else line.ahead(time.monotonic())


async def follow_host_clock(clock: RunClock, board: RateBoard) -> None:
    """Have run time follow the coordinator's clock until cancelled."""
    while (line := board.clock()) is not None:
        clock.follow(line, time.monotonic(), BEAT)
        await asyncio.sleep(BEAT)
