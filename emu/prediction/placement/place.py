"""One way in to all placement policies, for the command line and scenarios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from emu.array_types import Ints
from emu.errors import InfeasiblePlacement, PlacementError, SchedulingError
from emu.prediction.placement.baselines import (
    fill,
    place_explicit,
    place_ifs,
    place_random,
    place_round_robin,
)
from emu.prediction.placement.candidates import (
    Candidates,
    JobsCost,
    cannot_beat,
    common_draws,
    placement_cost,
    walk_generator,
)
from emu.prediction.placement.distdgl import place_distdgl
from emu.prediction.placement.etp import EtpOptions, search_etp
from emu.prediction.placement.known_searches import Search
from emu.prediction.placement.packing import infeasibility
from emu.prediction.placement.search import SearchOptions, endless, search_run
from emu.prediction.placement.space import PlacementResult, Progress, Space
from emu.prediction.placement_policies import PLACEMENT_POLICIES
from emu.prediction.scheduling import policy_named
from emu.prediction.simulation import makespan
from emu.problem import Cluster, Job, Placement, Problem, Profile, Realization
from emu.problem.placement import slot_teams
from emu.problem.workloads import repeat

# The best placement that is found of a run: one search, one budget, for everyone.

#: Flows that all candidates of a search together hold, where nothing is stated: with
#: 1.8 million, the median of 80 to 100 tasks was 2.0 s of CPU on a busy host, with 1.2
#: million 1.8 s.
FLOWS = 1_500_000
#: Candidates at most: I of the paper.
MOST = 10_000
#: Candidates at least, of fewer iterations where need be, and iterations at least: 256
#: machines of DGTP's testbed send 198,000 flows in one, of 3.4 us each.
_LEAST = 16
_SHORTEST = 3
#: Flows of whole runs that the last choice simulates: 5 s of CPU for 64 machines.
_WHOLE_RUNS = 5_000_000
#: Weight of a flow under rules that look at every flow at each event: with 1, the
#: report of a run of 4 s with 1,814 flows under ``mrtf`` took a minute.
_BY_FLOW = 10
#: And under a rule in Python: equal shares written so took 70 us of CPU a flow with 916
#: flows on 4 machines, 570 with 1,062 on 16, where `oes` took 0.1 and 0.3.
_OWN = 1_000


def affordable(
    job: Job,
    policy: str,
    flows: int = FLOWS,
    most: int = MOST,
    *,
    iterations: int | None = None,
) -> int:
    """Return how many simulations of ``job`` have so many ``flows``, 1 to ``most``.

    ``iterations``: of each, default is the job's.
    """
    iterations = iterations or job.iterations
    rule = policy_named(policy)
    weight = 1
    if rule.by_flow:
        weight = _BY_FLOW if rule.rates is None else _OWN
    flows_each = max(len(job.edges) * iterations * weight, 1)
    return min(max(flows // flows_each, 1), most)


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
    progress: Progress | None = None,
    judged: bool = True,
) -> PlacementResult:
    """Return the best placement found of the run that ``reference`` predicts.

    This is ``placement.policy: best`` in every command: the better one of `search_run`,
    on iterations of the run itself, and of ETP with as many candidates. Both are judged
    by the whole run, beside the placements that are ``known``: so the result is never
    worse than any of them, nor than ``ifs`` or ``distdgl``. Whole runs of over 5
    million flows in all are judged by the iterations that candidates have.

    Raises InfeasiblePlacement when no placement exists, and ValueError when the
    realization does not fit the job, or there is no such rate policy.

    Parameters
    ----------
    reference
        Times, of no machine in particular, and volumes of the whole run.
    policy
        Rate policy; for the portfolio ``oes`` stands in.
    transfers
        Candidates of each of the two, of so many iterations; by default as many as hold
        1.5 million flows, at most 10,000.
    iterations
        Simulated iterations of the run per candidate, evenly spread over it; without
        ``transfers`` fewer where that leaves under 16 candidates, at least 3. All where
        tasks take slots that others give back.
    judged
        False: where all tasks are pinned their one placement is simulated only by who
        asks for it, unless the job might end nowhere.
    """
    rates = "oes" if policy == "portfolio" else policy
    count = _count_iterations(job, rates, iterations, fits=transfers is None)
    profile = repeat(job, reference)
    transfers = transfers or affordable(job, rates, iterations=count)
    run = reference
    if count < job.iterations:
        last = profile.times.shape[1] - 1
        columns = np.linspace(0, last, count).astype(np.int64)
        run = Realization(profile.times[:, columns], profile.volumes[:, columns])
    if job.fixed and cost is None:
        only = _only(job, cluster, run, rates, count)
        if judged or _may_hang(job, cluster, rates):
            only = only.with_makespan()
        return replace(only, budget=transfers)

    short = replace(job, iterations=count)
    # Read twice: an iterator would be empty the second time.
    known = [*known]
    options = SearchOptions(
        transfers=transfers,
        iterations=count,
        policy=rates,
        cost=cost,
    )
    outcome = _search_run(short, cluster, run, seed, options, known, progress)
    # Proven for the whole run: no finalist can be better.
    if outcome.optimal and count == job.iterations:
        return outcome
    # Proven for the iterations that candidates have, and so not for the run.
    outcome = replace(outcome, optimal=False)

    walk = EtpOptions(transfers=transfers, iterations=count, policy=rates, cost=cost)
    short_runs = Candidates(Space(short, cluster), run, rates, cost)
    judge = short_runs
    least = outcome.makespan or 0.0  # of the iterations that candidates have
    # With fewer iterations another judge may choose.
    leader = _Leader(judge, least) if count == job.iterations else None
    rivals = [*known, *_other_finalists(job, cluster, profile, seed, walk, leader)]
    flows = (1 + len(rivals)) * len(job.edges) * job.iterations
    if count < job.iterations and flows <= _WHOLE_RUNS:
        judge = Candidates(Space(job, cluster), reference, rates, cost)
        least = _judge(judge, outcome.placement)
    # In this order: of equally short ones that of the search stays.
    best = _best_of(outcome.placement, least, rivals, judge)
    if best == outcome.placement:
        return outcome
    # Judged by the search's iterations, as its other figures are.
    return replace(outcome, placement=best, makespan=_judge(short_runs, best))


def _count_iterations(job: Job, rates: str, wanted: int, *, fits: bool) -> int:
    """Return how many iterations of the run each candidate is simulated for.

    ``fits``: fewer than wanted where so many leave too few candidates.
    """
    if slot_teams(job):
        return job.iterations
    count = min(wanted, job.iterations)
    if fits:
        most = affordable(job, rates, iterations=1) // _LEAST
        count = min(count, max(most, _SHORTEST))
    return count


def _search_run(
    job: Job,
    cluster: Cluster,
    run: Realization,
    seed: int,
    options: SearchOptions,
    known: Sequence[Placement],
    progress: Progress | None,
) -> PlacementResult:
    """Return what `search_run` finds, or has found before."""
    search = Search(
        name="best",
        job=job,
        cluster=cluster,
        run=run,
        seed=seed,
        options=options,
        known=tuple(known),
    )
    return search.result(
        lambda: search_run(
            job,
            cluster,
            run,
            seed=seed,
            options=options,
            progress=progress,
            known=known,
        )
    )


@dataclass(frozen=True, eq=False)
class _Leader:
    """A placement that finalists are held against; called, as `Hopeless`."""

    judge: Candidates
    seconds: float

    def __call__(self, settled: Ints, best: Ints) -> bool:
        """Return True where a walk ends with no placement as short.

        Of 64 machines of DGTP's testbed the walk begins with 24 s, where the search has
        found 2.2 s: no six moves clear the busiest port.
        """
        wins_never = cannot_beat(self.judge, settled, self.seconds)
        return wins_never and cannot_beat(self.judge, best, self.seconds)


def _search_etp(
    job: Job,
    cluster: Cluster,
    profile: Profile,
    seed: int,
    options: EtpOptions,
    progress: Progress | None = None,
    leader: _Leader | None = None,
) -> PlacementResult:
    """Return what `search_etp` finds, or has found before."""
    search = Search(
        name="etp",
        job=job,
        cluster=cluster,
        run=profile,
        seed=seed,
        options=options,
        limit=math.inf if leader is None else leader.seconds,
    )
    return search.result(
        lambda: search_etp(
            job,
            cluster,
            profile,
            seed=seed,
            options=options,
            progress=progress,
            hopeless=leader,
        )
    )


def _other_finalists(
    job: Job,
    cluster: Cluster,
    profile: Profile,
    seed: int,
    walk: EtpOptions,
    leader: _Leader | None,
) -> list[Placement]:
    """Return the placements of ETP, IFS and DistDGL, where there are any.

    Where ETP cannot beat the ``leader``, what it has met so far: that loses as well.
    """
    finalists = []
    with suppress(PlacementError):  # its first placement waits for slots forever
        # Where it may hang, whether it does decides on IFS as well.
        may_hang = _may_hang(job, cluster, walk.policy)
        held_against = None if may_hang else leader
        result = _search_etp(job, cluster, profile, seed, walk, leader=held_against)
        finalists += [result.placement, place_ifs(job, cluster, walk_generator(seed))]
    with suppress(PlacementError):  # no workers with samplers
        finalists.append(place_distdgl(job, cluster))
    return finalists


def _best_of(
    first: Placement, least: float, rivals: Iterable[Placement], judge: Candidates
) -> Placement:
    """Return the first of the shortest; ``first`` takes ``least`` seconds."""
    best = first
    for rival in dict.fromkeys(rivals):
        if rival == first:
            continue
        length = _judge(judge, rival, least)
        if length < least:
            best = rival
            least = length
    return best


def _only(
    job: Job, cluster: Cluster, run: Realization, policy: str, iterations: int
) -> PlacementResult:
    """Return the one placement of a job whose tasks are all pinned.

    ``run``: of as many ``iterations``, which tell its makespan.

    A search asks what every task takes on every machine: of 3,000 lambdas 2 GB.
    """
    space = Space(job, cluster, apart=True)
    if fill(space, [*range(len(cluster.machines))]) is None:
        raise infeasibility(space)
    placement = space.placement([0] * len(space.units))  # gates, which stand nowhere
    missing = placement.missing_routes(job, cluster)
    if missing:
        raise InfeasiblePlacement("; ".join(missing[:4]), key="cluster.routes")
    if placement.violations(job, cluster):
        raise endless(cluster, policy)

    return PlacementResult(
        placement=placement,
        policy="best",
        candidates=1,
        iterations=iterations,
        optimal=True,
        simulated=partial(
            _simulate_only, job, cluster, run, policy, placement, iterations
        ),
    )


def _simulate_only(
    job: Job,
    cluster: Cluster,
    run: Realization,
    policy: str,
    placement: Placement,
    iterations: int,
) -> float:
    """Return the makespan; raises InfeasiblePlacement where the job ends nowhere."""
    short = replace(job, iterations=iterations)
    problem = Problem(cluster, short, placement)
    try:
        return makespan(problem, problem.stretch(run), policy)
    except SchedulingError:
        raise endless(cluster, policy) from None


def _may_hang(job: Job, cluster: Cluster, policy: str) -> bool:
    """Return True where only a simulation tells whether a job ends.

    Tasks keep slots beyond their ends, machines tune how many there are, a link carries
    nothing any more, or the rule is one's own.
    """
    for task in job.tasks:
        if task.gives_back != task.takes:
            return True
    if cluster.tuners or cluster.links.steps.cut_for_good:
        return True
    return policy_named(policy).rates is not None


def _judge(arrays: Candidates, placement: Placement, limit: float = math.inf) -> float:
    """Return the seconds of a run; infinity beyond the limit, or where tasks hang."""
    machine_of = np.array(placement.machine_of, np.int64)
    return placement_cost(arrays, machine_of, limit)


SEARCHES = frozenset({"etp", "best"})


def _check_policy(name: str, profile: Profile | None) -> None:
    """Raise ValueError where there is no such policy, or it lacks a profile."""
    if name not in PLACEMENT_POLICIES:
        policies = ", ".join(PLACEMENT_POLICIES)
        raise ValueError(f"no placement policy is called {name}; there are {policies}")
    if name in SEARCHES and profile is None:
        raise ValueError(f"placement policy {name} needs a profile")


def place(
    name: str,
    /,
    job: Job,
    cluster: Cluster,
    *,
    profile: Profile | None = None,
    seed: int = 0,
    tasks: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> PlacementResult:
    """Return a placement of ``job`` on ``cluster`` by one of `PLACEMENT_POLICIES`.

    Parameters
    ----------
    name
        Name of the placement policy; by position, since ``policy`` is an option.
    profile
        Reference times, and volumes, to judge placements by. ``etp`` and ``best`` need
        one: ``best`` takes its iterations in order, ``etp`` draws from it; the others
        are simulated once when there is one, with the draws of ``etp``.
    options
        Fields of `EtpOptions` for ``etp``, parameters of `best_placement` for ``best``;
        the others take ``iterations`` and ``policy``, the rate policy, of their one
        simulation.

    Raises
    ------
    InfeasiblePlacement
        When no placement exists, or the explicit one breaks a capacity.
    PlacementError
        When the policy cannot place this job.
    ValueError
        When there is no such policy, it lacks a profile, or an option is out of range.
    TypeError
        When the policy has no such option.
    """
    _check_policy(name, profile)
    if name == "best" and profile is not None:
        run = repeat_profile(job, profile)
        return best_placement(
            job,
            cluster,
            run,
            seed=seed,
            progress=progress,
            **options,
        )

    def place_by_policy() -> PlacementResult:
        if name == "etp" and profile is not None:
            walk = EtpOptions(**options)
            return _search_etp(job, cluster, profile, seed, walk, progress)
        unknown = options.keys() - {"iterations", "policy"}
        if unknown:
            raise TypeError(f"placement policy {name} has no option {min(unknown)}")
        placement = _placement_by_rule(name, job, cluster, seed, tasks or {})
        return _with_makespan(name, job, cluster, placement, profile, seed, **options)

    if name == "explicit" or not slot_teams(job):
        return place_by_policy()
    options["iterations"] = job.iterations  # an endless wait shows at the end
    run = repeat_profile(job, profile)
    rates = options.get("policy", SearchOptions.policy)
    with suppress(InfeasiblePlacement, SchedulingError):
        outcome = place_by_policy()
        arrays = Candidates(Space(job, cluster), run, rates)
        if _judge(arrays, outcome.placement) < math.inf:
            return outcome
    return replace(best_placement(job, cluster, run, rates, seed=seed), policy=name)


def repeat_profile(job: Job, profile: Profile | None) -> Realization:
    """Return the profiled iterations in order, over and over.

    Without a profile every task takes 1 s and nothing is sent.
    """
    if profile is None:
        seconds = np.ones((len(job.tasks), 1))
        nothing = np.zeros((len(job.edges), 1))
        profile = Profile(times=seconds, volumes=nothing)
    columns = np.arange(job.iterations) % profile.times.shape[1]
    return Realization(profile.times[:, columns], profile.volumes[:, columns])


def _placement_by_rule(
    name: str,
    job: Job,
    cluster: Cluster,
    seed: int,
    tasks: Mapping[str, str],
) -> Placement:
    """Return the placement of a policy that is no search."""
    match name:
        case "explicit":
            return place_explicit(job, cluster, tasks)
        case "ifs":
            return place_ifs(job, cluster, walk_generator(seed))
        case "random":
            return place_random(job, cluster, walk_generator(seed))
        case "distdgl":
            return place_distdgl(job, cluster)
        case _:
            return place_round_robin(job, cluster)


def _with_makespan(
    name: str,
    job: Job,
    cluster: Cluster,
    placement: Placement,
    profile: Profile | None,
    seed: int,
    *,
    iterations: int = SearchOptions.iterations,
    policy: str = SearchOptions.policy,
) -> PlacementResult:
    """Return a placement, simulated once where there is a profile."""
    if profile is None:
        return PlacementResult(placement, name)
    job = replace(job, iterations=iterations)
    problem = Problem(cluster, job, placement)
    draws = problem.stretch(common_draws(profile, seed, iterations))
    took = math.inf  # where tasks wait for each other's slots
    with suppress(SchedulingError):
        took = makespan(problem, draws, policy)
    return PlacementResult(placement, name, makespan=took, evaluations=1)
