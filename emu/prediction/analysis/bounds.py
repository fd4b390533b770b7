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

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypedDict
from weakref import WeakKeyDictionary

import numpy as np

from emu.array_types import Floats, Ints
from emu.prediction.analysis.link_load import LinkContention, edges_by_port
from emu.prediction.placement.bound import placement_bound
from emu.prediction.scheduling import policy_named
from emu.prediction.scheduling.compiled_problem import (
    placed_layout,
    plain,
)
from emu.prediction.scheduling.policies import rate_policy
from emu.prediction.scheduling.state import earliest, longest_paths
from emu.problem import Problem, Realization, Schedule
from emu.problem.changes import CapacitySteps
from emu.units import format_count, format_duration

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
    # By identity: a problem that was built anew is asked anew, which is never wrong.
    known_problem, known_bounds = _LAST.get(realization, (None, None))
    if known_problem is problem and known_bounds is not None:
        return known_bounds
    run_bounds = _find_bounds(problem, realization)
    _LAST[realization] = problem, run_bounds
    return run_bounds


def _find_bounds(problem: Problem, realization: Realization) -> Bounds:
    realization.check_shapes(problem.job)
    steps = problem.links.steps
    widest = problem.cluster.widest
    if widest is not problem.cluster:  # a bound holds whatever events give links
        problem = replace(problem, cluster=widest)
    # Any rule does: these paths are of flows alone, which get a whole link under each.
    layout = placed_layout(problem, rate_policy("oes"))
    times = plain(realization.times)
    volumes = plain(realization.volumes)
    from_task, after_flow = longest_paths(layout, times, volumes)
    ready, _ = earliest(layout, times, volumes)
    flows = _FlowTimes(problem, ready, after_flow)

    path = float(from_task.max())
    limits = [_Limit(path, CRITICAL_PATH)]
    loads = []
    for limit, load in _port_limits(problem, steps, flows, volumes):
        limits.append(limit)
        loads.append(load)
    alone = volumes / flows.narrowest.reshape(-1, 1)
    limits += _channel_limits(problem, flows, alone)
    limits += _slot_limits(problem, times, alone)

    highest = max(limits, key=attrgetter("seconds"))
    # Flows of one edge go one after the other: so edges are counted, not flows.
    degrees = map(len, edges_by_port(problem))
    return Bounds(
        nic_load=max(loads, default=0.0),
        critical_path=path,
        combined=float(highest.seconds),
        binding=highest.name,
        degree=max(degrees, default=0),
    )


class _Limit(NamedTuple):
    """A lower bound on a makespan."""

    seconds: float
    name: str
    """Limit that gives it, as in `Bounds.binding`."""


class _FlowTimes:
    """Heads and tails of all flows: what lies before and behind each, seconds."""

    def __init__(
        self,
        problem: Problem,
        heads: Floats,
        tails: Floats,
    ) -> None:
        self._counts = np.array(problem.job.flow_counts, dtype=np.int64)
        self._heads = heads
        self._tails = tails
        narrowest = []
        for hops in problem.hops:
            capacities = problem.capacities[[*hops]]
            narrowest.append(capacities.min(initial=np.inf))
        #: Capacity of the narrowest link of every edge, infinite within a machine.
        self.narrowest = np.array(narrowest)

    def of(self, edges: list[int], seconds: Floats) -> tuple[Floats, Floats, Floats]:
        """Return head, size and tail, in seconds, of every flow of some edges.

        ``seconds`` are of these edges alone: all for each of 6,036 ports took 39 s.
        """
        columns = np.arange(seconds.shape[1])
        counts = self._counts[edges]
        # Volumes beyond the last iteration that is sent are drawn, but never leave.
        is_sent = columns < counts[:, None]
        is_flow = is_sent & (seconds > 0)
        heads = self._heads[edges]
        tails = self._tails[edges]
        return heads[is_flow], seconds[is_flow], tails[is_flow]


def _port_limits(
    problem: Problem,
    steps: CapacitySteps,
    flows: _FlowTimes,
    volumes: Floats,
) -> Iterator[tuple[_Limit, float]]:
    """Yield the least time of every port, and its bytes over its capacity.

    ``steps`` are of the capacities that change, as they were before all were widest.
    """
    for port, edges in enumerate(edges_by_port(problem)):
        seconds = volumes[edges] / problem.capacities[port]
        head, size, tail = flows.of(edges, seconds)
        least = _one_by_one(head, size, tail)
        # Beside `widest` a port with events has its true capacity over time: where that
        # keeps it down, this bound is the tighter one.
        times, _ = steps.of(port)
        if size.size and len(times) > 1:
            # Sizes are in seconds of the largest capacity; `when` asks for bytes.
            sizes = size * steps.most[port]
            volume = float(sizes.sum())
            last_byte = steps.when(port, volume)
            shortest_tail = float(tail.min())
            least = max(least, last_byte + shortest_tail)

        name = problem.links[port].name
        total = float(size.sum())
        yield _Limit(least, name), total


