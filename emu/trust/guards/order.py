"""Check that every frame came once, whole, in order, and not before it was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.trust.guards.evidence import CLOCKS
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.trust.guards.evidence import Evidence

NAME = "order"
CAUSE = "cause"


def order(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first frame of each kind that is missing, doubled, short or early.

    Every frame of an edge must come once, with the bytes that its task announced, after
    the frame before it.
    """
    schedule, received = evidence.schedule, evidence.received
    job = schedule.problem.job
    due = _due(evidence)
    count = np.zeros(due.shape, dtype=np.int64)
    known = (received["edge"] < due.shape[0]) & (received["iteration"] < due.shape[1])
    rows = received[known]
    np.add.at(count, (rows["edge"], rows["iteration"]), 1)
    last = evidence.grid(received, "last")
    came = evidence.grid(received, "bytes")
    announced = np.where(due, schedule.flow_bytes, np.nan) * evidence.byte_scale
    shaped = _shaped(evidence)
    end = schedule.task_end[[edge.source for edge in job.edges]] if job.edges else last
    off = shaped & (np.abs(came - announced) > 1 + 1e-9 * announced)
    backwards = np.zeros_like(due)
    backwards[:, 1:] = last[:, 1:] < last[:, :-1]
    for broken, words in (
        (due & (count == 0), "never came"),
        (count > due, "came twice, or was not to be sent"),
        (off, "came with other bytes than its task announced"),
        (backwards, "came before the one before it"),
    ):
        yield from _first(evidence, NAME, broken, end, words)


def cause(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first frame that came before it was sent, or left before its time.

    No byte may be at the receiver's kernel before its sender hands it to its own, nor
    leave before the task that makes it has ended, but for the lead.
    """
    schedule, job = evidence.schedule, evidence.schedule.problem.job
    shaped = _shaped(evidence)
    if not job.edges:
        return
    clocks = CLOCKS / evidence.time_scale
    ready = schedule.task_end[[edge.source for edge in job.edges]]
    left = evidence.grid(evidence.sent, "last")
    came = evidence.grid(evidence.received, "last")
    begun = evidence.grid(evidence.received, "first")
    lead = evidence.lead / evidence.time_scale
    told = came if evidence.told is None else evidence.told
    later = clocks if evidence.told is None else 1e-9 * (1 + schedule.flow_end)
    for broken, at, words in (
        (came < left - clocks, came, "came before its last byte was sent"),
        (shaped & (begun < ready - lead - clocks), begun, "came before its task ended"),
        (
            shaped & (told > schedule.flow_end + later),
            told,
            "counts as ended before its last byte came",
        ),
        (np.abs(told - came) > clocks, came, "was told to have come at another time"),
    ):
        yield from _first(evidence, CAUSE, broken, at, words)


def _due(evidence: Evidence) -> NDArray[np.bool_]:
    """Return which (edge, iteration) carry a frame, within a machine or between two."""
    job = evidence.schedule.problem.job
    count = [
        0 if control else sent
        for control, sent in zip(job.control, job.flow_counts, strict=True)
    ]
    return np.arange(job.iterations) < np.array(count, dtype=np.int64)[:, None]


def _shaped(evidence: Evidence) -> NDArray[np.bool_]:
    """Return which (edge, iteration) are flows of some bytes between machines."""
    schedule = evidence.schedule
    shaped = np.zeros(schedule.flow_end.shape, dtype=bool)
    shaped[tuple(schedule.flows().T)] = True
    return shaped & (schedule.flow_bytes > 0)


def _first(
    evidence: Evidence,
    guard: str,
    broken: NDArray[np.bool_],
    at: NDArray[np.float64],
    words: str,
) -> Iterator[Finding]:
    if not broken.any():
        return
    job = evidence.schedule.problem.job
    where = np.argwhere(broken)
    times = at[tuple(where.T)]
    first = int(np.argmin(np.where(np.isnan(times), np.inf, times)))
    e, n = where[first]
    others = f" (and {len(where) - 1} others)" if len(where) > 1 else ""
    name = job.edge_names[e]
    yield Finding(guard, float(times[first]), f"frame {name}[{n}] {words}{others}")
