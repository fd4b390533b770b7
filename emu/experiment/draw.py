"""Figures of one seed of an answer, and of its run over sockets."""

from __future__ import annotations

from dataclasses import dataclass

from emu.prediction.analysis.throughput import Speed
from emu.scenario import Scenario
from emu.scenario.virtual_training import Curve
from emu.training.looks import Look


@dataclass(frozen=True)
class Draw:
    """Figures of one seed."""

    scenario: Scenario
    """Scenario of which ``emu simulate`` finds the same makespan."""
    makespan: float
    """Seconds, with what deaths add."""
    speed: Speed
    reached: Look | None
    """Look at which the target was reached."""
    curve: Curve
    """Accuracy over time until then."""


@dataclass(frozen=True)
class Confirmation:
    """A row over sockets: its run directory, and what its result.json says."""

    path: str
    makespan: float
    makespan_error: float
    trust: str
    outcome: str
    """Verdict on this host, and whether prediction and run agree."""
