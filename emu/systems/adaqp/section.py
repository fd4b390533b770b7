"""Section ``job`` of ``system: adaqp``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from emu.problem.workloads.exchange import Exchange
from emu.systems.exchange_section import Bits, ExchangeSection, translation


class AdaqpSection(ExchangeSection):
    """AdaQP: rows before every layer and gradients, quantised.

    Features are among the rows, and rounding is stochastic (section 3).
    """

    system: Literal["adaqp"]
    """Kind of job."""
    bits: Bits = 8
    """Bits of a number. AdaQP chooses them per message, between 2 and 8."""

    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        rows = self.list_rows(first=1, bits=self.bits)
        return (*rows, *self.list_gradients(bits=self.bits))


TRANSLATION = translation("adaqp")
