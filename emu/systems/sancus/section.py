"""Section ``job`` of ``system: sancus``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from emu.problem.workloads.exchange import ONCE, ROWS, Exchange
from emu.systems.exchange_section import Age, ExchangeSection, Flag, translation


class SancusSection(ExchangeSection):
    """Sancus: every part broadcasts its rows, and reads kept ones until they are old.

    Of the paper's tests of staleness this is that of a fixed age. Broadcasts follow
    each other in the released code; here they share the links, as pipelined ones do.
    Gradients are blocks of partial sums for their owner, of the width of the rows.
    """

    system: Literal["sancus"]
    """Kind of job."""
    staleness: Age = 3
    """Epochs that a kept row may be old."""
    kept_gradients: Flag = False
    """Keep gradients as long as rows; by default all are sent, as in the release."""

    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        period = self.staleness + 1
        # Features stay what they are: they are broadcast once.
        features = Exchange(ROWS, 1, every=ONCE, whole=True)
        rows = self.list_rows(every=period, whole=True)
        gradient_period = 1
        if self.kept_gradients:
            gradient_period = period
        gradients = self.list_gradients(every=gradient_period, whole=True)
        return (features, *rows, *gradients)


TRANSLATION = translation("sancus")
