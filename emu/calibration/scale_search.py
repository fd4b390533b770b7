"""The smallest scales at which a run is exact enough on this host."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from emu.calibration.host import USABLE
from emu.calibration.prediction import predict

if TYPE_CHECKING:
    from emu.calibration.host import HostProfile
    from emu.calibration.host_demand import Load
    from emu.calibration.prediction import Prediction

#: Share of what is asked for that a choice may use up: a host is not always as it was.
_SHARE = 0.6
#: Wall seconds of a run at least: of shorter ones a single standstill is percents, and
#: nobody waits for a second.
_SHORTEST = 1.0
#: Renard's numbers: 20 scales a decade.
_STEPS = (
    *(1.0, 1.12, 1.25, 1.4, 1.6, 1.8, 2.0, 2.24, 2.5, 2.8),
    *(3.15, 3.55, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 8.0, 9.0),
)
_SCALES = tuple(
    round(step * 10.0**power, 12) for power in range(-2, 5) for step in _STEPS
)
#: Scales tried from the first that the cores can carry, up to 100 times it: an order
#: that still flips there is decided by chance.
_TRIED = 2 * len(_STEPS) + 1


def choose_time_scale(
    load: Load,
    host: HostProfile,
    *,
    max_error: float,
    max_late_flows: float = 1.0,
    byte_scale: float,
    least: float = 0.01,
) -> Prediction:
    """Return the prediction at the smallest time scale that is exact enough.

    Parameters
    ----------
    max_error
        Share of the makespan.
    max_late_flows
        Share of the flows that may end later than
        `emu.analysis.flow_completion.tolerated`; 1 where they do not matter.
    byte_scale
        Real bytes per emulated byte.
    least
        Smallest time scale that may be chosen; 1 where real work must keep up.

    Returns
    -------
    Prediction
        Where no time scale lets so many flows be in time, the smallest at which the
        makespan is exact enough; where there is none, the smallest that is about as
        exact as any.

    Raises
    ------
    ValueError
        When ``least`` is beyond the largest there is.
    """
    limit, tried = _SHARE * max_error, 0
    most_late = _SHARE * max_late_flows if max_late_flows < 1 else 1.0
    found = exact = None
    at = partial(predict, load, host, byte_scale=byte_scale)
    shortest = _SHORTEST / load.makespan if load.makespan > 0 else 0.0
    least = max(least, min(shortest, _SCALES[-1]))
    scales = [scale for scale in _SCALES if scale >= least]
    for scale in scales:
        found = at(time_scale=scale, tolerable=limit)
        calm = found.cpu <= USABLE and found.bandwidth <= host.bandwidth
        if calm and found.error <= limit:
            if found.late_flows <= most_late:
                return found
            exact = exact or found
        tried += math.isfinite(found.error)
        if tried == _TRIED:
            break
    if found is None:
        raise ValueError(f"no time scale is at least {least:g}")
    if exact is not None:
        return exact
    last = scales.index(found.time_scale) + 1
    every = [at(time_scale=scale) for scale in scales[max(last - _TRIED, 0) : last]]
    enough = 1.1 * min(one.error for one in every)
    return next(one for one in every if one.error <= enough)


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
