"""Section ``job`` of ``system: partition_parallel``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from emu.problem.fields.section import Section
from emu.problem.workloads.exchange import Exchange
from emu.systems.exchange_section import (
    Age,
    Bits,
    DrawnShare,
    ExchangeSection,
    Flag,
    Period,
    Smoothing,
    translation,
)


class TermsSection(Section):
    """Terms on which parts exchange rows, or gradients."""

    age: Age = 0
    """Epochs between the one that sends and the one that reads."""
    every: Period = 1
    """Epochs from one sending to the next: between them the last rows are read."""
    whole: Flag = False
    """Send all rows of the owner, needed or not, as a broadcast does."""
    bits: Bits | None = None
    """Bits of a number, rounded at random; default is as computed."""
    smoothing: Smoothing = 0.0
    """Weight of earlier rows in the mean that is read."""


class PartitionParallelSection(ExchangeSection):
    """Partition parallelism; by default vanilla: all rows, of the same epoch, exact."""

    system: Literal["partition_parallel"]
    """Kind of job."""
    cache_features: Flag = True
    """Fetch features of other parts' vertices once, before time 0."""
    share: DrawnShare = 1.0
    """Share of the rows that two parts share which an epoch draws."""
    rows: TermsSection = TermsSection()
    """Terms of rows, from their owners to those who read them."""
    gradients: TermsSection = TermsSection()
    """Terms of their gradients, back to the owners."""

    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        first = 2 if self.cache_features else 1
        rows = self.list_rows(first, share=self.share, **dict(self.rows))
        gradients = self.list_gradients(share=self.share, **dict(self.gradients))
        return (*rows, *gradients)


TRANSLATION = translation("partition_parallel")
