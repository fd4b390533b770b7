"""Attempts at a job, as a run noted them: times that hold each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from emu.experiment.attempts import Ended
from emu.problem import Kill
from emu.scenario import Experiment
from emu.trust.violation import Findings, disagreement

#: Share of a time that rounding may take: sums of a few, as files have them.
_ROUNDING = 1e-9


def check_attempts(
    ended: Sequence[Ended], whole: Experiment, last: Experiment
) -> dict[str, Findings]:
    """Return how many attempts were checked, and where their times differ, by its name.

    By readings of the clock each ran from run time 0 to the first sign of its death.
    The next begins when it has ended and recovered. None ends before it was killed.
    ``whole`` states the kills of the job, ``last`` is the last attempt's part of it.
    """
    if not ended:
        return {}
    starts = [attempt.began for attempt in ended[1:]]
    starts.append(last.began)
    time_scale = whole.scenario.emulation.stated_time_scale
    sentences = []
    for number, attempt in enumerate(ended):
        restart = attempt.began + attempt.ran + attempt.recovery
        if not _is_near(starts[number], restart):
            sentences.append(f"attempt {number + 1} did not begin at {restart:g} s")
        faults = _own_faults(attempt, whole.kills, time_scale)
        sentences.extend(f"attempt {number} {fault}" for fault in faults)

    violations = [disagreement("attempts", sentence) for sentence in sentences]
    return {"attempts": (len(ended), violations)}


def _own_faults(
    attempt: Ended, kills: Sequence[Kill], time_scale: float
) -> Iterator[str]:
    """Yield what is wrong with one attempt by itself."""
    if attempt.clock:
        zero, seen, noticed = attempt.clock
        wall_seconds = max(seen - zero, 0.0)
        ran = wall_seconds / time_scale
        if not _is_near(attempt.ran, ran):
            yield f"ran for {attempt.ran:g} s, {ran:g} by the clock of its host"
        if not _is_near(attempt.detection, noticed - seen):
            yield f"was noticed after {attempt.detection:g} s, not by that clock"

    coming = [kill.time for kill in kills if kill.time > attempt.began]
    # Infinite where a task's iteration says when.
    is_known = bool(coming) and max(coming) < math.inf
    if attempt.killed and is_known:
        least = min(coming) - attempt.began
        rounding = _ROUNDING * least
        if attempt.ran < least - rounding:
            yield f"ran for {attempt.ran:g} s, and was killed after {least:g}"


def _is_near(found: float, expected: float) -> bool:
    margin = _ROUNDING * max(1.0, abs(expected))
    return abs(found - expected) <= margin
