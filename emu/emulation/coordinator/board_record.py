"""A record of what the rate board of this host has shown to senders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.frame_layout import BOARD_ROWS
from emu.prediction.core import ffi, lib, pointer

#: Rows that there is room for at first; more doubles it.
_FIRST = 256


class BoardRecord:
    """Every segment that a board has shown, 24 bytes each.

    It is read back from the memory in which senders find it: what was meant to be
    there stands in the history of rates.
    """

    def __init__(self) -> None:
        self._rows = np.empty(_FIRST, BOARD_ROWS)
        self._count = 0

    def note(self, board: RateBoard, edges: NDArray[np.int64], count: int) -> None:
        """Note what a board shows of the first ``count`` of some edges."""
        total = self._count + count
        if total > len(self._rows):
            larger = np.empty(2 * total, BOARD_ROWS)
            larger[: self._count] = self._rows[: self._count]
            self._rows = larger
        place = ffi.from_buffer("BoardRow[]", self._rows) + self._count
        lib.read_board(board.address, pointer(edges), count, place)
        self._count = total

    def rows(self) -> NDArray[Any]:
        """Return the segments, in the order in which they came."""
        return self._rows[: self._count].copy()
