"""Bound a run's distance from the best schedule: keys of result.json, a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emu.analysis.bounds import bounds
from emu.analysis.link_rates import LinkContention
from emu.placement import placement_bound
from emu.scheduling import policy_named
from emu.units import format_duration

if TYPE_CHECKING:
    from emu.problem import Problem, Realization, Schedule

#: Share of a makespan by which a bound may be above it, by rounding alone.
_ROUNDING = 1e-9


def optimality(
    schedule: Schedule, realization: Realization, policy: str
) -> dict[str, Any]:
    """Return the keys ``bound``, ``bound_by``, ``gap`` and ``theorem1`` of result.json.

    Parameters
    ----------
    realization
        Times and volumes of the run itself: the bound holds for them alone.

    Returns
    -------
    dict
        ``bound`` in seconds; ``bound_by`` a port, or `CRITICAL_PATH`; ``gap`` is
        makespan / bound - 1, None where nothing takes time; ``theorem1`` [1]_ holds
        ``delta`` (20), ``certificate`` (Delta * LP, seconds), ``kept``: whether the
        policy promises to stay below it, nothing waits for a slot or a channel, and no
        capacity changes; and
        ``delta_seen`` and ``certificate_seen``,
        the same with the most flows that were active over one link at a time.

    Raises
    ------
    ValueError
        When ``realization`` does not fit the job, or there is no such policy.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, Theorem 1.
    """
    problem, makespan = schedule.problem, schedule.makespan
    found = bounds(problem, realization)
    seen = LinkContention(schedule).most
    return {
        "bound": found.combined,
        "bound_by": found.binding,
        "gap": makespan / found.combined - 1 if found.combined else None,
        "theorem1": {
            "delta": found.degree,
            "certificate": found.certificate,
            "delta_seen": seen,
            "certificate_seen": max(seen, 1) * found.critical_path,
            "kept": policy_named(policy).keeps_theorem
            and not (problem.pools or problem.job.channels or problem.cluster.changes),
        },
    }


def placement_gap(
    problem: Problem, realization: Realization, makespan: float, *, seconds: float
) -> dict[str, float]:
    """Return ``placement_bound`` and ``placement_gap``: what other placements leave.

    Parameters
    ----------
    makespan
        Of ``problem`` under ``realization``, simulated.
    seconds
        How long to branch for the bound at most.

    Returns
    -------
    dict
        ``placement_bound`` in seconds: no schedule of any feasible placement is
        shorter; ``placement_gap`` the share of the makespan that is left to gain at
        most.

    Raises
    ------
    ArithmeticError
        When the bound is above the makespan of this very placement, and thus false.
    """
    reference = problem.reference(realization)
    bound = placement_bound(problem.job, problem.cluster, reference, seconds=seconds)
    if bound > makespan * (1 + _ROUNDING):
        raise ArithmeticError(f"a bound of {bound} s is above {makespan} s")
    bound = min(bound, makespan)
    left = 1.0 - bound / makespan if makespan else 0.0
    return {"placement_bound": bound, "placement_gap": left}


def placement_line(gap: dict[str, float]) -> str:
    """Return the keys of `placement_gap` in words."""
    left = 100 * gap["placement_gap"]
    if left < 1e-3:
        return "no placement is better, by a lower bound over all of them"
    return (
        f"at least {format_duration(gap['placement_bound'])} wherever the tasks stand: "
        f"at most {left:.3g} % is left to gain"
    )


def optimality_line(result: dict[str, Any]) -> str:
    """Return the bound, the gap and Theorem 1 in words; empty where there is no gap.

    Parameters
    ----------
    result
        With the keys of `optimality`.
    """
    if result.get("gap") is None:
        return ""
    place = str(result["bound_by"])
    percent = 100 * max(float(result["gap"]), 0.0)  # sockets may be ahead by a hair
    line = (
        f"at least {format_duration(result['bound'])} whatever the schedule ({place}): "
        f"within {percent:.{0 if percent >= 10 else 1}f} %"
    )
    theorem = result.get("theorem1", {})
    if theorem.get("kept") and "delta_seen" in theorem:
        most, seen = (
            format_duration(theorem[key]) for key in ("certificate", "certificate_seen")
        )
        line += (
            f"\nat most {most} by Theorem 1 (Delta {theorem['delta']}), {seen} by the "
            f"{theorem['delta_seen']} flows that shared a link at a time"
        )
    return line
