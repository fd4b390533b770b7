"""What a run will cost this host and how exact it will be, before it is started.

Every part of the critical chain is late by some constant of the host, in wall time: a
flow by what a timer overshoots and a wake-up takes, a task by a control message where
it is shorter than that. A busy host is later: a queue at utilisation u waits
1 / (1 - u) times as long. So the error falls as 1 / time_scale, faster near saturation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emu.calibration.host import USABLE
from emu.network import pace_at

if TYPE_CHECKING:
    from emu.calibration.host import HostProfile
    from emu.calibration.load import Load

#: CPU seconds of one decision in the coordinator, with its messages' reading: 0.2 ms.
_DECISION = 200e-6
#: CPU seconds of a process while it starts, and while it idles per wall second.
_START, _IDLE = 0.02, 0.0005
#: Of the coordinator, the agent and the fork server together, bytes.
_OWN_MEMORY = 500e6
#: Share of ``max_error`` that a choice may use up: a host is not always as it was.
_SHARE = 0.5
_SCALES = tuple(
    round(digits / 10 * 10.0**power, 12)
    for power in range(-2, 5)
    for digits in range(10, 100)
)


@dataclass(frozen=True)
class Prediction:
    """What a run will take.

    Parameters
    ----------
    time_scale, byte_scale
        That it is for.
    wall
        Seconds, after the start.
    startup
        Seconds until all processes are ready.
    cpu
        Share of all cores; above 1 it cannot be done.
    memory
        Bytes.
    bandwidth
        Real bytes per second at the peak.
    error
        Share by which the emulated makespan will exceed the simulated one; infinite
        where the host cannot keep up.
    """

    time_scale: float
    byte_scale: float
    wall: float
    startup: float
    cpu: float
    memory: float
    bandwidth: float
    error: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name; ``error`` is None where it is infinite."""
        known = self.error if math.isfinite(self.error) else None
        return {**vars(self), "error": known}


def predict(
    load: Load, host: HostProfile, *, time_scale: float, byte_scale: float
) -> Prediction:
    """Return what a run at these scales will take."""
    wall, (looks, _) = load.makespan * time_scale, pace_at(time_scale)
    cpu_seconds = (
        load.payload * byte_scale * host.cpu_per_byte
        + load.events * (2 * host.event_cpu + _DECISION)
        + load.sending * time_scale / looks.longest * host.wake_cpu
        + load.processes * wall * _IDLE
        + load.computing
    )
    cpu = cpu_seconds / (wall * host.cores) if wall > 0 else 0.0
    bandwidth = load.peak_rate * byte_scale / time_scale
    if cpu < 1 and bandwidth <= host.throughput:
        late = load.chain_flows * _mean(host.finish_error)
        late += load.chain_tasks * _mean(host.round_trip) * 0.1
        error = late / (1 - cpu) / wall if wall > 0 else 0.0
    else:
        error = math.inf
    return Prediction(
        time_scale=time_scale,
        byte_scale=byte_scale,
        wall=wall,
        startup=1.5 + load.processes * (host.process_seconds + _START / host.cores),
        cpu=cpu,
        memory=_OWN_MEMORY
        + load.processes * host.process_memory
        + load.largest * byte_scale,
        bandwidth=bandwidth,
        error=error,
    )


def _mean(spread: tuple[float, float]) -> float:
    """Return about the mean of what has this median and 99th percentile."""
    median, high = spread
    return median + 0.1 * max(high - median, 0.0)


def choose_time_scale(
    load: Load,
    host: HostProfile,
    *,
    max_error: float,
    byte_scale: float,
    least: float = 0.01,
) -> Prediction:
    """Return the prediction at the smallest time scale that is exact enough.

    Parameters
    ----------
    max_error
        Share of the makespan.
    byte_scale
        Real bytes per emulated byte.
    least
        Smallest time scale that may be chosen; 1 where real work must keep up.

    Returns
    -------
    Prediction
        Where no time scale is exact enough, that of the smallest error.
    """
    best: Prediction | None = None
    for scale in _SCALES:
        if scale < least:
            continue
        found = predict(load, host, time_scale=scale, byte_scale=byte_scale)
        if found.error <= _SHARE * max_error and found.cpu <= USABLE:
            return found
        if best is None or found.error < best.error:
            best = found
    if best is None:
        raise ValueError(f"no time scale is at least {least:g}")
    return best


def choose_byte_scale(volumes: list[float]) -> float:
    """Return real bytes per emulated byte for flows of these volumes, emulated bytes.

    A payload of 1 MB is long against the 16 KB by which a sender may lead, and costs
    0.2 ms of CPU; so the median flow becomes that, and none more than 32 MB.
    """
    sent = sorted(volume for volume in volumes if volume > 0)
    if not sent:
        return 1.0
    scale = min(1e6 / sent[len(sent) // 2], 32e6 / sent[-1])
    return float(f"{scale:.2g}")
