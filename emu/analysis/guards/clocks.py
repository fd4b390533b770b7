"""Whether every process's clock goes as the coordinator's does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.analysis.guards.evidence import CLOCKS
from emu.analysis.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.analysis.guards.evidence import Evidence

NAME = "clocks"


def clocks(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every process whose clock has drifted in the run.

    At the end the coordinator asks, and each process answers: with the run time when it
    was asked and when it answered. By the coordinator's wall clock alone, the first
    reading comes after the question left, the second before the answer came; messages
    that take long hide a drift and never make one.
    """
    scale = evidence.time_scale
    for process, counted in evidence.statistics.items():
        if "clock" not in counted or "heard" not in counted:
            continue  # a run of an earlier emu
        (asked, answered), (least, most) = counted["clock"], counted["heard"]
        for reading, off in (
            (asked, least - scale * asked),
            (answered, scale * answered - most),
        ):
            if off > CLOCKS:
                yield Finding(
                    NAME,
                    reading,
                    f"process {process} read {scale * reading:.6g} s of wall time "
                    f"between {least:.6g} and {most:.6g} s of the coordinator's: its "
                    f"clock is off by {off:.3g} s",
                )
                break
