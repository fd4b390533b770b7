"""Bound a schedule's distance from the best: lower bounds and Theorem 1 of the paper.

Every bound holds for any execution and flow schedule of the placed job, (5)-(15), and
where capacities change counts with the largest that each link ever has:

- *NIC load*: a port needs its bytes divided by its capacity;
- *critical path*: a chain of tasks and flows, each flow as fast as if it were alone
  (LP of the paper's Appendix B);
- *port in context*: for a set of flows over one port, the earliest that the first can
  be ready, plus their bytes over the capacity, plus the shortest that has to follow
  the last. The sets tried are those of flows ready no earlier than some flow, and
  those with no less to follow than some flow; both earlier bounds of a port are among
  them;
- *channel in context*: likewise the flows of a channel, each as fast as if alone;
- *slots*: tasks that take a slot of a pool hold it at least while they run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from emu.scheduling.compiled import compiled
from emu.scheduling.compiled_problem import job_arrays, lay_out, own
from emu.scheduling.policies import rate_policy
from emu.scheduling.remaining_paths import alone, longest_paths

if TYPE_CHECKING:
    from emu.problem import Problem, Realization
    from emu.scheduling.compiled_problem import Floats, Ints, Layout

#: `Bounds.binding` where no port is.
CRITICAL_PATH = "critical path"


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the makespan of a placed job, seconds."""

    nic_load: float
    """The busiest port's bytes over its capacity."""
    nic_port: str
    """Name of that port; empty where no machine has a NIC."""
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

        With no flow between machines the critical path itself is the makespan.
        """
        return max(self.degree, 1) * self.critical_path

    def gap(self, makespan: float) -> float:
        """Return by what share ``makespan`` can at most be cut, 0 to 1."""
        return 1.0 - self.combined / makespan if makespan > 0 else 0.0


def bounds(problem: Problem, realization: Realization) -> Bounds:
    """Return lower bounds on the makespan of any schedule.

    Raises
    ------
    ValueError
        When ``realization`` does not fit the job.
    """
    realization.check_shapes(problem.job)
    problem = replace(problem, cluster=problem.cluster.widest)
    layout = lay_out(
        job_arrays(problem.job, problem.cluster, rate_policy("oes")),
        np.array(problem.placement.machine_of, dtype=np.int64),
    )
    times, volumes = own(realization.times), own(realization.volumes)
    from_task, after_flow = longest_paths(layout, times, volumes)
    before_flow = _earliest_ready(layout, times, volumes)
    path = float(from_task.max())
    loads = np.zeros(layout.capacity.size)
    combined, binding = path, CRITICAL_PATH
    for port, capacity in enumerate(layout.capacity):
        over = [port in hops for hops in problem.hops]
        flows = _flows_of(problem, over, before_flow, volumes / capacity, after_flow)
        loads[port] = flows[1].sum()
        if (least := _one_by_one(*flows)) > combined:
            combined, binding = least, problem.links[port].name
    for channel in problem.job.channels:
        over = [edge.channel == channel for edge in problem.job.edges]
        alone_ = volumes / _narrowest(problem)[:, None]
        flows = _flows_of(problem, over, before_flow, alone_, after_flow)
        if (least := _one_by_one(*flows)) > combined:
            combined, binding = least, f"channel {channel}"
    for pool in problem.pools:
        held = sum(float(times[j, : problem.job.rounds[j]].sum()) for j in pool.takers)
        if held / pool.slots > combined:
            machine = problem.cluster.machines[pool.machine].name
            combined, binding = held / pool.slots, f"{pool.name} of {machine}"
    busiest = max(range(len(loads)), key=loads.__getitem__, default=None)
    return Bounds(
        nic_load=0.0 if busiest is None else float(loads[busiest]),
        nic_port="" if busiest is None else problem.links[busiest].name,
        critical_path=path,
        combined=float(combined),
        binding=binding,
        degree=flow_degree(problem),
    )


def flow_degree(problem: Problem) -> int:
    """Return Delta of (20): the most flows of one iteration over one port."""
    degree = np.zeros(len(problem.capacities), dtype=np.int64)
    for hops in problem.hops:
        degree[list(hops)] += 1
    return int(degree.max(initial=0))


@compiled
def _earliest_ready(layout: Layout, times: Floats, volumes: Floats) -> Floats:
    """Return when each flow can be active at the earliest, were all others free."""
    tasks, iterations = times.shape
    ready = np.zeros(volumes.shape)
    arrived = np.zeros(volumes.shape)
    ended = np.zeros((tasks, iterations))
    for n in range(iterations):
        for task in layout.order:
            if n >= layout.rounds[task]:
                continue
            start = ended[task, n - 1] if n > 0 else 0.0
            for i in range(layout.in_start[task], layout.in_start[task + 1]):
                edge = layout.in_edge[i]
                if layout.lag[edge] <= n < layout.lag[edge] + layout.sent[edge]:
                    start = max(start, arrived[edge, n - layout.lag[edge]])
            ended[task, n] = start + times[task, n]
            for i in range(layout.out_start[task], layout.out_start[task + 1]):
                edge = layout.out_edge[i]
                time = ended[task, n]
                if layout.group[edge] >= 0:
                    if n > 0:
                        time = max(time, arrived[edge, n - 1])
                    ready[edge, n] = time
                    time += volumes[edge, n] / alone(
                        layout, layout.capacity, layout.group[edge]
                    )
                arrived[edge, n] = time
    return ready


def _narrowest(problem: Problem) -> Floats:
    """Return the bytes per second of every edge at most, infinite within a machine."""
    return np.array(
        [problem.capacities[list(hops)].min(initial=np.inf) for hops in problem.hops]
    )


def _flows_of(
    problem: Problem, over: list[bool], before: Floats, size: Floats, after: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return head, size and tail, in seconds, of every flow of the edges ``over``."""
    crossing = np.array(over, dtype=bool)
    counts = np.array(problem.job.flow_counts, dtype=np.int64)
    sent = np.arange(size.shape[1]) < counts[:, None]
    chosen = crossing[:, None] & sent & (size > 0)
    return before[chosen], size[chosen], after[chosen]


def _one_by_one(head: Floats, size: Floats, tail: Floats) -> float:
    """Return the least time of what must be served one by one, in any order."""
    return max(_in_context(head, size, tail), _in_context(tail, size, head))


def _in_context(head: Floats, size: Floats, tail: Floats) -> float:
    """Return the best of head + sizes + tail over sets of the latest heads."""
    if not size.size:
        return 0.0
    latest_first: Ints = np.argsort(-head, kind="stable")
    carried = np.cumsum(size[latest_first])
    shortest = np.minimum.accumulate(tail[latest_first])
    return float(np.max(head[latest_first] + carried + shortest))
