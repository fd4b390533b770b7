"""The headline of a run by itself: makespans, their errors, bound and gap.

Nothing here is shared with what writes result.json: the makespans come from schedules,
the errors from these, the bound from a longest path and from what ports must carry.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.trust.guards.evidence import fitting, stated_hops
from emu.trust.guards.schedule import earliest_ends
from emu.trust.violation import Findings, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.problem import Problem, Realization, Schedule

#: Share by which a number may be off: sums in another order.
_EXACT = 1e-9
#: Seconds in which a link that is not cut for good carries anything.
_NEVER = 1e18


def headline_faults(
    result: Mapping[str, Any],
    emulated: Schedule,
    predicted: Schedule,
    replayed: Schedule,
    measured: Realization,
) -> Findings:
    """Return how many numbers of a headline were compared, and the wrong ones.

    Parameters
    ----------
    result
        Content of result.json.
    emulated, predicted, replayed
        The run, and the simulations of what was expected and of what was measured.
    measured
        Times and volumes of the run, which ``bound`` is of.
    """
    length, before, again = (
        float(np.nanmax(schedule.task_end))
        for schedule in (emulated, predicted, replayed)
    )
    least = least_makespan(emulated.problem, measured)
    wanted: dict[str, float | None] = {
        "makespan": length,
        "predicted_makespan": before,
        "makespan_error": _over(length, before),
        "replayed_makespan": again,
        "replay_error": _over(length, again),
    }
    bound = result.get("bound")
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        bound = math.nan
    else:
        wanted["gap"] = _over(length, bound) if bound else None
    found = []
    for key, number in wanted.items():
        said = result.get(key)
        if not _alike(said, number):
            sentence = f"{key} is {said!r}, {number!r} by itself"
            found.append(Violation("headline", key, 1, "values", sentence))
    if not bound >= least * (1 - _EXACT):  # NaN is wrong too
        sentence = f"bound is {bound!r}, the run cannot be shorter than {least!r} s"
        found.append(Violation("headline", "bound", 1, "values", sentence))
    return len(wanted) + 1, found


def least_makespan(problem: Problem, measured: Realization) -> float:
    """Return a length that no run of these times and volumes is below, seconds.

    The longest path, of flows that have every link for themselves, or the time that the
    busiest link takes for all its bytes.
    """
    ends = earliest_ends(problem, measured.times, measured.volumes)
    rounds = np.array(problem.job.rounds)
    ran = np.arange(problem.job.iterations) < rounds[:, None]
    longest = float(ends[ran].max(initial=0.0))
    counts = np.array(problem.job.flow_counts, dtype=np.int64)
    sent = np.arange(problem.job.iterations) < counts[:, None]
    totals = np.where(sent, measured.volumes, 0.0).sum(axis=1)
    carried: dict[str, float] = {}
    for hops, volume in zip(stated_hops(problem), totals.tolist(), strict=True):
        for link in hops:
            carried[link] = carried.get(link, 0.0) + volume
    return max([longest, *(_time(problem, *one) for one in carried.items())])


def _time(problem: Problem, link: str, volume: float) -> float:
    """Return when a link has carried so many bytes at the earliest, seconds."""
    low, high = 0.0, 1.0
    while float(fitting(problem, link, np.array([high]))[0]) < volume:
        if high > _NEVER:
            return math.inf  # cut for good
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        enough = float(fitting(problem, link, np.array([middle]))[0]) >= volume
        low, high = (low, middle) if enough else (middle, high)
    return high if volume > 0 else 0.0


def _over(found: float, expected: float) -> float:
    return found / expected - 1 if expected else float(found > 0)


def _alike(said: Any, number: float | None) -> bool:
    if number is None or said is None:
        return said is number
    if isinstance(said, bool) or not isinstance(said, int | float):
        return False
    return math.isclose(said, number, rel_tol=_EXACT, abs_tol=_EXACT)
