"""One way in to all placement policies, for the command line and scenarios."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from emu.placement.baselines import place_explicit, place_random, place_round_robin
from emu.placement.common_random_numbers import common_draws, walk_generator
from emu.placement.distdgl import place_distdgl
from emu.placement.etp import EtpOptions, search_etp
from emu.placement.ifs import place_ifs
from emu.placement.placement_result import PlacementResult
from emu.placement.search import SearchOptions, search
from emu.problem import Problem
from emu.simulation import makespan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emu.problem import Cluster, Job, Placement, Profile


class PlacementPolicy(NamedTuple):
    """One placement policy."""

    summary: str
    """What it does, in one line."""
    source: str
    """Who says so."""
    knows: str = "nothing"
    """What it has to know, besides demands and capacities."""


_JUDGED = "expected times and volumes: what it tries is simulated"

#: What ``placement.policy`` may say.
PLACEMENT_POLICIES: Mapping[str, PlacementPolicy] = {
    "explicit": PlacementPolicy("as the scenario spells it out", "the user"),
    "ifs": PlacementPolicy(
        "a feasible placement, by a dynamic program over counts of like tasks",
        "DGTP (INFOCOM 2022), Algorithm 2",
    ),
    "etp": PlacementPolicy(
        "a random walk from that of ifs, which favours shorter makespans",
        "DGTP (INFOCOM 2022), Algorithm 3",
        _JUDGED,
    ),
    "best": PlacementPolicy(
        "all placements where they are few, else annealing from many starts",
        "this project",
        _JUDGED,
    ),
    "distdgl": PlacementPolicy(
        "as many samplers as possible beside their worker",
        "DistDGL (IA3 2020) as DGTP section VI-A runs it",
        "who sends to whom",
    ),
    "random": PlacementPolicy("any feasible placement, drawn at random", "baseline"),
    "round_robin": PlacementPolicy("one machine after the other", "baseline"),
}
SEARCHES = frozenset({"etp", "best"})


def place(
    name: str,
    /,
    job: Job,
    cluster: Cluster,
    *,
    profile: Profile | None = None,
    seed: int = 0,
    tasks: Mapping[str, str] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    **options: Any,
) -> PlacementResult:
    """Return a placement of ``job`` on ``cluster`` by one of `PLACEMENT_POLICIES`.

    Parameters
    ----------
    name
        Of the placement policy; by position, since ``policy`` is an option.
    profile
        Reference times, and volumes, to judge placements by. ``etp`` and ``best`` need
        one; the others are simulated once when there is one, with the same draws, so
        that the makespans of all policies compare.
    seed
        Of all that is drawn.
    tasks
        Machine name per task or process, for ``explicit``.
    progress
        Called by searches with (candidates so far, in all, best makespan).
    options
        Fields of `EtpOptions` for ``etp``, of `SearchOptions` for ``best``; the others
        take ``iterations`` and ``policy``, the rate policy, of their one simulation.

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
    if name not in PLACEMENT_POLICIES:
        raise ValueError(
            f"no placement policy is called {name}; "
            f"there are {', '.join(PLACEMENT_POLICIES)}"
        )
    if name in SEARCHES and profile is None:
        raise ValueError(f"placement policy {name} needs a profile")
    if name in SEARCHES and profile is not None:
        return _searched(name, job, cluster, profile, seed, progress, options)
    iterations = options.pop("iterations", SearchOptions.iterations)
    rates = options.pop("policy", SearchOptions.policy)
    if options:
        raise TypeError(f"placement policy {name} has no option {min(options)}")
    placement = _simple(name, job, cluster, seed, tasks)
    if profile is None:
        return PlacementResult(placement, name)
    job = replace(job, iterations=iterations)
    problem = Problem(cluster, job, placement)
    taken = problem.taken(common_draws(profile, seed, iterations))
    simulated = makespan(problem, taken, rates)
    return PlacementResult(placement, name, makespan=simulated, evaluations=1)


def _searched(
    name: str,
    job: Job,
    cluster: Cluster,
    profile: Profile,
    seed: int,
    progress: Callable[[int, int, float], None] | None,
    options: dict[str, Any],
) -> PlacementResult:
    if name == "etp":
        etp = EtpOptions(**options)
        return search_etp(
            job, cluster, profile, seed=seed, options=etp, progress=progress
        )
    best = SearchOptions(**options)
    return search(job, cluster, profile, seed=seed, options=best, progress=progress)


def _simple(
    name: str,
    job: Job,
    cluster: Cluster,
    seed: int,
    tasks: Mapping[str, str] | None,
) -> Placement:
    if name == "explicit":
        return place_explicit(job, cluster, tasks or {})
    if name == "ifs":
        return place_ifs(job, cluster, walk_generator(seed))
    if name == "random":
        return place_random(job, cluster, walk_generator(seed))
    if name == "distdgl":
        return place_distdgl(job, cluster)
    return place_round_robin(job, cluster)
