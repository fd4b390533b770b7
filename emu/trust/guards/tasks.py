"""Guards of tasks: when they began, by the clocks of their processes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from emu.trust.guards.evidence import CLOCKS, Evidence
from emu.trust.violation import Finding, task_name

BEGAN = "began"
#: Wall seconds by which a task may be ordered, and begin, ahead of its time: orders
#: leave 50 ms ahead, and the first of all with the barrier, 100 ms before time 0.
_AHEAD = 0.15


def beginnings(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first task that began before it was ordered, or after it had ended."""
    schedule = evidence.schedule
    scale = evidence.time_scale
    most_ahead = (_AHEAD + CLOCKS) / scale
    soonest = schedule.task_start - most_ahead
    latest = schedule.task_end + CLOCKS / scale

    # NaN where nobody noted it.
    is_early = evidence.began < soonest
    is_late = evidence.began > latest
    rows = np.argwhere(is_early | is_late)
    for task, iteration in rows[:1].tolist():
        name = task_name(schedule.problem.job, task, iteration)
        began = float(evidence.began[task, iteration])
        time = began if math.isfinite(began) else math.nan
        others = len(rows) - 1
        text = (
            f"task {name} says that it began to compute at {began:g} s "
            f"(and {others} others)"
        )
        yield Finding(BEGAN, time, text)
