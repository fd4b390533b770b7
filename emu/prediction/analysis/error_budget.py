"""Error budget of an emulated run: seconds beside its simulation, by their causes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis.critical_path import ELSEWHERE, Cause, Drift, divergences
from emu.prediction.analysis.link_load import fluid_ends
from emu.problem import Schedule

Rows = dict[tuple[int, int], Floats]


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
    """On kernel NICs: until the kernel had taken a flow's first bytes. What passed from
    there to their arrival, 37 to 89 % of it behind one queue, is of the network."""
    NETWORK = "kernel network"
    """No sender kept to rates: what TCP and the kernel's NICs made of the flows."""
    OTHER_PATHS = "other paths"
    """The simulation waited where the emulated chain did not; negative."""


def send_rows(logs: Iterable[bytes]) -> Rows:
    """Return (edge, iteration) -> finished, queued, informed, lag; emulated seconds.

    ``logs``: what `emu.emulation.network.send_log.SendLog` packed, of every process.
    """
    rows: Rows = {}
    for log in logs:
        numbers = np.frombuffer(log, dtype="<f8")
        for row in numbers.reshape(-1, 6):
            edge = int(row[0])
            iteration = int(row[1])
            rows[edge, iteration] = row[2:]
    return rows


def error_budget(
    emulated: Schedule,
    simulated: Schedule,
    rows: Rows,
    first: Mapping[tuple[int, int], float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return seconds by cause; they sum to emulated minus simulated makespan.

    Parameters
    ----------
    emulated
        With its rates; without any the kernel shared the NICs.
    rows
        Of `send_rows`; a flow that is not in it counts as shaping.
    first
        When the kernel had the first bytes of (edge, iteration), where it shared.
    """
    is_of_kernel = emulated.rates is None
    rest_cause = DelayCause.NETWORK if is_of_kernel else DelayCause.SHARING
    due = np.full_like(emulated.flow_end, np.nan)
    if not is_of_kernel:
        due = fluid_ends(emulated)

    parts = defaultdict[DelayCause, list[float]](list)
    for drift in divergences(emulated, simulated):
        cause = _cause_of(drift)
        if cause is not None:
            parts[cause].append(drift.seconds)
            continue

        flow = drift.link.edge, drift.link.iteration
        if flow in first:
            wait = first[flow] - float(emulated.flow_start[flow])
            delays = {DelayCause.FIRST_BYTES: max(wait, 0.0)}
        else:
            end = float(emulated.flow_end[flow])
            delays = divide(float(due[flow]), end, rows.get(flow))
        for cause, seconds in delays.items():
            parts[cause].append(seconds)
        explained = math.fsum(delays.values())
        parts[rest_cause].append(drift.seconds - explained)
    return {str(cause): math.fsum(parts[cause]) for cause in DelayCause}


def _cause_of(drift: Drift) -> DelayCause | None:
    """Return the cause of a drift of no flow; None of a flow, which has several."""
    if drift.cause == ELSEWHERE:
        return DelayCause.OTHER_PATHS
    if drift.cause == Cause.GAP:
        return DelayCause.CONTROL
    if drift.link.edge < 0:
        return DelayCause.OVERRUN
    return None


def drift_of_machines(emulated: Schedule, simulated: Schedule) -> dict[str, float]:
    """Return emulated minus simulated seconds along the chain, by machine.

    A flow counts to the machine that sends it. Gaps, and what came by other paths, are
    of none.
    """
    job = emulated.problem.job
    machine_of = emulated.problem.machine_of_task
    seconds = defaultdict[str, float](float)
    for drift in divergences(emulated, simulated):
        if drift.cause in {ELSEWHERE, Cause.GAP}:
            continue

        task = drift.link.task
        edge = drift.link.edge
        if edge >= 0:
            task = job.edges[edge].source
        name = job.tasks[task].name
        machine = machine_of[name]
        seconds[machine] += drift.seconds
    return dict(seconds)


def before_first_bytes(budget: Mapping[str, float], makespan: float) -> float:
    """Return the share of a makespan that a budget gives to delay before first bytes.

    On kernel NICs it is of emu, not of the network.
    """
    seconds = max(budget[DelayCause.FIRST_BYTES], 0.0)
    return seconds / max(makespan, 1e-12)


def divide(due: float, end: float, row: Floats | None) -> dict[DelayCause, float]:
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
    lateness = end - due
    if math.isnan(due):
        return {}
    if end < due:
        return {DelayCause.CLOCK: lateness}
    if row is None:
        return {DelayCause.SHAPING: lateness}

    finish, queueing, notice, lag = row.tolist()
    send_delay = min(max(finish, due), end) - due
    causes = {
        DelayCause.CPU: queueing - due,
        DelayCause.CONTROL: notice - max(due, queueing),
        DelayCause.LOOP_LAG: lag,
    }

    # Each cause takes of what those before it have left; the rest has none.
    delays = dict[DelayCause, float]()
    rest = send_delay
    for cause, seconds in causes.items():
        delay = 0.0
        if math.isfinite(seconds):
            delay = min(max(seconds, 0.0), rest)
        delays[cause] = delay
        rest -= delay
    delays[DelayCause.SHAPING] = rest
    delays[DelayCause.COPYING] = lateness - send_delay
    return delays