def _channel_limits(
    problem: Problem,
    flows: _FlowTimes,
    alone: Floats,
) -> Iterator[_Limit]:
    """Yield the least time of every channel."""
    edges_of = defaultdict[str, list[int]](list)
    for position, edge in enumerate(problem.job.edges):
        edges_of[edge.channel].append(position)
    for channel in problem.job.channels:
        edges = edges_of[channel]
        head, size, tail = flows.of(edges, alone[edges])
        least = _one_by_one(head, size, tail)
        yield _Limit(least, f"channel {channel}")


class _Hold(NamedTuple):
    """A slot since it was taken: by whom, and the least seconds since, by iteration."""

    taker: int
    seconds: Floats


def _slot_limits(
    problem: Problem,
    times: Floats,
    alone: Floats,
) -> Iterator[_Limit]:
    """Yield the seconds for which the slots of every pool are held.

    From the start of a task that takes one to the end of the task that frees it, over
    edges without lag, where these are pairs: an interval of Dorylus has its lambda
    while rows go there and back.
    """
    rounds = problem.job.rounds
    hold_times = _held_until_freed(problem, times, alone)
    for number, pool in enumerate(problem.pools):
        pairs = hold_times[number]
        # Only where each taker has one freer of its own is it known how long a slot is
        # held.
        is_in_pairs = len(pairs) == len(pool.takers) == len(pool.freers)
        seconds = pairs if is_in_pairs else times

        totals = []
        for task in pool.takers:
            seconds_of_task = seconds[task][: rounds[task]]
            totals.append(float(seconds_of_task.sum()))
        machine = problem.cluster.machines[pool.machine].name
        # Slots work at once: the seconds of all are divided among them.
        least = sum(totals) / pool.most
        yield _Limit(least, f"{pool.name} of {machine}")


def _held_until_freed(
    problem: Problem,
    times: Floats,
    alone: Floats,
) -> list[dict[int, Floats]]:
    """Return for every pool: taker -> seconds until one task has freed its slot."""
    job = problem.job
    pool_taken = dict[int, int]()
    pool_freed = dict[int, int]()
    for number, pool in enumerate(problem.pools):
        pool_taken |= dict.fromkeys(pool.takers, number)
        pool_freed |= dict.fromkeys(pool.freers, number)
    flow_times = alone + problem.latencies[:, None]

    holds: dict[int, _Hold] = {}  # task -> the slot that is held when it has ended
    hold_times: list[dict[int, Floats]] = [{} for _ in problem.pools]
    for task in job.order:
        # Of two slots that reach one task it cannot be said which of them it ends.
        takers = set()
        seconds = []
        for position in job.in_edges(task):
            edge = job.edges[position]
            if edge.lag == 0 and edge.source in holds:
                hold_before = holds[edge.source]
                takers.add(hold_before.taker)
                seconds.append(hold_before.seconds + flow_times[position])
        if task in pool_taken:
            holds[task] = _Hold(task, times[task])
        elif len(takers) == 1:
            (taker,) = takers
            # Iterations are matched one by one: tasks of other counts have no pairs.
            if job.rounds[taker] == job.rounds[task]:
                longest = np.max(seconds, axis=0)
                holds[task] = _Hold(taker, longest + times[task])

        if task in holds:
            hold = holds[task]
            number = pool_taken[hold.taker]
            if pool_freed.get(task) == number:
                hold_times[number][hold.taker] = hold.seconds
                del holds[task]
    return hold_times


def _one_by_one(
    head: Floats,
    size: Floats,
    tail: Floats,
) -> float:
    """Return the least time of what must be served one by one, in any order."""
    forwards = _in_context(head, size, tail)
    # A schedule read backwards is one, too, with heads and tails exchanged.
    backwards = _in_context(tail, size, head)
    return max(forwards, backwards)


def _in_context(
    head: Floats,
    size: Floats,
    tail: Floats,
) -> float:
    """Return the best of head + sizes + tail over sets of the latest heads."""
    if not size.size:
        return 0.0
    # The best set for a given least head has all flows with heads no earlier: so only
    # the prefixes of this order need be tried.
    latest_first: Ints = np.argsort(-head, kind="stable")
    sums = np.cumsum(size[latest_first])
    shortest_tails = np.minimum.accumulate(tail[latest_first])
    ends = head[latest_first] + sums + shortest_tails
    return float(ends.max())


# Bound a run's distance from the best schedule: keys of result.json, a line.

#: Share of a makespan by which a bound may be above it, by rounding alone.
_ROUNDING = 1e-9
#: Per cent left by which a bound proves little.
_LOOSE = 20.0


