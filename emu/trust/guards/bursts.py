"""Check bursts over an edge against the depth of a token bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.trust.guards.evidence import CLOCKS, most_stated, stated_hops
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.trust.guards.evidence import Evidence

NAME = "bursts"
#: Real bytes that a sender may be ahead of its rates at any time.
_CHUNK = 16384
#: Wall seconds that a receiver may stand still between two samples of its loop's lag.
_UNSEEN = 0.1


def bursts(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every edge of which more came at once than it may catch up.

    In every interval no more may come than the narrowest link on the way carries in
    it, and what the sender may catch up once. By the notes of the receiver's kernel,
    which joins what waits while a receiver stands still.
    """
    if evidence.catch_up is None:
        return
    most, crossed = (
        most_stated(evidence.schedule.problem),
        stated_hops(evidence.schedule.problem),
    )
    names = evidence.schedule.problem.job.edge_names
    for counted in evidence.statistics.values():
        stood = float(counted.get("host_metrics", {}).get("loop_lag_max", 0.0))
        ahead = (
            evidence.catch_up
            + (evidence.lead + stood + _UNSEEN + CLOCKS) / evidence.time_scale
        )
        for row in counted.get("received", {}).get("bursts", ()):
            edge, came = int(row["edge"]), row["bytes"] / evidence.byte_scale
            rate = min(most[link] for link in crossed[edge])
            fits = rate * ahead + _CHUNK / evidence.byte_scale
            if came > fits:
                yield Finding(
                    NAME,
                    evidence.schedule.makespan,
                    f"{came:.4g} bytes more than {rate:g} B/s carries came at once of "
                    f"{names[edge]}, {fits:.4g} may",
                )
