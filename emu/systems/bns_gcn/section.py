"""Section ``job`` of ``system: bns_gcn``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from emu.problem.workloads.exchange import Exchange
from emu.systems.exchange_section import DrawnShare, ExchangeSection, translation


class BnsGcnSection(ExchangeSection):
    """BNS-GCN: each epoch draws the boundary rows that parts exchange (algorithm 1).

    Gradients go back for the same rows; features are fetched once, all of them.
    """

    system: Literal["bns_gcn"]
    """Kind of job."""
    rate: DrawnShare = 0.1
    """Share of the rows that two parts share which an epoch draws."""

    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        rows = self.list_rows(share=self.rate)
        return (*rows, *self.list_gradients(share=self.rate))


TRANSLATION = translation("bns_gcn")
