"""The coordinator's clock, read from the board of a host."""

from __future__ import annotations

import contextlib
import time

from emu.network import ClockLine, RateBoard
from emu_nodes.runtime import offset_now


def test_a_process_takes_the_clock_that_its_agent_has_put_on_the_board() -> None:
    with contextlib.closing(RateBoard.create(1)) as board:
        assert offset_now(board) == 0.0  # it reads the coordinator's own
        now = time.monotonic()
        board.publish_clock(ClockLine(now, 3.0, 0.5, 0.001))

        offset = offset_now(board)
        assert 3.0 <= offset <= 3.0 + 0.5 * (time.monotonic() - now)
