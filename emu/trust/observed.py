"""Records of a run from which causes of its difference are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis import error_budget
from emu.prediction.analysis.flow_counts import FlowCounts
from emu.problem import Schedule


@dataclass(frozen=True)
class ProcessWaits:
    """Wall seconds that a process lost, and by which its clock was off."""

    core: float = 0.0
    """It was ready and had no core."""
    disk: float = 0.0
    """Something on its host waited for a disk, which it read or wrote."""
    clock: float = 0.0
    """Its clock beyond the coordinator's, at the end."""


def _no_turns() -> Floats:
    return np.empty((0, 4))


@dataclass(frozen=True, eq=False)
class Observations:
    """Records of a run, beside its schedule, from which causes are simulated."""

    counts: FlowCounts | None = None
    first: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """Seconds at which the kernel had the first bytes of (edge, iteration)."""
    sends: error_budget.Rows = field(default_factory=dict)
    """Rows of `emu.prediction.analysis.error_budget.send_rows`."""
    processes: Mapping[str, ProcessWaits] = field(default_factory=dict)
    began: Floats | None = None
    """Seconds at which (task, iteration) began, by its process; NaN where unknown."""
    turns: Floats = field(default_factory=_no_turns)
    """Turns of the coordinator that took long, by time: begin, end, and its waits for a
    core before and within, emulated seconds."""
    nics: Mapping[str, float] = field(default_factory=dict)
    """Shares of their stated rates that links were measured at before the run."""
    foreign: Mapping[str, float] = field(default_factory=dict)
    """Bytes per second of other programs that crossed a link."""
    time_scale: float = 1.0
    """Wall seconds of an emulated one."""
    byte_scale: float = 1.0
    """Real bytes of an emulated one."""
    measured: Floats | None = None
    """Seconds that (task, iteration) computed, where this is what it takes (``compute:
    real``): the CPU time of its work, in which no wait for a core is."""

    def expected_work(self, simulation: Schedule) -> Floats:
        """Return the seconds that (task, iteration) was to take as the run began it."""
        if self.measured is None:
            return simulation.work
        return self.measured