class Theorem1(TypedDict):
    """Key ``theorem1`` of result.json, see `optimality`."""

    delta: int
    certificate: float
    delta_seen: int
    certificate_seen: float
    kept: bool


class Optimality(TypedDict, total=False):
    """Keys of result.json, see `optimality`."""

    bound: float
    bound_by: str
    gap: float | None
    theorem1: Theorem1


def optimality(
    schedule: Schedule,
    realization: Realization,
    policy: str,
) -> Optimality:
    """Return the keys ``bound``, ``bound_by``, ``gap`` and ``theorem1`` of result.json.

    None of a job that died: they are of one that does not.

    Parameters
    ----------
    realization
        Times and volumes of the run itself; the bound is of them alone.

    Returns
    -------
    Optimality
        ``bound`` in seconds; ``bound_by`` a port, or `CRITICAL_PATH`; ``gap`` is
        makespan / bound - 1, None where nothing takes time; ``theorem1`` [1]_ holds
        ``delta`` (20), ``certificate`` (Delta * LP, seconds), ``kept``: True where the
        policy promises to stay below it, nothing waits for a slot or a channel, and no
        capacity or speed changes; and ``delta_seen`` and ``certificate_seen``, the same
        with the most flows that were active over one link at a time.

    Raises
    ------
    ValueError
        ``realization`` does not fit the job, or there is no such policy.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, Theorem 1.
    """
    # The schedule is of the last attempt alone, the makespan of all of them.
    if schedule.outages.seconds:
        return {}
    problem = schedule.problem

    run_bounds = bounds(problem, realization)
    gap = None
    if run_bounds.combined:
        gap = schedule.makespan / run_bounds.combined - 1
    most_flows = LinkContention(schedule).most
    certificate_seen = max(most_flows, 1) * run_bounds.critical_path
    rule = policy_named(policy)
    # The proof knows no such waits, and machines and links that stay as they are.
    waits = problem.pools or problem.job.channels
    cluster = problem.cluster
    changes = cluster.changes or cluster.speed_changes
    return {
        "bound": run_bounds.combined,
        "bound_by": run_bounds.binding,
        "gap": gap,
        "theorem1": {
            "delta": run_bounds.degree,
            "certificate": run_bounds.certificate,
            "delta_seen": most_flows,
            "certificate_seen": certificate_seen,
            "kept": rule.keeps_theorem and not (waits or changes),
        },
    }


def placement_gap(
    problem: Problem,
    realization: Realization,
    makespan: float,
    *,
    seconds: float,
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
        # Nothing can move: the schedule's bound, which knows the routes, is tighter.
        bounds_as_placed = bounds(problem, realization)
        bound = bounds_as_placed.combined
    else:
        bound = placement_bound(
            problem.job,
            problem.cluster,
            reference,
            seconds=seconds,
        )

    if bound > makespan * (1 + _ROUNDING):
        raise ArithmeticError(f"a bound of {bound} s is above {makespan} s")
    # Above it by rounding alone: a negative gap would need an explanation.
    bound = min(bound, makespan)
    gap = 1.0 - bound / makespan if makespan else 0.0
    return {"placement_bound": bound, "placement_gap": gap}


def placement_line(gap: dict[str, float]) -> str:
    """Return the keys of `placement_gap` in words."""
    share = 100 * gap["placement_gap"]
    if share < 1e-3:
        return "no placement on these machines is better, by a lower bound over all"
    least = format_duration(gap["placement_bound"])
    line = (
        f"at least {least} wherever the tasks stand "
        f"on these machines: at most {share:.3g} % is left to gain"
    )
    if share > _LOOSE:
        line += ", and no tighter bound is known"
    return line


def optimality_line(result: Mapping[str, Any]) -> str:
    """Return the bound, the gap and Theorem 1 in words; empty where there is no gap."""
    if result.get("gap") is None:
        return ""

    percent = 100 * max(float(result["gap"]), 0.0)  # sockets may be ahead by a hair
    digits = 0 if percent >= 10 else 1
    bound = result["bound"]
    least = format_duration(bound)
    cause = result["bound_by"]
    line = (
        f"at least {least} as placed, whatever the schedule "
        f"({cause}): within {percent:.{digits}f} %"
    )

    theorem = result.get("theorem1", {})
    if theorem.get("kept") and "delta_seen" in theorem:
        most = format_duration(theorem["certificate"])
        flows = format_duration(theorem["certificate_seen"])
        delta = theorem["delta_seen"]
        flow_count = format_count(delta, "flow")
        line += (
            f"\nat most {most} by Theorem 1 (Delta {theorem['delta']}), {flows} by the "
            f"{flow_count} that shared a link at a time"
        )
    return line
