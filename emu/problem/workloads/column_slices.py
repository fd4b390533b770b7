"""Stages of tensor parallel training on a whole graph, and who has which columns.

Simulator, node programs and training read this one statement: after a stage every part
sends each other its slice of the columns of its own rows, or its rows of the columns
that it has.

Must not know: systems, data sets, arrays.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage of an epoch."""

    before: str
    """Stage whose pieces it joins; empty for the first."""
    gives_columns: bool = False
    """True where a part sends slices of its own rows, False for rows of its slice."""


#: Stages by name, in their order. The last leaves the gradient of the parameters.
STAGES = {
    "dense": Stage("", gives_columns=True),
    "aggregate": Stage("dense"),
    "score": Stage("aggregate", gives_columns=True),
    "aggregate_gradient": Stage("score"),
    "dense_gradient": Stage("aggregate_gradient"),
}


@dataclass(frozen=True)
class Slices:
    """Columns of the scores, in slices of one width."""

    classes: int
    parts: int

    @property
    def padded(self) -> int:
        """Columns with those of zeros behind them, as many as NeutronTP's code adds.

        Where the parts divide the classes that is a column more for each.
        """
        return self.classes + self.parts - self.classes % self.parts

    @property
    def width(self) -> int:
        """Columns of a slice."""
        return self.padded // self.parts

    def bounds(self, part: int) -> tuple[int, int]:
        """Return where a part's slice begins, and where the next one does."""
        return part * self.width, (part + 1) * self.width

    def piece(self, stage: str, sender_rows: int, receiver_rows: int) -> int:
        """Return the numbers that one part sends another after a stage."""
        rows = sender_rows if STAGES[stage].gives_columns else receiver_rows
        return rows * self.width
