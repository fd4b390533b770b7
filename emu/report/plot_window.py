"""What part of its runs a figure shows, and how wide it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emu.errors import DataError
from emu.report.plot_style import WIDTH

if TYPE_CHECKING:
    from emu.problem import Cluster
    from emu.runs.recorded_run import RecordedRun

#: Inches below which a figure is of one column of a paper.
_COLUMN = 5.0


@dataclass(frozen=True)
class Window:
    """A part of a figure; the default is all of it.

    Parameters
    ----------
    width
        Inches.
    since, until
        Emulated seconds between which a time axis shows.
    machines
        Names of those that are shown; empty for all, and for links that are no NIC.
    only
        ``emulated`` or ``simulated``; empty for both.
    """

    width: float = WIDTH
    since: float = 0.0
    until: float = math.inf
    machines: tuple[str, ...] = ()
    only: str = ""

    @property
    def narrow(self) -> bool:
        """Whether the figure is for one column."""
        return self.width < _COLUMN

    def limits(self, end: float) -> tuple[float, float]:
        """Return what a time axis shows of a figure that ends at ``end`` seconds.

        Raises
        ------
        DataError
            When that is nothing.
        """
        until = min(self.until, end or 1.0)
        if not self.since < until:
            raise DataError(
                f"nothing is left from {self.since:g} s to {until:g} s, "
                f"the runs end at {end:g} s"
            )
        return self.since, until

    def shows(self, cluster: Cluster, machine: int) -> bool:
        """Tell whether a machine is shown, by its position; -1 is of no machine."""
        if not self.machines:
            return True
        return machine >= 0 and cluster.machines[machine].name in self.machines

    def of(self, run: RecordedRun) -> RecordedRun:
        """Return a run with the schedule alone that is to be shown.

        Raises
        ------
        DataError
            When it has no such schedule, or no such machine.
        """
        known = [machine.name for machine in run.problem.cluster.machines]
        for name in self.machines:
            if name not in known:
                raise DataError(
                    f"has no machine {name!r}, known: {', '.join(known)}",
                    path=str(run.path),
                )
        if not self.only:
            return run
        if (run.emulated if self.only == "emulated" else run.simulated) is None:
            raise DataError(f"has no {self.only} schedule", path=str(run.path))
        other = "simulated" if self.only == "emulated" else "emulated"
        return replace(run, **{other: None})  # type: ignore[arg-type] # a field
