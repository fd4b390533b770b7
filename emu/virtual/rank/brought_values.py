"""Values that the members of a group brought to a call, and the sum of them.

Who needs a piece of a sum first makes it, in the first member's deposit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from emu.virtual.rank.deposits import Deposits
from emu.virtual.rank.layouts import Bytes
from emu.virtual.rank.sums import is_small, reduce_at_once, reduce_piece, spans_of

#: Marks of the pieces of a sum, behind the first member's deposit.
_BEGUN = 1
_MADE = 2


@dataclass(frozen=True)
class BroughtValues:
    """Values that the members of a group brought to a call."""

    deposits: Deposits
    ranks: Sequence[int]
    places: Sequence[int]
    """Places of the members' deposits, by member."""

    def view(
        self,
        member: int,
        count: int,
        start: int = 0,
    ) -> Bytes:
        """Return bytes of a member's deposit, not copied, shape (count,)."""
        rank = self.ranks[member]
        place = self.places[member] + start
        return self.deposits.view(rank, place, count)

    def views(self, count: int, start: int = 0) -> list[Bytes]:
        """Return the same bytes of every member's deposit."""
        members = range(len(self.ranks))
        return [self.view(member, count, start) for member in members]

    def sum(self, content: Tensor, operation: str) -> Bytes:
        """Return what all members brought, reduced, as bytes.

        Who finds a piece that nobody has begun makes it, for all.

        Parameters
        ----------
        content
            What this member brought.
        operation
            Of `REDUCTIONS`.
        """
        size = content.nbytes
        if not size:
            return np.empty(0, np.uint8)
        # The first member's deposit goes on with marks, then the sum.
        ranks = len(self.ranks)
        marks = self.view(0, ranks, start=size)
        behind_marks = size + room_of_marks(ranks)
        total = self.view(0, size, start=behind_marks)
        if _are_made(marks):
            return total

        parts = self.views(size)
        if is_small(content):
            total[:] = reduce_at_once(parts, content, operation)
            marks[:] = _MADE
            return total

        spans = spans_of(content, ranks)
        for owner, span in enumerate(spans):
            # Two that begin a piece at once write the same bytes.
            if marks[owner] == 0:
                marks[owner] = _BEGUN
                pieces = [part[span] for part in parts]
                piece = reduce_piece(pieces, owner, content, operation)
                total[span] = piece
                marks[owner] = _MADE
        while not _are_made(marks):
            os.sched_yield()
        return total


def _are_made(marks: Bytes) -> bool:
    """Return True where all pieces of a sum are there."""
    # Ten times as fast as a minimum of so few numbers.
    made = marks.tobytes().count(_MADE)
    return made == marks.size


def room_of_marks(ranks: int) -> int:
    """Return the bytes between a deposit and the sum of all, which is aligned."""
    lines = -(-ranks // 64)
    return lines * 64
