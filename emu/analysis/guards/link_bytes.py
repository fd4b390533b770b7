"""Whether links carry more than they can, by the bytes that came in a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.guards.bucket import Overflow, of_flows
from emu.analysis.guards.evidence import CLOCKS
from emu.analysis.guards.stated import stated_capacities, stated_hops
from emu.analysis.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.analysis.guards.evidence import Evidence

    Floats = NDArray[np.float64]

NAME = "link bytes"


def link_bytes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every link that carried more than it can.

    Each is a leaky bucket that drains at the link's capacity. Its depth is what may be
    ahead, once in a run. It is filled by whole flows, from when their task ended until
    their last byte was there, so that what is late never fills it.

    Not by the bytes of short windows: who stood still catches up, and beside foreign
    load 262 bytes came where 252 fit, on a sound run (two of three golden runs were
    flagged at a load of 3 on two cores).
    """
    problem, scale = evidence.schedule.problem, evidence.time_scale
    ahead = (evidence.lead + evidence.stale + CLOCKS) / scale
    edge, ready, there, sent = _flows(evidence)
    crossed = stated_hops(problem)
    for link, capacity in stated_capacities(problem).items():
        over = np.array([link in hops for hops in crossed], dtype=bool)[edge]
        depth = capacity * ahead + evidence.at_once(capacity)
        found = of_flows(ready[over], there[over], sent[over], capacity, depth)
        if found is not None:
            yield _finding(link, capacity, found)


def _finding(link: str, capacity: float, found: Overflow) -> Finding:
    length = found.until - found.since
    carried = found.most + capacity * length
    return Finding(
        NAME,
        found.at,
        f"link {link} of {capacity:g} B/s carried {carried:.4g} bytes from "
        f"{found.since:.6g} to {found.until:.6g} s, {capacity * length:.4g} fit",
    )


def _flows(evidence: Evidence) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Return edge, end of the task before, arrival and bytes of every flow seen."""
    schedule = evidence.schedule
    source = np.array([e.source for e in schedule.problem.job.edges], dtype=np.int64)
    edge, iteration = schedule.flows().T
    there = evidence.grid(evidence.received, "last")[edge, iteration]
    sent = evidence.grid(evidence.received, "bytes")[edge, iteration]
    ready = schedule.task_end[source[edge], iteration]
    seen = np.isfinite(ready) & np.isfinite(there) & (sent > 0)
    return edge[seen], ready[seen], there[seen], sent[seen] / evidence.byte_scale
