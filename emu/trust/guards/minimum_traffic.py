"""Check that enough was carried to judge the network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emu.trust.guards.evidence import CLOCKS
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.trust.guards.evidence import Evidence


ENOUGH = "enough carried"
#: Payload of a packet on Ethernet: 1500 bytes less the headers of IP and TCP.
PACKET = 1448
#: A flow of fewer packets is over before its rate can show.
FEW = 4


def enough_carried(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding when the flows between machines were a few packets each.

    Counted is what came, in the mean over the flows that stand for any bytes. A job
    without such flows is no evidence about a network and is not examined.
    """
    schedule = evidence.schedule
    edge, iteration = schedule.flows().T
    stand_for = schedule.flow_bytes[edge, iteration] > 0
    if not stand_for.any():
        return
    came = np.nan_to_num(evidence.grid(evidence.received, "bytes")[edge, iteration])
    packets = float(came[stand_for].mean()) / PACKET
    if packets < FEW:
        yield Finding(
            ENOUGH,
            math.nan,
            "nothing was carried: this run tests control, not the network "
            f"({packets:.2g} packets per flow, {came.sum():,.0f} real bytes in all)",
            _remedy(evidence.byte_scale, packets),
        )


def _remedy(byte_scale: float, packets: float) -> str:
    if not packets:
        return ""
    enough = 10.0 ** math.ceil(math.log10(byte_scale * FEW / packets))
    return f"raise byte_scale to {enough:g}"


CLOCKS_NAME = "clocks"


def clocks(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every process whose clock has drifted in the run.

    At the end the coordinator asks, and each process answers: with the run time when it
    was asked and when it answered. By the coordinator's wall clock alone, the first
    reading comes after the question left, the second before the answer came; messages
    that take long hide a drift and never make one.
    """
    scale = evidence.time_scale
    for process, counted in evidence.statistics.items():
        if "clock" not in counted or "answered" not in counted:
            continue  # a run of an earlier emu
        (asked, answered), (least, most) = counted["clock"], counted["answered"]
        for reading, off in (
            (asked, least - scale * asked),
            (answered, scale * answered - most),
        ):
            if off > CLOCKS:
                yield Finding(
                    CLOCKS_NAME,
                    reading,
                    f"process {process} read {scale * reading:.6g} s of wall time "
                    f"between {least:.6g} and {most:.6g} s of the coordinator's: its "
                    f"clock is off by {off:.3g} s",
                )
                break
