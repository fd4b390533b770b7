"""Did every task read the newest that had arrived when it started? For any Schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.analysis.violation import Findings, Violation, task_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.problem import Schedule


def newest_reads(schedule: Schedule, tolerance: float) -> Findings:
    """Return what edges that read the newest have read amiss.

    An iteration older than the lag allows, one that had not arrived, or one where a
    newer had.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    """
    latest = [e for e, edge in enumerate(schedule.problem.job.edges) if edge.latest]
    found = [fault for e in latest for fault in _faults(schedule, e, tolerance)]
    return len(latest) * schedule.problem.job.iterations, found


def _faults(schedule: Schedule, e: int, tolerance: float) -> Iterator[Violation]:
    job = schedule.problem.job
    edge, sent = job.edges[e], job.flow_counts[e]
    arrived = schedule.flow_end[e, :sent]
    for n in range(job.rounds[edge.destination]):
        who = task_name(job, edge.destination, n)
        start = schedule.task_start[edge.destination, n]
        read = -1 if schedule.reads is None else int(schedule.reads[e, n])
        least = min(n - edge.lag, sent - 1)
        newest = int((arrived < start - tolerance).sum()) - 1
        if read < least:
            how = f"iteration {read}, the lag allows {least} and newer"
        elif read >= sent or (read >= 0 and arrived[read] > start + tolerance):
            how = f"iteration {read} before it arrived"
        elif read < newest:
            how = f"iteration {read} where {newest} had arrived"
        else:
            continue
        sentence = f"{who} read of {job.edge_names[e]} {how}"
        yield Violation("reads", who, float(abs(newest - read)), "iterations", sentence)
