"""The best placement that is found of a run: one search, one budget, for everyone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emu.errors import PlacementError
from emu.placement.candidates import candidates, placement_cost
from emu.placement.common_random_numbers import walk_generator
from emu.placement.distdgl import place_distdgl
from emu.placement.etp import EtpOptions, search_etp
from emu.placement.ifs import place_ifs
from emu.placement.search import SearchOptions, search_run
from emu.placement.space import Space
from emu.problem import Profile, Realization
from emu.problem.slots import slot_teams
from emu.scheduling import RATE_POLICIES
from emu.workloads import repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from emu.placement.job_costs import JobsCost
    from emu.placement.placement_result import PlacementResult
    from emu.problem import Cluster, Job, Placement

#: Flows that all candidates of a search together hold, where nothing is stated: with
#: 2 million, 84 to 95 tasks took 3.0 to 3.3 s of CPU on a host with a load of 9, with
#: this 2.2 to 2.7 s.
FLOWS = 1_200_000
#: Candidates at most: I of the paper.
MOST = 10_000
#: Weight of a flow under rules that look at every flow at each event: with 1, the
#: report of a run of 4 s with 1,814 flows under ``mrtf`` took a minute.
_BY_FLOW = 10


def affordable(job: Job, policy: str, flows: int = FLOWS, most: int = MOST) -> int:
    """Return the number of simulations of ``job`` below so many ``flows``, 1 to most.

    Parameters
    ----------
    policy
        Rate policy of the simulations.
    """
    each = _BY_FLOW if RATE_POLICIES[policy].by_flow else 1
    return min(max(flows // max(len(job.edges) * job.iterations * each, 1), 1), most)


def best_placement(
    job: Job,
    cluster: Cluster,
    reference: Realization,
    policy: str = "oes",
    *,
    seed: int = 0,
    transfers: int | None = None,
    iterations: int = SearchOptions.iterations,
    cost: JobsCost | None = None,
    known: Iterable[Placement] = (),
    progress: Callable[[int, int, float], None] | None = None,
) -> PlacementResult:
    """Return the best placement found of the run that ``reference`` predicts.

    This is ``placement.policy: best`` in every command: the better one of `search`,
    on iterations of the run itself, and of ETP with as many candidates. Both are judged
    by the whole run, beside the placements that are ``known``: so the result is never
    worse than any of them, nor than ``ifs`` or ``distdgl``.

    Parameters
    ----------
    reference
        Times, of no machine in particular, and volumes of the whole run.
    policy
        Rate policy; for the portfolio ``oes`` stands in.
    seed
        Seed of all draws.
    transfers
        Candidates of each of the two, of so many iterations; by default as many as hold
        1.2 million flows, at most 10,000.
    iterations
        Simulated iterations of the run per candidate, evenly spread over it; all where
        tasks take slots that others give back.
    cost
        Cost of several jobs to minimise, in place of the makespan.
    known
        Feasible placements of the job.
    progress
        Called with (candidates so far, in all, best makespan).

    Raises
    ------
    InfeasiblePlacement
        When no placement exists.
    ValueError
        When the realization does not fit the job, or there is no such rate policy.
    """
    rates = "oes" if policy == "portfolio" else policy
    count = job.iterations if slot_teams(job) else min(iterations, job.iterations)
    profile, short = repeated(job, reference), replace(job, iterations=count)
    transfers = transfers or affordable(short, rates)
    options = SearchOptions(
        transfers=transfers, iterations=count, policy=rates, cost=cost
    )
    run = reference if count == job.iterations else _spread(profile, count)
    known = [*known]
    found = search_run(
        short, cluster, run, seed=seed, options=options, progress=progress, known=known
    )
    if found.optimal and count == job.iterations:
        return found
    walk = EtpOptions(transfers=transfers, iterations=count, policy=rates, cost=cost)
    finalists = [found.placement, *known]
    with suppress(PlacementError):  # its first placement waits for slots forever
        walked = search_etp(job, cluster, profile, seed=seed, options=walk)
        finalists += [walked.placement, place_ifs(job, cluster, walk_generator(seed))]
        found = replace(found, candidates=found.candidates + walked.candidates)
    with suppress(PlacementError):  # no workers with samplers
        finalists.append(place_distdgl(job, cluster))
    judge = judge_of(job, cluster, reference, rates, cost)
    best, least = found.placement, np.inf
    for placement in dict.fromkeys(finalists):
        length = judge(placement, least)
        if length < least:
            best, least = placement, length
    if best == found.placement:
        return found
    makespan = judge_of(short, cluster, run, rates, cost)(best, np.inf)
    return replace(found, placement=best, makespan=makespan)


def judge_of(
    job: Job,
    cluster: Cluster,
    reference: Realization,
    policy: str,
    cost: JobsCost | None = None,
) -> Callable[[Placement, float], float]:
    """Return the function (placement, limit) -> seconds that a run is judged by.

    Infinity beyond the limit, and where tasks would wait for slots forever.
    """
    arrays = candidates(Space(job, cluster), reference, policy, cost)

    def judge(placement: Placement, limit: float) -> float:
        machine_of = np.array(placement.machine_of, dtype=np.int64)
        return float(placement_cost(arrays, machine_of, limit))

    return judge


def _spread(profile: Profile, count: int) -> Realization:
    """Return ``count`` iterations of a run, evenly spread over it."""
    columns = np.linspace(0, profile.times.shape[1] - 1, count).astype(np.int64)
    return Realization(profile.times[:, columns], profile.volumes[:, columns])
