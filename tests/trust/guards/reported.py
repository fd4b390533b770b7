"""What a faultless run of a schedule would report, to plant faults in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.problem import Realization, Schedule
from emu.trust.guards import Evidence

BYTE_SCALE = 1e5
TIME_SCALE = 0.2


def frames(schedule: Schedule) -> NDArray[np.void]:
    """Return a row for every frame, each there at the end of its flow."""
    job = schedule.problem.job
    where = [
        (e, n)
        for e, edge in enumerate(job.edges)
        for n in range(job.iterations)
        if not edge.credit and job.sends(e, n)
    ]
    rows = np.zeros(len(where), FRAME_ROWS)
    for row, at in zip(rows, where, strict=True):
        row["edge"], row["iteration"] = at
        row["first"], row["last"] = schedule.flow_start[at], schedule.flow_end[at]
        row["bytes"] = np.rint(schedule.flow_bytes[at] * BYTE_SCALE)
    return rows


def reported(
    schedule: Schedule, realization: Realization | None = None, **changes: Any
) -> Evidence:
    """Return what a punctual run would report of ``schedule``."""
    processes = schedule.problem.job.processes
    stated: dict[str, Any] = {
        "sent": frames(schedule),
        "received": frames(schedule),
        "notified": None,
        "began": schedule.task_start,
        "statistics": {name: {} for name in processes},
        "time_scale": TIME_SCALE,
        "byte_scale": BYTE_SCALE,
        "lead": 0.0,
        "stale": 0.0,
        "stall": 0.0,
        "times": None if realization is None else realization.times,
        "volumes": None if realization is None else realization.volumes,
    }
    return Evidence(schedule=schedule, **{**stated, **changes})
