"""A record of what the rate board of this host has shown to senders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.frame_layout import BOARD_ROWS


class BoardRecord:
    """Every segment that a board has shown, 24 bytes each.

    It is read back from the memory in which senders find it: what was meant to be
    there stands in the history of rates.
    """

    def __init__(self) -> None:
        self._rows = bytearray()

    def note(self, board: RateBoard, edges: NDArray[np.int64]) -> None:
        """Note what a board shows of some edges (9 us)."""
        entries = board.entries[edges]
        rows = np.empty(len(edges), BOARD_ROWS)
        rows["edge"] = edges
        for name in ("since", "iteration", "rate"):
            rows[name] = entries[name]
        self._rows += rows.tobytes()

    def rows(self) -> NDArray[Any]:
        """Return the segments, in the order in which they came."""
        return np.frombuffer(bytes(self._rows), BOARD_ROWS)
