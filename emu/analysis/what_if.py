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
from emu.errors import PlacementError
from emu.placement import SearchOptions, affordable, place, search
from emu.problem import Cluster, Problem, Profile, Realization
from emu.scheduling import RATE_POLICIES, policy_named
from emu.simulation.simulate import makespan
from emu.workloads import RELEASE, window_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Edge, Job, Machine


#: So many times the capacity count as an infinite one: a flow of hours takes 1 us.
ENDLESS = 1e9
#: Single tasks of the chain that are proposed, those with most time on it.
CHAIN_TASKS = 5
_CAPACITY = ((2.0, "twice as fast"), (ENDLESS, "endless"))
_TIME = ((0.5, "twice as fast"), (0.0, "in no time"))
_BYTES = ((0.5, "half the bytes"), (0.0, "no bytes"))


@dataclass(frozen=True, eq=False)
class Change:
    """A run with one thing changed."""

    kind: str
    """``network``, ``compute``, ``bytes``, ``policy``, ``window``, ``placement`` or
    ``machine``."""
    what: str
    """What is changed, in words."""
    problem: Problem
    realization: Realization
    policy: str
    """The changed run."""


@dataclass(frozen=True, eq=False)
class Improvement:
    """A change and what it is worth."""

    change: Change
    makespan: float
    """Simulated, with the change, seconds."""
    gain: float
    """Seconds less than without it; negative when it makes the run longer."""


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
    problem, job = base.problem, base.problem.job
    if window_of(job) is None:
        return
    wider = tuple(
        replace(edge, lag=2 * edge.lag) if edge.credit else edge for edge in job.edges
    )
    changed = replace(problem, job=replace(job, edges=wider))
    yield replace(base, kind="window", what="credit window doubled", problem=changed)
    kept = [e for e, edge in enumerate(job.edges) if not (edge.credit and edge.lag)]
    edges = tuple(job.edges[e] for e in kept)
    yield replace(
        base,
        kind="window",
        what="credit window unlimited",
        problem=replace(problem, job=replace(job, edges=edges)),
        realization=Realization(base.realization.times, base.realization.volumes[kept]),
    )


#: Candidates of the placement search at most, and flows that are simulated for them: on
#: the paper's testbed 2,000 take 0.2 s. With 117 processes that many took 23 s for each
#: of four searches; the 300 that are left take 2.
CANDIDATES, FLOWS = 2000, 4_000_000
_ITERATIONS = 20
_PLACEMENTS = ("ifs", "distdgl", "best")


def placement_changes(base: Change) -> Iterator[Change]:
    """Yield ``base`` placed anew by several policies, on its machines and on one more.

    One more machine of every kind (NIC and resources); tasks that are pinned stay where
    they are, the search decides about the others. Nothing is yielded where no task may
    move, nor for a policy that finds no placement.
    """
    job, cluster = base.problem.job, base.problem.cluster
    if all(task.pinned is not None for task in job.tasks):
        return
    for policy in _PLACEMENTS:
        yield from _placed(base, "placement", f"placed by {policy}", cluster, policy)
    known: set[tuple[object, ...]] = set()
    for machine in cluster.machines:
        # Nothing is stated about the routes to a further machine without a NIC.
        if _shape(machine) in known or not machine.has_nic:
            continue
        known.add(_shape(machine))
        another = replace(machine, name=f"{machine.name}+1")
        more = replace(cluster, machines=(*cluster.machines, another))
        what = f"one more machine like {machine.name}, placed by best"
        yield from _placed(base, "machine", what, more, "best")


def _shape(machine: Machine) -> tuple[object, ...]:
    resources = tuple(sorted(machine.resources.items()))
    slots = tuple(sorted(machine.slots.items()))
    return machine.bandwidth_in, machine.bandwidth_out, resources, slots


def _options(job: Job, rates: str) -> SearchOptions:
    """Return the settings of a search that a report can wait for."""
    iterations = min(job.iterations, _ITERATIONS)
    shorter = replace(job, iterations=iterations)
    candidates = affordable(shorter, rates, FLOWS, CANDIDATES)
    return SearchOptions(transfers=candidates, iterations=iterations, policy=rates)


def _placed(
    base: Change, kind: str, what: str, cluster: Cluster, policy: str
) -> Iterator[Change]:
    job = base.problem.job
    reference = base.problem.reference(base.realization)
    profile = Profile(reference.times, reference.volumes)
    # The portfolio is a choice among policies; whichever it is, the search needs one.
    rates = base.policy if base.policy != "portfolio" else "oes"
    try:
        if policy == "best":
            options = _options(job, rates)
            placement = search(job, cluster, profile, options=options).placement
        else:
            placement = place(policy, job, cluster).placement
    except PlacementError:
        return
    if placement != base.problem.placement:
        problem = Problem(cluster, job, placement)
        taken = problem.taken(reference)
        yield replace(base, kind=kind, what=what, problem=problem, realization=taken)
