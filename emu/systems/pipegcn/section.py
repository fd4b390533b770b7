"""Section ``job`` of ``system: pipegcn``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import override

from emu.problem.workloads.exchange import Exchange
from emu.systems.exchange_section import ExchangeSection, Smoothing, translation


class PipegcnSection(ExchangeSection):
    """PipeGCN: rows and gradients are read one epoch after they were sent.

    They travel while the epoch computes; the first one reads zeros (algorithm 1).
    """

    system: Literal["pipegcn"]
    """Kind of job."""
    smooth_features: Smoothing = 0.0
    """Weight of earlier rows in the mean that is read (section 3.4, 0.95 there)."""
    smooth_gradients: Smoothing = 0.0
    """Likewise of gradients."""

    @override
    def exchanges(self) -> tuple[Exchange, ...]:
        rows = self.list_rows(age=1, smoothing=self.smooth_features)
        gradients = self.list_gradients(age=1, smoothing=self.smooth_gradients)
        return (*rows, *gradients)


TRANSLATION = translation("pipegcn")
