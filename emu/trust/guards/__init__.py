"""Guards, which say where a run reports what the cluster cannot have done.

Each is computed from what the receivers' kernels and the tasks reported, and shares no
code with the scheduler: nothing here imports `emu.prediction.scheduling` or
`emu.prediction.simulation`, and import-linter sees to it. A guard that fires makes the
run untrusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from emu.trust.guards import credit_windows, schedule, tasks, traffic
from emu.trust.guards.evidence import Evidence
from emu.trust.violation import Finding

if TYPE_CHECKING:
    Guard = Callable[[Evidence], Iterable[Finding]]

__all__ = ["GUARDS", "Evidence", "Finding", "examine"]


# Whether anything was carried comes first: without that the others say nothing of a
# network.
GUARDS = (
    traffic.enough_carried,
    traffic.link_bytes,
    traffic.bursts,
    schedule.order,
    schedule.cause,
    schedule.latency,
    traffic.clocks,
    traffic.end,
    traffic.connections,
    traffic.all_rates,
    traffic.board,
    schedule.constraints,
    schedule.lower_bounds,
    schedule.task_times,
    tasks.beginnings,
    credit_windows.window,
)


def examine(evidence: Evidence, more: Iterable[Guard] = ()) -> tuple[Finding, ...]:
    """Return the findings of the guards in a run; none when all of it is possible.

    ``more``: guards beside those of every run: those of its systems.
    """
    guards = (*GUARDS, *more)
    return tuple(finding for guard in guards for finding in guard(evidence))
