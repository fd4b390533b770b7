"""Runs with their job placed anew, and on one machine more, for what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.analysis.what_if import affordable
from emu.errors import PlacementError
from emu.placement import SearchOptions, place, search
from emu.problem import Cluster, Problem, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.analysis.what_if import Change
    from emu.problem import Job, Machine

#: Candidates of the placement search at most, and flows that are simulated for them: on
#: the paper's testbed 2,000 take 0.2 s. With 117 processes that many took 23 s for each
#: of four searches; the 300 that are left take 2.
CANDIDATES, FLOWS = 2000, 4_000_000
_ITERATIONS = 20
_POLICIES = ("ifs", "distdgl", "best")


def placement_changes(base: Change) -> Iterator[Change]:
    """Yield ``base`` placed anew by several policies, on its machines and on one more.

    One more machine of every kind (NIC and resources); tasks that are pinned stay where
    they are, the search decides about the others. Nothing is yielded where no task may
    move, nor for a policy that finds no placement.
    """
    job, cluster = base.problem.job, base.problem.cluster
    if all(task.pinned is not None for task in job.tasks):
        return
    for policy in _POLICIES:
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
