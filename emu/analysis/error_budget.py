"""Drift of an emulated schedule from the simulation of its own times and volumes.

Both ran the same tasks and flows, so every part of the emulated critical path has a
time in the simulation too. Along the chain the two drift apart part by part, and the
divergences sum to the difference of the makespans exactly.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.critical_path import Cause, ChainLink, critical_path, span
from emu.analysis.link_load import fluid_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Schedule

    Rows = dict[tuple[int, int], NDArray[np.float64]]

#: Time that the simulation waited and the emulated chain did not; negative.
ELSEWHERE = "waits of the simulation"


@dataclass(frozen=True)
class Drift:
    """Increase of the emulated run's lateness over one part of its chain."""

    cause: str
    """A `Cause`, or `ELSEWHERE`."""
    link: ChainLink
    """The part: task or edge, iteration, port."""
    seconds: float
    """Emulated minus simulated; the whole of a gap."""


def divergences(
    emulated: Schedule, simulated: Schedule, chain: CriticalPath | None = None
) -> tuple[Drift, ...]:
    """Return the divergences along the critical path of ``emulated``, by time.

    Parameters
    ----------
    chain
        That of ``emulated``, where it is known already.

    Raises
    ------
    ValueError
        When the two are not of the same tasks, edges and iterations.
    """
    shapes = emulated.task_end.shape, emulated.flow_end.shape
    if (simulated.task_end.shape, simulated.flow_end.shape) != shapes:
        raise ValueError("the two schedules are not of the same job")
    links = (chain or critical_path(emulated)).links
    return tuple(drift for drift in _walk(links, simulated) if drift.seconds)


def _walk(links: tuple[ChainLink, ...], simulated: Schedule) -> Iterator[Drift]:
    moment = 0.0  # where the simulation is
    for _, pieces in groupby(links, _identity):
        last = None
        begun = None
        for link in pieces:
            if link.cause is Cause.GAP:
                yield Drift(Cause.GAP, link, link.seconds)
                continue
            begun = link.start if begun is None else begun
            last = link
        if last is None or begun is None:
            continue
        start, end = span(simulated, last)
        yield Drift(ELSEWHERE, last, moment - start)
        yield Drift(last.cause, last, (last.end - begun) - (end - start))
        moment = end
    if links:  # a run of no length has no chain
        yield Drift(ELSEWHERE, links[-1], moment - simulated.makespan)


def _identity(link: ChainLink) -> tuple[int, int, int]:
    return link.edge, link.task, link.iteration


class DelayCause(StrEnum):
    """Cause of a difference between emulation and simulation."""

    SHAPING = "shaping"
    """The last byte left later than its fluid, for none of the reasons below."""
    CONTROL = "control latency"
    """The sender received its rate after the fluid's end; parts began late."""
    COPYING = "framing and copying"
    """From the sender's kernel to the receiver's; to its process without such notes."""
    LOOP_LAG = "loop lag"
    """The alarm that sent the last byte rang late."""
    CPU = "CPU contention"
    """The payload was ready after the fluid's end."""
    OVERRUN = "compute overrun"
    """Tasks took longer than in the simulation."""
    CLOCK = "clock"
    """A flow that ended before its fluid: by rounding where one clock times both, by
    what is not known of the clocks of two hosts otherwise."""
    SHARING = "rates of others"
    """Flows went at other rates, since those beside them were late."""
    FIRST_BYTES = "first bytes"
    """On kernel NICs: until a flow's first bytes had arrived."""
    NETWORK = "kernel network"
    """No sender kept to rates: what TCP and the kernel's NICs made of the flows."""
    OTHER_PATHS = "other paths"
    """The simulation waited where the emulated chain did not; negative."""


def send_rows(logs: Iterable[bytes]) -> Rows:
    """Return (edge, iteration) -> finished, queued, informed, lag; emulated seconds.

    Parameters
    ----------
    logs
        What `emu.network.SendLog` packed, of every process.
    """
    rows: Rows = {}
    for log in logs:
        for row in np.frombuffer(log, dtype="<f8").reshape(-1, 6):
            rows[int(row[0]), int(row[1])] = row[2:]
    return rows


def error_budget(
    emulated: Schedule,
    simulated: Schedule,
    rows: Rows,
    chain: CriticalPath | None = None,
    first: Mapping[tuple[int, int], float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return seconds by cause; they sum to emulated minus simulated makespan.

    Parameters
    ----------
    emulated
        With its rates; without any the kernel shared the NICs.
    simulated
        Of the same tasks and flows.
    rows
        Of `send_rows`; a flow that is not in it counts as shaping.
    chain
        That of ``emulated``, where it is known already.
    first
        When the first bytes of (edge, iteration) arrived, where the kernel shared.
    """
    free = emulated.rates is None
    due = np.full_like(emulated.flow_end, np.nan) if free else fluid_ends(emulated)
    others = DelayCause.NETWORK if free else DelayCause.SHARING
    parts: defaultdict[DelayCause, list[float]] = defaultdict(list)
    for drift in divergences(emulated, simulated, chain):
        if drift.cause == ELSEWHERE:
            parts[DelayCause.OTHER_PATHS].append(drift.seconds)
        elif drift.cause == Cause.GAP:
            parts[DelayCause.CONTROL].append(drift.seconds)
        elif drift.link.edge < 0:
            parts[DelayCause.OVERRUN].append(drift.seconds)
        else:
            at = drift.link.edge, drift.link.iteration
            end = float(emulated.flow_end[at])
            own = divide(float(due[at]), end, rows.get(at))
            if at in first:
                own = {
                    DelayCause.FIRST_BYTES: first[at] - float(emulated.flow_start[at])
                }
            for source, seconds in own.items():
                parts[source].append(seconds)
            parts[others].append(drift.seconds - math.fsum(own.values()))
    return {str(source): math.fsum(parts[source]) for source in DelayCause}


def before_first_bytes(budget: Mapping[str, float], makespan: float) -> float:
    """Return the share of a makespan that a budget gives to delay before first bytes.

    On kernel NICs it is of emu, not of the network.
    """
    return max(budget[DelayCause.FIRST_BYTES], 0.0) / max(makespan, 1e-12)


def divide(
    due: float, end: float, row: NDArray[np.float64] | None
) -> dict[DelayCause, float]:
    """Return one flow's lateness, by cause.

    Parameters
    ----------
    due
        When its fluid ended; NaN when not known, then nothing counts as late.
    end
        When its last byte arrived.
    row
        finished, queued, informed, lag, as its sender noted them.
    """
    if math.isnan(due):
        return {}
    if end < due:
        return {DelayCause.CLOCK: end - due}
    if row is None:
        return {DelayCause.SHAPING: end - due}
    finished, queued, informed, lag = (float(value) for value in row)
    behind = min(max(finished, due), end) - due
    late: dict[DelayCause, float] = {}
    left = behind
    for source, seconds in (
        (DelayCause.CPU, queued - due),
        (DelayCause.CONTROL, informed - max(due, queued)),
        (DelayCause.LOOP_LAG, lag),
    ):
        late[source] = min(max(seconds, 0.0), left) if math.isfinite(seconds) else 0.0
        left -= late[source]
    return late | {DelayCause.SHAPING: left, DelayCause.COPYING: end - due - behind}
