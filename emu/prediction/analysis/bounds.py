"""Bound a schedule's distance from the best: lower bounds and Theorem 1 of the paper.

Every bound holds for any execution and flow schedule of the placed job, (5)-(15), and
where capacities change counts with the largest that each link ever has:

- *NIC load*: a port needs its bytes divided by its capacity; where that changes, the
  time by which it can have carried them all, at the capacity of every instant;
- *critical path*: a chain of tasks and flows, each flow as fast as if it were alone
  (LP of the paper's Appendix B), with the latencies of those that tasks wait for;
- *port in context*: for a set of flows over one port, the earliest that the first can
  be ready, plus their bytes over the capacity, plus the shortest that has to follow
  the last. The sets tried are those of flows ready no earlier than some flow, and
  those with no less to follow than some flow; both earlier bounds of a port are among
  them;
- *channel in context*: likewise the flows of a channel, each as fast as if alone;
- *slots*: a slot of a pool is held at least while the task runs that takes it, and
  where each goes back by one task that follows that one, on the way to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from emu.prediction.analysis.link_load import LinkContention
from emu.prediction.placement.bound import placement_bound
from emu.prediction.scheduling import policy_named
from emu.prediction.scheduling.compiled_problem import (
    Floats,
    Ints,
    Layout,
    job_arrays,
    plain,
)
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import earliest, longest_paths
from emu.problem import Problem, Realization, Schedule
from emu.units import format_duration

#: `Bounds.binding` where no port is.
CRITICAL_PATH = "critical path"


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the makespan of a placed job, seconds."""

    nic_load: float
    """The busiest port's bytes over its capacity."""
    critical_path: float
    """The longest chain with flows as fast as if alone, LP."""
    combined: float
    """The best of these and of every port in context."""
    binding: str
    """Limit that gives it: a port, a channel, a pool of slots, or ``critical path``."""
    degree: int
    """Delta (20): the most flows of one iteration over one link."""

    @property
    def certificate(self) -> float:
        """Delta * LP: no schedule of a policy that keeps Theorem 1 takes longer.

        Latencies are in LP: along the chain of the proof they take their own time, of
        which Delta times as much is no less.
        With no flow between machines the critical path itself is the makespan.
        """
        return max(self.degree, 1) * self.critical_path


#: Of a realization, the problem that was asked for last, and its bounds: what a command
#: prints and what is expected of it are two questions.
_LAST: WeakKeyDictionary[Realization, tuple[Problem, Bounds]] = WeakKeyDictionary()


def bounds(problem: Problem, realization: Realization) -> Bounds:
    """Return lower bounds on the makespan of any schedule.

    Raises ValueError when ``realization`` does not fit the job.
    """
    last = _LAST.get(realization)
    if last is None or last[0] is not problem:
        last = _LAST[realization] = problem, _find_bounds(problem, realization)
    return last[1]


def _find_bounds(problem: Problem, realization: Realization) -> Bounds:
    realization.check_shapes(problem.job)
    steps = problem.links.steps  # of the capacities that change
    if (widest := problem.cluster.widest) is not problem.cluster:
        problem = replace(problem, cluster=widest)
    layout = Layout(
        job_arrays(problem.job, problem.cluster, rate_policy("oes")),
        np.array(problem.placement.machine_of, dtype=np.int64),
    )
    times = plain(realization.times)
    volumes = plain(realization.volumes)
    from_task, after_flow = longest_paths(layout, times, volumes)
    around = earliest(layout, times, volumes)[0], after_flow
    path = float(from_task.max())
    nic_load = 0.0
    limits = [(path, CRITICAL_PATH)]
    crossing: list[list[int]] = [[] for _ in problem.capacities]
    for edge, hops in enumerate(problem.hops):
        for port in hops:
            crossing[port].append(edge)
    for port, over in enumerate(crossing):
        sizes = volumes[over] / problem.capacities[port]
        head, size, tail = _flows_of(problem, over, sizes, around)
        least = _one_by_one(head, size, tail)
        if size.size and len(steps.of(port)[0]) > 1:
            volume = float((size * steps.most[port]).sum())
            least = max(least, steps.when(port, volume) + float(tail.min()))
        limits.append((least, problem.links[port].name))
        nic_load = max(nic_load, float(size.sum()))
    narrowest = [problem.capacities[[*h]].min(initial=np.inf) for h in problem.hops]
    alone = volumes / np.array(narrowest).reshape(-1, 1)
    for channel in problem.job.channels:
        edges = enumerate(problem.job.edges)
        over = [position for position, edge in edges if edge.channel == channel]
        flows = _flows_of(problem, over, alone[over], around)
        limits.append((_one_by_one(*flows), f"channel {channel}"))
    limits += _of_slots(problem, times, alone)
    seconds, binding = max(limits, key=lambda one: one[0])
    degree = max(map(len, crossing), default=0)
    return Bounds(nic_load, path, float(seconds), binding, degree)


