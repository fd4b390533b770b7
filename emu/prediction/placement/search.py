"""A better search than the paper's: exhaustive where possible, else annealing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import InfeasiblePlacement, PlacementError
from emu.prediction.core import lib, pointer
from emu.prediction.placement.baselines import deal_out, draw_machines, fill
from emu.prediction.placement.candidates import (
    Candidates,
    JobsCost,
    candidates,
    common_draws,
    expand,
    placement_cost,
    walk_generator,
)
from emu.prediction.placement.distdgl import place_distdgl
from emu.prediction.placement.etp import (
    REMEMBERED,
    STRIDE,
    Chain,
    new_chain,
)
from emu.prediction.placement.moves import (
    Symmetry,
    TeamArrays,
    find_symmetry,
    team_arrays,
)
from emu.prediction.placement.packing import infeasibility
from emu.prediction.placement.space import PlacementResult, Space
from emu.prediction.scheduling.compiled_problem import Floats, Ints
from emu.problem import Cluster, Job, Placement, Profile, Realization


def sketch(
    c: Candidates,
    symmetry: Symmetry,
    teams: TeamArrays,
    state: NDArray[np.uint64],
    machines: Ints,
    temperatures: Floats,
) -> Ints:
    """Return the result of annealing a feasible placement under `estimate` alone.

    Parameters
    ----------
    state
        State of the random numbers, carried on in place.
    temperatures
        One per proposal, as parts of the first estimate.
    """
    best = machines.copy()
    lib.sketch(
        c.core, symmetry.core, teams.core, pointer(state),
        pointer(temperatures), len(temperatures), pointer(best),
    )  # fmt: skip
    return best


class Listing(NamedTuple):
    """Feasible placements up to symmetry, by ascending lower bound."""

    machines: NDArray[np.int16]
    """Shape (placements, units)."""
    bound: Floats
    """Seconds, shape (placements,)."""


def endless(cluster: Cluster) -> str:
    """Return the error of a job that ends nowhere."""
    steps = cluster.links.steps
    cut = [cluster.links[port].name for port in steps.cut_for_good]
    if cut:
        return (
            f"no placement was found with which the job ends: {', '.join(cut[:4])} "
            "carries nothing any more, write for how long it is cut (events, for)"
        )
    return (
        "no placement was found in which every task gets its slots: somewhere more are "
        "taken than given back, or tasks wait for each other's"
    )


HOT, COLD = 0.02, 0.0002  # temperatures of a round, as part of the best makespan
IFS_STARTS = 4
#: Proposals that a round takes at least. With 300 in place of the 40 to 150 of four
#: rounds, 84 % and not 80 % of 45 drawn jobs of 35 to 100 tasks came within 2 % of what
#: ten budgets find, the mean loss was 0.9 and not 1.3 %: a chain needs time to cool.
ROUND = 240
#: Proposals and temperatures of a sketch, as parts of its first estimate.
SKETCH = 0.1, 0.0005, 2_000
# What listing a space may cost: placements (2 MB for 20 units), and steps of 0.1 us. On
# workload A, 4^19 placements, giving up costs 0.1 s.
LISTED = 50_000
LISTING_STEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The settings of the improved search.

    Raises
    ------
    ValueError
        When a number is out of range.
    """

    transfers: int = 10_000
    """Candidates in all."""
    iterations: int = 20
    """Training iterations that are simulated for a makespan."""
    rounds: int = 4
    """Times at most that annealing begins anew, hot: from the best placement so far and
    from one that a random one is sketched into by turns."""
    sketches: int = 24
    """Placements that annealing under an estimate leads to, before any simulation."""
    exhaustive: bool = True
    """True where a space that can be listed is searched by ascending lower bound, which
    ends with a proof."""
    policy: str = "oes"
    """Rate policy of the simulation."""
    cost: JobsCost | None = None
    """Cost of several jobs to minimise, in place of the makespan."""

    def __post_init__(self) -> None:
        for name, least in (
            ("transfers", 1),
            ("iterations", 1),
            ("rounds", 1),
            ("sketches", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be {least} or more")


def search(
    job: Job,
    cluster: Cluster,
    profile: Profile,
    *,
    seed: int = 0,
    options: SearchOptions | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> PlacementResult:
    """Return the best feasible placement found within a number of candidates.

    Beyond ETP: it begins with the best of several simple placements and of what an
    estimate makes of them, asks that estimate before it simulates, stays feasible,
    moves tasks, swaps them, moves and swaps workers together with their samplers and
    deals two machines out anew, looks at one of several placements that differ by
    interchangeable tasks only, and cools down, in several rounds. A space that is small
    enough is listed and simulated in the order of its lower bounds; the first bound
    that is no better than the best makespan ends the search with a proof.

    Parameters
    ----------
    profile, seed, progress
        As for `search_etp`; the simulated iterations are the same draws for the same
        seed.

    Raises
    ------
    InfeasiblePlacement
        When no placement exists.
    ValueError
        When the profile does not fit the job or there is no such rate policy.
    """
    options = options or SearchOptions()
    job = replace(job, iterations=options.iterations)
    draws = common_draws(profile, seed, options.iterations)
    return search_run(
        job, cluster, draws, seed=seed, options=options, progress=progress
    )


def search_run(
    job: Job,
    cluster: Cluster,
    drawn: Realization,
    *,
    seed: int,
    options: SearchOptions,
    progress: Callable[[int, int, float], None] | None = None,
    known: Iterable[Placement] = (),
) -> PlacementResult:
    """Return the result of `search` for one run of ``job``, with reference times.

    Parameters
    ----------
    known
        Placements to begin with, if one of them is the best of the simple ones.

    Raises
    ------
    InfeasiblePlacement
        When no placement exists.
    ValueError
        When the realization does not fit the job or there is no such rate policy.
    """
    # Apart first: where a pool is unlimited, who shares it need not stand together.
    run = _Run(Space(job, cluster, apart=True), drawn, options, walk_generator(seed))
    run.begin(known)
    listing = run.listing()
    if listing is not None:
        run.exhaust(listing)
    if not (run.optimal or (run.best < np.inf and listing is not None)):
        # Too many to list, or none ends: where processes share slots, the walk is over
        # teams of them, since most moves of one alone leave a pool in debt.
        together = Space(job, cluster)
        order = list(range(len(together.free)))
        if (
            len(together.units) < len(run.space.units)
            and fill(together, order) is not None
        ):
            run = _Run(together, drawn, options, walk_generator(seed))
            run.begin(known)
        run.anneal(progress)
    if progress is not None:
        progress(int(run.chain.tally[lib.PROPOSED]), options.transfers, run.best)
    if run.best == np.inf:
        raise InfeasiblePlacement(endless(cluster))
    return run.result()


class _Run:
    """One search: the chain that it carries on, and what it has found."""

    def __init__(
        self,
        space: Space,
        drawn: Realization,
        options: SearchOptions,
        rng: np.random.Generator,
    ) -> None:
        self.space, self.drawn = space, drawn
        self.options, self.rng = options, rng
        self.arrays: Candidates = candidates(
            self.space, drawn, options.policy, options.cost
        )
        self.symmetry: Symmetry = find_symmetry(self.space, drawn)
        self.history: list[tuple[int, float]] = []
        self.optimal = False
        self.teams = team_arrays(space)
        self.state = rng.integers(2**64, size=1, dtype=np.uint64)

    def begin(self, known: Iterable[Placement]) -> None:
        """Start from the best of simple, ``known`` and sketched placements."""
        memory = min(self.options.transfers, REMEMBERED)
        space, rng, starts = self.space, self.rng, []
        for _ in range(IFS_STARTS):
            machines = fill(space, rng.permutation(len(space.free)).tolist())
            if machines is None:
                raise infeasibility(space)
            starts.append(machines)
        starts.append(deal_out(space))
        try:
            starts.append(space.machines(place_distdgl(space.job, space.cluster)))
        except PlacementError:  # not a job of workers with samplers
            starts.append(draw_machines(space, rng))
        starts += [space.machines(one) for one in known]
        # Each is simulated in the end: a quarter of the candidates at most.
        count = min(self.options.sketches, self.options.transfers // 4)
        starts += [
            self._anneal_by_estimate(starts[k % len(starts)]) for k in range(count)
        ]
        chains = [new_chain(self.arrays, machines, memory) for machines in starts]
        self.chain: Chain = min(chains, key=lambda chain: float(chain.cost[0]))
        self.chain.tally[lib.PROPOSED] = self.chain.tally[lib.SIMULATED] = len(starts)
        self.start = self.best
        self.history.append((len(starts), self.best))

    @property
    def best(self) -> float:
        """Makespan of the best placement so far."""
        return float(self.chain.cost[1])

    def listing(self) -> Listing | None:
        """Return all placements up to symmetry, None where they are too many."""
        if not self.options.exhaustive or not self.space.units:
            return None
        placements = np.empty((LISTED, len(self.space.units)), np.int16)
        bound = np.empty(LISTED)
        count = lib.list_all(
            self.arrays.core, self.symmetry.core, LISTED, LISTING_STEPS,
            pointer(placements), pointer(bound),
        )  # fmt: skip
        if count < 0:
            return None
        order = np.argsort(bound[:count], kind="stable")
        return Listing(placements[:count][order], bound[:count][order])

    def exhaust(self, listing: Listing) -> None:
        """Simulate by ascending bound until no bound is better than the best."""
        c, chain = self.arrays, self.chain
        for machines, bound in zip(listing.machines, listing.bound, strict=True):
            if bound >= self.best:  # nor is any behind it, by ascending bound, better
                self.optimal = True
                return
            if chain.tally[lib.PROPOSED] >= self.options.transfers:
                return
            chain.tally[lib.PROPOSED] += 1
            chain.tally[lib.SIMULATED] += 1
            units = machines.astype(np.int64)
            makespan = placement_cost(c, expand(c.units, units), self.best)
            if makespan < self.best:
                chain.cost[:] = makespan
                chain.best_machines[:] = units
                self.history.append((int(chain.tally[lib.PROPOSED]), self.best))
        self.optimal = True

    def anneal(self, progress: Callable[[int, int, float], None] | None) -> None:
        """Cool down once per round."""
        if not self.space.units:
            return
        budget = self.options.transfers - int(self.chain.tally[lib.PROPOSED])
        rounds = min(self.options.rounds, max(budget // ROUND, 1))
        for part in range(rounds):
            budget = self.options.transfers - int(self.chain.tally[lib.PROPOSED])
            # Rounded down: what is left over goes to the rounds that follow.
            steps = max(budget, 0) // (rounds - part)
            if part % 2:  # the chain begins anew, the best placement stays noted
                drawn = draw_machines(self.space, self.rng)
                fresh = new_chain(self.arrays, self._anneal_by_estimate(drawn), 0)
                self.chain.machines[:] = fresh.machines
                self.chain.cost[0] = fresh.cost[0]
            temperatures = self.best * np.geomspace(HOT, COLD, max(steps, 1))[:steps]
            best = np.empty(steps)
            before = int(self.chain.tally[lib.PROPOSED])
            for first in range(0, steps, STRIDE):
                some = slice(first, first + STRIDE)
                lib.anneal(
                    self.arrays.core,
                    self.symmetry.core,
                    self.teams.core,
                    pointer(self.state),
                    self.chain.core,
                    pointer(temperatures[some]),
                    len(temperatures[some]),
                    pointer(best[some]),
                )
                self.arrays.arrays.check()
                if progress is not None:
                    count = int(self.chain.tally[lib.PROPOSED])
                    progress(count, self.options.transfers, self.best)
            for step in np.nonzero(np.diff(best, prepend=self.history[-1][1]) < 0)[0]:
                self.history.append((before + int(step) + 1, float(best[step])))

    def _anneal_by_estimate(self, machines: Ints) -> Ints:
        """Return the result of annealing a placement under an estimate."""
        if not self.space.units:
            return machines
        temperatures = np.geomspace(*SKETCH)
        arrays, symmetry, teams = self.arrays, self.symmetry, self.teams
        return sketch(arrays, symmetry, teams, self.state, machines, temperatures)

    def result(self) -> PlacementResult:
        """Return the result of the search."""
        count = self.chain.tally
        return PlacementResult(
            placement=self.space.placement(self.chain.best_machines),
            policy="best",
            makespan=self.best,
            start_makespan=self.start,
            candidates=int(count[lib.PROPOSED]),
            budget=self.options.transfers,
            accepted=int(count[lib.ACCEPTED]),
            evaluations=int(count[lib.SIMULATED]),
            iterations=self.options.iterations,
            history=tuple(self.history),
            optimal=self.optimal,
        )
