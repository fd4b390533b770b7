"""What would make a run faster: the same run with one thing changed, simulated anew.

A critical path says where the time went, not what it would take to get it back: when
one part gets shorter, another chain takes over. So every proposal is simulated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.critical_path import Cause
from emu.problem import Problem, Realization
from emu.scheduling import RATE_POLICIES, policy_named
from emu.simulation.simulate import makespan
from emu.workloads import RELEASE, window_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Edge, Job

#: So many times the capacity count as an infinite one: a flow of hours takes 1 us.
ENDLESS = 1e9
#: Single tasks of the chain that are proposed, those with most time on it.
CHAIN_TASKS = 5
#: What a flow counts for under rules that look at every flow at each event: with 1, the
#: report of a run of 4 s with 1,814 flows under ``mrtf`` took a minute.
_BY_FLOW = 10
_CAPACITY = ((2.0, "twice as fast"), (ENDLESS, "endless"))
_TIME = ((0.5, "twice as fast"), (0.0, "in no time"))
_BYTES = ((0.5, "half the bytes"), (0.0, "no bytes"))


@dataclass(frozen=True, eq=False)
class Change:
    """A run with one thing changed.

    Parameters
    ----------
    kind
        ``network``, ``compute``, ``bytes``, ``policy``, ``window``, ``placement`` or
        ``machine``.
    what
        What is changed, in words.
    problem, realization, policy
        The changed run.
    """

    kind: str
    what: str
    problem: Problem
    realization: Realization
    policy: str


@dataclass(frozen=True, eq=False)
class Improvement:
    """A change and what it is worth.

    Parameters
    ----------
    makespan
        Simulated, with the change, seconds.
    gain
        Seconds less than without it; negative when it makes the run longer.
    """

    change: Change
    makespan: float
    gain: float


def affordable(job: Job, policy: str, flows: int, most: int) -> int:
    """Return how many simulations of ``job`` stay below so many ``flows``, 1 to most.

    Parameters
    ----------
    policy
        Rate policy of the simulations.
    """
    each = _BY_FLOW if RATE_POLICIES[policy].by_flow else 1
    return min(max(flows // max(len(job.edges) * job.iterations * each, 1), 1), most)


def rank(base: Change, changes: Iterable[Change]) -> list[Improvement]:
    """Simulate ``base`` and every one of ``changes``; return them by gain, best first.

    Changes that make no difference are ranked too, with a gain of 0.
    """
    before = _makespan(base)
    found = []
    for change in changes:
        after = _makespan(change)
        found.append(Improvement(change, after, before - after))
    return sorted(found, key=lambda improvement: -improvement.gain)


def changes_of(base: Change, chain: CriticalPath) -> Iterator[Change]:
    """Yield every change of ``base`` that needs no new placement.

    Every NIC, the ports of the chain and every kind of task twice as fast and endlessly
    so; the tasks that take most of the chain, the same; the kinds of flows of the chain
    with half their bytes and none; every other rate policy; and the credit window
    doubled and gone.
    """
    yield from _network(base, chain)
    yield from _compute(base, chain)
    yield from _volumes(base, chain)
    yield from _policies(base)
    yield from _window(base)


def _makespan(run: Change) -> float:
    return makespan(run.problem, run.realization, run.policy)


def _network(base: Change, chain: CriticalPath) -> Iterator[Change]:
    problem, links = base.problem, base.problem.links
    used = {port for hops in problem.hops for port in hops}
    choices = [
        (f"NIC of {machine.name}", {*links.of_machine(m)})
        for m, machine in enumerate(problem.cluster.machines)
    ]
    choices += [
        (f"{'port' if links[port].direction else 'link'} {links[port].name}", {port})
        for port in sorted({link.port for link in chain.links} - {-1})
    ]
    every = "all NICs and links" if links.shared else "all NICs"
    choices.append((every, set(range(len(links)))))
    for name, ports in choices:
        for factor, word in _CAPACITY if ports & used else ():
            cluster = problem.cluster.with_capacities(ports, factor)
            changed = replace(problem, cluster=cluster)
            yield replace(base, kind="network", what=f"{name} {word}", problem=changed)


def _compute(base: Change, chain: CriticalPath) -> Iterator[Change]:
    tasks = base.problem.job.tasks
    kinds = Counter(task.kind for task in tasks if task.kind != RELEASE)
    choices = [
        (f"every {kind}", [j for j, task in enumerate(tasks) if task.kind == kind])
        for kind in kinds
    ]
    busiest = chain.sums(lambda link: -1 if link.cause is Cause.GAP else link.task)
    of_chain = [j for j in busiest if j >= 0 and kinds[tasks[j].kind] > 1]
    choices += [(tasks[j].name, [j]) for j in of_chain[:CHAIN_TASKS]]
    for name, rows in choices:
        for factor, word in _TIME:
            times = np.array(base.realization.times)
            times[rows] *= factor
            changed = Realization(times, base.realization.volumes)
            yield replace(
                base, kind="compute", what=f"{name} {word}", realization=changed
            )


def edge_kind(job: Job, edge: Edge) -> str:
    """Return ``kind -> kind`` of the tasks that an edge joins."""
    return f"{job.tasks[edge.source].kind} -> {job.tasks[edge.destination].kind}"


def _volumes(base: Change, chain: CriticalPath) -> Iterator[Change]:
    job = base.problem.job
    moving = {link.edge for link in chain.links if link.port >= 0}
    for kind in sorted({edge_kind(job, job.edges[edge]) for edge in moving}):
        rows = [e for e, edge in enumerate(job.edges) if edge_kind(job, edge) == kind]
        for factor, word in _BYTES:
            volumes = np.array(base.realization.volumes)
            volumes[rows] *= factor
            changed = Realization(base.realization.times, volumes)
            yield replace(
                base, kind="bytes", what=f"{kind}: {word}", realization=changed
            )


def _policies(base: Change) -> Iterator[Change]:
    """Yield the policies that are neither the one in use nor another name of it."""
    seen = {policy_named(base.policy).code, policy_named("portfolio").code}
    for policy in RATE_POLICIES.values():
        if policy.code not in seen:
            seen.add(policy.code)
            what = f"rates by {policy.name}"
            yield replace(base, kind="policy", what=what, policy=policy.name)


def _window(base: Change) -> Iterator[Change]:
    job, machines = base.problem.job, base.problem
    if window_of(job) is None:
        return
    wider = tuple(
        replace(edge, lag=2 * edge.lag) if edge.credit else edge for edge in job.edges
    )
    changed = Problem(machines.cluster, replace(job, edges=wider), machines.placement)
    yield replace(base, kind="window", what="credit window doubled", problem=changed)
    kept = [e for e, edge in enumerate(job.edges) if not (edge.credit and edge.lag)]
    edges = tuple(job.edges[e] for e in kept)
    yield replace(
        base,
        kind="window",
        what="credit window unlimited",
        problem=Problem(
            machines.cluster, replace(job, edges=edges), machines.placement
        ),
        realization=Realization(base.realization.times, base.realization.volumes[kept]),
    )