def _flows_of(
    problem: Problem, over: list[int], seconds: Floats, around: tuple[Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """Return head, size and tail, in seconds, of every flow of the edges ``over``.

    ``seconds`` are of these edges alone: all for each of 6,036 ports took 39 s.
    ``around``: heads and tails of all.
    """
    counts = np.array([problem.job.flow_counts[e] for e in over], dtype=np.int64)
    flows = (np.arange(seconds.shape[1]) < counts[:, None]) & (seconds > 0)
    head, tail = (one[over][flows] for one in around)
    return head, seconds[flows], tail


def _of_slots(
    problem: Problem, times: Floats, alone: Floats
) -> Iterator[tuple[float, str]]:
    """Yield the seconds for which the slots of every pool are held, and its name.

    From the start of a task that takes one to the end of the task that frees it, over
    edges without lag, where these are pairs: an interval of Dorylus has its lambda
    while rows go there and back.
    """
    job = problem.job
    pools = problem.pools
    takes = {task: p for p, pool in enumerate(pools) for task in pool.takers}
    frees = {task: p for p, pool in enumerate(pools) for task in pool.freers}
    moving = alone + problem.latencies[:, None]
    since: dict[int, tuple[int, Floats]] = {}  # who took the slot, seconds since then
    pairs: list[dict[int, Floats]] = [{} for _ in pools]
    for task in job.order:
        before = [
            (since[job.edges[edge].source], moving[edge])
            for edge in job.in_edges(task)
            if job.edges[edge].lag == 0 and job.edges[edge].source in since
        ]
        if task in takes:
            since[task] = task, times[task]
        elif len({taker for (taker, _), _ in before}) == 1:
            taker = before[0][0][0]
            if job.rounds[taker] == job.rounds[task]:
                longest = np.max([spent + flow for (_, spent), flow in before], axis=0)
                since[task] = taker, longest + times[task]
        if task in since and frees.get(task) == takes[since[task][0]]:
            taker, spent = since.pop(task)
            pairs[frees[task]][taker] = spent
    for pool, pair in zip(pools, pairs, strict=True):
        whole = len(pair) == len(pool.takers) == len(pool.freers)
        seconds = pair if whole else times
        total = sum(float(seconds[j][: job.rounds[j]].sum()) for j in pool.takers)
        machine = problem.cluster.machines[pool.machine].name
        yield total / pool.most, f"{pool.name} of {machine}"


def _one_by_one(head: Floats, size: Floats, tail: Floats) -> float:
    """Return the least time of what must be served one by one, in any order."""
    return max(_in_context(head, size, tail), _in_context(tail, size, head))


def _in_context(head: Floats, size: Floats, tail: Floats) -> float:
    """Return the best of head + sizes + tail over sets of the latest heads."""
    if not size.size:
        return 0.0
    latest_first: Ints = np.argsort(-head, kind="stable")
    sums = np.cumsum(size[latest_first])
    shortest = np.minimum.accumulate(tail[latest_first])
    return float(np.max(head[latest_first] + sums + shortest))


# Bound a run's distance from the best schedule: keys of result.json, a line.

#: Share of a makespan by which a bound may be above it, by rounding alone.
#: Per cent left by which a bound proves little.
_LOOSE = 20.0
_ROUNDING = 1e-9


def optimality(
    schedule: Schedule, realization: Realization, policy: str
) -> dict[str, Any]:
    """Return the keys ``bound``, ``bound_by``, ``gap`` and ``theorem1`` of result.json.

    None of a job that died: they are of one that does not.

    Raises ValueError when ``realization`` does not fit the job, or there is no such
    policy.

    ``realization``: times and volumes of the run itself; the bound is of them alone.

    ``bound`` in seconds; ``bound_by`` a port, or `CRITICAL_PATH`; ``gap`` is makespan /
    bound - 1, None where nothing takes time; ``theorem1`` [1]_ holds ``delta`` (20),
    ``certificate`` (Delta * LP, seconds), ``kept``: whether the policy promises to stay
    below it, nothing waits for a slot or a channel, and no capacity changes; and
    ``delta_seen`` and ``certificate_seen``, the same with the most flows that were
    active over one link at a time.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, Theorem 1.
    """
    if schedule.outages.seconds:
        return {}
    problem = schedule.problem
    makespan = schedule.makespan
    all_bounds = bounds(problem, realization)
    most_flows = LinkContention(schedule).most
    return {
        "bound": all_bounds.combined,
        "bound_by": all_bounds.binding,
        "gap": makespan / all_bounds.combined - 1 if all_bounds.combined else None,
        "theorem1": {
            "delta": all_bounds.degree,
            "certificate": all_bounds.certificate,
            "delta_seen": most_flows,
            "certificate_seen": max(most_flows, 1) * all_bounds.critical_path,
            "kept": policy_named(policy).keeps_theorem
            and not (problem.pools or problem.job.channels or problem.cluster.changes),
        },
    }


def placement_gap(
    problem: Problem, realization: Realization, makespan: float, *, seconds: float
) -> dict[str, float]:
    """Return ``placement_bound`` and ``placement_gap``: what other placements leave.

    Raises ArithmeticError when the bound is above the makespan of this very placement,
    and thus false.

    ``makespan``: of ``problem`` under ``realization``, simulated. ``seconds``: how long
    to branch for the bound at most.

    ``placement_bound`` in seconds: no schedule of any feasible placement is shorter on
    the problem's machines, with its stores; ``placement_gap`` the share of the makespan
    that is left to gain there at most.
    """
    reference = problem.reference(realization)
    if problem.job.fixed:
        bound = bounds(problem, realization).combined  # of the one placement
    else:
        job = problem.job
        cluster = problem.cluster
        bound = placement_bound(job, cluster, reference, seconds=seconds)
    if bound > makespan * (1 + _ROUNDING):
        raise ArithmeticError(f"a bound of {bound} s is above {makespan} s")
    bound = min(bound, makespan)
    gap = 1.0 - bound / makespan if makespan else 0.0
    return {"placement_bound": bound, "placement_gap": gap}


def placement_line(gap: dict[str, float]) -> str:
    """Return the keys of `placement_gap` in words."""
    share = 100 * gap["placement_gap"]
    if share < 1e-3:
        return "no placement on these machines is better, by a lower bound over all"
    return (
        f"at least {format_duration(gap['placement_bound'])} wherever the tasks stand "
        f"on these machines: at most {share:.3g} % is left to gain"
        f"{', and no tighter bound is known' if share > _LOOSE else ''}"
    )


def optimality_line(result: dict[str, Any]) -> str:
    """Return the bound, the gap and Theorem 1 in words; empty where there is no gap."""
    if result.get("gap") is None:
        return ""
    place = str(result["bound_by"])
    percent = 100 * max(float(result["gap"]), 0.0)  # sockets may be ahead by a hair
    line = (
        f"at least {format_duration(result['bound'])} as placed, whatever the schedule "
        f"({place}): "
        f"within {percent:.{0 if percent >= 10 else 1}f} %"
    )
    theorem = result.get("theorem1", {})
    if theorem.get("kept") and "delta_seen" in theorem:
        most = format_duration(theorem["certificate"])
        flows = format_duration(theorem["certificate_seen"])
        line += (
            f"\nat most {most} by Theorem 1 (Delta {theorem['delta']}), {flows} by the "
            f"{theorem['delta_seen']} flows that shared a link at a time"
        )
    return line
