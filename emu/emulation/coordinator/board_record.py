"""A record of what the rate boards of this host have shown to senders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emu.array_types import Array, Ints
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.wire.frame_layout import BOARD_ROWS
from emu.prediction.core import ffi, lib, pointer, structure

#: Rows that there is room for at first; more doubles it.
_FIRST = 256


class BoardRecord:
    """Every segment that a board has shown, 24 bytes each.

    It is read back from the memory in which senders find it: what was meant to be
    there stands in the history of rates. ``core`` is the structure ``Boards`` of
    core.h.
    """

    def __init__(self, edges: int) -> None:
        self._edges = edges
        self._boards: Sequence[RateBoard] = ()
        self._rows = np.empty(_FIRST, BOARD_ROWS)
        order = np.zeros(edges, np.int64)
        self.core = structure(
            "Boards",
            entries=edges + 1,
            order=order,
        )
        self._bind()

    def show_on(self, boards: Sequence[RateBoard]) -> None:
        """Have the core put rates on these boards itself, and note what they show.

        Raises ValueError where one has no place for every edge.
        """
        if any(board.edges < self._edges for board in boards):
            raise ValueError(f"a board has fewer than {self._edges} edges")
        self._boards = boards
        self._addresses = ffi.new("BoardEntry *[]", [board.address for board in boards])
        self.core.board = self._addresses
        self.core.count = len(boards)

    def keep_room(self) -> None:
        """Have room for a segment of every edge on every board."""
        self._keep_room(self.core.count * self._edges)

    def note(self, board: RateBoard, edges: Ints, count: int) -> None:
        """Note what a board shows of the first ``count`` of some edges."""
        self._keep_room(count)
        lib.read_board(
            board.address,
            pointer(edges),
            count,
            self.core.row + self.core.shown,
        )
        self.core.shown += count

    def rows(self) -> Array:
        """Return the segments, in the order in which they came."""
        return self._rows[: self.core.shown].copy()

    def _keep_room(self, count: int) -> None:
        shown = self.core.shown
        total = shown + count
        if total <= self.core.room:
            return

        larger = np.empty(2 * total, BOARD_ROWS)
        larger[:shown] = self._rows[:shown]
        self._rows = larger
        self._bind()

    def _bind(self) -> None:
        self.core.row = ffi.from_buffer("BoardRow[]", self._rows)
        self.core.room = len(self._rows)
